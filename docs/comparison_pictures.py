"""Draws docs/images/comparison.png and report.png: the curves of a comparison, and the beginning of a report on it.

    python docs/comparison_pictures.py

Handwritten digits, four methods, three seeds: a few minutes. It needs playwright and chromium.
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
    subprocess.run([sys.executable, "-m", "cscct", *arguments], check=True)


def shrink(source: Path, target: Path, width: int) -> None:
    """Narrower, and with few colours: files that a repository can hold."""
    image = Image.open(source).convert("RGB")
    image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    image.quantize(128).save(target, optimize=True)


def photograph(page: Path, target: Path) -> None:
    """The upper part of a page as a browser shows it."""
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
        photograph(next(report.glob("*.html")), Path(scratch) / "page.png")
        shrink(Path(scratch) / "page.png", OUT / "report.png", 900)


if __name__ == "__main__":
    main()
