"""Datasets from torch, torchvision and Hugging Face datasets."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cscct
from cscct.errors import UserError

PIXELS = np.random.default_rng(0).integers(0, 256, (8, 6, 5, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 0, 1, 2, 0, 1]


class HuggingFaceDataset(Sequence[dict[str, Any]]):
    """Items and class names as in `datasets.Dataset`."""

    def __init__(self, items: list[dict[str, Any]], names: dict[str, list[str]] | None = None) -> None:
        self.items = items
        if names is not None:
            self.features = {key: SimpleNamespace() for key in items[0]}
            self.features |= {key: SimpleNamespace(names=values) for key, values in names.items()}

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)


def items(image_key: str, label_key: str, **more: Any) -> list[dict[str, Any]]:
    images = [Image.fromarray(pixels) for pixels in PIXELS]
    return [{image_key: image, label_key: y, **more} for image, y in zip(images, LABELS, strict=True)]


@pytest.mark.parametrize(("image_key", "label_key"), [("image", "label"), ("img", "fine_label"), ("image", "labels")])
def test_dictionary_items_with_the_usual_keys(image_key: str, label_key: str) -> None:
    data = HuggingFaceDataset(items(image_key, label_key, coarse_label=0), {label_key: ["cat", "dog", "owl"]})
    dataset = cscct.Dataset.from_torch(data, data)
    assert dataset.class_names == ("cat", "dog", "owl")
    assert dataset.train.labels.tolist() == LABELS
    assert isinstance(dataset.train.images, cscct.data.ArrayImages)
    assert torch.equal(dataset.train.images.pixels, torch.from_numpy(PIXELS).permute(0, 3, 1, 2))


def test_explicit_keys_are_preferred() -> None:
    rows = [{**row, "image": None, "label": 0} for row in items("photo", "species")]
    data = HuggingFaceDataset(rows, {"label": ["wrong"], "species": ["cat", "dog", "owl"]})
    dataset = cscct.Dataset.from_torch(data, data, image_key="photo", label_key="species")
    assert dataset.class_names == ("cat", "dog", "owl")
    assert dataset.train.labels.tolist() == LABELS


def test_class_names_default_to_the_labels_and_can_be_set() -> None:
    data = HuggingFaceDataset(items("image", "label"))
    assert cscct.Dataset.from_torch(data, data).class_names == ("0", "1", "2")
    assert cscct.Dataset.from_torch(data, data, ["a", "b", "c"]).class_names == ("a", "b", "c")


def test_tensors_in_dictionary_items() -> None:
    rows = [
        {"image": torch.from_numpy(pixels).permute(2, 0, 1), "label": torch.tensor(y)}
        for pixels, y in zip(PIXELS, LABELS, strict=True)
    ]
    from_tensors = cscct.Dataset.from_torch(HuggingFaceDataset(rows), HuggingFaceDataset(rows))
    data = HuggingFaceDataset(items("image", "label"))
    assert from_tensors.fingerprint() == cscct.Dataset.from_torch(data, data).fingerprint()


def test_images_with_a_palette_or_alpha_channel_are_converted() -> None:
    for mode in ("P", "RGBA"):
        rows = [{**row, "image": row["image"].convert(mode)} for row in items("image", "label")]
        dataset = cscct.Dataset.from_torch(HuggingFaceDataset(rows), HuggingFaceDataset(rows))
        assert dataset.channels == 3


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "no key 'label' or 'labels' or 'fine_label'; they have 'image', 'species'.*label_key="),
        ({"label_key": "specie"}, "no key 'specie'; they have 'image', 'species'"),
        ({"image_key": "img", "label_key": "species"}, "no key 'img'.*image_key="),
    ],
)
def test_missing_keys_are_rejected(keys: dict[str, str], message: str) -> None:
    data = HuggingFaceDataset(items("image", "species"))
    with pytest.raises(UserError, match=message):
        cscct.Dataset.from_torch(data, data, **keys)


def test_keys_are_rejected_for_pairs() -> None:
    pairs = [(Image.fromarray(pixels), y) for pixels, y in zip(PIXELS, LABELS, strict=True)]
    assert cscct.Dataset.from_torch(pairs, pairs).train.labels.tolist() == LABELS
    with pytest.raises(UserError, match="items are dictionaries"):
        cscct.Dataset.from_torch(pairs, pairs, label_key="label")
