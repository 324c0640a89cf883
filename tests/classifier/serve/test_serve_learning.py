"""The learning step as the server sees it."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from cscct.classifier.serve import learning
from cscct.classifier.serve.job import learn_batch
from cscct.classifier.serve.learning import LearningJob
from cscct.classifier.serve.limits import Limits
from cscct.classifier.serve.staging import Staging, read_batch
from cscct.classifier.serve.uploads import Upload
from serving import YELLOW, encoded, folder_fixture, original_fixture  # noqa: F401


def job_with_photographs(folder: Path) -> LearningJob:
    staging = Staging(folder / "staging", Limits())
    staging.folder.mkdir()
    photograph = folder.parent / "photograph.png"
    photograph.write_bytes(encoded(YELLOW))
    staging.add("yellow", [Upload(photograph, "a.png")])
    return LearningJob(folder, staging, lambda: None)


class Waiting(subprocess.Popen[str]):
    """A process that says nothing and waits to be killed. before: called when it has begun."""

    before: Any = staticmethod(lambda: None)

    def __init__(self, _: list[str], **options: Any):
        super().__init__(["sleep", "600"], **options)
        self.before()


def test_a_step_that_is_stopped_after_its_commit_is_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its photographs are not learned a second time."""
    monkeypatch.setattr(learning.subprocess, "Popen", Waiting)
    job = job_with_photographs(folder)
    job.start()
    learn_batch(folder, read_batch(folder / "staging"), lambda *_: None)
    job.stop()
    info = job.info()
    assert (info.state, info.version, info.error) == ("done", 3, None)
    assert not job.staging.all()


def test_a_step_can_be_stopped_while_it_starts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_with_photographs(folder)
    stopper = threading.Thread(target=job.stop)

    def stop_meanwhile() -> None:
        stopper.start()
        stopper.join(0.2)  # it has to wait until the step has started

    monkeypatch.setattr(Waiting, "before", staticmethod(stop_meanwhile))
    monkeypatch.setattr(learning.subprocess, "Popen", Waiting)
    job.start()
    stopper.join(60)
    try:
        assert job.info().state == "failed"
        assert len(job.staging.all()) == 1
    finally:
        job.stop()


def test_a_step_whose_files_fail_is_not_running_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(learning.subprocess, "Popen", Waiting)
    job = job_with_photographs(folder)
    monkeypatch.setattr(job.staging, "end", fail)
    job.start()
    job.stop()
    assert job.info().state == "failed"
    assert "Input/output error" in (job.info().error or "")
