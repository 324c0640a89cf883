"""Demonstration of both use cases: `python examples/demo.py [--out FOLDER] [--quick]`.

Part 1 teaches a classifier six classes of handwritten digits as PNG images, then four more, and classifies images that
were not learned. Part 2 compares two class-incremental methods and writes a report. The digits come with scikit-learn,
so the script downloads nothing. It takes about two minutes on two CPU cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FIRST = 6  # classes in the first step
METHODS = ("lucir", "lucir+cscct")


def write_images(folder: Path, learned: int, tested: int) -> None:
    """Write the digits as images of 160 pixels.

    Args:
        folder: Receives `first/<class>/`, `second/<class>/` and `test/<class>/`.
        learned: Images per class to learn.
        tested: Images per class to classify.
    """
    digits = load_digits()
    for number, name in enumerate(NAMES):
        step = "first" if number < FIRST else "second"
        for index, pixels in enumerate(digits.images[digits.target == number][: learned + tested]):
            path = folder / (step if index < learned else "test") / name / f"{name}-{index:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            paper = np.array([246, 241, 230]) - pixels[..., None] / 16 * np.array([200, 190, 150])
            Image.fromarray(paper.astype(np.uint8)).resize((160, 160), Image.Resampling.BICUBIC).save(path)


def cscct(*arguments: str | Path, capture: bool = False) -> str:
    """Print and run a `cscct` command. Return its output if `capture` is true."""
    words = [str(argument) for argument in arguments]
    print(f"\n$ cscct {shlex.join(words)}", flush=True)
    result = subprocess.run([sys.executable, "-m", "cscct", *words], stdout=subprocess.PIPE if capture else None)
    if result.returncode:
        sys.exit(result.returncode)
    return result.stdout.decode() if capture else ""


def show_photos(folder: Path, quick: bool) -> None:
    """Learn two folders of images, one after the other, and classify the test images."""
    write_images(folder, *((6, 2) if quick else (30, 10)))
    model, test = folder / "model", folder / "test"
    cscct("learn", model, folder / "first")
    cscct("learn", model, folder / "second")
    images = sorted(test.glob("*/*.png"))
    cscct("predict", model, *images[:: len(images) // 4], "--top", "2")
    entries = json.loads(cscct("predict", model, test, "--json", "--quiet", capture=True))
    correct = sum(Path(entry["image"]).parent.name == entry["predictions"][0]["label"] for entry in entries)
    print(f"Correct: {correct} of {len(entries)} images that were not learned ({correct / len(entries):.0%}).")


def show_comparison(folder: Path, quick: bool) -> None:
    """Compare two methods and write a report."""
    epochs, seeds = (1, "1") if quick else (8, "1,2,3")
    options = ["--dataset", "digits", "--seeds", seeds, "--set", f"train.epochs={epochs}", "--threads", "1"]
    cscct("compare", *METHODS, *options, "--jobs", "2", "--out", folder / "comparison")
    cscct("report", folder / "comparison", "--out", folder / "report", "--quiet")


def unused(folder: Path) -> Path:
    """Return `folder`, or `folder-2`, `folder-3`, ... if it exists."""
    number, path = 1, folder
    while path.exists():
        number += 1
        path = folder.with_name(f"{folder.name}-{number}")
    return path


def program() -> str:
    """Return how to call `cscct` from the working directory."""
    path = Path(sys.executable).with_name("cscct")
    if not path.exists():
        return f"{sys.executable} -m cscct"
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def main() -> None:
    """Run both parts and print where the results are."""
    parser = argparse.ArgumentParser(description="Demonstrate both use cases of cscct.")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for the results [runs/demo]")
    parser.add_argument("--quick", action="store_true", help="few images, one seed, one epoch")
    args = parser.parse_args()
    folder, started = unused(args.out), time.monotonic()
    print("1. Photos: six classes, then four more", flush=True)
    show_photos(folder, args.quick)
    print("\n2. Research: LUCIR with and without the losses of CSCCT", flush=True)
    show_comparison(folder, args.quick)
    print("\nThree seeds are too few for a conclusion: see docs/evidence.md.")
    print(f"Finished in {time.monotonic() - started:.0f} s.")
    print(f"Figure: {folder / 'comparison' / 'curves.png'}")
    print(f"Report: {folder / 'report' / 'index.html'}")
    print(f"Next:   {program()} serve {folder / 'model'}")


if __name__ == "__main__":
    main()
