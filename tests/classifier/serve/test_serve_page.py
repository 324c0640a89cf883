"""The web UI in a browser."""

import base64
from pathlib import Path
from typing import Any

from browsers import browser_fixture, needs_chromium, playwright  # noqa: F401
from serving import BLUE, RED, YELLOW, encoded, folder_fixture, original_fixture, serving  # noqa: F401

pytestmark = needs_chromium
LONG = 120_000  # milliseconds; upper bound for hanging tests
# Pairs of controls that overlap on the page.
OVERLAPPING = """() => {
  const shown = [...document.querySelectorAll("button, select, a, .button, input:not([type=file])")]
    .filter((element) => element.offsetParent && !element.closest(".scroll, .legend, .skip"));
  const before = (a, b) => a.right <= b.left + 1 || a.bottom <= b.top + 1;
  return shown.flatMap((one, i) => shown.slice(i + 1)
    .map((other) => [other, one.getBoundingClientRect(), other.getBoundingClientRect()])
    .filter(([, a, b]) => !before(a, b) && !before(b, a))
    .map(([other]) => `${one.outerHTML} ${other.outerHTML}`));
}"""
STRANGE = '<img src=x onerror="document.title=1">'


def make_photos(folder: Path, colour: tuple[int, int, int], count: int, name: str, seed: int = 0) -> list[Path]:
    paths = [folder / f"{name}-{number}.png" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(encoded(colour, seed + number))
    return paths


def opened_page(browser: Any, address: str, width: int = 1280) -> tuple[Any, list[str]]:
    """Open the page. Returns it with the list of its errors."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(LONG)
    playwright.expect.set_options(timeout=LONG)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith((address, "blob:")) else errors.append(request.url)
    )
    page.goto(address)
    playwright.expect(page.locator("#version-list li").first).to_be_visible()
    return page, errors


def best(page: Any, path: Path) -> str:
    """Classify a photo and return the best class."""
    page.set_input_files("#classify-files", path)
    playwright.expect(page.locator(".answer[aria-busy]")).to_have_count(0)
    card = page.locator(".card").filter(has_text=path.name).first
    return str(card.locator("ol.top li .label").first.inner_text())


def test_classify_correct_learn_and_undo(browser: Any, folder: Path, tmp_path: Path) -> None:
    expect = playwright.expect
    yellow = make_photos(tmp_path, YELLOW, 5, "yellow")
    (query, wrong), (red,) = make_photos(tmp_path, YELLOW, 2, "query", 50), make_photos(tmp_path, RED, 1, "red", 50)
    with serving(folder) as address:
        page, errors = opened_page(browser, address)
        expect(page.locator("#model-summary")).to_contain_text("Version 2: 3 classes, 18 photos")
        assert best(page, red) == "red"
        assert best(page, wrong) != STRANGE

        card = page.locator(".card").filter(has_text=wrong.name)
        card.get_by_role("button", name="Correct").or_(card.get_by_role("button", name="Add label")).click()
        card.get_by_role("combobox").fill(STRANGE)
        card.get_by_role("button", name="Add", exact=True).click()
        expect(card.locator(".taught")).to_have_text(f"Will be learned as {STRANGE}")
        expect(page.locator("#staged img")).to_have_count(1)

        page.fill("#teach-name", STRANGE)
        page.set_input_files("#teach-files", yellow)
        expect(page.locator("#staged img")).to_have_count(6)
        page.get_by_role("button", name=f"Remove {yellow[0].name}").click()
        expect(page.locator("#staged img")).to_have_count(5)

        page.get_by_role("button", name="Learn 5 photos").click()
        expect(page.locator("#job")).to_be_visible()
        expect(page.locator("#job-end")).to_contain_text("Version 3 learned")
        expect(page.locator("#class-rows tr")).to_have_count(4)
        expect(page.locator("#class-rows tr").first).to_contain_text(STRANGE)  # new classes first
        expect(card.locator(".taught")).to_have_text(f"Learned as {STRANGE}")
        expect(card.get_by_role("button", name="Take back")).to_have_count(0)
        expect(page.locator("#staged img")).to_have_count(0)
        expect(page.locator("#map-box svg .ring")).to_have_count(4)
        assert best(page, query) == STRANGE

        page.locator("#undo").click()
        expect(page.locator("#model-summary")).to_contain_text("Version 2: 3 classes")
        page.get_by_role("button", name="Clear").click()
        assert best(page, query) != STRANGE
        page.get_by_role("button", name="Restore version 3").click()
        expect(page.locator("#model-summary")).to_contain_text("Version 3: 4 classes")
        assert page.title() == "colours · cscct"  # user input is not interpreted as HTML
        assert errors == []
        page.close()


def test_errors_are_shown_in_place(browser: Any, folder: Path, tmp_path: Path) -> None:
    expect = playwright.expect
    (tmp_path / "notes.png").write_text("no image")
    (blue,) = make_photos(tmp_path, BLUE, 1, "blue")
    with serving(folder) as address:
        page, _ = opened_page(browser, address)
        page.set_input_files("#teach-files", blue)
        expect(page.locator("#teach-problem")).to_have_text("Enter a class name before adding photos.")
        assert page.evaluate("document.activeElement.id") == "teach-name"
        page.set_input_files("#classify-files", [tmp_path / "notes.png", blue])
        expect(page.locator(".card .problem")).to_have_text("notes.png cannot be read: not an image.")
        expect(page.locator("ol.top li .label").first).to_have_text("blue")
        page.fill("#teach-name", "blue")
        page.set_input_files("#teach-files", [tmp_path / "notes.png", blue])
        expect(page.locator("#teach-problem")).to_have_text("notes.png cannot be read: not an image.")
        expect(page.locator("#staged img")).to_have_count(1)
        page.close()


def drop(page: Any, selector: str, *paths: Path) -> None:
    """Drop files or folders with the mouse."""
    box = page.locator(selector).bounding_box()
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + 10}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})


def choose_folder(page: Any, selector: str, folder: Path) -> None:
    """Give an input the files that a browser lists after a folder was chosen in its dialog, which cannot be driven."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = [path.relative_to(folder.parent).as_posix() for path in files]
    script = """(input, { names, pixels }) => {
      const bytes = Uint8Array.from(atob(pixels), (letter) => letter.charCodeAt(0));
      const files = names.map((path) => {
        const file = new File([bytes], path.split("/").at(-1), { type: "image/png" });
        return Object.defineProperty(file, "webkitRelativePath", { value: path });
      });
      Object.defineProperty(input, "files", { value: files, configurable: true });
      input.dispatchEvent(new Event("change"));
    }"""
    pixels = base64.b64encode(encoded(YELLOW, len(names))).decode()
    page.locator(selector).evaluate(script, {"names": names, "pixels": pixels})


def make_tree(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(encoded(YELLOW, len(name)))
    return root


def test_photos_and_folders_can_be_dropped(browser: Any, folder: Path, tmp_path: Path) -> None:
    expect = playwright.expect
    (blue,) = make_photos(tmp_path, BLUE, 1, "blue")
    for name, count in (("yellow", 3), ("red", 2)):
        (tmp_path / name / "deeper").mkdir(parents=True)
        make_photos(tmp_path / name, YELLOW, count, name)
    with serving(folder) as address:
        page, errors = opened_page(browser, address)
        drop(page, "#classify-zone", blue)
        expect(page.locator("ol.top li .label").first).to_have_text("blue")
        drop(page, "#teach-zone", tmp_path / "yellow", tmp_path / "red")
        expect(page.locator("#staged h4")).to_have_text(["yellow 3 photosnew", "red 2 photos"])
        drop(page, "footer", blue)  # outside of the zones
        expect(page.locator("#staged img")).to_have_count(5)
        drop(page, "#teach-zone", make_tree(tmp_path / "photos", "lily/2024/a.png", "lily/b.png", "__MACOSX/c.png"))
        expect(page.locator("#staged h4").last).to_have_text("lily 2 photosnew")
        tree = make_tree(tmp_path / "divided", "train/rose/2024/a.png", "test/rose/b.png", "train/rose/.hidden.png")
        choose_folder(page, "#teach-folder", tree)
        expect(page.locator("#staged h4").last).to_have_text("rose 1 photonew")
        choose_folder(page, "#teach-folder", make_tree(tmp_path / "tulip", "a.png", "2024/b.png"))
        expect(page.locator("#staged h4").last).to_have_text("tulip 2 photosnew")
        (make_tree(tmp_path / "iris", "2024/a.png") / "2024" / "b.png").write_text("no image")
        drop(page, "#teach-zone", tmp_path / "iris", tmp_path / "red")
        expect(page.locator("#teach-problem")).to_have_text("iris/2024/b.png cannot be read: not an image.")
        assert page.url.rstrip("/") == address
        assert [error for error in errors if "422" not in error] == []  # of the file that is no image
        page.close()


def test_narrow_screen_and_keyboard(browser: Any, folder: Path, tmp_path: Path) -> None:
    with serving(folder) as address:
        page, errors = opened_page(browser, address, width=390)
        best(page, make_photos(tmp_path, RED, 1, "a very long name of a file" * 6)[0])
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate(OVERLAPPING) == []
        for _ in range(80):
            page.keyboard.press("Tab")
            page.evaluate("document.activeElement.dataset.reached = 1")
        unreached = """elements => elements.filter(element => element.offsetParent && !element.disabled)
            .map(element => element.outerHTML)"""
        controls = "button, input, select, a, [tabindex]"
        assert page.locator(controls).count() > 40
        assert page.locator(controls).and_(page.locator(":not([data-reached])")).evaluate_all(unreached) == []
        page.locator("#map-legend button").first.focus()
        page.keyboard.press("Enter")
        playwright.expect(page.locator("#map-photos img")).to_have_count(3)
        assert errors == []
        page.close()


def test_rename_and_forget_with_the_keyboard(browser: Any, folder: Path) -> None:
    expect = playwright.expect
    with serving(folder) as address:
        page, errors = opened_page(browser, address)
        page.get_by_role("button", name="Rename red").focus()
        for word in ("blue", STRANGE):
            page.keyboard.press("Enter")
            page.keyboard.insert_text(word)  # replaces the selected text
            page.keyboard.press("Enter")
            if word == "blue":
                expect(page.locator("#class-rows .problem")).to_contain_text("Two classes would have the name 'blue'")
                page.keyboard.press("Escape")
        expect(page.locator("#model-summary")).to_contain_text("Version 3: 3 classes")
        expect(page.locator("#class-rows tr th")).to_have_text(["blue", STRANGE, "green"])
        expect(page.get_by_role("button", name=f"Rename {STRANGE}")).to_be_focused()
        page.keyboard.press("Tab")  # Merge
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name=f"Forget {STRANGE}")).to_have_text("Confirm")
        expect(page.locator("#model-summary")).to_contain_text("Version 3: 3 classes")
        page.keyboard.press("Enter")
        expect(page.locator("#class-rows tr th")).to_have_text(["blue", "green"])
        expect(page.get_by_role("button", name="Forget green")).to_be_focused()
        blue, green = (page.get_by_role("button", name=f"Forget {name}") for name in ("blue", "green"))
        slow: list[Any] = []  # delays the map until the next class is selected
        page.route("**/api/map", lambda route: slow.append(route))
        blue.click()
        expect(blue).to_have_text("Confirm")
        blue.click()
        expect(blue).to_have_count(0)
        while not slow:
            page.wait_for_timeout(10)
        green.click()
        slow.pop().continue_()
        expect(page.locator("#live")).to_contain_text("forgotten")
        page.unroute("**/api/map")
        expect(green).to_have_text("Confirm")
        green.click()
        expect(green).to_have_count(0)
        expect(page.locator("#classify-empty")).to_be_visible()
        expect(page.locator("#map-box svg")).to_have_count(0)
        page.get_by_role("button", name="Restore version 2").click()
        expect(page.locator("#class-rows tr th")).to_have_text(["blue", "green", "red"])
        assert [error for error in errors if "409" not in error] == []  # browsers log failed requests
        page.close()


def test_login(browser: Any, folder: Path) -> None:
    with serving(folder, token="the right token") as address:
        page = browser.new_page()
        page.goto(address)
        playwright.expect(page.get_by_role("alert")).to_be_hidden()
        page.fill("#token", "a wrong token")
        page.get_by_role("button", name="Log in").click()
        playwright.expect(page.get_by_role("alert")).to_have_text("This token is wrong.")
        page.fill("#token", "the right token")
        page.get_by_role("button", name="Log in").click()
        playwright.expect(page.locator("#model-name")).to_have_text("colours")
        page.close()
