"""Learning step in a subprocess: `python -m cscct.classifier.serve.job MODEL_DIR`, started by the server.

The process writes progress and errors to standard output, one JSON object per line. It exits when the server exits: the
model then does not change and the photos stay staged.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from ...data.inputs import InputProblem
from ...data.registry import Progress
from ...errors import RunFailed, UserError
from ...jsontext import to_json
from ..folder import learn_images
from ..versions import StoredVersions, is_model_folder
from .staging import StagedBatch, read_batch

STAGING = "staging"


def learn_batch(path: Path, batch: StagedBatch, progress: Progress) -> int:
    """Learn staged photos and commit the new version.

    Args:
        path: Path of the model folder.
        batch: The staged photos.
        progress: Called with the phase, the number of processed items and the total.

    Returns:
        The number of the new version.
    """
    images = [path / STAGING / f"{photo.id}.image" for photo in batch.photographs]
    result = learn_images(
        path,
        images,
        [photo.label for photo in batch.photographs],
        message=message_of(batch),
        always_commit=True,  # the message tells the server that the batch is done
        progress=progress,
        rename_problem=lambda problem: _renamed(problem, path / STAGING, batch),
    )
    return result.version


def _with_filenames(text: str, folder: Path, batch: StagedBatch) -> str:
    """Return a message with the clients' file names instead of the staged paths."""
    names = {photo.id: photo.filename for photo in batch.photographs}
    staged_path = re.compile(re.escape(str(folder)) + r"[/\\]([0-9a-f]+)\.image")
    return staged_path.sub(lambda match: names.get(match[1], match[1]), text)


def _renamed(problem: InputProblem, folder: Path, batch: StagedBatch) -> InputProblem:
    path, text = (_with_filenames(text, folder, batch) for text in (problem.path, problem.text))
    return replace(problem, path=path, text=text)


def message_of(batch: StagedBatch) -> str:
    """Return the version message of a batch: its classes, photo counts and tag."""
    counts = Counter(photo.label for photo in batch.photographs)
    parts = [f"{label} ({count})" for label, count in list(counts.items())[:5]]
    more = f" and {len(counts) - 5} more classes" if len(counts) > 5 else ""
    return f"web UI: {', '.join(parts)}{more} {batch.tag}"


def version_of(path: Path, batch: StagedBatch) -> int | None:
    """Return the number of the version that learned a batch, or None if there is none."""
    versions = StoredVersions(path).versions() if is_model_folder(path) else []
    return next((version.number for version in versions if batch.tag in version.message), None)


def _exit_with_server() -> None:
    """Exit when the server exits. Standard input is a pipe from the server, closed even if the server is killed."""
    os.read(sys.stdin.fileno(), 1)  # unbuffered: a buffered read would hold a lock when this process exits
    os._exit(1)


def main(path: Path, out: TextIO) -> int:
    """Run the learning step of the begun batch.

    Args:
        path: Path of the model folder.
        out: Stream for the events.

    Returns:
        The exit code.
    """
    threading.Thread(target=_exit_with_server, daemon=True).start()
    last = 0.0

    def send(**event: Any) -> None:
        print(to_json(event), file=out, flush=True)

    def progress(what: str, done: int, total: int) -> None:
        nonlocal last
        if done >= total or time.monotonic() - last > 0.1:
            last = time.monotonic()
            send(what=what, done=done, total=total)

    batch = read_batch(path / STAGING)
    try:
        learn_batch(path, batch, progress)
    except (UserError, RunFailed) as error:
        send(error=_with_filenames(str(error), path / STAGING, batch))
        return 2
    except Exception as error:
        traceback.print_exc()
        send(error=f"Unexpected error ({type(error).__name__}: {error}). See the log of the server for details.")
        return 1
    return 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module=r"PIL\.")  # as in the server
    stream, sys.stdout = sys.stdout, sys.stderr  # library output must not mix with the events
    sys.exit(main(Path(sys.argv[1]), stream))
