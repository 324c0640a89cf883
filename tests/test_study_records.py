"""The files in studies/: records of runs, their tables and figures, and tools."""

import csv
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F

import cscct
from conftest import run_quietly
from cscct.analysis.statistics import Difference
from cscct.losses import TERMS
from cscct.methods import ADDONS, METHODS
from cscct.studies.grid import parse_study, plan_study
from cscct.yamltext import read_config

FOLDER = Path(__file__).parents[1] / "studies"
STUDIES = sorted(FOLDER.glob("*.yaml"))
QUICK = ("train.epochs=1", "data.train_per_class=10")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"studies_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def import_from_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts import each other from their folder."""
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.fixture
def forms() -> Iterator[ModuleType]:
    """The plugin. The registries are restored afterwards."""
    with patch.dict(TERMS), patch.dict(ADDONS):
        yield load("forms")


def test_number_of_studies() -> None:
    assert len(STUDIES) >= 18


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_can_be_planned(path: Path, forms: ModuleType) -> None:
    study = parse_study(read_config(path), str(path))
    assert plan_study(study, Path("nowhere"))


def test_a_record_contains_the_metrics_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert int(row["kept_bytes"]) == 10 * 5 * 64  # five exemplars of 8x8 grey pixels of each digit
    network = cscct.load(tmp_path / "runs" / "lucir_seed1").reader_.network
    assert int(row["parameters"]) == sum(parameter.numel() for parameter in network.parameters())


def test_a_record_of_a_method_with_its_own_predictor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only predictors of all methods have columns of their own."""
    result = run_quietly(tmp_path / "runs" / "fecam_seed1", "fecam", "data.train_per_class=12")
    record = load("record")
    monkeypatch.setattr(record, "RECORDS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["record.py", "some", str(tmp_path / "runs")])
    record.main()
    (row,) = csv.DictReader((tmp_path / "some.csv").open())
    assert (row["method"], row["prediction"], row["status"]) == ("fecam", "fecam", "finished")
    assert float(row["last_accuracy"]) == pytest.approx(result["summary"]["fecam"]["last_accuracy"], abs=1e-4)


def test_a_record_keeps_the_rows_of_other_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of the same run is replaced."""
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
    columns = [(row["seed"], row["C"], row["status"]) for row in rows]
    assert columns == [("1", "2", "finished"), ("9", "2", "finished"), ("10", "2", "finished"), ("1", "3", "failed")]


def test_the_tables_of_the_docs_match_the_records() -> None:
    tables = load("tables")
    for page in tables.PAGES:
        assert tables.with_tables(page.read_text()) == page.read_text(), f"run `make evidence` to update {page.name}"


def test_every_table_is_generated() -> None:
    tables = load("tables")
    assert len(tables.TABLES) >= 24
    for name, make in tables.TABLES.items():
        assert make().count("\n") >= (1 if name == "answer-in-words" else 3), name


def test_the_figures_of_the_docs_match_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = load("figures")
    for name in figures.FIGURES:
        assert f"records {figures.checksum()}" in figures.path(name).read_text(), "run `make evidence` to update it"
    monkeypatch.setattr(figures, "IMAGES", tmp_path)
    figures.main()
    for name in figures.FIGURES:
        assert "<svg" in figures.path(name).read_text()


def test_the_leaderboard_matches_the_records() -> None:
    leaderboard = load("leaderboard")
    assert leaderboard.PAGE.read_text() == leaderboard.page(), "run `make evidence` to update it"
    shown = leaderboard.methods_of([study for _, studies, _ in leaderboard.PARTS for study in studies])
    assert set(METHODS) <= set(shown)


def test_a_leaderboard_of_incomplete_records() -> None:
    """The best method comes first, methods without records are left out, and an interval needs two seeds."""
    average, last = "average_incremental_accuracy", "last_accuracy"
    rows = [
        {"method": method, "seed": str(seed), average: value, last: value, "parameters": parameters}
        for method, seed, value, parameters in (
            ("lucir", 1, "50", "1000"),
            ("lucir", 2, "52", "1000"),
            ("der", 1, "60", ""),
        )
    ]
    lines = load("leaderboard").table(["ewc", "lucir", "der"], rows).splitlines()[2:]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [row[0] for row in cells] == ["`der`", "`lucir`"]
    assert cells[0][2:] == ["1", "60.0", "60.0", "", "", ""]
    assert cells[1][2:6] == ["2", "51.0 [38.3, 63.7]", "51.0 [38.3, 63.7]", "1,000"]  # 12.706 / sqrt(2) * sqrt(2)


def test_statistics_match_a_calculation_by_hand() -> None:
    records = load("read_records")
    rows = [
        {"method": method, "seed": str(seed), "last_accuracy": str(value)}
        for method, values in {"a": (50, 60, 70), "b": (52, 61, 73)}.items()
        for seed, value in enumerate(values)
    ]
    assert records.mean(rows, "a", "last_accuracy") == "60.00 ± 10.00"
    # Differences 2, 1, 3: mean 2, deviation 1, so 4.303 / sqrt(3) on each side
    assert records.interval(records.difference(rows, "b", "a", "last_accuracy")) == "+2.00 [-0.48, +4.48]"
    assert records.interval(records.difference(rows[:1], "b", "a", "last_accuracy")) == ""
    assert records.interval(records.difference([rows[0], rows[3]], "b", "a", "last_accuracy")) == "+2.00 (one seed)"


