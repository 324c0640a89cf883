"""Create docs/images/serving.png and serving-phone.png: the web UI of `cscct serve` in a browser.

    python docs/serving_pictures.py

The model learns handwritten digits that come with scikit-learn. Requires cscct[pretrained,serve], playwright and
chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import expect, sync_playwright
from sklearn.datasets import load_digits

from cscct import IncrementalClassifier
from cscct.classifier.store import ModelFolder

OUT = Path(__file__).parent / "images"
NAMES = ["zero", "one", "two", "three", "four", "five"]
EACH = 24
SERVE = "import sys; from cscct.classifier.serve import run; run(sys.argv[1], port=0)"
LONG = 120_000  # milliseconds


def write_digits(folder: Path) -> dict[str, list[Path]]:
    """Write digits as images of 160 pixels and return the paths by class name."""
    data = load_digits()
    paths = {}
    for number, name in enumerate(NAMES):
        paths[name] = []
        for index, image in enumerate(data.images[data.target == number][: EACH + 6]):
            paper = np.array([246, 241, 230]) - image[..., None] / 16 * np.array([200, 190, 150])
            path = folder / f"{name}-{index:02}.png"
            Image.fromarray(paper.astype(np.uint8)).resize((160, 160), Image.Resampling.BICUBIC).save(path)
            paths[name].append(path)
    return paths


def make_model(folder: Path, digits: dict[str, list[Path]]) -> None:
    """Create a model with two versions: three classes, then two more."""
    model, store = IncrementalClassifier(), ModelFolder(folder)
    for names, message in ((NAMES[:3], "zero, one and two"), (NAMES[3:5], "three and four")):
        images = [path for name in names for path in digits[name][:EACH]]
        store.commit(model.learn(images, [name for name in names for _ in range(EACH)]), message)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-c", SERVE, str(folder)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield next(word for word in server.stdout.readline().split() if word.startswith("http"))
        server.terminate()


def draw(page: Any, address: str, digits: dict[str, list[Path]]) -> None:
    """Classify four images and stage a new class."""
    page.goto(address)
    page.set_input_files("#classify-files", [digits[name][EACH] for name in ("one", "five", "three", "zero")])
    expect(page.locator(".answer[aria-busy]")).to_have_count(0, timeout=LONG)
    if page.locator("#staged img").count() == 0:
        page.fill("#teach-name", "five")
        page.set_input_files("#teach-files", digits["five"][:12])
    expect(page.locator("#staged img")).to_have_count(12, timeout=LONG)
    expect(page.locator("#map-box svg text")).to_have_count(5)
    page.locator("#model-name").click()  # removes the focus from the form


def main() -> None:
    OUT.mkdir(exist_ok=True)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        digits = write_digits(Path(folder))
        make_model(Path(folder) / "digits", digits)
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=LONG)
        with served(Path(folder) / "digits") as address:
            for name, width, scheme in (("serving", 1180, "light"), ("serving-phone", 375, "dark")):
                page = browser.new_page(viewport={"width": width, "height": 1250}, color_scheme=scheme)
                draw(page, address, digits)
                path = OUT / f"{name}.png"
                page.screenshot(path=path, full_page=width > 1000)
                image = Image.open(path).convert("RGB")
                image = image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
                image.save(path, optimize=True)  # a third of the size
        browser.close()


if __name__ == "__main__":
    main()
