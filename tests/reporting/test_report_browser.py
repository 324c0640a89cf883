"""The report page in a browser."""

from typing import Any

import pytest

from browsers import browser_fixture, needs_chromium  # noqa: F401
from cscct.reporting import write_report
from reports import Report, one_run_fixture, report_fixture  # noqa: F401
from synthetic import make_run

pytestmark = needs_chromium


def open_page(browser: Any, report: Report, width: int, height: int = 900, **options: Any) -> Any:
    page = browser.new_page(viewport={"width": width, "height": height}, **options)
    page.goto((report.out / "index.html").resolve().as_uri())
    return page


@pytest.fixture(scope="module")
def protocols(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Report of different experiments whose labels contain commas."""
    folder = tmp_path_factory.mktemp("protocols")
    for base, size in ((4, 5), (6, 9)):
        for method in ("lucir", "lucir+cscct"):
            sets = (f"protocol.base={base}", f"memory.per_class={size}")
            make_run(folder / "runs" / f"{method}-{base}", method, "digits", *sets, done=1, status="running")
    write_report([folder / "runs"], folder / "out", warn=lambda _: None)
    return Report(folder / "runs", folder / "out", [])


@pytest.mark.parametrize("which", ["report", "one_run", "protocols"])
def test_the_first_screen_of_a_phone_shows_results(browser: Any, request: pytest.FixtureRequest, which: str) -> None:
    page = open_page(browser, request.getfixturevalue(which), 390, 844)
    value = page.locator("#section-summary tbody td").first
    assert float(value.inner_text().split()[0]) > 10  # average incremental accuracy of the first method
    box = value.bounding_box()
    assert box["x"] + box["width"] <= 390
    assert box["y"] + box["height"] <= 844 - 100
    page.close()


def test_the_warning_unfolds_into_a_list_of_groups(browser: Any, protocols: Report) -> None:
    page = open_page(browser, protocols, 390, 844)
    warning = page.locator("details.warning")
    assert not warning.locator(".tag").first.is_visible()
    warning.locator("summary").click()
    tags = [tag.inner_text() for tag in warning.locator(".tag").all()]
    assert tags.count("lucir, B=4, per_class=5, 1 of 4 tasks") == 2  # for each of the two settings
    assert warning.locator(".tag").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()


def test_text_of_figures_is_readable_on_a_phone(browser: Any, report: Report) -> None:
    """A figure of 7 inches would have letters of 5 points."""
    page = open_page(browser, report, 390, 844)
    image = page.locator("#accuracy img")
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") < 400
    wide = open_page(browser, report, 1280, 800)
    assert wide.locator("#accuracy img").evaluate("image => image.decode().then(() => image.naturalWidth)") > 600
    page.close()
    wide.close()


def test_the_page_follows_the_colour_scheme(browser: Any, one_run: Report) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page = open_page(browser, one_run, 1280, color_scheme=scheme)
        colours[scheme] = [
            page.locator("body").evaluate(f"body => getComputedStyle(body).{name}.match(/\\d+/g).map(Number)")
            for name in ("backgroundColor", "color")
        ]
        page.close()
    assert min(colours["light"][0]) > 200 > 100 > max(colours["light"][1])
    assert max(colours["dark"][0]) < 60 < 180 < min(colours["dark"][1])


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("which", ["report", "one_run"])
def test_the_page_opens_from_disk(browser: Any, request: pytest.FixtureRequest, which: str, width: int) -> None:
    address = (request.getfixturevalue(which).out / "index.html").resolve().as_uri()
    page = browser.new_page(viewport={"width": width, "height": 900})
    errors: list[str] = []
    requested: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requested.append(request.url))
    page.goto(address)
    page.wait_for_load_state("load")
    assert errors == []
    assert [url for url in requested if not url.startswith("data:")] == [address]
    images = page.locator("img").all()
    assert len(images) == (18 if which == "report" else 8)
    for image in images:
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
        assert image.is_visible()
        box = image.bounding_box()
        assert box["width"] > 100
        assert box["height"] > 50
        assert box["x"] + box["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h1").is_visible()
    page.close()
