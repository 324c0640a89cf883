"""Camera, explanations, export, photos to label and limits."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from test_serve_answers import upload
from test_serve_page import drop, opened_page

from browsers import CHROMIUM, needs_chromium, playwright
from cscct import UserError
from cscct.classifier.serve import Limits, create_app
from cscct.classifier.serve.limits import parse_limits
from cscct.classifier.serve.queue import read_queue
from serving import BLUE, GREEN, HOME, RED, encoded, files, original_fixture, serving  # noqa: F401

CAMERA = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]


@pytest.fixture(scope="module", name="browser")
def browser_fixture() -> Iterator[Any]:
    """A browser with a camera."""
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=CAMERA, timeout=300_000)
        yield opened
        opened.close()


@pytest.fixture(scope="module", name="suggested")
def suggested_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list of three photos, as `cscct suggest --json` prints it."""
    folder = tmp_path_factory.mktemp("suggested")
    for name, colour in (("a.png", RED), ("b.png", GREEN), ("c.png", BLUE)):
        (folder / name).write_bytes(encoded(colour, 40))
    entries: list[dict[str, Any]] = [
        {"image": name, "rank": rank, "label": "red", "probability": 0.4, "second": "blue", "score": 0.5}
        for rank, name in enumerate(("c.png", str(folder / "a.png"), "b.png"), start=1)
    ]
    entries.append({"image": "missing.png", "error": "it does not exist"})
    (folder / "list.json").write_text(json.dumps(entries))
    return folder / "list.json"


