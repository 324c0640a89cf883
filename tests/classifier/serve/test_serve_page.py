"""The page in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from browsers import browser_fixture, needs_chromium, playwright  # noqa: F401
from serving import BLUE, RED, YELLOW, encoded, folder_fixture, original_fixture, serving  # noqa: F401

pytestmark = needs_chromium
LONG = 120_000  # milliseconds; only ends what hangs
STRANGE = '<img src=x onerror="document.title=1">'


def photographs(folder: Path, colour: tuple[int, int, int], count: int, name: str, seed: int = 0) -> list[Path]:
    paths = [folder / f"{name}-{number}.png" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(encoded(colour, seed + number))
    return paths


def opened_page(browser: Any, address: str, width: int = 1280) -> tuple[Any, list[str]]:
    """The page, and what went wrong in it so far."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(LONG)
    playwright.expect.set_options(timeout=LONG)
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda one: None if one.url.startswith((address, "blob:")) else troubles.append(one.url))
    page.goto(address)
    playwright.expect(page.locator("#version-list li").first).to_be_visible()
    return page, troubles


def best(page: Any, path: Path) -> str:
    """The first answer for a photograph."""
    page.set_input_files("#classify-files", path)
    playwright.expect(page.locator(".answer[aria-busy]")).to_have_count(0)
    card = page.locator(".card").filter(has_text=path.name).first
    return str(card.locator("ol.top li .label").first.inner_text())


def test_classify_correct_teach_learn_and_undo(browser: Any, folder: Path, tmp_path: Path) -> None:
    expect = playwright.expect
    yellow = photographs(tmp_path, YELLOW, 5, "yellow")
    (query, wrong), (red,) = photographs(tmp_path, YELLOW, 2, "query", 50), photographs(tmp_path, RED, 1, "red", 50)
    with serving(folder) as address:
        page, troubles = opened_page(browser, address)
        expect(page.locator("#model-summary")).to_contain_text("Version 2: 3 classes, 18 photographs")
        assert best(page, red) == "red"
        assert best(page, wrong) != STRANGE

        card = page.locator(".card").filter(has_text=wrong.name)
        card.get_by_role("button", name="Correct it").or_(card.get_by_role("button", name="Name it")).click()
        card.get_by_role("combobox").fill(STRANGE)
        card.get_by_role("button", name="Teach").click()
        expect(card.locator(".taught")).to_have_text(f"Next step learns it as {STRANGE}")
        expect(page.locator("#staged img")).to_have_count(1)

        page.fill("#teach-name", STRANGE)
        page.set_input_files("#teach-files", yellow)
        expect(page.locator("#staged img")).to_have_count(6)
        page.get_by_role("button", name=f"Remove {yellow[0].name}").click()
        expect(page.locator("#staged img")).to_have_count(5)

        page.get_by_role("button", name="Learn 5 photographs").click()
        expect(page.locator("#job")).to_be_visible()
        expect(page.locator("#job-end")).to_contain_text("this is version 3")
        expect(page.locator("#class-rows tr")).to_have_count(4)
        expect(page.locator("#class-rows tr").last).to_contain_text(STRANGE)
        expect(page.locator("#staged img")).to_have_count(0)
        expect(page.locator("#map-box svg .ring")).to_have_count(4)
        assert best(page, query) == STRANGE

        page.get_by_role("button", name="Undo the last step").click()
        expect(page.locator("#model-summary")).to_contain_text("Version 2: 3 classes")
        page.get_by_role("button", name="Clear").click()
        assert best(page, query) != STRANGE
        page.get_by_role("button", name="Restore version 3").click()
        expect(page.locator("#model-summary")).to_contain_text("Version 3: 4 classes")
        assert page.title() == "colours · cscct"  # no text became HTML
        assert troubles == []
        page.close()


def test_mistakes_are_told_where_they_happen(browser: Any, folder: Path, tmp_path: Path) -> None:
    expect = playwright.expect
    (tmp_path / "notes.png").write_text("no image")
    (blue,) = photographs(tmp_path, BLUE, 1, "blue")
    with serving(folder) as address:
        page, _ = opened_page(browser, address)
        page.set_input_files("#teach-files", blue)
        expect(page.locator("#teach-problem")).to_have_text("Name the class first, then add its photographs.")
        assert page.evaluate("document.activeElement.id") == "teach-name"
        page.set_input_files("#classify-files", [tmp_path / "notes.png", blue])
        expect(page.locator(".card .problem")).to_have_text("notes.png cannot be used: not an image.")
        expect(page.locator("ol.top li .label").first).to_have_text("blue")
        page.fill("#teach-name", "blue")
        page.set_input_files("#teach-files", [tmp_path / "notes.png", blue])
        expect(page.locator("#teach-problem")).to_have_text("notes.png cannot be used: not an image.")
        expect(page.locator("#staged img")).to_have_count(1)
        page.close()


