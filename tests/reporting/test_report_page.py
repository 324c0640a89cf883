"""The report page and its files."""

import builtins
import csv
import json
import re
import shutil
import zlib
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch

from cscct.errors import UserError
from cscct.reporting import write_report
from cscct.runs.folder import RunFolder
from reports import FIXED, Report, one_run_fixture, report_fixture  # noqa: F401
from synthetic import make_run, read_json

KINDS = ("matrix", "forgetting", "confusion", "similarity", "losses")


class Reader(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_self_contained(report: Report) -> None:
    tags = Reader(report.html).tags
    loading = ("src", "href", "srcset", "data", "poster", "background")
    links = [(tag, value) for tag, attrs in tags for name, value in attrs.items() if name in loading]
    assert len(links) > 20
    for tag, link in links:
        if tag == "a" and link.startswith("figures/"):  # loaded only on a click
            assert (report.out / re.sub("%2B", "+", link)).is_file(), link
        else:
            assert link.startswith(("data:", "#")), link
    assert not [tag for tag, _ in tags if tag in ("script", "iframe", "object", "embed")]
    style = report.html[report.html.index("<style>") : report.html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "http://" not in report.html
    assert "https://" not in report.html


def test_all_figures_have_text_and_files(report: Report) -> None:
    tags = Reader(report.html).tags
    figures = [attrs["id"] for tag, attrs in tags if tag == "figure"]
    per_group = [f"{kind}-{group}" for kind in KINDS for group in ("lucir", "lucir-2-of-4-tasks", "lucir+cscct")]
    assert sorted(figures) == sorted(["accuracy", "apt-act", "tsne", *per_group])
    images = [attrs for tag, attrs in tags if tag == "img"]
    assert len(images) == len(figures)
    assert all(image["src"].startswith("data:image/svg+xml;base64,") and len(image["alt"]) > 40 for image in images)
    captions = re.findall("<figcaption>(.*?)</figcaption>", report.html)
    assert len(captions) == len(figures)
    assert all("Horizontal: " in caption or "axes have no meaning" in caption for caption in captions)
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    files = {path.name for path in (report.out / "figures").iterdir()}
    assert files == {f"{name}.{kind}" for name in figures for kind in ("png", "svg", "csv")} | {"old-new.csv"}
    anchors = {attrs["id"] for _, attrs in tags if "id" in attrs}
    assert {attrs["href"][1:] for tag, attrs in tags if tag == "a" and attrs["href"].startswith("#")} <= anchors


def test_text_is_escaped(report: Report) -> None:
    assert "<i>Title</i>" in Reader(report.html).text
    assert not [tag for tag, _ in Reader(report.html).tags if tag in ("i", "b")]


def test_unfinished_runs_and_missing_glyphs_are_noted(report: Report) -> None:
    text = Reader(report.html).text
    assert "is not finished: 2 of 4 tasks are complete." in text
    assert any("is not finished" in sentence for sentence in report.warnings)
    assert "characters that no installed font has" in text or "数" not in text


def test_report_of_one_run(one_run: Report) -> None:
    assert (one_run.out / "index.html").stat().st_size < 2e6
    assert one_run.warnings == []
    text = Reader(one_run.html).text
    assert "logarithmic" in text
    assert "Gain" not in text
    assert "ifferent experiments" not in text


def test_different_experiments_are_a_warning_above_the_results(tmp_path: Path) -> None:
    for name, sets in {"a": (), "b": ("memory.per_class=9", "protocol.base=6")}.items():
        make_run(tmp_path / name, "lucir", "digits", *sets)
    warnings: list[str] = []
    page = write_report([tmp_path / "a", tmp_path / "b"], tmp_path / "out", warn=warnings.append)
    html = page.read_text()
    assert html.index('role="alert"') < html.index("<table>")
    shown = (
        "memory per class"
        '<dl class="values"><dt>5</dt><dd><span class="tag">lucir, B=4, per_class=5</span></dd>'
        '<dt>9</dt><dd><span class="tag">lucir, B=6, per_class=9</span></dd></dl>'
    )
    assert shown in html
    assert "<mark>9 images per class</mark>" in html
    names = "B (classes of the first task) and memory per class"
    assert f"Different experiments: {names} differ" in Reader(html).text
    assert [sentence for sentence in warnings if f"different experiments: {names} differ" in sentence]


def test_figures_without_data_are_omitted(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "lucir")
    shutil.rmtree(tmp_path / "run" / "tasks")
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.write_text("{oops\n" + metrics.read_text())
    text = Reader(write_report([tmp_path / "run"], tmp_path / "out", warn=print).read_text()).text
    assert text.count("has no readable file for task") == 4  # forgetting, features, confusion, similarity
    assert "metrics.jsonl is damaged in line 1" in text
    assert {path.stem for path in (tmp_path / "out" / "figures").iterdir()} == {"accuracy", "apt-act", "matrix-lucir"}


def figure_names(report: Path) -> set[str]:
    return {path.stem for path in (report / "figures").glob("*.png")}


def test_features_without_spread_omit_one_figure(tmp_path: Path) -> None:
    """t-SNE would crash the process."""
    make_run(tmp_path / "run", "lucir")
    folder = RunFolder(tmp_path / "run")
    folder.save_task(3, folder.task(3) | {"features": torch.ones(80, 16)})
    text = Reader(write_report([tmp_path / "run"], tmp_path / "out", warn=print).read_text()).text
    assert "The t-SNE figure is omitted." in text
    assert "features of 80 images with 1 different value: t-SNE needs at least 8." in text
    assert figure_names(tmp_path / "out") == {"accuracy", "apt-act", *(f"{kind}-lucir" for kind in KINDS)}


@pytest.mark.parametrize("place", ["maps.confusion_map", "forgetting_of"])  # drawing, computation
def test_an_error_omits_one_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("broken")

    make_run(tmp_path / "run", "lucir")
    monkeypatch.setattr(f"cscct.reporting.sections.{place}", fail)
    text = Reader(write_report([tmp_path / "run"], tmp_path / "out", warn=print).read_text()).text
    assert text.count("is omitted. It cannot be drawn: RuntimeError: broken.") == 1
    assert len(figure_names(tmp_path / "out")) == 7


def test_undefined_values_are_reported_as_empty(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / "runs" / str(seed), "lucir", "digits", FIXED, seed=seed)
        make_run(tmp_path / "runs" / f"csc{seed}", "lucir+csc", "digits", FIXED, seed=seed)
    path = tmp_path / "runs" / "1" / "result.json"
    result = read_json(path)
    result["summary"]["classifier"] |= {"average_incremental_accuracy": float("nan"), "act": None}
    result["matrix"]["classifier"][2][0] = float("nan")
    result["tasks"][2]["accuracy"]["classifier"] = float("nan")
    path.write_text(json.dumps(result))
    folder = RunFolder(tmp_path / "runs" / "2")
    tensors = {name: t.bfloat16() if t.is_floating_point() else t for name, t in folder.task(3).items()}
    folder.save_task(3, tensors)
    page = write_report([tmp_path / "runs"], tmp_path / "out", warn=print)
    text = Reader(page.read_text()).text
    assert "omitted" not in text
    assert len(figure_names(tmp_path / "out")) == 13
    with (tmp_path / "out" / "summary.csv").open() as file:
        row = next(csv.DictReader(file))
    assert row["average_incremental_accuracy_mean"] == row["act_mean"] == row["gain"] == ""
    assert float(row["last_accuracy_mean"]) > 0


def test_the_summary_has_all_predictors(tmp_path: Path) -> None:
    results = {method: make_run(tmp_path / method, method) for method in ("lucir", "icarl")}
    page = write_report([tmp_path], tmp_path / "out", warn=print)
    text = Reader(page.read_text()).text
    with (tmp_path / "out" / "summary.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    for method, headline, other in (("lucir", "classifier", "nme"), ("icarl", "nme", "classifier")):
        assert (rows[method]["headline"], rows[method]["other_prediction"]) == (headline, other)
        for name, value in results[method]["summary"][other].items():
            assert float(rows[method][f"other_{name}_mean"]) == pytest.approx(value, abs=1e-4)
            assert f"{value:.2f}" in text
        for head in ("lda", "ridge"):
            for name, value in results[method]["summary"][head].items():
                assert float(rows[method][f"{head}_{name}_mean"]) == pytest.approx(value, abs=1e-4)
                assert f"{value:.2f}" in text


def test_each_dataset_has_a_figure_of_curves(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir")
    make_run(tmp_path / "b", "lucir", "cifar100", done=1, status="running")
    write_report([tmp_path], tmp_path / "out", warn=lambda _: None)
    assert {"accuracy-digits", "accuracy-cifar100"} < figure_names(tmp_path / "out")


def test_report_of_one_task(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "lucir", done=1, status="failed")
    text = Reader(write_report([tmp_path / "run"], tmp_path / "out", warn=print).read_text()).text
    assert "failed: 1 of 4 tasks" in text
    assert "Forgetting needs a second task." in text


def test_a_report_replaces_an_earlier_report_and_no_other_page(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lucir", done=1, status="running")
    make_run(tmp_path / "b", "replay", done=1, status="running")
    write_report([tmp_path / "a"], tmp_path / "out", warn=print)
    page = write_report([tmp_path / "b"], tmp_path / "out", warn=print)
    assert [path.name for path in (tmp_path / "out" / "figures").glob("matrix-*.png")] == [
        "matrix-replay-1-of-4-tasks.png"
    ]
    page.write_text("<html>not a report</html>")
    with pytest.raises(UserError, match="not a report of cscct"):
        write_report([tmp_path / "b"], tmp_path / "out", warn=print)
    (tmp_path / "taken").touch()
    with pytest.raises(UserError, match="cannot be written"):
        write_report([tmp_path / "b"], tmp_path / "taken", warn=print)


def test_details_are_limited_to_the_first_groups(tmp_path: Path) -> None:
    for k in range(1, 10):
        make_run(tmp_path / str(k), "lucir", "digits", f"memory.per_class={k}", done=1, status="running")
    text = Reader(write_report([tmp_path], tmp_path / "out", warn=lambda _: None).read_text()).text
    assert "Shown for the first 8 of 9 groups" in text
    assert len(list((tmp_path / "out" / "figures").glob("matrix-*.png"))) == 8


def test_tensorboard_events(tmp_path: Path) -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    result = make_run(tmp_path / "run", "lucir+csc", done=2, status="running")
    for _ in range(2):  # the second report replaces the first
        write_report([tmp_path / "run"], tmp_path / "out", tensorboard=True, warn=print)
    events = reader.EventAccumulator(str(tmp_path / "out" / "tensorboard" / "run"))
    events.Reload()
    accuracy = events.Scalars("accuracy/classifier")
    assert [event.step for event in accuracy] == [1, 2]
    assert accuracy[1].value == pytest.approx(result["tasks"][1]["accuracy"]["classifier"])
    assert [event.step for event in events.Scalars("loss parts/csc")] == [3, 4]
    assert len(events.Scalars("lr")) == 4


def test_a_report_needs_tensorboard_for_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_tensorboard(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("torch.utils.tensorboard"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    make_run(tmp_path / "run")
    monkeypatch.setattr(builtins, "__import__", without_tensorboard)
    with pytest.raises(UserError, match=r"pip install 'cscct\[tensorboard\]'"):
        write_report([tmp_path / "run"], tmp_path / "out", tensorboard=True, warn=print)
    assert not (tmp_path / "out").exists()


def pdf_streams(path: Path) -> str:
    """Return the decompressed content of a PDF file."""
    data = path.read_bytes()
    streams = re.findall(rb"stream\r?\n(.*?)endstream", data, flags=re.DOTALL)
    return b"".join(zlib.decompressobj().decompress(each) for each in streams if each[:1] == b"x").decode("latin-1")


def test_pdf_figures_have_column_width_paper_fonts_and_vector_graphics(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "lucir")
    page = write_report([tmp_path], tmp_path / "out", pdf=True, warn=print)
    files = sorted((tmp_path / "out" / "figures").glob("*.pdf"))
    assert {path.stem for path in files} == figure_names(tmp_path / "out")
    assert len(files) == 8
    for path in files:
        box = re.search(rb"/MediaBox \[([^]]+)\]", path.read_bytes())
        _, _, width, height = map(float, box[1].split())
        assert width == pytest.approx(3.35 * 72)
        assert height < 9 * 72
        content = pdf_streams(path)
        assert set(re.findall(r"/F\d+ ([\d.]+) Tf", content)) == {"8"}, path.name
        assert b"/Type3" not in path.read_bytes()
        assert f'href="figures/{quote(path.name)}">PDF</a>' in page.read_text()
    scatter = (tmp_path / "out" / "figures" / "tsne.pdf").read_bytes()
    assert b"/Subtype /Image" not in scatter


@pytest.mark.parametrize("name", ["figures", "summary.csv", "runs.csv", "index.html"])
def test_symbolic_links_in_a_report_are_not_followed(name: str, tmp_path: Path) -> None:
    """Files outside a run folder of unknown origin are neither written nor deleted."""
    make_run(tmp_path / "run", "lucir")
    outside = tmp_path / "outside"
    outside.mkdir() if name == "figures" else outside.write_text("precious")
    if name == "figures":
        (outside / "old.png").write_text("precious")
    (tmp_path / "run" / "report").mkdir()
    (tmp_path / "run" / "report" / name).symlink_to(outside)
    with suppress(UserError):
        write_report([tmp_path / "run"], tmp_path / "run" / "report", warn=print)
    kept = outside / "old.png" if name == "figures" else outside
    assert kept.read_text() == "precious"
    assert len(list(outside.iterdir())) == 1 if name == "figures" else True
