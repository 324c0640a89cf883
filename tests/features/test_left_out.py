"""Predictions of samples by fits without them and their near-duplicates, compared with slow refits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cscct.features import PREDICTORS, ClassStatistics, discriminant, left_out_predictions, near_duplicates
from cscct.features.discriminant import GaussianClasses, fit_lda
from cscct.features.left_out import FoldFit, select_samples
from cscct.features.regression import fit_ridge
from feature_classes import classes, statistics

CLOSED = ["ncm", "lda", "ridge"]  # with a closed form


def with_bursts(shape: tuple[int, int] = (9, 14)) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Three classes; the first has a burst of three and one of two samples, the third consists of one burst."""
    features = classes(3, shape, spread=0.7)
    noise = torch.from_numpy(np.random.default_rng(0).normal(size=(9, shape[1]))).float() * 0.02
    features[0][[3, 6]] = features[0][1] + noise[:2]
    features[0][8] = features[0][5] + noise[2]
    features[2] = features[2][:1] + noise[:4]
    groups = near_duplicates(statistics(features))
    assert [None if group is None else len(group.unique()) for group in groups] == [shape[0] - 3, None, 1]
    return features, list(groups)


def refit(name: str, features: list[torch.Tensor], fit: object) -> object:
    """The same predictor with the same hyperparameters, fitted to other samples."""
    if name == "lda":
        model = GaussianClasses(statistics(features))
        model.freedom, model.scale = fit.freedom, fit.scale  # type: ignore[attr-defined]
        scatter = sum(stats.centred.T @ stats.centred for stats in statistics(features))
        values, basis = torch.linalg.eigh(scatter / fit.freedom)  # type: ignore[attr-defined]
        model.spectrum = discriminant.Spectrum(values.clamp(min=0), basis)
        model._means = model._coordinates(model.means)
        model.shrinkage = fit.shrinkage  # type: ignore[attr-defined]
        return model.predictor
    if name == "ridge":
        return fit_ridge(statistics(features), penalty=fit.penalty).predictor  # type: ignore[attr-defined]
    return PREDICTORS[name]().fit(statistics(features))


@pytest.mark.parametrize("name", CLOSED)
def test_left_out_predictions_equal_refits(name: str) -> None:
    features, groups = with_bursts()
    fit = PREDICTORS[name]().leave_out(statistics(features), groups)
    table = left_out_predictions(fit, statistics(features), groups)
    position = 0
    for label, rows in enumerate(features):
        for index in range(len(rows)):
            group = groups[label]
            removed = torch.arange(len(rows)) == index if group is None else group == group[index]
            if bool(removed.all()):
                assert table.predicted[position] == -1
            else:
                rest = [*features[:label], rows[~removed], *features[label + 1 :]]
                head = replace(refit(name, rest, fit), temperature=fit.predictor.temperature)  # type: ignore[type-var]
                expected = head.log_probabilities(rows[index : index + 1])[0].exp()
                assert float(table.own[position]) == pytest.approx(float(expected[label]), rel=1e-3, abs=1e-5)
                assert float(table.best[position]) == pytest.approx(float(expected.max()), rel=1e-3, abs=1e-5)
            position += 1


def test_large_feature_vectors_give_the_same_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The spectrum of wide features is computed with 32 bits, the weights with 64."""
    features, groups = with_bursts((20, 30))
    exact = fit_lda(statistics(features), groups)
    table = left_out_predictions(exact, statistics(features), groups)
    monkeypatch.setattr(discriminant, "WIDE", 30)
    wide = fit_lda(statistics(features), groups)
    assert (wide.covariance is None, exact.covariance is None) == (False, True)
    assert wide.shrinkage == exact.shrinkage
    torch.testing.assert_close(wide.predictor.weight, exact.predictor.weight, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        left_out_predictions(wide, statistics(features), groups).own, table.own, rtol=1e-2, atol=1e-3
    )


def test_the_search_finds_the_best_candidate() -> None:
    for seed in range(6):
        model = GaussianClasses(statistics(classes(4, (4 + 4 * seed, 25), seed)))
        losses = [model.calibration(shrinkage).loss for shrinkage in discriminant.SHRINKAGES]
        assert (
            fit_lda(statistics(classes(4, (4 + 4 * seed, 25), seed))).shrinkage
            == discriminant.SHRINKAGES[int(np.argmin(losses))]
        )


def test_untested_and_single_samples() -> None:
    features = [*classes(2, (5, 8)), classes(1, (5, 8), 1)[0][:1], torch.randn(20, 8)]
    stats = [ClassStatistics.of(rows) for rows in features]
    tested = [torch.arange(stat.count) % 2 == 0 for stat in stats]
    for name in CLOSED:
        table = left_out_predictions(PREDICTORS[name]().leave_out(stats, None), stats, None, tested)
        assert (table.predicted >= 0).tolist() == [True, False, True, False, True] * 2 + [False]


def test_predictors_without_a_closed_form_are_fitted_again() -> None:
    """Near-duplicates are in the same fold, and no fold contains a whole class."""
    features, groups = with_bursts()
    fit = FoldFit(PREDICTORS["ncm"](), statistics(features), groups, 0)
    table = left_out_predictions(fit, statistics(features), groups)
    assert (table.predicted >= 0).tolist() == [True] * 18 + [False] * 4
    members = torch.tensor([1, 3, 6])
    assert len(fit.folds[0][members].unique()) == 1
    kept = fit.folds[0] != fit.folds[0][1]
    head = PREDICTORS["ncm"]().fit(statistics([features[0][kept], *_without_fold(features, fit, 1)]))
    expected = head.log_probabilities(features[0][members]).exp()[:, 0]
    torch.testing.assert_close(table.own[members].double(), expected, rtol=1e-4, atol=1e-5)


def _without_fold(features: list[torch.Tensor], fit: FoldFit, start: int) -> list[torch.Tensor]:
    fold = fit.folds[0][1]
    rest = [rows[folds != fold] for rows, folds in zip(features[start:], fit.folds[start:], strict=True)]
    return [part if len(part) else rows for rows, part in zip(features[start:], rest, strict=True)]


def test_selected_samples_of_many_classes_do_not_depend_on_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cscct.features.left_out.MAX_SELECTED", 5)
    rows = torch.randn(20, 3, 4, generator=torch.Generator().manual_seed(0))
    classes = [ClassStatistics.of(samples) for samples in rows]
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1)).tolist()
    selected, shuffled = (select_samples([classes[label] for label in labels]) for labels in (range(20), order))
    assert len(selected.labels.unique()) == 5
    assert len(selected.labels) == 10
    assert sorted(selected.labels.tolist()) == sorted(order[label] for label in shuffled.labels)
