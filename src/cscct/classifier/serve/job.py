"""A learning step in a process of its own: `python -m cscct.classifier.serve.job MODEL_DIR`, started by the server.

It tells on standard output, a line of JSON each, how far it is, or why it failed. It ends when the server ends: the
model then stays as it was, and the photographs still wait.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from ...errors import RunFailed, UserError
from ..estimator import IncrementalClassifier
from ..images import Problem
from ..labels import Label
from ..store import ModelFolder, is_model_folder
from .staging import Batch, read_batch

STAGING = "staging"


def learn_batch(path: Path, batch: Batch, progress: Callable[[str, int, int], None]) -> int:
    """Learns what was staged and commits it. The number of the new version."""
    folder = ModelFolder(path)
    before = folder.current()
    model = folder.load(before) if before else IncrementalClassifier()
    known = getattr(model, "statistics_", {})
    images = [path / STAGING / f"{one.id}.image" for one in batch.photographs]
    model.learn(images, [own_label(one.label, known) for one in batch.photographs], progress=progress)
    problems = [_renamed(one, path / STAGING, batch) for one in model.report_.problems]
    model.report_ = replace(model.report_, problems=problems)
    return folder.commit(model, message_of(batch), based_on=before)


def own_label(text: str, known: Collection[Label]) -> Label:
    """A label as the model has it: the page knows only texts."""
    numbers = any(isinstance(label, int) for label in known)
    same = [label for label in known if str(label) == text]
    return same[0] if same else int(text) if numbers and text.isdecimal() else text


def _renamed(problem: Problem, folder: Path, batch: Batch) -> Problem:
    """With the names that people gave to the files."""
    names = {one.id: one.filename for one in batch.photographs}
    ours = re.compile(re.escape(str(folder)) + r"[/\\]([0-9a-f]+)\.image")

    def told(text: str) -> str:
        return ours.sub(lambda found: names.get(found[1], found[1]), text)

    return replace(problem, path=told(problem.path), text=told(problem.text))


def message_of(batch: Batch) -> str:
    """What the list of versions says of it."""
    counts = Counter(one.label for one in batch.photographs)
    parts = [f"{label} ({count})" for label, count in list(counts.items())[:5]]
    more = f" and {len(counts) - 5} more classes" if len(counts) > 5 else ""
    return f"on the page: {', '.join(parts)}{more} {batch.tag}"


def version_of(path: Path, batch: Batch) -> int | None:
    """The number of the version that came of a batch, if one did."""
    versions = ModelFolder(path).versions() if is_model_folder(path) else []
    return next((one.number for one in versions if batch.tag in one.message), None)


def _end_with_the_server() -> None:
    """Standard input is a pipe that the server holds open: it ends when the server does, however that happens."""
    os.read(sys.stdin.fileno(), 1)  # not through the buffer, whose lock would be held when this process ends
    os._exit(1)


def main(path: Path, out: TextIO) -> int:
    """The exit code. What a library prints goes to standard error, not between the lines of JSON."""
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    last = 0.0

    def tell(**event: Any) -> None:
        print(json.dumps(event), file=out, flush=True)

    def progress(what: str, done: int, total: int) -> None:
        nonlocal last
        if done >= total or time.monotonic() - last > 0.1:
            last = time.monotonic()
            tell(what=what, done=done, total=total)

    try:
        learn_batch(path, read_batch(path / STAGING), progress)
    except (UserError, RunFailed) as error:
        tell(error=str(error))
        return 2
    except Exception as error:
        traceback.print_exc()
        tell(
            error=f"Learning failed unexpectedly ({type(error).__name__}: {error}). The server's terminal has details."
        )
        return 1
    return 0


if __name__ == "__main__":
    stream, sys.stdout = sys.stdout, sys.stderr
    sys.exit(main(Path(sys.argv[1]), stream))
