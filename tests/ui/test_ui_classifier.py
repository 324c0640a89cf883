"""Output of learning and prediction."""

from pathlib import Path

import pytest

from cscct.classifier.folder import LearnResult
from cscct.classifier.model import ImagePrediction
from cscct.classifier.report import LearnReport
from cscct.classifier.testing import FolderTest
from cscct.data.inputs import InputProblem
from cscct.ui.classifier import predictions_csv, predictions_text, print_info, print_learn_result, print_problems
from cscct.ui.evaluation import print_test

REPORT = LearnReport(
    new=["[bold]fir[/bold]"],
    extended=["ash"],
    images={"ash": 5, "[bold]fir[/bold]": 10},
    before={"ash": [8, 10], "oak": [10, 10]},
    after={"ash": [12, 15], "oak": [9, 10], "[bold]fir[/bold]": [10, 10]},
    confusions=[("oak", "[bold]fir[/bold]", 1)],
    similar={"[bold]fir[/bold]": [("oak", 0.87654), ("ash", 0.5)]},
    training={
        "method": "lucir+cscct",
        "kept": True,
        "accuracy": {"lda": 90.0, "lucir+cscct": 92.5},
        "log_likelihood": {"lda": -0.3, "lucir+cscct": -0.25},
        "seconds": 61.2,
    },
    seconds=63.0,
)


def test_the_result_of_learning(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    print_learn_result(LearnResult(Path("trees"), 2, 3, 35, "auto", True, REPORT))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "trees: version 2, 3 classes (1 new, 1 extended), 35 images, 63.0 s"
    cells = [line.split() for line in lines]
    assert "accuracy (held-out images)" in lines[2]
    assert ["old", "classes", "2", "25", "90.0", "%", "84.0", "%"] in cells
    assert ["new", "classes", "1", "10", "-", "100.0", "%"] in cells
    assert ["oak", "10", "100.0", "%", "90.0", "%"] in cells
    assert ["[bold]fir[/bold]", "10", "new", "100.0", "%"] in cells  # a name is no markup
    assert "Confused now and not before: oak taken for [bold]fir[/bold] (1)" in lines
    assert "  [bold]fir[/bold]: oak 0.88, ash 0.50" in lines
    assert lines[-1] == (
        "Trained with lucir+cscct (61 s). On held-out images: lda 90.0 %, log-likelihood -0.300; lucir+cscct 92.5 %, "
        "log-likelihood -0.250. Kept."
    )


def test_a_new_model_has_no_accuracies_before(capsys: pytest.CaptureFixture[str]) -> None:
    report = LearnReport(new=["ash"], after={"ash": [0, 0]}, confusions=[], similar={"ash": []})
    print_learn_result(LearnResult(Path("trees"), 1, 1, 1, "lda", False, report))
    printed = capsys.readouterr().out
    assert "1 class (1 new)" in printed
    assert "old classes" not in printed
    assert "Confused" not in printed


def test_without_changes_no_table_of_changes_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    report = LearnReport(extended=["ash"], images={"ash": 1}, before={"ash": [5, 5]}, after={"ash": [5, 5]})
    print_learn_result(LearnResult(Path("trees"), 2, 1, 6, "lda", False, report))
    printed = capsys.readouterr().out
    assert "class " not in printed.partition("all classes")[2]
    assert "new classes" not in printed


def test_of_many_problems_the_first_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    problems = [InputProblem("duplicate", f"{number}.jpg", "the same picture as a.jpg") for number in range(8)]
    print_problems([*problems, InputProblem("few", "ash", "only 1 of its images")], ["The network was not trained."])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "duplicate images, left out (8)" in printed.err
    assert printed.err.count("the same picture") == 5
    assert "and 3 more" in printed.err
    assert "note: The network was not trained." in printed.err


def test_predictions_with_errors_have_all_columns() -> None:
    predictions = [
        ImagePrediction("a.jpg", (("ash", 0.75), ("fir", 0.25)), True, 1.5),
        ImagePrediction("b.jpg", error="It is empty."),
    ]
    assert predictions_csv(predictions, True).splitlines() == [
        "image,label_1,score_1,label_2,score_2,unknown,unknown_score,error",
        "a.jpg,ash,0.75,fir,0.25,true,1.5,",
        "b.jpg,,,,,,,It is empty.",
    ]
    assert predictions_text(predictions).splitlines() == [
        "a.jpg: resembles no class; nearest: ash 75.0 %, fir 25.0 %",
        "b.jpg: error: It is empty.",
    ]


def test_information_about_a_run_that_learned_more_classes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the new class was measured, the images of the run are not recorded, and times are on one line."""
    monkeypatch.setenv("COLUMNS", "80")
    message = "run: lucir+cscct on digits, finished, with a long name of the dataset"
    versions = [
        {"number": 0, "current": False, "created": "", "classes": 2, "images": 0, "message": message},
        {
            "number": 1,
            "current": True,
            "created": "2026-11-18T20:06:55+00:00",
            "classes": 3,
            "images": 40,
            "message": "",
        },
    ]
    classes = {"zero": 20, "one": 20, "two": 30}
    print_info({"path": "run", "megabytes": 0.5, "classes": classes, "accuracy": {"two": [5, 6]}, "versions": versions})
    lines = capsys.readouterr().out.splitlines()
    assert "accuracy   83.3 % (1 of 3 classes measured)" in lines
    rows = [line.split() for line in lines]
    assert next(row for row in rows if row[:1] == ["0"])[:3] == ["0", "2", "-"]
    assert ["1", "(current)", "2026-11-18", "20:06", "3", "40"] in rows


def test_the_number_of_tested_images_is_not_that_of_learned_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """A class with a single image is learned but not tested."""
    report = LearnReport(
        new=["elm"], extended=[], images={"elm": 1}, before={"ash": [5, 5]}, after={"ash": [5, 5], "elm": [0, 0]}
    )
    print_learn_result(LearnResult(Path("trees"), 2, 2, 6, "lda", True, report))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["class", "tested", "before", "after"] in lines
    assert ["elm", "0", "new", "not", "measured"] in lines


@pytest.mark.parametrize(("classes", "width", "complete"), [(20, 80, True), (20, 60, False), (40, 80, False)])
def test_the_confusion_matrix_fits_or_is_left_out(
    classes: int, width: int, complete: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No number is cut, and no name is broken into lines."""
    monkeypatch.setenv("COLUMNS", str(width))
    names = [f"class_with_a_long_name_{i}" for i in range(classes)]
    accuracies, confusion = {name: [18, 20] for name in names}, {name: {name: 18, names[0]: 2} for name in names[1:]}
    confusion = {names[0]: {names[0]: 18, names[1]: 2}, **confusion}
    total = 20 * classes
    print_test(FolderTest(Path("m"), total - 2 * classes, total, (0.8, 0.95), accuracies, confusion, (), 0, {}, ()))
    table = capsys.readouterr().out.split("\n\n")[2].splitlines()
    if not complete:
        assert table == [f"The confusion matrix of {classes} classes is wider than the terminal: see --out or --json."]
        return
    assert len(table) == 1 + classes
    assert all("…" not in " ".join(line.split()[2:]) for line in table)
    assert [line.split()[0] for line in table[1:]] == [str(number) for number in range(1, classes + 1)]
    assert [line.split().count("18") for line in table[1:18]] == [1] * 17
