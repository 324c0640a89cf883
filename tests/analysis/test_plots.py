"""Plots of accuracy."""

from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from cscct.analysis.groups import group_plan
from cscct.analysis.load import read_run
from cscct.analysis.measures import accuracy_curve
from cscct.analysis.plots import draw_curves, save_curves
from planning import QUICK, small_plan
from synthetic import groups_in, make_run


def test_curve_of_one_run(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    axes, run = Figure().add_subplot(), read_run(tmp_path / "a")
    (line,) = draw_curves(axes, [accuracy_curve([run], "mine")], [{"color": "red"}])
    assert list(line.get_ydata()) == run.curve
    assert list(line.get_xdata()) == [4, 6, 8, 10]
    assert (line.get_label(), line.get_color()) == ("mine", "red")
    assert not axes.collections  # one seed has no band


def test_curves_of_several_seeds_have_bands_and_distinct_styles(tmp_path: Path) -> None:
    for method in ("lucir", "podnet"):
        for seed in (1, 2):
            make_run(tmp_path / f"{method}-{seed}", method, seed=seed)
    axes = Figure().add_subplot()
    lines = draw_curves(axes, [accuracy_curve(group.runs, group.label) for group in groups_in(tmp_path)])
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 2
    assert len(axes.collections) == 2
    assert axes.get_ylim()[0] >= 0


def test_saved_curves_are_those_of_finished_runs(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "lucir", "podnet")
    make_run(plan[1].folder.path, "podnet", "digits", *QUICK)
    save_curves(list(group_plan(plan).values()), "costs $5", tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as image:
        assert min(image.size) > 400
