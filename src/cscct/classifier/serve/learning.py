"""Management of the learning subprocess. At most one learning step runs at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from starlette.exceptions import HTTPException

from ...errors import UserError
from .job import version_of
from .schemas import JobInfo
from .staging import StagedBatch, Staging


class LearningJob:
    """The learning subprocess of a server.

    Args:
        path: Path of the model folder.
        staging: Staged photos of the model.
        finished: Called in a background thread after each learning step that stored a new version.
    """

    def __init__(self, path: Path, staging: Staging, finished: Callable[[], None]) -> None:
        self.path, self.staging, self.finished = path, staging, finished
        self._mutex = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self._info = JobInfo()
        self._started = self._phase = 0.0
        self._left = float("inf")  # seconds that were last reported as remaining

    def info(self) -> JobInfo:
        """Return the progress. The remaining time is that of the current phase, in which it never increases."""
        with self._mutex:
            info = self._info.model_copy()
            if info.state == "running":
                now = time.monotonic()
                info.seconds = round(now - self._started, 1)
                if 0 < info.done < info.total:
                    self._left = min(self._left, (now - self._phase) * (info.total / info.done - 1))
                    info.seconds_left = round(self._left, 1)
            return info

    @property
    def running(self) -> bool:
        """Whether a learning step is running."""
        return self._info.state == "running"

    def start(self) -> JobInfo:
        """Start learning all staged photos.

        Raises:
            HTTPException: 409 if a learning step is running or no photos are staged.
        """
        with self._mutex:
            if self.running:
                raise HTTPException(409, "A learning step is already running: wait until it is finished, or stop it.")
            if not self.staging.all():
                raise HTTPException(409, "No photos are staged: add photos of a class first.")
            batch = self.staging.begin()
            command = [sys.executable, "-m", f"{__package__}.job", str(self.path)]
            pipe, threads = subprocess.PIPE, {"OMP_NUM_THREADS": str(torch.get_num_threads())}  # as in the server
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8", env={**os.environ, **threads}
            )
            self._started = self._phase = time.monotonic()
            self._left = float("inf")
            self._info = JobInfo(state="running", what="starting", total=len(batch.photographs))
            self._listener = threading.Thread(target=self._listen, args=(self._process, batch), daemon=True)
            self._listener.start()
        return self.info()

    def stop(self) -> None:
        """Kill the running process, if any. The model does not change and the photos stay staged."""
        with self._mutex:  # read both in a consistent state
            process, listener = self._process, self._listener
        if process is not None and listener is not None:
            process.kill()
            listener.join()

    def _listen(self, process: subprocess.Popen[str], batch: StagedBatch) -> None:
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
        self._end(batch, error or _exit_reason(code))

    def _progress(self, event: dict[str, Any]) -> None:
        with self._mutex:
            if event["what"] != self._info.what:
                self._phase, self._left = time.monotonic(), float("inf")
            self._info = JobInfo(state="running", what=event["what"], done=event["done"], total=event["total"])

    def _end(self, batch: StagedBatch, error: str) -> None:
        """Finish a learning step.

        Whether it succeeded is read from the folder, because a process may be killed right after its commit.

        Args:
            batch: The photos of the step.
            error: Error message to report if no new version exists.
        """
        version = None
        try:
            version = version_of(self.path, batch)
            if version is not None:
                self.finished()
            self.staging.end(batch, learned=version is not None)
            problem = error if version is None else None
        except (OSError, UserError) as failure:  # the state must be reset, else no further step could start
            problem = f"The learning step ended, but the model folder cannot be read or written: {failure}."
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


def _exit_reason(code: int) -> str:
    reason = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    return f"The learning process {reason}. The model did not change and the photos are still staged."
