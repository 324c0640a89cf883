"""The classifier for photographs: feature extraction relative to the bare network, learning, prediction, size on disk.

Photographs are synthetic (see large_images); classes differ in their colours.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from cscct import IncrementalClassifier
from cscct.classifier.store import ModelFolder
from large_images import photographs
from parts import Size

BATCH = 32


def labelled(folder: Path, classes: int, each: int) -> tuple[list[Path], list[str]]:
    paths = photographs(folder, 300, 240, classes * each)
    return paths, [f"class {number % classes}" for number in range(len(paths))]


def seconds_of(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def bare_network(model: IncrementalClassifier, count: int) -> Callable[[], None]:
    """Return images per second of the network alone on decoded images."""
    reader = model.reader_
    side = reader.format.transform.size or 224
    images = torch.rand(BATCH, 3, side, side).contiguous(memory_format=torch.channels_last)

    def run() -> None:
        with torch.inference_mode():
            for _ in range(count // BATCH):
                reader.inference(images)

    return run


def measure(size: Size, say: Callable[[str], None]) -> dict[str, float]:
    known, new, each, rounds = (2, 1, 4, 1) if size.tiny else (15, 5, 55, 3)
    results: dict[str, float] = {}
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        paths, labels = labelled(folder / "images", known + new, each)
        old = [index for index, label in enumerate(labels) if int(label.split()[1]) < known]
        rest = sorted(set(range(len(paths))) - set(old))
        model = IncrementalClassifier()
        model.learn([paths[i] for i in old], [labels[i] for i in old])

        count = max(BATCH, len(rest) // BATCH * BATCH)
        some = (paths * BATCH)[:count]
        bare = bare_network(model, count)
        turns = [(seconds_of(bare), seconds_of(lambda: model.features(some))) for _ in range(rounds)]
        results["bare network, images/s"] = count / min(seconds for seconds, _ in turns)
        results["features, images/s"] = count / min(other for _, other in turns)

        results["learning, s"] = seconds_of(lambda: model.learn([paths[i] for i in rest], [labels[i] for i in rest]))
        model.save(folder / "model")
        files = [path for path in (folder / "model").rglob("*") if path.is_file()]
        results["model on disk, MB"] = sum(path.stat().st_size for path in files) / 1e6
        command = [sys.executable, "-m", "cscct", "predict", str(folder / "model"), str(paths[0])]
        results["predict, a process, s"] = min(
            seconds_of(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(rounds)
        )
        model = ModelFolder(folder / "model").load()
        results["predict, loaded, ms"] = 1000 * min(seconds_of(lambda: model.predict(paths[0])) for _ in range(10))
        if not size.tiny:
            tuned = IncrementalClassifier()
            tuned.learn([paths[i] for i in old], [labels[i] for i in old])
            tuned.set_params(method="lucir+cscct")
            results["learning with fine-tuning, s"] = seconds_of(
                lambda: tuned.learn([paths[i] for i in rest], [labels[i] for i in rest])
            )
    for name, value in results.items():
        say(f"{name}: {value:.3g}")
    return results


def ratios(results: dict[str, float]) -> dict[str, float]:
    return {
        "classifier: features / bare network": results["features, images/s"] / results["bare network, images/s"],
        **{f"classifier: {name}": value for name, value in results.items() if "images/s" not in name},
    }
