"""The learning step as the server sees it: one at a time, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from ...errors import UserError
from .job import version_of
from .schemas import JobInfo
from .staging import Batch, Staging


class LearningJob:
    """Starts the process, listens to it, and tidies up after it."""

    def __init__(self, path: Path, staging: Staging, finished: Callable[[], None]) -> None:
        """finished: called in a thread after each step that made a new version."""
        self.path, self.staging, self.finished = path, staging, finished
        self._mutex = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self._info = JobInfo()
        self._started = self._phase = 0.0

    def info(self) -> JobInfo:
        """How far it is. The time left is that of the present part of the work."""
        with self._mutex:
            info = self._info.model_copy()
            if info.state == "running":
                now = time.monotonic()
                info.seconds = round(now - self._started, 1)
                if 0 < info.done < info.total:
                    info.seconds_left = round((now - self._phase) * (info.total / info.done - 1), 1)
            return info

    @property
    def running(self) -> bool:
        return self._info.state == "running"

    def start(self) -> JobInfo:
        """With everything that waits."""
        with self._mutex:
            if self.running:
                raise HTTPException(409, "A learning step is running already: wait for it, or stop it.")
            if not self.staging.all():
                raise HTTPException(409, "No photographs wait: add some to a class first.")
            batch = self.staging.begin()
            command = [sys.executable, "-m", f"{__package__}.job", str(self.path)]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8")
            self._started = self._phase = time.monotonic()
            self._info = JobInfo(state="running", what="starting", total=len(batch.photographs))
            self._listener = threading.Thread(target=self._listen, args=(self._process, batch), daemon=True)
            self._listener.start()
        return self.info()

    def stop(self) -> None:
        """Ends the process, if one runs: the model stays as it was and the photographs still wait."""
        with self._mutex:  # both, or none
            process, listener = self._process, self._listener
        if process is not None and listener is not None:
            process.kill()
            listener.join()

    def _listen(self, process: subprocess.Popen[str], batch: Batch) -> None:
        error = None
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                event = _event(line)
                error = event.get("error", error)
                if "what" in event:
                    self._progress(event)
        code = process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self._end(batch, error or _ending(code))

    def _progress(self, event: dict[str, Any]) -> None:
        with self._mutex:
            if event["what"] != self._info.what:
                self._phase = time.monotonic()
            self._info = JobInfo(state="running", what=event["what"], done=event["done"], total=event["total"])

    def _end(self, batch: Batch, error: str) -> None:
        """error: why there is no new version, if there is none. The folder tells whether there is one: a process may be
        stopped right after its commit."""
        version = None
        try:
            version = version_of(self.path, batch)
            if version is not None:
                self.finished()
            self.staging.end(batch, learned=version is not None)
            problem = error if version is None else None
        except (OSError, UserError) as failure:  # what follows has to happen: else nothing could be learned any more
            problem = f"The learning step ended, but its files cannot be read or written: {failure}."
        with self._mutex:
            self._info = JobInfo(
                state="done" if problem is None else "failed",
                error=problem,
                version=version,
                seconds=round(time.monotonic() - self._started, 1),
            )
            self._process = self._listener = None


def _event(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _ending(code: int) -> str:
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"The learning process {how}. The model is as it was, and the photographs still wait."
