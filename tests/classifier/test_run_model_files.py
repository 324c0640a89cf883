"""Invalid model files of runs are rejected."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import run_quietly
from cscct.classifier.run_model import load_run
from cscct.errors import UserError

Change = Callable[[dict[str, torch.Tensor], dict[str, str]], object]

CHANGES: dict[str, Change] = {
    "channels in it is '-1'": lambda _, texts: texts.update(channels="-1"),
    "channels in it is 'x'": lambda _, texts: texts.update(channels="x"),
    "channels in it is '999": lambda _, texts: texts.update(channels="9" * 5000),
    r"image_size in it is '\[8\]'": lambda _, texts: texts.update(image_size="[8]"),
    r"image_size in it is '\[0, 8\]'": lambda _, texts: texts.update(image_size="[0, 8]"),
    "class_names in it is '1.5'": lambda _, texts: texts.update(class_names="1.5"),
    "mean for each of 2 classes": lambda _, texts: texts.update(class_names='["a", "b"]'),
    "mean for each of 10 classes": lambda tensors, _: tensors.pop("class_means"),
    "mean for each of 10": lambda tensors, _: tensors.update(class_means=torch.ones(10, 64, dtype=torch.bool)),
    "does not fit the network": lambda tensors, _: tensors.pop("backbone.stem.0.weight"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "run"
    run_quietly(folder, "lucir", "train.epochs=1", "data.train_per_class=6")
    return folder


@pytest.mark.parametrize("sentence", CHANGES)
def test_invalid_metadata_and_tensors(sentence: str, run: Path, tmp_path: Path) -> None:
    texts = {"class_names": json.dumps([str(i) for i in range(10)]), "channels": "1", "image_size": "[8, 8]"}
    tensors = load_file(run / "model.safetensors")
    (tmp_path / "run").mkdir()
    for name in ("config.yaml", "result.json"):
        (tmp_path / "run" / name).write_bytes((run / name).read_bytes())
    save_file(tensors, tmp_path / "run" / "model.safetensors", texts)  # without a checksum, as version 0.2 wrote it
    assert len(load_run(tmp_path / "run").class_names) == 10
    CHANGES[sentence](tensors, texts)
    save_file(tensors, tmp_path / "run" / "model.safetensors", texts)
    with pytest.raises(UserError, match=sentence):
        load_run(tmp_path / "run")


@pytest.mark.parametrize("section", ["data", "network", "runtime", "numerics"])
def test_invalid_section_of_the_config(section: str, run: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in ("config.yaml", "result.json", "model.safetensors"):
        (tmp_path / "run" / name).write_bytes((run / name).read_bytes())
    config = tmp_path / "run" / "config.yaml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith(" ")]
    config.write_text("\n".join(f"{section}: text" if line == f"{section}:" else line for line in lines))
    with pytest.raises(UserError, match="is damaged"):
        load_run(tmp_path / "run")
