"""Is the accuracy that `cscct learn` reports the accuracy on photos that the model has not seen?

    python studies/reported_accuracy.py FOLDER... --train 30 --splits 40

The photos of all folders (class folders, as for `cscct learn`) are pooled and split at random into training and unseen
photos, many times. The reported, cross-validated accuracy is compared with that on the unseen photos, with and without
bursts: of every third photo there are three near-duplicates (cropped by 4 pixels; shifted and brighter or darker;
rotated by up to 3 degrees), which are learned together with it. Features are computed once.
"""

from __future__ import annotations

import argparse
import random
import statistics
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from cscct import IncrementalClassifier
from cscct.classifier.evaluation import FittedClasses, count_duplicates
from cscct.features import PREDICTORS, ClassStatistics

EVERY = 3  # every third photo has near-duplicates


def burst(image: Image.Image, rng: random.Random) -> list[Image.Image]:
    """Return near-duplicates of a photo."""
    width, height = image.size
    x, y = rng.randint(1, 8), rng.randint(1, 8)
    shifted = image.crop((x, y, width - 8 + x, height - 8 + y))
    turned = image.rotate(rng.uniform(-3, 3), Image.Resampling.BICUBIC)
    brighter = ImageEnhance.Brightness(shifted).enhance(rng.choice([0.85, 1.15]))
    return [image.crop((4, 4, width, height)), brighter, turned.crop((8, 8, width - 8, height - 8))]


def read(folders: list[Path], backbone: str) -> tuple[Tensor, list[list[int]], list[list[int]]]:
    """Return the features of all photos and near-duplicates; the photos of each class; and for each photo, the rows of
    the photo and its near-duplicates."""
    paths = sorted(path for folder in folders for path in folder.glob("*/*") if path.suffix.lower() in (".jpg", ".png"))
    if not paths:
        raise SystemExit("The folders contain no photos FOLDER/CLASS/*.jpg or *.png.")
    names = sorted({path.parent.name for path in paths})
    blank = [Image.new("RGB", (64, 64), colour) for colour in ("red", "blue")]
    model = IncrementalClassifier(backbone).learn(blank, ["a", "b"], evaluate=False, quiet=True)
    features: list[np.ndarray] = []
    rows: list[list[int]] = []
    count = 0
    for number, path in enumerate(paths):
        image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
        images = [image, *(burst(image, random.Random(number)) if number % EVERY == 0 else [])]
        features.append(np.asarray(model.features(images)))
        rows.append(list(range(count, count + len(images))))
        count += len(images)
    members = [[i for i, path in enumerate(paths) if path.parent.name == name] for name in names]
    return torch.from_numpy(np.concatenate(features)), members, rows


def compare(
    features: Tensor, members: list[list[int]], rows: list[list[int]], train: int, bursts: bool, seed: int, method: str
) -> tuple[float, float, float, int]:
    """Return the reported accuracy, that on unseen photos, and that on unseen photos with their bursts, in percent, and
    the number of detected near-duplicates."""
    rng = np.random.default_rng(seed)
    classes, correct, correct_with_bursts = {}, [], []
    unseen: list[tuple[int, list[int]]] = []  # label and rows of each photo
    for label, photos in enumerate(members):
        order = rng.permutation(photos).tolist()
        learned = [row for photo in order[:train] for row in (rows[photo] if bursts else rows[photo][:1])]
        classes[label] = ClassStatistics.of(features[learned], keep_samples=PREDICTORS[method].reads_samples)
        unseen += [(label, rows[photo]) for photo in order[train:]]
    fitted = FittedClasses.of(PREDICTORS[method](), classes, images=True)
    table = fitted.evaluate({})
    predicted = fitted.predictor.predict(features)
    for label, photo in unseen:
        right = (predicted[photo] == label).tolist()
        correct.append(right[0])
        correct_with_bursts += right
    reported = float((table.true == table.predicted).double().mean())
    found = sum(count_duplicates(classes, fitted.groups).values())
    return 100 * reported, 100 * statistics.fmean(correct), 100 * statistics.fmean(correct_with_bursts), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--train", type=int, required=True, help="training photos of each class")
    parser.add_argument("--splits", type=int, default=40)
    parser.add_argument("--method", default="lda")
    parser.add_argument("--backbone", default="efficientnet-lite0")
    options = parser.parse_args()
    if options.splits < 2:
        parser.error("--splits must be at least 2: the standard error needs several splits.")
    features, members, rows = read(options.folders, options.backbone)
    if not all(0 < options.train < len(photos) for photos in members):
        parser.error(f"--train must leave unseen photos: the smallest class has {min(map(len, members))} photos.")
    for bursts in (False, True):
        draws = [
            compare(features, members, rows, options.train, bursts, seed, options.method)
            for seed in range(options.splits)
        ]
        reported, unseen, unseen_bursts, found = (statistics.fmean(values) for values in zip(*draws, strict=True))
        print(
            f"{'with' if bursts else 'without'} bursts: reported {reported:.2f} %, unseen photos {unseen:.2f} %, "
            f"difference {difference(draws, 1)}; {found:.0f} near-duplicates found"
        )
        if bursts:
            print(f"  unseen photos with bursts {unseen_bursts:.2f} %, difference {difference(draws, 2)}")


def difference(draws: list[tuple[float, float, float, int]], column: int) -> str:
    """Return the mean difference of the reported accuracy and another one, with its standard error."""
    differences = [draw[0] - draw[column] for draw in draws]
    return f"{statistics.fmean(differences):+.2f} ± {statistics.stdev(differences) / len(differences) ** 0.5:.2f}"


if __name__ == "__main__":
    main()
