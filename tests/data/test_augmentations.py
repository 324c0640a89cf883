"""Augmentations by name, compared with Pillow and with loops over images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from conftest import run_quietly, settings_for
from cscct.data.augment import make_view
from cscct.data.augmentation_registry import AUGMENTATIONS, complete_options
from cscct.data.augmentations import CIFAR10, IMAGENET, Draws, _policy, augment_pixels, mixup
from cscct.data.base import ArrayImages, FileImages
from cscct.data.batches import join, training_batches
from cscct.data.image_ops import CODES, NONE, OPERATIONS, apply
from cscct.errors import UserError
from cscct.losses import TERMS, WeightedSum
from cscct.specs import Stage, TransformSpec
from cscct.structs import Mixed
from loss_steps import TASK, make_step

CPU = torch.device("cpu")


def smooth_images(count: int = 12, channels: int = 3) -> Tensor:
    random = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (count, channels, 6, 6), generator=random).float()
    images = F.interpolate(noise, (24, 28), mode="bilinear").to(torch.uint8)
    images[1] = images[1] // 3 + 40  # low contrast
    images[2] = 77  # a single value
    return images


def draws(count: int, part: slice | Tensor = slice(None), seed: int = 0) -> Draws:
    return Draws(torch.Generator().manual_seed(seed), count, part)


def with_pillow(name: str, image: Image.Image, strength: float, fill: int) -> Image.Image:
    (width, height), colour = image.size, (fill,) * 3

    def affine(*matrix: float) -> Image.Image:
        return image.transform(image.size, Image.Transform.AFFINE, matrix, fillcolor=colour)

    enhancers = {
        "brightness": ImageEnhance.Brightness,
        "color": ImageEnhance.Color,
        "contrast": ImageEnhance.Contrast,
        "sharpness": ImageEnhance.Sharpness,
    }
    if name in enhancers:
        return enhancers[name](image).enhance(1 + 0.9 * strength)
    functions: dict[str, Callable[[], Image.Image]] = {
        "shear_x": lambda: affine(1, 0.3 * strength, 0, 0, 1, 0),
        "shear_y": lambda: affine(1, 0, 0, 0.3 * strength, 1, 0),
        "translate_x": lambda: affine(1, 0, int(strength * 150 / 331 * width), 0, 1, 0),
        "translate_y": lambda: affine(1, 0, 0, 0, 1, int(strength * 150 / 331 * height)),
        "rotate": lambda: image.rotate(30 * strength, fillcolor=colour),
        "posterize": lambda: ImageOps.posterize(image, 8 - round(4 * abs(strength))),
        "solarize": lambda: ImageOps.solarize(image, 256 * (1 - abs(strength))),  # type: ignore[arg-type]
        "autocontrast": lambda: ImageOps.autocontrast(image),
        "equalize": lambda: ImageOps.equalize(image),
        "invert": lambda: ImageOps.invert(image),
    }
    return functions[name]()


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_those_of_pillow(name: str) -> None:
    images = smooth_images()
    strengths = torch.linspace(-1, 1, len(images))
    results = OPERATIONS[name](images, strengths, 90)
    assert results.dtype == torch.uint8
    for image, strength, result in zip(images, strengths, results, strict=True):
        expected = with_pillow(name, Image.fromarray(image.permute(1, 2, 0).numpy()), float(strength), 90)
        difference = (result.permute(1, 2, 0).int() - torch.from_numpy(np.array(expected)).int()).abs()
        # A coordinate or product on a boundary may be rounded to the other side
        assert (difference > 0).float().mean() <= 0.01, (name, float(strength))


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_operations_act_on_each_image_alone(name: str, channels: int) -> None:
    images, strengths = smooth_images(5, channels), torch.tensor([-1.0, 0.4, 1.0, 0.0, -0.3])
    whole = OPERATIONS[name](images, strengths, 0)
    for number in range(5):
        assert torch.equal(OPERATIONS[name](images[[number]], strengths[[number]], 0)[0], whole[number])
    if name not in ("autocontrast", "equalize", "invert"):  # they have no strength
        assert torch.equal(whole[3], images[3])
    codes = torch.tensor([CODES[name], NONE, CODES[name], NONE, NONE])
    applied = apply(images, codes, strengths, 0)
    assert torch.equal(applied[[0, 2]], whole[[0, 2]])
    assert torch.equal(applied[[1, 3, 4]], images[[1, 3, 4]])


def test_cutout_is_a_square_around_a_point_of_the_image() -> None:
    images = torch.full((200, 3, 9, 12), 200, dtype=torch.uint8)
    results = augment_pixels(images, [{"cutout": {"size": 4, "fill": 7}}], draws(200))
    heights, widths = set(), set()
    for result in results:
        assert all(torch.equal(result[0], channel) for channel in result[1:])
        rows, columns = ((result[0] == 7).any(axis).nonzero().flatten() for axis in (1, 0))
        assert int((result[0] == 7).sum()) == len(rows) * len(columns)
        assert (rows.diff() == 1).all()
        assert (columns.diff() == 1).all()
        heights.add(len(rows))
        widths.add(len(columns))
    assert heights == widths == {2, 3, 4}  # smaller at the border


ENTRIES: list[dict[str, Any]] = [
    {"cutout": {"size": 5}},
    {"autoaugment": {"policy": "cifar10"}},
    {"autoaugment": {"policy": "imagenet"}},
    {"randaugment": {"operations": 3, "magnitude": 12}},
]
IDENTITIES: list[dict[str, Any]] = [
    {"cutout": {"size": 0}},
    {"cutout": {"probability": 0.0}},
    {"autoaugment": {"probability": 0.0}},
    {"randaugment": {"operations": 0}},
    {"randaugment": {"probability": 0.0}},
]


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_augmentations_are_keyed_and_the_same_in_every_part(entry: dict[str, Any]) -> None:
    images = smooth_images(40)
    kept = images.clone()
    whole = augment_pixels(images, [entry], draws(40))
    assert torch.equal(images, kept)  # unchanged: exemplars are augmented again
    assert torch.equal(whole, augment_pixels(images, [entry], draws(40)))
    assert not torch.equal(whole, augment_pixels(images, [entry], draws(40, seed=1)))
    assert float((whole != images).flatten(1).any(1).float().mean()) > 0.5
    for part in (slice(10, 20), torch.tensor([3, 39, 3])):
        assert torch.equal(augment_pixels(images[part], [entry], draws(40, part)), whole[part])


@pytest.mark.parametrize("entry", IDENTITIES, ids=str)
def test_without_size_or_probability_nothing_changes(entry: dict[str, Any]) -> None:
    images = smooth_images()
    assert torch.equal(augment_pixels(images, [entry], draws(len(images))), images)


@pytest.mark.parametrize(("text", "first"), [(CIFAR10, "invert"), (IMAGENET, "posterize")])
def test_policies(text: str, first: str) -> None:
    codes, chances, strengths = _policy(text)
    assert codes.shape == chances.shape == strengths.shape == (25, 2)
    assert codes[0, 0] == CODES[first]
    assert 0 <= chances.min() <= chances.max() <= 1
    assert 0 <= strengths.min() <= strengths.max() <= 1


def test_autoaugment_applies_a_pair_to_each_image() -> None:
    """An independent loop with the same random numbers."""
    images = smooth_images(30)
    results = augment_pixels(images, [{"autoaugment": {"policy": "cifar10"}}], draws(30, seed=5))
    pairs = [line.split() for row in CIFAR10.strip().splitlines() for line in row.split("|")]
    random = torch.Generator().manual_seed(5)
    torch.rand(30, generator=random)
    chosen = torch.randint(25, (30,), generator=random)
    for number in (0, 1):
        chance = torch.rand(30, generator=random)
        sign = 2 * torch.randint(2, (30,), generator=random) - 1
        for index, pair in enumerate(pairs[int(p)] for p in chosen):
            name, probability, magnitude = pair[3 * number : 3 * number + 3]
            if chance[index] < float(probability):
                strength = sign[[index]] * (int(magnitude) / 9)
                images[index] = OPERATIONS[name](images[[index]], strength, 128)[0]
    assert torch.equal(results, images)


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_views_apply_them_after_the_crop(kind: str, tmp_path: Path) -> None:
    pixels = smooth_images(6)
    if kind == "files":
        for number, image in enumerate(pixels):
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / f"{number}.png")
        images: Any = FileImages(tuple(tmp_path / f"{number}.png" for number in range(6)))
    else:
        images = ArrayImages(pixels)
    plain, augmented = (
        make_view(images, TransformSpec(size=16, mean=(0.0,), std=(1 / 255,), flip=True, augment=augment))
        for augment in ((), ({"cutout": {"size": 6, "fill": 0}},))
    )
    without, whole = (view.train(torch.arange(6), torch.Generator().manual_seed(2)) for view in (plain, augmented))
    assert not torch.equal(whole, without)
    assert torch.equal(whole[whole != without].round().unique(), torch.zeros(1)) or kind == "memory"  # resized later
    part = augmented.train(torch.arange(6), torch.Generator().manual_seed(2), slice(2, 5))
    assert torch.equal(part, whole[2:5])
    assert torch.equal(plain.plain(torch.arange(6)), augmented.plain(torch.arange(6)))  # never in tests


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_mixup_is_a_weighted_mean_of_two_images_of_the_batch(processes: int) -> None:
    pixels = torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1).repeat(1, 1, 4, 4)
    exact = {"padding": 0, "flip": False, "mean": (0.0,), "std": (1 / 255,)}
    view = make_view(ArrayImages(pixels), TransformSpec(**exact, augment=({"mixup": {"alpha": 1.0}},)))
    pool = join([(label, [2 * label, 2 * label + 1]) for label in range(10)], [])
    stage, key = Stage(epochs=1, batch_size=7, views=2), (0, "train", 0)
    weights = set()
    for rank in range(processes):

        def share(count: int, rank: int = rank) -> slice:
            return slice(count * rank // processes, count * (rank + 1) // processes)

        whole = list(training_batches(view, pool, stage, 1, key, CPU))
        batches = list(training_batches(view, pool, stage, 1, key, CPU, part=share))
        for expected, batch in zip(whole, batches, strict=True):
            assert batch.mixed is not None
            assert expected.mixed is not None
            shard, own = share(len(expected.labels)), len(batch.labels)
            assert torch.equal(batch.mixed.labels, expected.mixed.labels[shard])
            torch.testing.assert_close(batch.images[:own], expected.images[shard])
            weights.add(batch.mixed.weight)
            # Labels are half the number of the image, rounded down
            mean = batch.mixed.weight * batch.labels + (1 - batch.mixed.weight) * batch.mixed.labels
            for images in (batch.images, batch.second):
                assert images is not None
                shown = images[:own].mean((1, 2, 3)) / 2
                assert ((shown - mean > -0.01) & (shown - mean < 0.51)).all()
    assert len(weights) == 3  # one for each of three batches


def test_mixup_weights() -> None:
    weights = [mixup(8, torch.Generator().manual_seed(seed), alpha=0.2)[1] for seed in range(500)]
    assert np.mean(weights) == pytest.approx(0.5, abs=0.1)
    assert np.var(weights) == pytest.approx(0.25 / 1.4, abs=0.03)  # of the beta distribution
    partners, weight = mixup(8, torch.Generator(), alpha=0.0)
    assert weight == 1.0
    assert sorted(partners.tolist()) == list(range(8))


def test_losses_of_mixed_images() -> None:
    """Cross-entropy with soft targets, and losses without labels as they are."""
    step = make_step()
    other = step.batch.labels.flip(0)
    mixed = step._replace(batch=step.batch._replace(mixed=Mixed(other, 0.3)))
    _, parts = WeightedSum([TERMS["cross_entropy"](), TERMS["less_forget"]()], TASK)(mixed)
    classes = step.student.logits.shape[1]
    soft = 0.3 * F.one_hot(step.batch.labels, classes) + 0.7 * F.one_hot(other, classes)
    expected = -(soft * step.student.logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(parts["cross_entropy"], expected)
    assert torch.equal(parts["less_forget"], TERMS["less_forget"]().value(step))


def test_losses_that_ignore_mixup_read_no_labels() -> None:
    step = make_step()
    for name, term in TERMS.items():
        if term.with_mixup == "same" and not term.reads_extension:
            changed = step._replace(batch=step.batch._replace(labels=step.batch.labels * 0, is_new=~step.batch.is_new))
            assert torch.equal(term().value(step), term().value(changed)), name
    assert {name for name, term in TERMS.items() if term.with_mixup == "weighted"} >= {"cross_entropy", "nca"}


@pytest.fixture
def registered() -> Iterator[Callable[[Any], None]]:
    yield lambda function: AUGMENTATIONS.register("mine")(function)
    AUGMENTATIONS.pop("mine", None)


def test_a_registered_augmentation_has_typed_options(registered: Callable[[Any], None]) -> None:
    def darken(pixels: Tensor, draws: Draws, factor: float, steps: int = 2) -> Tensor:
        return (pixels * draws.uniform(1, 1, 1) * factor).to(torch.uint8)

    registered(darken)
    settings = settings_for("lucir", "digits", "data.transform.augment=[{mine: {factor: 0.5}}]")
    assert settings.data.transform.augment == ({"mine": {"factor": 0.5, "steps": 2}},)
    assert complete_options("mine", {"factor": 1.0, "steps": 3}) == {"factor": 1.0, "steps": 3}
    assert settings_for("lucir", "digits").data.transform.augment == ()


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("[cutuot]", "cutout"),
        ("[{cutout: {siez: 3}}]", "cutout.size"),
        ("[{cutout: {size: -1}}]", "cutout.size"),
        ("[{cutout: 3}]", "mapping"),
        ("[3]", "names"),
        ("cutout", "augment"),
        ("[{autoaugment: {policy: svhn}}]", "imagenet"),
        ("[mixup]", "loss.margin_ranking"),
    ],
)
def test_invalid_settings(setting: str, word: str) -> None:
    with pytest.raises(UserError, match=word):
        settings_for("lucir", "digits", f"data.transform.augment={setting}")
    with pytest.raises(UserError, match=r"loss\.csc"):
        settings_for(
            "replay", "digits", "data.transform.augment=[mixup]", "stages={more: {epochs: 1, loss: {csc: {}}}}"
        )
    with pytest.raises(UserError, match="train_from"):
        settings_for("replay", "digits", "data.transform.augment=[mixup]", "network.train_from=1")


@pytest.mark.parametrize(
    "function", [lambda pixels, draws: pixels.float(), lambda pixels, draws: pixels[:1], lambda pixels, draws: 1 / 0]
)
def test_an_unusable_augmentation_is_rejected_before_training(
    registered: Callable[[Any], None], function: Any, tmp_path: Path
) -> None:
    registered(function)
    with pytest.raises(UserError, match="augmentation mine"):
        run_quietly(tmp_path / "run", "lucir", "train.epochs=1", "data.transform.augment=[mine]")
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_a_run_with_all_of_them(tmp_path: Path) -> None:
    augment = "[{autoaugment: {policy: imagenet}}, {randaugment: {operations: 1}}, {cutout: {size: 2}}, mixup]"
    sets = ("train.epochs=2", "data.train_per_class=20", "data.test_per_class=10")
    results = [
        run_quietly(tmp_path / name, "replay", *sets, f"data.transform.augment={text}")
        for name, text in (("a", augment), ("b", augment), ("c", "[]"))
    ]
    assert results[0]["weights_sha256"] == results[1]["weights_sha256"] != results[2]["weights_sha256"]
    assert results[0]["first_task"] != results[2]["first_task"]
