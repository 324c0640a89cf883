"""Learning steps of the server."""

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


def job_with_staged_photo(folder: Path) -> LearningJob:
    staging = Staging(folder / "staging", Limits())
    staging.folder.mkdir()
    photo = folder.parent / "photograph.png"
    photo.write_bytes(encoded(YELLOW))
    staging.add("yellow", [Upload(photo, "a.png")])
    return LearningJob(folder, staging, lambda: None)


class IdleProcess(subprocess.Popen[str]):
    """A process without output that runs until killed. `on_start` is called after it has started."""

    on_start: Any = staticmethod(lambda: None)

    def __init__(self, _: list[str], **options: Any):
        super().__init__(["sleep", "600"], **options)
        self.on_start()


def test_step_stopped_after_its_commit_is_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The photos are not learned twice."""
    monkeypatch.setattr(learning.subprocess, "Popen", IdleProcess)
    job = job_with_staged_photo(folder)
    job.start()
    learn_batch(folder, read_batch(folder / "staging"), lambda *_: None)
    job.stop()
    info = job.info()
    assert (info.state, info.version, info.error) == ("done", 3, None)
    assert not job.staging.all()


def test_step_can_be_stopped_during_its_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_with_staged_photo(folder)
    stopper = threading.Thread(target=job.stop)

    def stop_concurrently() -> None:
        stopper.start()
        stopper.join(0.2)  # blocks until the step has started

    monkeypatch.setattr(IdleProcess, "on_start", staticmethod(stop_concurrently))
    monkeypatch.setattr(learning.subprocess, "Popen", IdleProcess)
    job.start()
    stopper.join(60)
    try:
        assert job.info().state == "failed"
        assert len(job.staging.all()) == 1
    finally:
        job.stop()


def test_storage_error_at_the_end_fails_the_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(learning.subprocess, "Popen", IdleProcess)
    job = job_with_staged_photo(folder)
    monkeypatch.setattr(job.staging, "end", fail)
    job.start()
    job.stop()
    assert job.info().state == "failed"
    assert "Input/output error" in (job.info().error or "")