def test_variants_of_icarl_are_compared_with_one_predictor() -> None:
    """The better one of plain iCaRL: a change of the predictor is not a gain. Other methods use their own."""
    records = load("read_records")
    average = "average_incremental_accuracy"
    columns = (average, *(f"{predictor}.{average}" for predictor in ("nme", "classifier", "lda", "ridge")))
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
        assert records.gain(rows, method, base).mean == pytest.approx(gain), method
        assert records.gain_at_best(rows, method, base).mean == pytest.approx(at_best), method
    with pytest.raises(ValueError, match="several rows for a seed"):
        records.gain([*rows, rows[-1]], "lucir+csc", "lucir")


def test_a_network_that_stops_learning() -> None:
    records = load("read_records")
    row = {"method": "lucir", "seed": "1", "B": "50", "C": "25", "tasks": "3", "curve": "60.00 1.00 1.00"}
    (stopped,) = records.first_task_only([row])
    assert float(stopped["average_incremental_accuracy"]) == pytest.approx((60 + 40 + 30) / 3)
    assert float(stopped["last_accuracy"]) == pytest.approx(30)


def test_forms_match_loops(forms: ModuleType) -> None:
    gen = torch.Generator().manual_seed(0)
    student, teacher, means = (torch.randn(k, 5, generator=gen).double() for k in (8, 8, 4))
    labels, counts = torch.tensor([0, 0, 0, 1, 2, 2, 3, 3]), torch.tensor([3, 1, 2, 2])
    h, t, means = (F.normalize(features, dim=1) for features in (student, teacher, means))
    batch = [t[labels == c].mean(dim=0) for c in range(4)]

    slow = 0.0
    for c in range(4):
        others = sum(batch[o] for o in range(4) if o != c) / 3
        slow += sum(float(h[i] @ (others - batch[c])) for i in range(8) if labels[i] == c) / int(counts[c]) / 4
    assert float(forms.balanced_clustering(student, teacher, labels)) == pytest.approx(slow)

    for weights in (None, counts):
        slow = 0.0
        for i in range(8):
            scores = torch.exp(h[i] @ means.T / 0.2) * (1 if weights is None else weights)
            slow -= float(torch.log(scores[labels[i]] / scores.sum())) / 8
        assert float(forms.class_contrast(student, labels, means, 0.2, weights)) == pytest.approx(slow)

    slow = 0.0
    for i in range(8):
        p, q = (torch.softmax(features[i] @ means.T / 0.2, dim=0) for features in (t, h))
        slow += float((p * (p / q).log()).sum()) * 0.2 / 8
    assert float(forms.class_transfer(student, teacher, means, 0.2)) == pytest.approx(slow)


def test_every_form_runs(forms: ModuleType, tmp_path: Path) -> None:
    names = [name for name in ADDONS if name not in ("csc", "ct", "cscct", "balanced", "cwd")]
    assert len(names) == 7
    for name in names:
        result = run_quietly(tmp_path / name, f"icarl+{name}", *QUICK, "data.classes=6", "protocol.base=4")
        assert result["status"] == "finished"
        assert result["method"] == f"icarl+{name}"


@pytest.mark.parametrize(("method", "terms"), [("lucir+cscct", 5), ("icarl+balanced", 2), ("icarl", 2)])
def test_the_probe_measures_active_losses(
    method: str, terms: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cross-entropy is not active if the balanced one replaces it."""
    study = tmp_path / "study.yaml"
    study.write_text(f"dataset: digits\nmethods: [{method}]\nset: {{train.epochs: 1, data.train_per_class: 10}}\n")
    with patch.object(sys, "argv", ["probe.py", str(study), "--tasks", "2"]):
        load("probe").main()
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    for samples in ("old", "new"):
        shares = [float(row["value"]) for row in rows if row["what"].startswith("gradient") and row["of"] == samples]
        assert len(shares) == terms
        assert sum(shares) == pytest.approx(1, abs=1e-3)
    assert {row["what"] for row in rows if row["of"] == "old"} >= {"drift", "within", "between"}


def test_length_of_the_evidence() -> None:
    """At most 2,000 words, without tables and commands."""
    text = re.sub("```.*?```", "", (FOLDER.parent / "docs" / "evidence.md").read_text(), flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "<!--"))]
    assert len(" ".join(lines).split()) <= 2000


TRIALS = [
    {"method": "lucir", "trial": str(number), "state": state, "value": str(value), "settings": settings}
    for number, state, value, settings in (
        (0, "complete", 50.5, '{"loss.less_forget.weight": 5.0}'),
        (1, "complete", 52.25, '{"loss.less_forget.weight": 12.3456}'),
        (2, "pruned", 60, '{"loss.less_forget.weight": 9.0}'),
    )
]


def test_tables_of_tuned_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arms are told apart by their variants, and only complete trials can be the best."""
    tables = load("tuned_tables")
    average = "average_incremental_accuracy"
    rows = [
        {"method": method, "variant": variant, "seed": str(seed), "status": "finished", average: str(value + seed)}
        for seed in (11, 12, 13)
        for method, variant, value in (
            ("lucir", "", 50),
            ("lucir", "tuned", 51),
            ("lucir+cscct", "", 49),
            ("lucir+cscct", "tuned", 51.5 + 0.1 * seed),
        )
    ]
    for name, content in (("tuned-digits", rows), ("trials-digits", TRIALS)):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, [*content[0]])
            writer.writeheader()
            writer.writerows(content)
    monkeypatch.setattr(tables, "RECORDS", tmp_path)
    monkeypatch.setattr(sys.modules["read_records"], "RECORDS", tmp_path)
    (line,) = tables.tuned_gains().splitlines()[2:]
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[:5] == ["digits", "`lucir`", "3", "+1.00", "-1.00"]
    assert cells[5:7] == ["+1.70 [+1.45, +1.95]", "+2.70 [+2.45, +2.95]"]  # 0.1 * 4.303 / sqrt(3) on each side
    (line,) = tables.trials().splitlines()[2:]
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells == ["digits", "`lucir`", "3 (1)", "50.50", "52.25", "less_forget.weight 12.3"]


