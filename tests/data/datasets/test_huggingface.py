"""Datasets of Hugging Face."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cscct
from cscct.config import resolve
from cscct.data.fetch import check, fetch
from cscct.data.registry import LoadRequest
from cscct.errors import UserError

datasets = pytest.importorskip("datasets", reason="pip install 'cscct[hf]'")
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)


def splits(*names: str) -> Any:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog", "owl"])})
    rows = {"image": [Image.fromarray(pixels) for pixels in PIXELS], "label": [0, 1, 2, 2, 1, 0]}
    return datasets.DatasetDict({name: datasets.Dataset.from_dict(rows, features=features) for name in names})


@pytest.mark.parametrize("test", ["test", "validation"])
def test_memory_and_disk(test: str, tmp_path: Path) -> None:
    source = splits("train", test)
    source.save_to_disk(tmp_path / "stored")
    dataset = cscct.Dataset.from_huggingface(source)
    assert dataset.class_names == ("cat", "dog", "owl")
    assert dataset.train.labels.tolist() == [0, 1, 2, 2, 1, 0]
    np.testing.assert_array_equal(dataset.test.images.pixels.permute(0, 2, 3, 1).numpy(), PIXELS)
    assert cscct.Dataset.from_huggingface(tmp_path / "stored").fingerprint() == dataset.fingerprint()


def test_user_errors(tmp_path: Path) -> None:
    for source, message in [
        (tmp_path / "missing", "no folder"),
        (tmp_path, "cannot be read"),
        (splits("train"), "no split 'test'"),
        (splits("test"), "'train' and 'test'"),
        (splits("train")["train"], "a single dataset"),
    ]:
        with pytest.raises(UserError, match=message):
            cscct.Dataset.from_huggingface(source)
    with pytest.raises(UserError, match="image_key"):
        cscct.Dataset.from_huggingface(splits("train", "test"), image_key="photo")


def test_names_in_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hf:` with a folder, and with a name of the hub, which only `fetch` downloads."""
    requests: list[str] = []
    monkeypatch.setattr(datasets, "load_dataset", lambda name: requests.append(name) or splits("train", "test"))
    request = LoadRequest(tmp_path, skip_bad_images=False, test_fraction=0.2, seed=1, warn=pytest.fail)
    splits("train", "test").save_to_disk(tmp_path / "stored")
    assert check(f"hf:{tmp_path / 'stored'}", request)["classes"] == 3
    assert check("hf:stored", request)["name"] == "hf:stored"
    with pytest.raises(UserError, match="`cscct data fetch hf:someone/animals`"):
        check("hf:someone/animals", request)
    assert requests == []
    for _ in range(2):
        assert fetch("hf:someone/animals", tmp_path, False, pytest.fail).is_dir()
    assert requests == ["someone/animals"]
    assert check("hf:someone/animals", request)["train_images"] == 6
    with pytest.raises(UserError, match="not a name on the Hugging Face hub"):
        fetch("hf:../animals", tmp_path, False, pytest.fail)
    assert resolve("lucir", "hf:someone/animals").network.backbone == "lucir-resnet"


def test_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    splits("train", "test").save_to_disk(tmp_path / "my" / "animals")
    run = cscct.run("ncm", "hf:my/animals", settings={"network.depth": 8, "B": 2, "C": 1}, quiet=True)
    assert run.path.name == "ncm-hf-my-animals-seed1"
    assert run.result["dataset"] == "hf:my/animals"
    assert sorted(cscct.load(run.path).class_names) == ["cat", "dog", "owl"]
