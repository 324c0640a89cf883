"""The page in a real browser, opened from disk."""

from __future__ import annotations

from typing import Any

import pytest

from browsers import browser_fixture, needs_chromium  # noqa: F401
from reports import Report, one_run_fixture, report_fixture  # noqa: F401

pytestmark = needs_chromium


def open_page(browser: Any, report: Report, width: int) -> Any:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto((report.out / "index.html").resolve().as_uri())
    return page


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("which", ["report", "one_run"])
def test_it_opens_from_disk(browser: Any, request: pytest.FixtureRequest, which: str, width: int) -> None:
    address = (request.getfixturevalue(which).out / "index.html").resolve().as_uri()
    page = browser.new_page(viewport={"width": width, "height": 900})
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


def test_a_wide_window_is_used_and_text_stays_readable(browser: Any, report: Report) -> None:
    page = open_page(browser, report, 1600)
    for section in ("accuracy", "forgetting", "losses"):
        boxes = [figure.bounding_box() for figure in page.locator(f"#section-{section} figure").all()]
        assert len(boxes) >= 2
        assert boxes[0]["y"] == boxes[1]["y"]
        assert boxes[1]["x"] + boxes[1]["width"] > 0.85 * 1600
    assert all(paragraph.bounding_box()["width"] < 800 for paragraph in page.locator("section p").all())
    page.close()


def test_sections_of_one_figure_share_a_wide_window(browser: Any, one_run: Report) -> None:
    page = open_page(browser, one_run, 1600)
    for pair in (("matrices", "forgetting"), ("confusion", "losses")):
        left, right = (page.locator(f"#section-{name}").bounding_box() for name in pair)
        assert left["y"] == right["y"]
        assert left["x"] + left["width"] < right["x"]
    page.close()


def test_a_table_that_scrolls_shows_it(browser: Any, report: Report) -> None:
    """A shadow on the right as long as there is more; the first column stays in view."""
    page = open_page(browser, report, 390)
    table = page.locator(".scroll").first
    assert table.evaluate("box => box.scrollWidth > box.clientWidth + 100")
    shadows = table.evaluate("box => getComputedStyle(box).backgroundAttachment")
    assert "local" in shadows
    assert "scroll" in shadows
    first = table.locator("tbody th").first
    before = first.bounding_box()["x"]
    table.evaluate("box => { box.scrollLeft = 150 }")
    assert first.bounding_box()["x"] == before
    page.close()


def test_a_table_that_fits_has_no_shadow(browser: Any, report: Report) -> None:
    page = open_page(browser, report, 1600)
    table = page.locator("#section-confusion .scroll").first
    assert table.evaluate("box => box.scrollWidth <= box.clientWidth")
    page.close()
