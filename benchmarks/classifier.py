"""The classifier for photographs: feature extraction relative to the bare network, learning, prediction, size on disk.

Photographs are synthetic (see large_images); classes differ in their colours.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from cscct import IncrementalClassifier
from cscct.classifier.store import ModelFolder
from cscct.data.inputs import ItemReader
from large_images import KINDS, photographs
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


def features_of(model: IncrementalClassifier, paths: list[Path], rounds: int) -> dict[str, float]:
    """Images per second of `features`, of the bare network, and the limit that the cores set to `features`.

    Decoding and the network share the cores. If no core were ever idle, `features` would take the CPU time of both,
    each measured in one thread, divided by the number of cores.
    """
    bare, threads = bare_network(model, len(paths)), torch.get_num_threads()
    model.features(paths[:BATCH])
    turns = [(seconds_of(bare), seconds_of(lambda: model.features(paths))) for _ in range(rounds)]
    torch.set_num_threads(1)
    images = ItemReader(paths[:BATCH], model.reader_.format, workers=1)
    started = time.process_time()
    images.pixels(range(BATCH))
    bare_network(model, BATCH)()
    per_image = (time.process_time() - started) / BATCH
    torch.set_num_threads(threads)
    return {
        "bare network, images/s": len(paths) / min(seconds for seconds, _ in turns),
        "features, images/s": len(paths) / min(seconds for _, seconds in turns),
        "limit, images/s": threads / per_image,
    }


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

        for name, (width, height) in KINDS.items():
            few = 4 if size.tiny else 16 if width > 1000 else 2 * BATCH
            some = (photographs(folder / name, width, height, few) * BATCH)[: BATCH if size.tiny else 4 * BATCH]
            for figure, value in features_of(model, some, rounds).items():
                results[f"{name}, {figure}"] = value
                say(f"{name}, {figure}: {value:.3g}")
        tuned = copy.deepcopy(model)

        results["learning, s"] = seconds_of(lambda: model.learn([paths[i] for i in rest], [labels[i] for i in rest]))
        model.save(folder / "model")
        files = [path for path in (folder / "model").rglob("*") if path.is_file()]
        results["model on disk, MB"] = sum(path.stat().st_size for path in files) / 1e6
        command = [sys.executable, "-m", "cscct", "predict", str(folder / "model"), str(paths[0])]
        commands = {"predict, a process, s": command, "import torch, s": [sys.executable, "-c", "import torch"]}
        spent = {name: list[float]() for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                run = partial(subprocess.run, command, check=True, capture_output=True)
                spent[name].append(seconds_of(run))
        results |= {name: min(values) for name, values in spent.items()}
        results["predict, a process - import torch, s"] = results["predict, a process, s"] - results["import torch, s"]
        model = ModelFolder(folder / "model").load()
        results["predict, loaded, ms"] = 1000 * min(seconds_of(lambda: model.predict(paths[0])) for _ in range(10))
        if not size.tiny:
            tuned.set_params(method="lucir+cscct")
            results["learning with fine-tuning, s"] = seconds_of(
                lambda: tuned.learn([paths[i] for i in rest], [labels[i] for i in rest])
            )
    for name, value in results.items():
        if not name.startswith(tuple(KINDS)):
            say(f"{name}: {value:.3g}")
    return results


def ratios(results: dict[str, float]) -> dict[str, float]:
    figures = {f"classifier: {name}": value for name, value in results.items() if "images/s" not in name}
    for name in KINDS:
        if f"{name}, features, images/s" in results:
            rates = {kind: results[f"{name}, {kind}, images/s"] for kind in ("features", "bare network", "limit")}
            figures[f"classifier: {name}, features / bare network"] = rates["features"] / rates["bare network"]
            figures[f"classifier: {name}, features / limit of the cores"] = rates["features"] / rates["limit"]
    return figures