def drop(page: Any, selector: str, *paths: Path) -> None:
    """As a person does it with the mouse, folders too."""
    box = page.locator(selector).bounding_box()
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + 10}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})


def test_photographs_and_folders_are_dropped(browser: Any, folder: Path, tmp_path: Path) -> None:
    expect = playwright.expect
    (blue,) = photographs(tmp_path, BLUE, 1, "blue")
    for name, count in (("yellow", 3), ("red", 2)):
        (tmp_path / name / "deeper").mkdir(parents=True)
        photographs(tmp_path / name, YELLOW, count, name)
    with serving(folder) as address:
        page, troubles = opened_page(browser, address)
        drop(page, "#classify-zone", blue)
        expect(page.locator("ol.top li .label").first).to_have_text("blue")
        drop(page, "#teach-zone", tmp_path / "yellow", tmp_path / "red")
        expect(page.locator("#staged h4")).to_have_text(["yellow 3 photographsnew", "red 2 photographs"])
        drop(page, "footer", blue)  # beside the zones
        expect(page.locator("#staged img")).to_have_count(5)
        assert page.url.rstrip("/") == address
        assert troubles == []
        page.close()


def test_it_fits_a_telephone_and_works_with_the_keyboard(browser: Any, folder: Path, tmp_path: Path) -> None:
    with serving(folder) as address:
        page, troubles = opened_page(browser, address, width=375)
        best(page, photographs(tmp_path, RED, 1, "a very long name of a file" * 6)[0])
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        names: set[str] = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            names.add(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
        assert {"classify-files", "teach-name", "teach-files", "undo", "Correct it", "red"} <= names
        page.locator("#map-legend button").first.focus()
        page.keyboard.press("Enter")
        playwright.expect(page.locator("#map-photos img")).to_have_count(3)
        assert troubles == []
        page.close()


def test_classes_are_renamed_and_forgotten_with_the_keyboard(browser: Any, folder: Path) -> None:
    expect = playwright.expect
    with serving(folder) as address:
        page, troubles = opened_page(browser, address)
        page.get_by_role("button", name="Rename red").focus()
        for word in ("blue", STRANGE):
            page.keyboard.press("Enter")
            page.keyboard.insert_text(word)  # what was there is selected
            page.keyboard.press("Enter")
            if word == "blue":
                expect(page.locator("#class-rows .problem")).to_contain_text("Two classes would be called 'blue'")
                page.keyboard.press("Escape")
        expect(page.locator("#model-summary")).to_contain_text("Version 3: 3 classes")
        expect(page.locator("#class-rows tr th")).to_have_text(["green", STRANGE, "blue"])
        expect(page.get_by_role("button", name=f"Rename {STRANGE}")).to_be_focused()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name=f"Forget {STRANGE}")).to_have_text("Press again")
        expect(page.locator("#model-summary")).to_contain_text("Version 3: 3 classes")
        page.keyboard.press("Enter")
        expect(page.locator("#class-rows tr th")).to_have_text(["green", "blue"])
        expect(page.get_by_role("button", name="Forget blue")).to_be_focused()
        blue, green = (page.get_by_role("button", name=f"Forget {name}") for name in ("blue", "green"))
        slow: list[Any] = []  # the map that follows a change comes late, when the person is already at the next class
        page.route("**/api/map", lambda route: slow.append(route))
        blue.click()
        expect(blue).to_have_text("Press again")
        blue.click()
        expect(blue).to_have_count(0)
        while not slow:
            page.wait_for_timeout(10)
        green.click()
        slow.pop().continue_()
        expect(page.locator("#live")).to_contain_text("is forgotten")
        page.unroute("**/api/map")
        expect(green).to_have_text("Press again")
        green.click()
        expect(green).to_have_count(0)
        expect(page.locator("#classify-empty")).to_be_visible()
        expect(page.locator("#map-box svg")).to_have_count(0)
        page.get_by_role("button", name="Restore version 2").click()
        expect(page.locator("#class-rows tr th")).to_have_text(["green", "red", "blue"])
        assert [one for one in troubles if "409" not in one] == []  # the browser tells of refusals itself
        page.close()


def test_the_token_is_asked_for(browser: Any, folder: Path) -> None:
    with serving(folder, token="the right token") as address:
        page = browser.new_page()
        page.goto(address)
        page.fill("#token", "the right token")
        page.get_by_role("button", name="Log in").click()
        playwright.expect(page.locator("#model-name")).to_have_text("colours")
        page.close()
