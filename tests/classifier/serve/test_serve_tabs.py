"""Two tabs of the web UI, and what the page tells about running steps and failed files."""

from pathlib import Path
from typing import Any

import pytest
from test_serve_page import make_photos, opened_page

from browsers import browser_fixture, needs_chromium, playwright  # noqa: F401
from cscct.classifier.serve import job as job_module
from cscct.classifier.serve.learning import LearningJob
from cscct.classifier.serve.staging import StagedBatch, StagedPhoto
from serving import YELLOW, folder_fixture, original_fixture, serving  # noqa: F401


@needs_chromium
def test_tabs_stay_consistent(browser: Any, folder: Path, tmp_path: Path) -> None:
    """Staged photos, the running step, its result and another version are visible in both tabs."""
    expect = playwright.expect
    with serving(folder) as address:
        (first, errors), (second, _) = opened_page(browser, address), opened_page(browser, address)
        first.fill("#teach-name", "yellow")
        first.set_input_files("#teach-files", make_photos(tmp_path, YELLOW, 5, "yellow"))
        expect(second.locator("#staged img")).to_have_count(5)
        second.get_by_role("button", name="Remove yellow-0.png").click()
        expect(first.locator("#staged img")).to_have_count(4)
        first.get_by_role("button", name="Learn 4 photos").click()
        expect(second.locator("#stop")).to_be_visible()
        for page in (first, second):
            expect(page.locator("#job-end")).to_contain_text("Version 3 learned")
            expect(page.locator("#class-rows tr")).to_have_count(4)
            expect(page.locator("#staged img")).to_have_count(0)
        second.locator("#undo").click()
        expect(first.locator("#model-summary")).to_contain_text("Version 2: 3 classes")
        assert errors == []
        first.close()
        second.close()


def test_remaining_time_does_not_increase(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Within a phase, even if it becomes slower."""
    clock = [0.0]
    monkeypatch.setattr("cscct.classifier.serve.learning.time.monotonic", lambda: clock[0])
    job = LearningJob(tmp_path, None, lambda: None)  # type: ignore[arg-type]

    def left(what: str, done: int, now: float) -> float | None:
        clock[0] = now
        job._progress({"what": what, "done": done, "total": 10})
        return job.info().seconds_left

    assert left("reading images", 0, 0.0) is None
    assert left("reading images", 5, 5.0) == 5.0
    assert left("reading images", 6, 60.0) == 5.0
    assert left("reading images", 9, 60.0) == 5.0
    assert left("evaluating", 0, 61.0) is None
    assert left("evaluating", 1, 62.0) == 9.0  # of this phase


def test_errors_of_a_step_name_the_file_of_the_user(tmp_path: Path) -> None:
    batch = StagedBatch("1234abcd", [StagedPhoto("ab" * 12, "owl", "owl-1.jpg", 10, 0.0)])
    text = f"No image can be read: {tmp_path / ('ab' * 12)}.image: damaged."
    assert job_module._with_filenames(text, tmp_path, batch) == "No image can be read: owl-1.jpg: damaged."