@pytest.fixture(scope="module", name="address")
def address_fixture(original: Path, suggested: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that all tests share; they leave the model as it was."""
    folder = Path(shutil.copytree(original, tmp_path_factory.mktemp("served") / "colours"))
    with serving(folder, queue=read_queue(suggested)) as address:
        yield address


@pytest.fixture(scope="module", name="client")
def client_fixture(original: Path, suggested: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = Path(shutil.copytree(original, tmp_path_factory.mktemp("client") / "colours"))
    with TestClient(create_app(folder, queue=read_queue(suggested)), base_url=HOME) as client:
        yield client


@needs_chromium
def test_camera(browser: Any, address: str) -> None:
    """A photo is classified, and one is staged after a class name was entered."""
    expect = playwright.expect
    page, errors = opened_page(browser, address)
    page.locator("#classify-camera").click()
    expect(page.locator("#camera-take")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#camera-text")).to_have_text("1 photo taken")
    track = page.locator("#camera-video").evaluate_handle("video => video.srcObject.getTracks()[0]")
    page.keyboard.press("Escape")
    expect(page.locator("#answers .card ol.top")).to_have_count(1)
    assert track.evaluate("track => track.readyState") == "ended"  # the camera is off
    page.locator("#teach-camera").click()
    expect(page.locator("#teach-problem")).to_have_text("Enter a class name before adding photos.")
    page.fill("#teach-name", "desk")
    page.locator("#teach-camera").click()
    page.get_by_role("button", name="Take photo").click()
    expect(page.locator("#staged img")).to_have_count(1)
    page.locator("#camera-close").click()
    page.get_by_role("button", name="Remove camera").click()
    expect(page.locator("#staged img")).to_have_count(0)
    assert errors == []
    page.close()


@needs_chromium
def test_why_and_suggested_photos(browser: Any, address: str) -> None:
    expect = playwright.expect
    page, errors = opened_page(browser, address, width=390)
    page.get_by_role("button", name="Label them").click()
    names = page.locator("#answers .file")
    expect(names).to_have_text(["c.png", "a.png", "b.png"])  # in the order of the list
    expect(page.locator("#answers .card").first).to_be_focused()
    expect(page.locator("#queue")).to_be_hidden()
    page.get_by_role("button", name="Clear").click()
    upload(page, ("blue.png", encoded(BLUE, 90)))
    page.get_by_role("button", name="Why this answer for blue.png?").click()
    groups = page.locator("#why .neighbours")
    expect(groups).to_have_count(2)
    assert set(groups.first.locator(".label").all_inner_texts()) == {"blue"}
    assert "blue" not in groups.last.locator(".label").all_inner_texts()
    expect(groups.first.locator("img").first).to_have_js_property("complete", True)
    assert groups.first.locator("img").first.evaluate("image => image.naturalWidth") > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.keyboard.press("Escape")
    expect(page.locator("#why")).to_be_hidden()
    assert errors == []
    page.close()


@needs_chromium
def test_dropped_lists(browser: Any, address: str, suggested: Path) -> None:
    """A list that is dropped together with photos selects and orders them."""
    expect = playwright.expect
    page, errors = opened_page(browser, address)
    (suggested.parent / "list.csv").write_text('rank,image,label\n1,photos/b.png,red\n2,"no, photo.png",red\n')
    drop(page, "#classify-zone", suggested.parent / "list.csv", suggested.parent / "a.png", suggested.parent / "b.png")
    expect(page.locator("#classify-count")).to_have_text("1 photo")
    expect(page.locator("#answers .file")).to_have_text(["b.png"])
    expect(page.locator("#classify-problem")).to_have_text("1 listed photo not found among the dropped files.")
    drop(page, "#classify-zone", suggested)
    expect(page.locator("#classify-problem")).to_contain_text("Drop list.json together with its photos")
    (suggested.parent / "other.json").write_text("{}")
    drop(page, "#classify-zone", suggested.parent / "other.json")
    expect(page.locator("#classify-problem")).to_contain_text("not a list of cscct suggest")
    assert errors == []
    page.close()


@needs_chromium
def test_export(browser: Any, address: str) -> None:
    page, errors = opened_page(browser, address)
    page.select_option("#export-format", "pt2")
    with page.expect_download() as download:
        page.locator("#export").click()
    assert download.value.suggested_filename == "colours.pt2"
    assert download.value.path().read_bytes().startswith(b"PK")
    playwright.expect(page.locator("#export-text")).to_contain_text("MB.")
    page.route("**/api/export", lambda route: route.fulfill(status=409, json={"detail": "No packages."}))
    page.locator("#export").click()
    playwright.expect(page.locator("#export-text.problem")).to_have_text("No packages.")
    assert [error for error in errors if "409" not in error] == []
    page.close()


def test_api(client: TestClient) -> None:
    answer = client.post("/api/explain", files=files(encoded(BLUE, 90))).json()
    assert (answer["version"], answer["label"]) == (2, "blue")
    assert client.post("/api/explain", files=files(b"no image")).status_code == 422
    queue = client.get("/api/queue").json()["photos"]
    assert queue[0] == {"number": 0, "name": "c.png", "label": "red"}
    assert client.get("/api/queue/0").content == encoded(BLUE, 40)
    assert client.get("/api/queue/3").status_code == 404
    assert client.post("/api/export", json={"format": "exe"}).status_code == 422


def test_lists_that_are_not_of_suggest(tmp_path: Path) -> None:
    file = tmp_path / "list.csv"
    for text in ("[1, 2]", "path,label\na.png,red\n", "{}", "[{"):
        file.write_text(text)
        with pytest.raises(UserError, match="not a list of `cscct suggest`"):
            read_queue(file)
    file.write_text("rank,image,label\n1,a.png,red\n")
    with pytest.raises(UserError, match=r"photo a\.png .* does not exist"):
        read_queue(file)
    (tmp_path / "a.png").write_bytes(b"")
    assert [photo.path.name for photo in read_queue(file)] == ["a.png"]


def test_limits_are_set_by_name() -> None:
    limits = parse_limits({"file_bytes": "5000", "idle_seconds": "2.5"})
    assert limits == Limits(file_bytes=5000, idle_seconds=2.5)
    for values, message in (
        ({"fil_bytes": "5"}, "did you mean 'file_bytes'"),
        ({"files": "0"}, "positive integer of at most 1,000,000,000,000,000, not '0'"),
        ({"files": "1" + "0" * 400}, "of at most"),
    ):
        with pytest.raises(UserError, match=message):
            parse_limits(values)