def test_verdicts() -> None:
    tables = load("tuned_tables")
    for low, high, positive, verdict in (
        (0.1, 1, True, "supported"),
        (-1, -0.1, True, "contradicted"),
        (-1, 0.1, True, "not seen"),
        (0.1, 1, False, "contradicted"),
        (-1, -0.1, False, "supported"),
        (None, None, True, "open (one seed)"),
    ):
        assert tables.verdict(Difference("", 0.0, low, high), positive) == verdict


def test_the_harmonic_mean_of_means() -> None:
    """New tasks have 60 and 30 after a first task of 90, old ones 50 on average."""
    row = {"tasks": "3", "curve": "90.00 1.00 1.00", "act": "60", "apt": "50"}
    records = load("read_records")
    assert float(records.with_harmonic([row])[0][records.HARMONIC]) == pytest.approx(2 * 50 * 45 / 95)


def test_tuned_studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tunes, reports, records, and continues from the records without the folder of the trials."""
    tuned = load("tuned")
    monkeypatch.setattr(tuned, "RECORDS", tmp_path)
    small = {"train.epochs": 1, "data.train_per_class": 10, "data.classes": 4, "B": 2, "C": 2, "runtime.threads": 1}
    content = {
        "dataset": "digits",
        "bases": ["lucir"],
        "tuning": {"seeds": [101], "trials": 2, "validation": 0.2, "prune": True},
        "seeds": [11, 12],
        "set": small,
    }
    study = tuned.Study("digits", tmp_path / "runs", content, None)
    assert [arm[:2] for arm in study.arms("lucir")][3:] == [
        ("tuned", "lucir"),
        ("tuned", "lucir+cscct"),
        ("tuned CSCCT", "lucir+cscct+balanced"),
    ]
    study.report()
    rows = [row for method in ("lucir", "lucir+cscct") for row in study.trials(method)]
    assert [(row["method"], row["trial"], row["state"]) for row in rows] == [
        ("lucir", "0", "complete"),
        ("lucir", "1", "complete"),
        ("lucir+cscct", "0", "complete"),
        ("lucir+cscct", "1", "complete"),
    ]
    runs = sorted(str(path.parent.relative_to(tmp_path / "runs")) for path in tmp_path.glob("runs/*/*/result.json"))
    assert len([run for run in runs if not run.startswith("tuning")]) == 12
    best = study.weights("lucir")
    config = read_config(tmp_path / "runs" / "tuned" / "lucir+cscct-seed12" / "config.yaml")
    assert config["loss"]["less_forget"]["weight"] == best["loss.less_forget.weight"]
    assert config["data"]["validation"] is None
    monkeypatch.setattr(tuned.subprocess, "run", lambda *arguments, **options: None)
    study.record()
    monkeypatch.setattr(tuned, "tune_settings", None)  # must not be called
    assert tuned.Study("digits", tmp_path / "empty", content, None).weights("lucir") == best


@pytest.mark.parametrize("name", ["digits", "pretrained"])
def test_defaults_are_in_the_tuned_ranges(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first trial has the default weights."""
    tuned = load("tuned")
    study = tuned.Study(name, tmp_path, read_config(FOLDER / "tuned" / f"{name}.yaml"), None)
    monkeypatch.setattr(tuned.Study, "weights", lambda self, method: {})
    for base in ("icarl", "lucir", "podnet"):
        assert study.tuning(base).defaults()
        assert study.tuning(f"{base}+cscct").defaults()
    assert not {101, 102, 103, 1, 2, 3, 4, 5} & set(study.content["seeds"])
