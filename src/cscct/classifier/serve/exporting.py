"""Export of the model in a subprocess: `python -m cscct.classifier.serve.exporting MODEL_DIR FORMAT FILE`.

Exporting changes settings of torch that apply to the whole process, and thereby predictions that are made meanwhile. It
also takes long, and a process can be ended when the server stops.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TextIO

import torch
from starlette.exceptions import HTTPException

from ...errors import RunFailed, UserError
from ..store import ModelFolder


class Exporter:
    """Exports of the model of a server, one at a time.

    Args:
        path: Path of the model folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._one = threading.Lock()
        self._mutex = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def export(self, to: str) -> IO[bytes]:
        """Return the exported model as an open file, which needs no name any more.

        Args:
            to: The format.

        Raises:
            HTTPException: 409 if the model cannot be exported or is being exported.
        """
        if not self._one.acquire(blocking=False):
            raise HTTPException(409, "The model is already being exported: wait until it is finished.")
        try:
            with TemporaryDirectory(prefix="cscct-") as folder:
                file = Path(folder) / "model"
                problem = self._run(to, file)
                if problem is not None:
                    raise HTTPException(409, problem)
                return file.open("rb")
        finally:
            self._one.release()

    def stop(self) -> None:
        """End the running export, if any, and start no other."""
        with self._mutex:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def _run(self, to: str, file: Path) -> str | None:
        """Run the process. Returns a message if it fails."""
        command = [sys.executable, "-m", __name__, str(self.path), to, str(file)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}  # as in the server
        with self._mutex:
            if self._stopped:
                return "The server is stopping."
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment
            )
            self._process = process
        output, _ = process.communicate()
        if process.returncode == 0:
            return None
        try:
            return str(json.loads(output.splitlines()[-1])["error"])
        except (ValueError, IndexError, KeyError):
            return f"The export ended with exit code {process.returncode}."


def main(out: TextIO, path: str, to: str, file: str) -> int:
    """Export the model. Writes a message to a stream if it fails.

    Returns:
        The exit code.
    """
    try:
        ModelFolder(Path(path)).load(device="cpu").export(file, to)
    except (UserError, RunFailed, OSError) as error:
        print(json.dumps({"error": str(error)}), file=out)
        return 1
    return 0


if __name__ == "__main__":
    stream, sys.stdout = sys.stdout, sys.stderr  # library output must not mix with the message
    sys.exit(main(stream, *sys.argv[1:]))
