"""Create docs/images/serving*.png: the web UI of `cscct serve` in a browser.

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
WRONG = (3, 7)  # places of wrong labels
SERVE = "import sys; from cscct.classifier.serve import run; run(sys.argv[1], port=0, token=sys.argv[2] or None)"
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
    """Create a model with two versions: three classes, then two more. Some labels are wrong."""
    model, store = IncrementalClassifier(), ModelFolder(folder)
    for names, message in ((NAMES[:3], "zero, one and two"), (NAMES[3:5], "three and four")):
        labelled = [(path, name) for name in names for path in digits[name][:EACH]]
        for place in WRONG:
            labelled[place], labelled[-place] = (labelled[place][0], names[-1]), (labelled[-place][0], names[0])
        images, labels = zip(*labelled, strict=True)
        store.commit(model.learn(list(images), list(labels)), message)


@contextmanager
def served(folder: Path, token: str = "") -> Iterator[str]:
    command = [sys.executable, "-c", SERVE, str(folder), token]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield next(word for word in server.stdout.readline().split() if word.startswith("http"))
        server.terminate()


def open_page(browser: Any, address: str, width: int, height: int, scheme: str = "light") -> Any:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.set_default_timeout(LONG)
    page.goto(address)
    expect(page.locator("#map-box svg text").first).to_be_visible(timeout=LONG)
    return page


def classify(page: Any, paths: list[Path]) -> None:
    page.set_input_files("#classify-files", paths)
    expect(page.locator("#classify-count")).not_to_contain_text("…", timeout=LONG)
    expect(page.locator(".answer[aria-busy]")).to_have_count(0, timeout=LONG)


def overview(page: Any, digits: dict[str, list[Path]]) -> None:
    """Classify four images and stage a new class."""
    classify(page, [digits[name][EACH] for name in ("one", "five", "three", "zero")])
    if page.locator("#staged img").count() == 0:
        page.fill("#teach-name", "five")
        page.set_input_files("#teach-files", digits["five"][:12])
    expect(page.locator("#staged img")).to_have_count(12, timeout=LONG)
    page.locator("#model-name").click()  # removes the focus from the form


def empty_page(browser: Any, address: str) -> None:
    """The page of a folder without a model."""
    page = browser.new_page(viewport={"width": 1180, "height": 620}, color_scheme="light")
    page.goto(address)
    expect(page.locator("#classify-empty")).to_be_visible(timeout=LONG)
    save("serving-empty", page)
    page.close()


def login_page(browser: Any, address: str) -> None:
    """The login form after a wrong token."""
    page = browser.new_page(viewport={"width": 620, "height": 460}, color_scheme="light")
    page.goto(address.partition("?")[0] + "login")
    page.fill("#token", "wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible(timeout=LONG)
    save("serving-login", page)
    page.close()


def parts(page: Any, digits: dict[str, list[Path]], folder: Path) -> None:
    """Single sections and dialogs: classes, a confusion, the viewer, the camera, errors and a running step."""
    page.get_by_role("button", name="Merge two").click()
    save("serving-classes", page.locator("#classes"))
    page.keyboard.press("Escape")
    page.locator("#confusions button").first.click()
    expect(page.locator("#photos-note")).to_contain_text("behind this confusion")
    page.wait_for_load_state("networkidle")
    save("serving-confusion", page.locator("#photos"))
    page.get_by_role("button", name="Enlarge").last.click()
    save("serving-viewer", page.locator("#viewer"))
    page.keyboard.press("Escape")
    page.locator("#classify-camera").click()
    expect(page.locator("#camera-take")).to_be_enabled(timeout=LONG)
    save("serving-camera", page.locator("#camera"))
    page.keyboard.press("Escape")
    (folder / "notes.png").write_text("not an image")
    page.fill("#teach-name", "two")
    page.set_input_files("#teach-files", [*digits["two"][EACH : EACH + 2], folder / "notes.png"])
    expect(page.locator("#teach-problem")).to_be_visible(timeout=LONG)
    expect(page.locator("#staged img")).to_have_count(15, timeout=LONG)
    show_running_step(page)
    save("serving-teach", page.locator("#teach"))


def show_running_step(page: Any, **changes: Any) -> None:
    """Show the progress of a learning step, as if one were running."""
    state = page.evaluate("fetch('/api/state').then((response) => response.json())")
    state["job"] = {"state": "running", "what": "reading images", "done": 9, "total": 13, "seconds_left": 2.0}
    page.route("**/api/state", lambda route: route.fulfill(json={**state, **changes}))
    expect(page.locator("#job")).to_be_visible(timeout=LONG)


def save(name: str, target: Any, **options: Any) -> None:
    """Write a picture of a page or an element, with few colours: a third of the size."""
    path = OUT / f"{name}.png"
    target.screenshot(path=path, **options)
    image = Image.open(path).convert("RGB")
    image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


def many_answers(page: Any, digits: dict[str, list[Path]]) -> None:
    """Many answers, unsure ones first, after the model changed; while a learning step is running."""
    classify(page, [path for name in NAMES for path in digits[name][EACH:]])
    page.select_option("#answer-order", "unsure")
    page.locator("#answers .card").first.focus()
    page.keyboard.press("1")
    expect(page.locator(".taught")).to_have_count(1, timeout=LONG)
    model = page.evaluate("fetch('/api/model').then((response) => response.json())")
    model["version"] += 1  # as after a step in another tab
    page.route("**/api/model", lambda route: route.fulfill(json=model))
    show_running_step(page, version=model["version"])
    expect(page.locator(".age").first).to_be_visible(timeout=LONG)
    page.locator("#model-name").click()


def main() -> None:
    OUT.mkdir(exist_ok=True)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        digits = write_digits(Path(folder))
        make_model(Path(folder) / "digits", digits)
        camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", *camera], timeout=LONG)
        with served(Path(folder) / "new") as address:
            empty_page(browser, address)
        with served(Path(folder) / "new", "an example of a token") as address:
            login_page(browser, address)
        with served(Path(folder) / "digits") as address:
            page = open_page(browser, address, 1180, 1240)
            overview(page, digits)
            save("serving", page)
            save("serving-photos", page.locator("#photos"))
            page.get_by_role("button", name="Why this answer for three").click()
            expect(page.locator("#why .neighbours")).to_have_count(2, timeout=LONG)
            page.wait_for_load_state("networkidle")
            save("serving-why", page.locator("#why"))
            page.close()
            page = open_page(browser, address, 375, 1240, "dark")
            overview(page, digits)
            save("serving-phone", page)
            page.close()
            page = open_page(browser, address, 1180, 900)
            many_answers(page, digits)
            save("serving-many", page)
            page.close()
            page = open_page(browser, address, 1180, 900)
            parts(page, digits, Path(folder))
        browser.close()


if __name__ == "__main__":
    main()
