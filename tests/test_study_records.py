"""The files in studies/: what runs came to, the tables made of it, and the tools beside them."""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F

from conftest import run_quietly
from cscct.losses import TERMS
from cscct.methods import EXTRAS
from cscct.studies.grid import parse_study, plan_study
from cscct.yamltext import read_config

FOLDER = Path(__file__).parents[1] / "studies"
STUDIES = sorted(FOLDER.glob("*.yaml"))
QUICK = ("train.epochs=1", "data.train_per_class=10")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"studies_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def forms() -> Iterator[ModuleType]:
    """The plugin; the registries are then as they were before."""
    with patch.dict(TERMS), patch.dict(EXTRAS):
        yield load("forms")


def test_how_many_there_are() -> None:
    assert len(STUDIES) >= 4


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_can_be_planned(path: Path, forms: ModuleType) -> None:
    study = parse_study(read_config(path), str(path))
    assert plan_study(study, Path("nowhere"))


def test_a_record_says_what_the_run_came_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_quietly(tmp_path / "runs" / "lucir_seed1", "lucir", *QUICK)
    record = load("record")
    monkeypatch.setattr(record, "RECORDS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["record.py", "some", str(tmp_path / "runs")])
    record.main()
    (row,) = csv.DictReader((tmp_path / "some.csv").open())
    assert (row["method"], row["seed"], row["variant"], row["status"]) == ("lucir", "1", "", "finished")
    for name, summary in result["summary"].items():
        assert float(row[f"{name}.last_accuracy"]) == pytest.approx(summary["last_accuracy"], abs=1e-4)
    assert len(row["curve"].split()) == int(row["tasks"])
    assert float(row["curve"].split()[-1]) == pytest.approx(result["summary"]["classifier"]["last_accuracy"], abs=0.01)
    assert float(row["apt"]) == pytest.approx(result["summary"]["classifier"]["apt"], abs=1e-4)


def test_records_of_several_days_come_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other runs' rows stay; the same run's is replaced."""
    record = load("record")
    monkeypatch.setattr(record, "RECORDS", tmp_path)
    before = [
        {"method": "lucir", "seed": 1, "variant": "", "B": 4, "C": 2, "batch": 32, "memory": 5, "status": "running"},
        {"method": "lucir", "seed": 10, "variant": "", "B": 4, "C": 2, "batch": 32, "memory": 5, "status": "finished"},
        {"method": "lucir", "seed": 9, "variant": "", "B": 4, "C": 2, "batch": 32, "memory": 5, "status": "finished"},
        {"method": "lucir", "seed": 1, "variant": "", "B": 4, "C": 3, "batch": 32, "memory": 5, "status": "failed"},
    ]
    with (tmp_path / "some.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, record.COLUMNS)
        writer.writeheader()
        writer.writerows(before)
    run_quietly(tmp_path / "runs" / "lucir_seed1", "lucir", *QUICK)
    monkeypatch.setattr(sys, "argv", ["record.py", "some", str(tmp_path / "runs")])
    record.main()
    rows = list(csv.DictReader((tmp_path / "some.csv").open()))
    found = [(row["seed"], row["C"], row["status"]) for row in rows]
    assert found == [("1", "2", "finished"), ("9", "2", "finished"), ("10", "2", "finished"), ("1", "3", "failed")]


def test_the_tables_of_the_documents_are_those_of_the_records() -> None:
    tables = load("tables")
    for page in tables.PAGES:
        assert tables.written(page.read_text()) == page.read_text(), f"python studies/tables.py changes {page.name}"


def test_the_pictures_of_the_documents_are_those_of_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    figures = load("figures")
    for name in figures.FIGURES:
        assert f"records {figures.checksum()}" in figures.path(name).read_text(), "make evidence draws it again"
    monkeypatch.setattr(figures, "IMAGES", tmp_path)
    figures.main()
    for name in figures.FIGURES:
        assert "<svg" in figures.path(name).read_text()


def test_a_table_is_counted_by_hand() -> None:
    tables = load("tables")
    rows = [
        {"method": method, "seed": str(seed), "last_accuracy": str(value)}
        for method, values in {"a": (50, 60, 70), "b": (52, 61, 73)}.items()
        for seed, value in enumerate(values)
    ]
    assert tables.mean(rows, "a", "last_accuracy") == "60.00 ± 10.00"
    # Differences 2, 1, 3: mean 2, deviation 1, so 4.303 / sqrt(3) on each side
    assert tables.told(tables.difference(rows, "b", "a", "last_accuracy")) == "+2.00 [-0.48, +4.48]"
    assert tables.told(tables.difference(rows[:1], "b", "a", "last_accuracy")) == ""
    assert tables.told(tables.difference([rows[0], rows[3]], "b", "a", "last_accuracy")) == "+2.00 (one seed)"


def test_forms_of_icarl_count_by_one_prediction() -> None:
    """The better one of plain iCaRL, so that a change of prediction is no gain; other methods count by their own."""
    tables = load("tables")
    average = "average_incremental_accuracy"
    columns = (average, *(f"{one}.{average}" for one in ("nme", "classifier", "lda", "ridge")))
    rows = [
        {"method": method, "seed": str(seed), **dict(zip(columns, map(str, values), strict=True))}
        for method, seeds in {
            "icarl": ((40, 40, 44, 1, 1), (42, 42, 44, 1, 1)),
            "icarl+balanced": ((45, 41, 45, 1, 1), (46, 41, 46, 1, 1)),
            "icarl+csc": ((43, 43, 40, 1, 60), (43, 43, 40, 1, 62)),
            "lucir": ((50, 60, 50, 1, 1), (50, 60, 50, 1, 1)),
            "lucir+csc": ((51, 70, 51, 1, 1), (51, 70, 51, 1, 1)),
        }.items()
        for seed, values in enumerate(seeds)
    ]
    for method, gain, at_best in (("icarl+balanced", 1.5, 1.5), ("icarl+csc", -4, 17), ("lucir+csc", 1, 10)):
        base = method.partition("+")[0]
        assert tables.gain(rows, method, base).mean == pytest.approx(gain), method
        assert tables.gain_at_best(rows, method, base).mean == pytest.approx(at_best), method
    with pytest.raises(ValueError, match="several rows of a seed"):
        tables.gain([*rows, rows[-1]], "lucir+csc", "lucir")


def test_a_network_that_stops_learning() -> None:
    tables = load("tables")
    row = {"method": "lucir", "seed": "1", "B": "50", "C": "25", "tasks": "3", "curve": "60.00 1.00 1.00"}
    (idle,) = tables.first_task_only([row])
    assert float(idle["average_incremental_accuracy"]) == pytest.approx((60 + 40 + 30) / 3)
    assert float(idle["last_accuracy"]) == pytest.approx(30)


def test_forms_against_loops(forms: ModuleType) -> None:
    gen = torch.Generator().manual_seed(0)
    student, teacher, means = (torch.randn(k, 5, generator=gen).double() for k in (8, 8, 4))
    labels, counts = torch.tensor([0, 0, 0, 1, 2, 2, 3, 3]), torch.tensor([3, 1, 2, 2])
    here, there, means = (F.normalize(one, dim=1) for one in (student, teacher, means))
    batch = [there[labels == c].mean(dim=0) for c in range(4)]

    slow = 0.0
    for c in range(4):
        other = sum(batch[o] for o in range(4) if o != c) / 3
        slow += sum(float(here[i] @ (other - batch[c])) for i in range(8) if labels[i] == c) / int(counts[c]) / 4
    assert float(forms.balanced_clustering(student, teacher, labels)) == pytest.approx(slow)

    for weights in (None, counts):
        slow = 0.0
        for i in range(8):
            scores = torch.exp(here[i] @ means.T / 0.2) * (1 if weights is None else weights)
            slow -= float(torch.log(scores[labels[i]] / scores.sum())) / 8
        assert float(forms.class_contrast(student, labels, means, 0.2, weights)) == pytest.approx(slow)

    slow = 0.0
    for i in range(8):
        s, t = (torch.softmax(one[i] @ means.T / 0.2, dim=0) for one in (here, there))
        slow += float((t * (t / s).log()).sum()) * 0.2 / 8
    assert float(forms.class_transfer(student, teacher, means, 0.2)) == pytest.approx(slow)


def test_every_form_runs(forms: ModuleType, tmp_path: Path) -> None:
    own = [name for name in EXTRAS if name not in ("csc", "ct", "cscct", "balanced")]
    assert len(own) == 7
    for name in own:
        result = run_quietly(tmp_path / name, f"icarl+{name}", *QUICK, "data.classes=6", "protocol.base=4")
        assert result["status"] == "finished"
        assert result["method"] == f"icarl+{name}"


@pytest.mark.parametrize(("method", "terms"), [("lucir+cscct", 5), ("icarl+balanced", 2), ("icarl", 2)])
def test_the_probe_says_what_the_losses_do(
    method: str, terms: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the losses that are active: cross-entropy is not, where the balanced one takes its place."""
    study = tmp_path / "study.yaml"
    study.write_text(f"dataset: digits\nmethods: [{method}]\nset: {{train.epochs: 1, data.train_per_class: 10}}\n")
    with patch.object(sys, "argv", ["probe.py", str(study), "--tasks", "2"]):
        load("probe").main()
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    for of in ("old", "new"):
        shares = [float(row["value"]) for row in rows if row["what"].startswith("gradient") and row["of"] == of]
        assert len(shares) == terms
        assert sum(shares) == pytest.approx(1, abs=1e-3)
    assert {row["what"] for row in rows if row["of"] == "old"} >= {"drift", "within", "between"}
