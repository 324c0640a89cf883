"""Legends and CSV cells."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D

from cscct.analysis.tables import csv_text
from cscct.reporting.canvas import legend_below, legend_height, new_figure, style

LONG = "podnet+cscct, dataset=cifar100, B=50, C=5, policy=total, total=2000, depth=20, milestones=[10,15], lr="


def test_text_cells_are_not_formulas() -> None:
    table = [["class", "value"], ["=1+1", -1.5], ["+a", 2], ["-b", float("nan")], ["@c", None], ["d=e", "−1"]]
    assert csv_text(table) == "class,value\n'=1+1,-1.5\n'+a,2\n'-b,\n'@c,\nd=e,−1\n"


@pytest.mark.parametrize("labels", [[f"{LONG}{i}" for i in range(12)], ["数" * 18] * 20, ["a", "b"]])
def test_a_legend_is_not_clipped_and_the_axes_remain_large(labels: list[str]) -> None:
    with style():
        figure = new_figure(7.0, 3.0 + legend_height(7.0, labels))
        axes = figure.add_subplot()
        legend = legend_below(figure, [Line2D([], []) for _ in labels], labels)
        FigureCanvasAgg(figure).draw()
        box = legend.get_window_extent().transformed(figure.transFigure.inverted())
    assert box.x0 >= 0
    assert box.x1 <= 1
    assert box.y0 >= 0
    assert axes.get_window_extent().height / figure.dpi > 2
