"""The model of a run as a classifier."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cscct
from conftest import run_quietly
from cscct import IncrementalClassifier, UserError
from cscct.config import resolve
from cscct.learn.dataset import load_dataset


@pytest.mark.parametrize("method", ["lucir", "icarl", "podnet"])
def test_it_predicts_as_the_run_and_learns_more(method: str, tmp_path: Path) -> None:
    run_quietly(tmp_path / "run", method, "train.epochs=1", "protocol.base=4", "protocol.step=2", "data.classes=6")
    trained, model = cscct.load(tmp_path / "run"), IncrementalClassifier.load(tmp_path / "run")
    test = load_dataset(resolve("lucir", "digits"), None, lambda _: None).test
    x, y = test.images.pixels.numpy(), test.labels
    assert model.class_names == trained.class_names
    np.testing.assert_array_equal(model.predict(x), trained.predict(x))
    np.testing.assert_allclose(model.predict_proba(x), trained.predict_proba(x), atol=1e-6)
    model.rename({model.class_names[0]: "nought"})
    np.testing.assert_array_equal(model.predict(x) == "nought", trained.predict(x) == trained.class_names[0])
    np.testing.assert_allclose(model.predict_proba(x), trained.predict_proba(x), atol=1e-6)
    model.rename({"nought": trained.class_names[0]})
    names = set(model.class_names)
    fresh = next(digit for digit in range(10) if str(digit) not in names)
    model.learn(x[y == fresh], str(fresh))
    assert model.class_names == (*trained.class_names, str(fresh))
    assert (model.predict(x[y == fresh]) == str(fresh)).mean() > 0.5
    assert model.predict_proba(x[:3]).shape == (3, 7)
    assert model.forget(str(fresh)).class_names == trained.class_names
    with pytest.raises(UserError, match="stays in its run folder"):
        model.save(tmp_path / "m")
    with pytest.raises(UserError, match="cannot be fitted anew"):
        model.fit(x, y)
    with pytest.raises(UserError, match="means of its classes alone"):
        model.set_params(predictor="lda").learn(x[y == fresh], str(fresh))
