"""Lists of the web UI in a browser: classes, and answers for many photos."""

import re
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from test_serve_page import choose_folder, make_tree, opened_page

from browsers import browser_fixture, needs_chromium, playwright  # noqa: F401
from cscct.classifier.store import ModelFolder
from serving import BLUE, GREEN, RED, encoded, original_fixture, serving  # noqa: F401

pytestmark = needs_chromium


@pytest.fixture(scope="module", name="served")
def served_fixture(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and folder of a server that all tests share; they leave the model as it was."""
    folder = Path(shutil.copytree(original, tmp_path_factory.mktemp("served") / "colours"))
    with serving(folder) as address:
        yield address, folder


def upload(page: Any, *photos: tuple[str, bytes]) -> None:
    files = [{"name": name, "mimeType": "image/png", "buffer": content} for name, content in photos]
    page.set_input_files("#classify-files", files)
    playwright.expect(page.locator("#classify-count")).not_to_contain_text("…")


def test_classes_are_searched_and_ordered(browser: Any, served: tuple[str, Path]) -> None:
    expect = playwright.expect
    page, errors = opened_page(browser, served[0])
    model = page.evaluate("fetch('/api/model').then((response) => response.json())")
    entry = {**model["classes"][0], "count": 100}
    model["classes"] = [{**entry, "name": f"class {i}", "right": i % 101, "images": 900 - i} for i in range(500)]
    model["report"]["new"] = ["class 77"]
    page.route("**/api/model", lambda route: route.fulfill(json=model))
    page.reload()
    names = page.locator("#class-rows th")
    expect(names).to_have_count(500)
    assert names.all_inner_texts()[:4] == ["class 77", "class 0", "class 101", "class 202"]  # new, then the worst
    page.select_option("#class-order", "images")
    assert names.all_inner_texts()[:3] == ["class 77", "class 499", "class 498"]
    page.fill("#class-search", "CLASS 49")
    expect(names).to_have_count(11)
    expect(page.locator("#class-count")).to_have_text("11 of 500 classes")
    assert page.locator("#classes").bounding_box()["height"] < 900
    assert errors == []
    page.close()


def test_many_answers(browser: Any, served: tuple[str, Path]) -> None:
    """Pages, filters, orders, labels by keyboard and a CSV file."""
    expect = playwright.expect
    page, errors = opened_page(browser, served[0])
    colours = {"red": RED, "green": GREEN, "blue": BLUE}
    photos = [(f"{name}-{i}.png", encoded(colours[name], 100 + i)) for i in range(20) for name in colours]
    upload(page, *photos)
    cards = page.locator("#answers .card")
    expect(page.locator("#classify-count")).to_have_text("60 photos")
    expect(cards).to_have_count(24)
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#answer-page")).to_have_text("Page 2 of 3")
    page.select_option("#answer-filter", "class blue")
    expect(cards).to_have_count(20)
    page.select_option("#answer-order", "name")
    expect(cards.first).to_contain_text("blue-0.png")
    cards.first.focus()
    page.keyboard.press("2")
    expect(cards.first.locator(".taught")).to_contain_text("Will be learned as")
    expect(cards.nth(1)).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.keyboard.insert_text("sky")
    page.keyboard.press("Enter")
    expect(cards.nth(2).locator(".taught")).to_have_text("Will be learned as sky")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    lines = download.value.path().read_text().splitlines()
    assert lines[0].startswith("file,label,probability")
    assert len(lines) == 21
    assert (lines[3].split(",")[:2], lines[3].split(",")[7]) == (["blue-2.png", "blue"], "sky")
    page.get_by_role("button", name="Remove all").click()
    page.get_by_role("button", name="Confirm: remove all").click()
    expect(page.locator(".taught")).to_have_count(0)  # the corrections were removed elsewhere
    assert errors == []
    page.close()


def test_answers_of_an_earlier_version_are_marked(browser: Any, served: tuple[str, Path]) -> None:
    expect = playwright.expect
    address, folder = served
    page, errors = opened_page(browser, address)
    upload(page, ("blue.png", encoded(BLUE, 90)))
    expect(page.locator(".age")).to_be_hidden()
    page.locator("#undo").click()
    expect(page.locator(".age")).to_have_text("Outdated: answer of version 2")
    page.get_by_role("button", name="Classify outdated again").click()
    expect(page.locator(".age")).to_be_hidden()
    expect(page.locator("ol.top .label")).to_have_count(2)  # version 1 has no class blue
    ModelFolder(folder).restore(2)
    assert errors == []
    page.close()


def test_answers_say_what_they_are(browser: Any, served: tuple[str, Path]) -> None:
    """Shares are not rounded up to 100 %, long class names are not cut, and unknown photos are explained as unknown."""
    expect = playwright.expect
    label = "black_throated_blue_warbler_with_a_long_name"
    scores = [{"label": label, "score": 0.9968}, {"label": "red", "score": 0.0032}, {"label": "blue", "score": 0.0}]
    page, errors = opened_page(browser, served[0], width=390)
    percent = "import('/dom.js').then(({ percent }) => [0, 0.0004, 0.5, 0.9968, 0.99999, 1].map(percent))"
    shown = [text.replace("\u00a0", " ").replace("\u202f", "") for text in page.evaluate(percent)]
    assert shown == ["0 %", "<0.1 %", "50.0 %", "99.7 %", "99.9 %", "100 %"]

    def unknown(route: Any) -> None:
        answer = route.fetch().json()
        answer["answers"][0] |= {"predictions": scores, "unknown": True}
        route.fulfill(json=answer)

    model = page.evaluate("fetch('/api/model').then((response) => response.json())")
    page.route("**/api/model", lambda route: route.fulfill(json=model))
    for detects, share, text in ((False, None, "20 are needed"), (True, 0.23, "About 23"), (True, 0.9, "About 90")):
        model.update(detects_unknown=detects, unknown_detection=share)
        page.reload()
        expect(page.locator("#classify-unknown")).to_contain_text(text)
        assert ("too similar" in page.locator("#classify-unknown").inner_text()) == (share == 0.23)
    page.route("**/api/classify?*", unknown)
    upload(page, ("blue.png", encoded(BLUE, 90)))
    expect(page.locator("ol.top .score")).to_have_text(["99.7\u00a0%", "0.3\u00a0%"])
    name = page.locator("ol.top .label").first
    assert name.evaluate("element => element.scrollWidth <= element.clientWidth")
    page.get_by_role("button", name="Why this answer").click()
    expect(page.locator("#why-body")).to_contain_text("Answer: Unknown. Most probable class: ")
    assert errors == []
    page.close()


def test_all_photos_of_a_folder_are_classified(browser: Any, served: tuple[str, Path], tmp_path: Path) -> None:
    """Also those in folders that are not learned, such as `test`. Other files are ignored, as by `cscct predict`."""
    names = ["train/rose/a.png", "test/rose/b.png", "val/c.png", "d.png", "notes.txt", ".hidden.png", "__MACOSX/e.png"]
    page, errors = opened_page(browser, served[0])
    choose_folder(page, "#classify-folder", make_tree(tmp_path / "photos", *names))
    playwright.expect(page.locator("#classify-count")).to_have_text("4 photos")
    assert sorted(page.locator("#answers .file").all_inner_texts()) == ["a.png", "b.png", "c.png", "d.png"]
    choose_folder(page, "#classify-folder", make_tree(tmp_path / "empty", "notes.txt"))
    playwright.expect(page.locator("#classify-problem")).to_have_text("There are no photos in the folder.")
    assert errors == []
    page.close()


def test_times_are_those_of_the_user(browser: Any, served: tuple[str, Path]) -> None:
    context = browser.new_context(timezone_id="Asia/Tokyo", locale="en-US")
    page = context.new_page()
    page.goto(served[0])
    created = datetime.fromisoformat(str(ModelFolder(served[1]).versions()[-1].created))
    shown = created.astimezone(timezone(timedelta(hours=9))).strftime("%I:%M %p").lstrip("0")
    playwright.expect(page.locator("#version-list li").first).to_contain_text(re.compile(shown.replace(" ", r"\s")))
    context.close()
