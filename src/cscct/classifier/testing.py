"""Accuracy of a model on labelled images that it has not learned."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..data.inputs import InputProblem, display_path
from ..data.labelled import scan_labelled
from ..data.registry import Progress, no_progress
from ..errors import UserError
from .estimator import IncrementalClassifier
from .evaluation import Confusion
from .folder import check_is_model, own_label
from .labels import Label, nearest
from .photos import known_ids
from .versions import StoredVersions

Z = 1.96  # quantile of the normal distribution for 95 %


@dataclass(frozen=True)
class Misclassified:
    """A test image that was assigned to another class.

    Attributes:
        image: Path of the image.
        label: Its class.
        predicted: The class it was assigned to.
        probability: Probability of `label`.
        predicted_probability: Probability of `predicted`.
    """

    image: str
    label: str
    predicted: str
    probability: float
    predicted_probability: float


@dataclass(frozen=True)
class FolderTest:
    """Result of a test.

    Attributes:
        path: Folder of the model or run.
        correct: Number of correct predictions.
        images: Number of tested images.
        interval: 95 % confidence interval of the accuracy (Wilson), as shares.
        classes: Correct predictions and tested images of each class of the test.
        confusion: For each true class, the number of predictions of each class.
        misclassified: Images that were assigned to another class, most confident first.
        learned: Number of test images that the model has learned.
        unknown: Number of images of each class that the model does not know; they are not tested.
        problems: Problems of the images.
    """

    path: Path
    correct: int
    images: int
    interval: tuple[float, float]
    classes: dict[str, list[int]]
    confusion: dict[str, dict[str, int]]
    misclassified: tuple[Misclassified, ...]
    learned: int
    unknown: dict[str, int]
    problems: tuple[InputProblem, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self), "path": str(self.path), "accuracy": self.correct / self.images}


def wilson(correct: int, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share (Wilson score interval).

    Args:
        correct: Number of successes.
        count: Number of trials, at least 1.
    """
    share = correct / count
    centre = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z / (1 + Z**2 / count) * (share * (1 - share) / count + Z**2 / (4 * count**2)) ** 0.5
    return (0.0 if correct == 0 else centre - half), (1.0 if correct == count else centre + half)


def run_test(
    path: Path, images: Path, *, model: IncrementalClassifier | None = None, progress: Progress = no_progress
) -> FolderTest:
    """Test the model in a folder on class folders of images.

    Args:
        path: Model folder or run folder.
        images: Folder with one folder per class.
        model: The model, if it is loaded already.
        progress: Called with a description, the number of images done and the total.

    Raises:
        UserError: There is no model, or none of the classes is known to it.
    """
    check_is_model(path)
    model = model or StoredVersions(path).load()
    if model.backbone is None:
        raise UserError("This model reads features, not images: use `model.score` in Python.")
    folders = scan_labelled(images, "test")
    labels: list[Label] = [own_label(name, model.classes_.tolist()) for name in folders.labels]
    known = set(model.classes_.tolist())
    chosen = [index for index, label in enumerate(labels) if label in known]
    unknown = Counter(str(label) for label in labels if label not in known)
    if not chosen:
        hint = nearest(next(iter(unknown)), list(model.class_names))
        raise UserError(f"The model knows none of the classes in {images}. {hint}")
    paths = tuple(Path(str(item)) for item in folders.items)  # no frames of videos
    return _test(model, path, paths, labels, chosen, dict(unknown), list(folders.problems), progress)


def _test(
    model: IncrementalClassifier,
    path: Path,
    paths: tuple[Path, ...],
    labels: list[Label],
    chosen: list[int],
    unknown: dict[str, int],
    problems: list[InputProblem],
    progress: Progress,
) -> FolderTest:
    order = model.classes_.tolist()
    outputs = model.reader_.read([paths[index] for index in chosen], progress)
    for index, error in outputs.errors.items():
        problems.append(InputProblem("unreadable", display_path(paths[chosen[index]]), str(error)))
    if not outputs.readable:
        raise UserError(f"No image can be read: {problems[-1].path}: {problems[-1].text}")
    probabilities = model.log_probabilities(outputs).exp()
    confusion: Confusion = {label: Counter() for label in order}
    wrong = []
    for row, index in zip(probabilities, outputs.readable, strict=True):
        label, best = labels[chosen[index]], int(row.argmax())
        confusion[label][order[best]] += 1
        if order[best] != label:
            own = float(row[order.index(label)])
            name = display_path(paths[chosen[index]])
            wrong.append(Misclassified(name, str(label), str(order[best]), round(own, 4), round(float(row[best]), 4)))
    tested = {label: counts for label, counts in confusion.items() if counts}
    correct, count = sum(counts[label] for label, counts in tested.items()), len(outputs.readable)
    ids = known_ids(model.state_.photos)
    return FolderTest(
        path,
        correct,
        count,
        wilson(correct, count),
        {str(label): [counts[label], counts.total()] for label, counts in tested.items()},
        {str(label): {str(name): number for name, number in counts.items()} for label, counts in tested.items()},
        tuple(sorted(wrong, key=lambda photo: photo.probability)),
        sum(digest.hex() in ids for digest in outputs.digests),
        unknown,
        tuple(problems),
    )
