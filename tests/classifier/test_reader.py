"""Features of images, with the pretrained network."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cscct import IncrementalClassifier, UserError
from cscct.classifier.networks import backbone_module, build_reader, transform_for
from cscct.classifier.reader import NetworkReader
from cscct.data.inputs import ItemReader
from cscct.learn.evaluation import infer
from cscct.nets import Network, efficientnet
from cscct.nets.resnet import pool
from cscct.storage import save_tensors
from small_models import Colours, pictures


@pytest.fixture(scope="module")
def reader() -> NetworkReader:
    return build_reader("efficientnet-lite0", 64, torch.device("cpu"), 3)


def test_features_match_the_bare_network(reader: NetworkReader) -> None:
    images = pictures((200, 60, 60), 7)
    outputs = reader.read(list(images))
    assert outputs.readable == list(range(7))
    assert len(set(outputs.digests)) == 7
    crops = torch.from_numpy(np.stack(ItemReader(list(images), reader.format).pixels(range(7))))
    inputs = (crops.permute(0, 3, 1, 2) / 255 - 0.5) / 0.5
    with torch.no_grad():
        expected = pool(reader.network.backbone.eval()(inputs)[-1])
    torch.testing.assert_close(outputs.features, expected, atol=1e-4, rtol=1e-3)


def test_features_do_not_depend_on_the_batch(reader: NetworkReader) -> None:
    images = list(pictures((200, 60, 60), 4))
    together = reader.read(images).features
    torch.testing.assert_close(reader.read(images[2:3]).features, together[2:3], atol=1e-5, rtol=1e-4)


@pytest.fixture
def two_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def threads_of_passes(reader: NetworkReader, monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, int]]:
    """Thread of each forward pass, and the threads of its operations; filled when images are read."""
    found: set[tuple[int, int]] = set()
    started = threading.Barrier(2, timeout=60)

    def observed(*arguments: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() and len(found) < 2:
            started.wait()  # two passes run at the same time
        found.add((threading.get_ident(), torch.get_num_threads()))
        return infer(*arguments)

    monkeypatch.setattr("cscct.classifier.reader.infer", observed)
    return found


def test_images_are_divided_among_threads(
    reader: NetworkReader, two_threads: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Order, errors and progress are those of one thread."""
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    images = [*pictures((200, 60, 60), 12), tmp_path / "broken.jpg", *pictures((60, 60, 200), 12, 1)]
    torch.set_num_threads(1)
    expected = reader.read(images)
    torch.set_num_threads(2)
    found, progress = threads_of_passes(reader, monkeypatch), []
    outputs = reader.read(images, lambda *arguments: progress.append(arguments[1:]))
    assert {operations for _, operations in found} == {1}
    assert len(found) == 2
    assert torch.get_num_threads() == 2
    assert outputs.digests == expected.digests
    assert outputs.readable == expected.readable == [*range(12), *range(13, 25)]
    assert outputs.errors.keys() == {12}
    torch.testing.assert_close(outputs.features, expected.features, atol=1e-5, rtol=1e-4)
    assert progress == [(min(3 * step, 25), 25) for step in range(1, 10)]


def test_modules_of_users_run_in_one_thread(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = build_reader(Colours(), 8, torch.device("cpu"), 3)
    found = threads_of_passes(reader, monkeypatch)
    reader.read(list(pictures((200, 60, 60), 9)))
    assert found == {(threading.get_ident(), 2)}


def test_known_images_are_not_run_through_the_network(
    reader: NetworkReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learning a folder again after images were added takes the time of the added images, besides decoding."""
    images = list(pictures((200, 60, 60), 7))
    outputs = reader.read(images)
    again = reader.read(images, known={outputs.digests[index] for index in (0, 1, 2, 4, 5, 6)})
    assert (again.readable, again.digests) == (outputs.readable, outputs.digests)
    torch.testing.assert_close(again.features[3], outputs.features[3], atol=1e-5, rtol=1e-4)
    assert again.features.abs().sum(dim=1).nonzero().tolist() == [[3]]
    model = IncrementalClassifier(image_size=64).learn(images[:5], "red", quiet=True)
    read: list[int] = []

    def counted(network: Network, batch: torch.Tensor, *arguments: Any) -> Any:
        read.append(len(batch))
        return infer(network, batch, *arguments)

    monkeypatch.setattr("cscct.classifier.reader.infer", counted)
    model.learn(images, "red", quiet=True)
    assert (read[0], model.statistics_["red"].count) == (2, 7)  # then stored images are selected


def test_saved_model_needs_no_weights_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = IncrementalClassifier(image_size=64).learn(pictures((200, 60, 60), 5), "red")
    model.learn(pictures((60, 60, 200), 5, 1), "blue").save(tmp_path / "m")

    def missing(name: str) -> Path:
        raise UserError("not installed")

    monkeypatch.setattr(efficientnet, "weights_file", missing)
    again = IncrementalClassifier.load(tmp_path / "m")
    queries = pictures((120, 60, 120), 3, 2)
    np.testing.assert_array_equal(again.predict_proba(queries), model.predict_proba(queries))
    with pytest.raises(UserError, match="not installed"):
        IncrementalClassifier().learn(queries, "red")


def test_sizes_of_images() -> None:
    module = torch.nn.Identity()
    assert transform_for("efficientnet-lite0", module, None).size == 224
    assert transform_for("efficientnet-lite2", module, None).size == 260
    assert transform_for("lucir-resnet", module, None).size == 64
    assert transform_for(module, module, None).size == 224
    module.pretrained_cfg = {"input_size": (3, 288, 288), "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.2, 0.2)}
    assert transform_for("timm:x", torch.nn.Sequential(module), None).size == 288
    assert transform_for(module, module, 100).mean == (0.4, 0.5, 0.6)
    assert transform_for(module, module, 100).size == 100


def test_weights_from_a_file_are_saved(tmp_path: Path) -> None:
    weights = backbone_module("lucir-resnet").state_dict()
    save_tensors(tmp_path / "own.safetensors", {name: tensor * 2 for name, tensor in weights.items()})
    model = IncrementalClassifier(f"lucir-resnet:{tmp_path}/own.safetensors").learn(pictures((200, 60, 60), 3), "red")
    model.save(tmp_path / "m")
    (tmp_path / "own.safetensors").unlink()
    again = IncrementalClassifier.load(tmp_path / "m")
    queries = pictures((120, 60, 120), 3, 2)
    np.testing.assert_array_equal(again.features(queries), model.features(queries))
    assert str(tmp_path) not in (tmp_path / "m" / "versions" / "0001.json").read_text()
