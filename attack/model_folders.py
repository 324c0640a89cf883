"""The small models that are attacked, and their reference results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from small_runs import run_arguments
from watch import CommandResult, run_command

COLOURS = {"red": (200, 50, 50), "green": (50, 200, 50), "blue": (50, 50, 200), "grey": (128, 128, 128)}
IMAGES = 3  # per class
BACKBONE = "attacked"  # a very small network
LEARN = ("learn", "model", "first", "--backbone", BACKBONE, "--method", "ncm", "--quiet")
LEARN_MORE = ("learn", "model", "second", "--quiet")
PREDICT = ("predict", "model", "queries", "--json", "--unknown", "0.5", "--quiet")
_RUN = enumerate(run_arguments("lucir+cscct"))
RUN = tuple("model" if argument == "run" and index else argument for index, argument in _RUN)
PHOTO = "PHOTO"  # stands for the identity of a photo, see `changes_of`
CHANGES: dict[str, tuple[str, ...]] = {
    "learn": LEARN_MORE,
    "forget": ("forget", "model", "green", "--quiet"),
    "purge": ("forget", "model", "green", "--purge-history", "--quiet"),
    "undo": ("undo", "model", "--quiet"),
    "rename": ("rename", "model", "red", "crimson", "--quiet"),
    "keep": ("learn", "model", "second", "--keep-versions", "1", "--quiet"),
    "move a photo": ("review", "model", "--move", PHOTO, "green", "--quiet"),
    "remove a photo": ("review", "model", "--remove", PHOTO, "--quiet"),
    "confirm a photo": ("review", "model", "--keep", PHOTO, "--quiet"),
}


def changes_of(model: Path) -> dict[str, tuple[str, ...]]:
    """The changes, with the identity of a photo of the model."""
    photo = photo_of(model)
    return {name: tuple(photo if word == PHOTO else word for word in words) for name, words in CHANGES.items()}


def photo_of(model: Path) -> str:
    """The identity of a photo of the class red."""
    from cscct.classifier.store import ModelFolder

    return ModelFolder(model).load().state_.photos["red"].photos[0].id


def register_tiny_backbone() -> None:
    """Register a small backbone in this process and its forks."""
    import torch
    from torch import nn

    from cscct import register_backbone
    from cscct.nets import BACKBONES, Depths

    class Tiny(nn.Module):
        def __init__(self, channels: int, generator: torch.Generator):
            super().__init__()
            self.layer, self.norm = nn.Conv2d(channels, 8, 3, stride=4), nn.BatchNorm2d(8)
            nn.init.normal_(self.layer.weight, generator=generator)
            nn.init.zeros_(self.layer.bias)  # type: ignore[arg-type]
            self.features = 8

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (self.norm(self.layer(images)),)

    if BACKBONE not in BACKBONES:
        register_backbone(BACKBONE, Depths("32", lambda depth: depth == 32))(
            lambda channels, depth, generator: Tiny(channels, generator)
        )


def draw_images(folder: Path) -> None:
    """Write the folders `first` with two classes, `second` and `third` with one further class each, and `queries`."""
    parts = {"first": ("red", "green"), "second": ("blue",), "third": ("grey",)}
    for number, (part, names) in enumerate(parts.items()):
        for name in names:
            (folder / part / name).mkdir(parents=True)
            for index in range(IMAGES):
                _draw(folder / part / name / f"{index}.png", COLOURS[name], 10 * number + index)
    (folder / "queries").mkdir()
    for index, colour in enumerate(COLOURS.values()):
        _draw(folder / "queries" / f"{index}.png", colour, 100 + index)


def _draw(path: Path, colour: tuple[int, int, int], seed: int) -> None:
    noise = np.random.default_rng(seed).integers(-40, 40, (20, 24, 3))
    Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).save(path)


def make_model(folder: Path, backbone: str = BACKBONE) -> None:
    """Create the images, and a model with three versions, the second of which has a renamed class."""
    register_tiny_backbone()
    draw_images(folder)
    checked(run_command(*(backbone if argument == BACKBONE else argument for argument in LEARN), folder=folder))
    checked(run_command("rename", "model", "red", "scarlet", "--quiet", folder=folder))
    checked(run_command("rename", "model", "scarlet", "red", "--quiet", folder=folder))


def make_continued_run(folder: Path) -> None:
    """Create a run that learned a further class with its own method."""
    draw_images(folder)
    checked(run_command(*RUN, folder=folder))
    checked(run_command(*LEARN_MORE, folder=folder))


def checked(completed: CommandResult) -> CommandResult:
    """Return the result of a command that must succeed."""
    assert completed.code == 0, completed.stderr
    return completed


def predictions(folder: Path) -> str:
    """Return the predictions for the queries."""
    return checked(run_command(*PREDICT, folder=folder)).stdout


def strict_json(text: str) -> Any:
    """Return the value of a JSON text. Raises a `ValueError` for constants such as NaN, which are not valid JSON."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def unused_files(model: Path) -> list[str]:
    """Return files that no version uses, and temporary files of killed processes."""
    from cscct.classifier.records import RecordReader

    reader = RecordReader(model)
    numbers = [int(path.stem) for path in (model / "versions").glob("*.json")]
    used = {name for number in numbers for name in reader.record(number).files()}
    files = {path.name for path in (model / "files").iterdir()}
    leftovers = [path.name for path in model.rglob("*") if path.name.endswith(".tmp") or path.name == ".unfinished"]
    return sorted(files - used) + leftovers
