"""Create docs/images/comparison.png and report.png: curves of a comparison, and the first part of its report.

    python docs/comparison_pictures.py

Four methods on handwritten digits, three seeds: a few minutes. Requires playwright and chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import sync_playwright

OUT = Path(__file__).parent / "images"
COMPARE = ["compare", "replay", "icarl", "lucir", "podnet", "--dataset", "digits", "--seeds", "1,2,3", "--jobs", "2"]


def command(*arguments: str) -> None:
    """Run a `cscct` command."""
    subprocess.run([sys.executable, "-m", "cscct", *arguments], check=True)


def shrink(source: Path, target: Path, width: int) -> None:
    """Reduce the width and the number of colours, to keep the repository small."""
    image = Image.open(source).convert("RGB")
    image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    image.quantize(128).save(target, optimize=True)


def take_screenshot(page: Path, target: Path) -> None:
    """Save the upper part of a page as a browser displays it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1320, "height": 1250})
        tab.goto(page.as_uri())
        tab.screenshot(path=target)
        browser.close()


def main() -> None:
    OUT.mkdir(exist_ok=True)
    with TemporaryDirectory() as scratch:
        runs, report = Path(scratch) / "digits", Path(scratch) / "report"
        command(*COMPARE, "--out", str(runs))
        command("report", str(runs), "--out", str(report))
        shrink(runs / "curves.png", OUT / "comparison.png", 900)
        take_screenshot(next(report.glob("*.html")), Path(scratch) / "page.png")
        shrink(Path(scratch) / "page.png", OUT / "report.png", 900)


if __name__ == "__main__":
    main()
