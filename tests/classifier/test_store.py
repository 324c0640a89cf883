"""A model on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cscct import IncrementalClassifier, load
from cscct.classifier.store import ModelFolder
from small_models import Colours, blobs, colours_model, pictures


def test_a_saved_model_answers_as_before(tmp_path: Path) -> None:
    model = colours_model()
    model.save(tmp_path / "m", "first")
    for again in (
        IncrementalClassifier.load(tmp_path / "m", backbone=Colours()),
        load(tmp_path / "m", backbone=Colours()),
    ):
        queries = pictures((90, 60, 90), 4)
        np.testing.assert_array_equal(again.predict_proba(queries), model.predict_proba(queries))
        assert again.exemplars_ == model.exemplars_
        assert again.report_ == model.report_
        assert again.history_ == model.history_


def test_versions_can_be_undone_and_restored(tmp_path: Path) -> None:
    x, y = blobs(4, 6)
    model = IncrementalClassifier(None).learn(x[y < 2], y[y < 2])
    folder = ModelFolder(tmp_path / "m")
    assert folder.commit(model, "two") == 1
    assert folder.commit(model.learn(x[y >= 2], y[y >= 2]), "four") == 2
    assert [(one.message, one.classes, one.images) for one in folder.versions()] == [
        ("two", [0, 1], 12),
        ("four", [0, 1, 2, 3], 24),
    ]
    assert folder.undo().number == 1
    assert list(folder.load().classes_) == [0, 1]
    assert folder.restore(2).current
    assert list(folder.load().classes_) == [0, 1, 2, 3]
    assert list(folder.load(1).classes_) == [0, 1]
    folder.discard_history()
    assert [one.number for one in folder.versions()] == [2]
