"""Curves, bars and maps."""

from pathlib import Path

import numpy as np
import pytest

from cscct.analysis.groups import Group, group_runs
from cscct.analysis.load import find_runs, read_runs
from cscct.analysis.measures import forgetting_of
from cscct.analysis.statistics import summarise
from cscct.reporting.canvas import ReportFigure
from cscct.reporting.figures import apt_and_act, forgetting
from cscct.reporting.maps import accuracy_limits, accuracy_map
from reports import FIXED
from synthetic import make_run


def groups_in(folder: Path) -> list[Group]:
    return group_runs(read_runs(find_runs([folder]), lambda _: None))


def legend(picture: ReportFigure) -> list[str]:
    return [text.get_text() for text in picture.figure.legends[0].get_texts()]


@pytest.mark.parametrize("seeds", [1, 2])
def test_error_bars_are_explained(tmp_path: Path, seeds: int) -> None:
    for seed in range(seeds):
        make_run(tmp_path / str(seed), "lucir", "digits", FIXED, seed=seed)
    (group,) = groups_in(tmp_path)
    bars = forgetting("x", group, *forgetting_of(group), (0.0, 50.0))
    for picture in (bars, apt_and_act(summarise([group]))):
        assert ("Black lines: ± one standard deviation over seeds." in picture.caption) == (seeds > 1)
        assert ("± one standard deviation over seeds" in legend(picture)) == (seeds > 1)


def test_accuracy_matrices_share_a_colour_scale(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir")
    make_run(tmp_path / "b", "podnet")
    groups = groups_in(tmp_path)
    values = np.concatenate([np.concatenate(run.matrix) for group in groups for run in group.runs])
    low, high = accuracy_limits(groups)
    assert low <= values.min() < low + 5
    assert high - 5 < values.max() <= high
    for group in groups:
        axes, bar = accuracy_map("x", group, (low, high)).figure.axes
        assert axes.images[0].get_clim() == (low, high)
        assert bar.get_ylabel() == "accuracy (%)"


@pytest.mark.parametrize(("value", "limits"), [(0.0, (0, 5)), (100.0, (95, 100)), (float("nan"), (0, 100))])
def test_the_colour_scale_is_never_empty(tmp_path: Path, value: float, limits: tuple[float, float]) -> None:
    make_run(tmp_path / "a")
    (group,) = groups_in(tmp_path)
    matrix = group.runs[0].result["matrix"]["classifier"]
    matrix[:] = [[value] * len(row) for row in matrix]
    assert accuracy_limits([group]) == limits
    accuracy_map("x", group, limits)


def test_long_labels_of_bars_are_wrapped(tmp_path: Path) -> None:
    for k in (5, 9):
        sets = (
            "train.weight_decay=0.001",
            f"memory.per_class={k}",
            f"train.lr={k}.0",
            f"network.depth={8 + 6 * (k > 5)}",
        )
        make_run(tmp_path / str(k), "lucir+cscct", "digits", *sets)
    groups = groups_in(tmp_path)
    ticks = apt_and_act(summarise(groups)).figure.axes[0].get_yticklabels()
    assert [" ".join(tick.get_text().split()) for tick in ticks] == [group.label for group in groups]
    assert max(len(line) for tick in ticks for line in tick.get_text().split("\n")) <= 34
