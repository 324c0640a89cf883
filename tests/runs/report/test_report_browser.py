"""The page in a real browser, opened from disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from reports import one_run_fixture, report_fixture  # noqa: F401

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=300_000)
        yield opened
        opened.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("which", ["report", "one_run"])
def test_it_opens_from_disk(browser: Any, request: pytest.FixtureRequest, which: str, width: int) -> None:
    address = (request.getfixturevalue(which).out / "index.html").resolve().as_uri()
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(300_000)  # milliseconds, for a busy machine
    troubles: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.wait_for_load_state("load")
    assert troubles == []
    assert [url for url in asked if not url.startswith("data:")] == [address]
    images = page.locator("img").all()
    assert len(images) == (18 if which == "report" else 8)
    for image in images:
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
        assert image.is_visible()
        box = image.bounding_box()
        assert box is not None
        assert box["width"] > 100
        assert box["height"] > 50
        assert box["x"] + box["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h1").is_visible()
    page.close()
