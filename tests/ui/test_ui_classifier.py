"""What is printed of a step of learning, from a report alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cscct.classifier.images import Problem
from cscct.classifier.prediction import Prediction
from cscct.classifier.report import LearnReport
from cscct.classifier.teaching import Taught
from cscct.ui.classifier import predictions_csv, predictions_text, print_problems, print_taught

REPORT = LearnReport(
    new=["[bold]fir[/bold]"],
    extended=["ash"],
    images={"ash": 5, "[bold]fir[/bold]": 10},
    before={"ash": [8, 10], "oak": [10, 10]},
    after={"ash": [12, 15], "oak": [9, 10], "[bold]fir[/bold]": [10, 10]},
    confusions=[("oak", "[bold]fir[/bold]", 1)],
    similar={"[bold]fir[/bold]": [("oak", 0.87654), ("ash", 0.5)]},
    finetune={"training_free": 90.0, "fine_tuned": 92.5, "kept": True, "method": "lucir+cscct", "seconds": 61.2},
    seconds=63.0,
)


def test_a_step_of_learning_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    print_taught(Taught(Path("trees"), 2, 3, 35, True, REPORT))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "trees: version 2, 3 classes (1 new, 1 extended), 35 images, 63.0 s"
    cells = [line.split() for line in lines]
    assert "accuracy (on images held back)" in lines[2]
    assert ["old", "classes", "2", "25", "90.0", "%", "84.0", "%"] in cells
    assert ["new", "classes", "1", "10", "-", "100.0", "%"] in cells
    assert ["oak", "10", "100.0", "%", "90.0", "%"] in cells
    assert ["[bold]fir[/bold]", "10", "new", "100.0", "%"] in cells  # a name is no markup
    assert "Confused now and not before: oak taken for [bold]fir[/bold] (1)" in lines
    assert "  [bold]fir[/bold]: oak 0.88, ash 0.50" in lines
    assert lines[-1] == "Fine-tuning with lucir+cscct: 92.5 % on images held back, 90.0 % without it; kept (61 s)"


def test_a_first_model_has_no_before(capsys: pytest.CaptureFixture[str]) -> None:
    report = LearnReport(new=["ash"], after={"ash": [0, 0]}, confusions=[], similar={"ash": []})
    print_taught(Taught(Path("trees"), 1, 1, 1, False, report))
    printed = capsys.readouterr().out
    assert "1 class (1 new)" in printed
    assert "old classes" not in printed
    assert "Confused" not in printed


def test_where_nothing_changes_no_table_of_changes_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    report = LearnReport(extended=["ash"], images={"ash": 1}, before={"ash": [5, 5]}, after={"ash": [5, 5]})
    print_taught(Taught(Path("trees"), 2, 1, 6, False, report))
    assert "class " not in capsys.readouterr().out.partition("all classes")[2]


def test_of_many_problems_the_first_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    problems = [Problem("duplicate", f"{number}.jpg", "the same picture as a.jpg") for number in range(8)]
    print_problems([*problems, Problem("few", "ash", "only 1 of its images")], ["Fine-tuning was not tried."])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "twice (8)" in printed.err
    assert printed.err.count("the same picture") == 5
    assert "and 3 more" in printed.err
    assert "note: Fine-tuning was not tried." in printed.err


def test_predictions_with_errors_have_all_columns() -> None:
    found = [Prediction("a.jpg", (("ash", 0.75), ("fir", 0.25)), True), Prediction("b.jpg", error="It is empty.")]
    assert predictions_csv(found, True).splitlines() == [
        "image,label_1,score_1,label_2,score_2,unknown,error",
        "a.jpg,ash,0.75,fir,0.25,true,",
        "b.jpg,,,,,,It is empty.",
    ]
    assert predictions_text(found).splitlines() == [
        "a.jpg: like nothing learned; nearest: ash 75.0 %, fir 25.0 %",
        "b.jpg: error: It is empty.",
    ]
