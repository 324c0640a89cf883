"""Learned photos in the web UI and the API: review, confusions, photos of a class, changes and merging."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from test_serve_page import OVERLAPPING, opened_page

from browsers import browser_fixture, needs_chromium, playwright  # noqa: F401
from cscct import IncrementalClassifier
from cscct.classifier.serve import create_app
from cscct.classifier.store import ModelFolder
from serving import BLUE, GREEN, HOME, RED, encoded, files, serving


@pytest.fixture(scope="module", name="original")
def original_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of files; the photo red/0.png is blue."""
    root = tmp_path_factory.mktemp("photos")
    paths = []
    for name, colour in (("red", RED), ("green", GREEN), ("blue", BLUE)):
        (root / name).mkdir()
        for i in range(8):
            paths.append(root / name / f"{i}.png")
            paths[-1].write_bytes(encoded(BLUE if (name, i) == ("red", 0) else colour, 10 * len(name) + i))
    model = IncrementalClassifier("lucir-resnet", method="ncm", image_size=32, memory_per_class=2, device="cpu")
    model.learn(paths, [path.parent.name for path in paths], quiet=True)
    ModelFolder(root / "colours").commit(model, "three colours")
    return root / "colours"


@pytest.fixture(scope="module", name="address")
def address_fixture(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that all tests in a browser share; they restore the first version."""
    with serving(Path(shutil.copytree(original, tmp_path_factory.mktemp("served") / "colours"))) as address:
        yield address


def test_api(original: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(original, tmp_path / "colours"))
    with TestClient(create_app(folder), base_url=HOME) as client:
        review = client.get("/api/photos").json()
        (photo,) = review["photos"]
        assert (photo["name"], photo["label"], photo["predicted"]) == ("0.png", "red", "blue")
        assert client.get("/api/photos", params={"label": "red", "predicted": "blue"}).json() == review
        reds = client.get("/api/photos", params={"label": "red", "limit": 3, "offset": 6}).json()
        assert (reds["total"], [entry["name"] for entry in reds["photos"]]) == (8, ["6.png", "7.png"])
        assert client.get("/api/photos", params={"label": "rde"}).status_code == 404
        for query in ("", "?large=true"):
            image = client.get(f"/api/photos/{photo['id']}{query}")
            assert (image.status_code, image.headers["content-type"]) == (200, "image/jpeg")
        assert client.get("/api/photos/0123abcd").status_code == 404
        (answer,) = client.post("/api/classify", files=files(encoded(BLUE, 90))).json()["answers"]
        assert isinstance(answer["unknown_score"], float)

        counts = {"red": 7, "green": 8, "blue": 9}
        moved = client.post("/api/photos/move", json={"ids": [photo["id"]], "label": "blue"}).json()
        assert {entry["name"]: entry["images"] for entry in moved["classes"]} == counts
        assert client.get("/api/photos").json()["photos"] == []
        client.post("/api/undo")
        kept = client.post("/api/photos/keep", json={"ids": [photo["id"]]})
        assert kept.status_code == 200
        assert client.get("/api/photos").json()["total"] == 0
        (confirmed,) = client.get("/api/photos", params={"label": "red", "predicted": "blue"}).json()["photos"]
        assert confirmed["confirmed"]
        removed = client.post("/api/photos/remove", json={"ids": [photo["id"]]}).json()
        assert {entry["name"]: entry["images"] for entry in removed["classes"]} == {**counts, "blue": 8}
        again = client.post("/api/photos/remove", json={"ids": [photo["id"]]})
        assert (again.status_code, "no photo" in again.json()["detail"]) == (409, True)

        client.post("/api/staged", data={"label": "red"}, files=[("images", ("a.png", encoded(RED, 70), "image/png"))])
        merged = client.post("/api/merge", json={"classes": ["red"], "into": "blue"}).json()
        assert {entry["name"]: entry["images"] for entry in merged["classes"]} == {"green": 8, "blue": 15}
        assert client.get("/api/staged").json()["staged"][0]["label"] == "blue"
        assert client.post("/api/merge", json={"classes": ["blue"], "into": "blue"}).status_code == 409


@needs_chromium
def test_review_and_confusions(browser: Any, address: str) -> None:
    """Photos are enlarged, found behind a confusion, and moved, kept and removed with one click."""
    expect = playwright.expect
    page, errors = opened_page(browser, address)
    cards = page.locator("#photo-list .card")
    expect(cards).to_have_count(1)
    expect(cards.first).to_contain_text("looks like blue")
    cards.first.get_by_role("button", name="Enlarge 0.png").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#viewer")).to_be_visible()
    expect(page.locator("#viewer-image")).to_have_js_property("naturalWidth", 24)  # of the file
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).to_be_hidden()
    expect(cards.first.get_by_role("button", name="Enlarge 0.png")).to_be_focused()

    cards.first.get_by_role("button", name="Move 0.png to blue").click()
    expect(page.locator("#photos-text")).to_have_text("0.png moved to blue.")
    expect(page.locator("#photos-count")).to_have_text("No photo looks mislabelled.")
    page.locator("#photos-undo").click()
    expect(cards).to_have_count(1)
    cards.first.get_by_role("button", name="Remove 0.png").click()
    expect(page.locator("#photos-undo")).to_be_visible()
    page.request.post(f"{address}/api/rename", data={"old": "green", "new": "leaf"})  # another change, in another tab
    expect(page.locator("#model-summary")).to_contain_text("Version 4")
    expect(page.locator("#photos-undo")).to_be_hidden()  # it would undo that change
    page.get_by_role("button", name="Restore version 1").click()
    expect(cards).to_have_count(1)
    page.get_by_role("button", name="red predicted as blue").click()
    expect(page.locator("#photo-view")).to_be_focused()
    expect(cards.first).to_contain_text("looks like blue")
    cards.first.get_by_role("button", name="Keep 0.png in red").click()
    expect(cards.first).to_contain_text("(confirmed)")
    cards.first.get_by_role("button", name="Remove 0.png").click()
    expect(page.locator("#photos-count")).to_have_text("No photos are recorded.")
    page.get_by_role("button", name="Restore version 1").click()
    expect(cards).to_have_count(1)
    assert errors == []
    page.close()


@needs_chromium
def test_the_list_that_was_chosen_last_is_shown(browser: Any, address: str) -> None:
    """Also if the response for another one arrives later."""
    page, errors = opened_page(browser, address)
    names = page.locator("#photo-list .card strong")
    slow: list[Any] = []
    page.route("**/api/photos?*label=green*", lambda route: slow.append(route))
    page.select_option("#photo-view", label="green")
    page.select_option("#photo-view", label="blue")
    playwright.expect(names).to_have_text(["blue"] * 8)
    with page.expect_response("**/api/photos?*label=green*"):
        slow.pop().continue_()
    page.wait_for_timeout(200)
    playwright.expect(names).to_have_text(["blue"] * 8)
    assert errors == []
    page.close()


@needs_chromium
def test_photos_of_a_class_and_merging(browser: Any, address: str) -> None:
    expect = playwright.expect
    page, errors = opened_page(browser, address, width=390)
    page.get_by_role("button", name="Photos of red").click()
    cards = page.locator("#photo-list .card")
    expect(cards).to_have_count(8)
    cards.nth(3).get_by_role("button", name="Enlarge").click()
    for key, name in (("ArrowRight", "4.png"), ("ArrowLeft", "3.png")):
        page.keyboard.press(key)
        expect(page.locator("#viewer-title")).to_have_text(name)
    page.get_by_role("button", name="Close").click()
    cards.nth(3).get_by_role("button", name="Move 3.png to another class").click()
    page.keyboard.insert_text("pink")
    page.keyboard.press("Enter")
    expect(page.locator("#model-summary")).to_contain_text("4 classes")
    page.get_by_role("button", name="Merge pink").click()
    assert page.locator("#classes-scroll").evaluate("table => table.scrollWidth <= table.clientWidth")  # nothing is cut
    for name in ("rde", "red"):
        page.get_by_label("Class into which pink is merged").fill(name)
        page.keyboard.press("Enter")
        if name == "rde":
            expect(page.locator("#class-rows .problem")).to_contain_text("no class 'rde'")
    expect(page.locator("#model-summary")).to_contain_text("3 classes, 24 photos")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(OVERLAPPING) == []
    page.get_by_role("button", name="Restore version 1").click()
    expect(page.locator("#model-summary")).to_contain_text("Version 1")
    assert [error for error in errors if "404" not in error] == []  # of the class that does not exist
    page.close()
