"""Photos that look mislabelled or are not recognised, and changes of photos."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..data.inputs import Item, open_item
from ..errors import UserError
from ..features import ClassStatistics
from .evaluation import Evaluation
from .labels import Label
from .photos import ClassPhotos, Photo
from .state import ModelState
from .training_images import TrainingImages

MISLABELLED = 0.05  # a photo whose label has a smaller probability looks mislabelled
MAX_THUMBNAILS = 300
THUMBNAIL = 160  # pixels of the longer side


@dataclass(frozen=True)
class ReviewPhoto:
    """A photo that a classifier computed without it assigns to another class.

    Attributes:
        id: Identity of the photo; empty for photos of models of earlier versions, which cannot be changed.
        name: Path as it was learned.
        label: Its class.
        predicted: The class it is assigned to.
        probability: Probability of `label`.
        predicted_probability: Probability of `predicted`.
        kind: `mislabelled` if its class is very improbable, else `not recognised`; for others see `class_photos`.
        confirmed: Whether the user confirmed its label.
    """

    id: str
    name: str
    label: str
    predicted: str
    probability: float
    predicted_probability: float
    kind: str
    confirmed: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def suspicious(state: ModelState, *, confirmed: bool = False) -> list[ReviewPhoto]:
    """Return the photos that are assigned to another class, least probable label first.

    Args:
        state: State of a model.
        confirmed: Whether to include photos whose label the user confirmed.
    """
    table = state.evaluation
    if table is None or len(state.statistics) < 2 or not state.photos:
        return []
    rows = torch.nonzero((table.predicted != table.true) & (table.position >= 0))[:, 0]
    rows = rows[table.own[rows].argsort(stable=True)]
    photos = _measured_photos(state, table, rows.tolist())
    return [photo for photo in photos if photo.name and (confirmed or not photo.confirmed)]


def class_photos(state: ModelState, label: Label) -> list[ReviewPhoto]:
    """Return the photos of a class in the order in which they were learned. Photos that were not tested are assigned to
    their own class, with the kind `not tested`; those that are recognised have the kind `recognised`.

    Args:
        state: State of a model.
        label: The class.
    """
    table, index = state.evaluation, list(state.statistics).index(label)
    members = state.photos.get(label, ClassPhotos()).padded(state.statistics[label].count).photos
    tested: dict[int, ReviewPhoto] = {}
    if table is not None and len(state.statistics) > 1 and state.photos:
        rows = torch.nonzero((table.true == index) & (table.position >= 0))[:, 0].tolist()
        tested = dict(zip(table.position[rows].tolist(), _measured_photos(state, table, rows), strict=True))
    name = str(label)
    return [
        tested.get(position) or ReviewPhoto(photo.id, photo.name, name, name, 0, 0, "not tested", photo.confirmed)
        for position, photo in enumerate(members)
        if photo.name
    ]


def _measured_photos(state: ModelState, table: Evaluation, rows: Sequence[int]) -> list[ReviewPhoto]:
    """Return the photos of rows of an evaluation."""
    labels = list(state.statistics)
    members: dict[Label, tuple[Photo, ...]] = {}
    photos = []
    for row in rows:
        label, own = labels[int(table.true[row])], float(table.own[row])
        if label not in members:
            members[label] = state.photos.get(label, ClassPhotos()).padded(state.statistics[label].count).photos
        photo, predicted = members[label][int(table.position[row])], labels[int(table.predicted[row])]
        kind = "recognised" if predicted == label else "mislabelled" if own < MISLABELLED else "not recognised"
        own, best = round(own, 4), round(float(table.best[row]), 4)
        photos.append(
            ReviewPhoto(photo.id, photo.name, str(label), str(predicted), own, best, kind, confirmed=photo.confirmed)
        )
    return photos


def with_thumbnails(state: ModelState, images: TrainingImages, memory_mb: float) -> ModelState:
    """Return the state with small images of the photos to review, as far as they are available.

    Args:
        state: State after a learning step.
        images: Images of the step.
        memory_mb: Limit of the stored images; 0 stores none.
    """
    items = {photo.id: item for photo, item in zip(images.photos, images.items, strict=True)}
    stored = {}
    for photo in suspicious(state)[: MAX_THUMBNAILS if memory_mb else 0]:
        if photo.id in state.thumbnails:
            stored[photo.id] = state.thumbnails[photo.id]
        elif photo.id in items:
            stored[photo.id] = thumbnail(items[photo.id])
    return replace(state, thumbnails=stored)


def thumbnail(item: Item, side: int = THUMBNAIL) -> bytes:
    """Return a small JPEG of an image.

    Args:
        item: The image.
        side: Pixels of its longer side.
    """
    image = open_item(item, lambda *size: max(size) / side)[0]
    image.thumbnail((side, side))
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=80)
    return file.getvalue()


def photo_image(state: ModelState, id: str, name: str, side: int = THUMBNAIL) -> bytes | None:
    """Return a small image of a photo: one made of its file if that still has the same pixels, else of what the model
    stores; None if there is neither.

    Args:
        state: State of the model.
        id: Identity of the photo.
        name: Its path.
        side: Pixels of the longer side, at most.
    """
    if side <= THUMBNAIL and id in state.thumbnails:
        return state.thumbnails[id]
    path = Path(name)
    with contextlib.suppress(UserError, OSError, ValueError):  # ValueError: a name that is no path
        if path.is_file() and state.reader is not None and state.reader.digest(path) == bytes.fromhex(id):
            return thumbnail(path, side)
    for label, members in state.photos.items():
        for stored, exemplar_id in zip(state.exemplars.get(label, ()), members.exemplars, strict=False):
            if id and id == exemplar_id:
                return thumbnail(stored, side)
    return state.thumbnails.get(id)


def renamed_photos(state: ModelState, rename: Callable[[str], str]) -> ModelState:
    """Return the state with other names of photos.

    Args:
        state: State of a model.
        rename: Returns the new name for a name.
    """
    photos = {
        label: replace(members, photos=tuple(replace(photo, name=rename(photo.name)) for photo in members.photos))
        for label, members in state.photos.items()
    }
    return replace(state, photos=photos)


def find_photo(state: ModelState, id: str) -> tuple[Label, int]:
    """Return the class of a photo and its position in the class.

    Args:
        state: State of the model.
        id: Identity of the photo, or the first characters of it.

    Raises:
        UserError: No photo or several photos match.
    """
    matches = [
        (label, position)
        for label, members in state.photos.items()
        for position, photo in enumerate(members.padded(state.statistics[label].count).photos)
        if photo.id and photo.id.startswith(id.lower())
    ]
    if len(matches) != 1 or len(id) < 4:
        problem = "There is no photo" if not matches else "Several photos match"
        raise UserError(f"{problem} {id!r} in this model: `cscct review` lists the identities of photos to review.")
    return matches[0]


def without_photos(state: ModelState, ids: Sequence[str]) -> tuple[ModelState, list[tuple[Label, Photo, torch.Tensor]]]:
    """Return the statistics, exemplars and photos of a model without some photos, and the removed photos with their
    classes and features. Predictor and evaluation are those of before.

    Args:
        state: State of the model.
        ids: Identities of the photos.

    Raises:
        UserError: A photo does not exist, is the last one of its class, or its features are not stored.
    """
    positions: dict[Label, set[int]] = {}
    for id in ids:
        label, position = find_photo(state, id)
        positions.setdefault(label, set()).add(position)
    statistics, photos, exemplars = dict(state.statistics), dict(state.photos), dict(state.exemplars)
    removed = []
    for label, where in positions.items():
        stats, members = statistics[label], photos[label].padded(statistics[label].count)
        if stats.samples is None:
            raise UserError(
                f"The class {label} has so many photos that only sums of their features are stored: single photos "
                "cannot be changed. Forget the class and learn it again without the photo."
            )
        kept = [position for position in range(stats.count) if position not in where]
        if not kept:
            raise UserError(f"No photo of the class {label} would be left: remove the class with `cscct forget`.")
        removed += [(label, members.photos[position], stats.samples[position]) for position in sorted(where)]
        gone = {members.photos[position].id for position in where}
        pairs = list(zip(members.exemplars, exemplars.get(label, []), strict=False))
        statistics[label] = ClassStatistics.of(stats.samples[kept], keep_samples=True)
        if label in exemplars and members.exemplars:
            exemplars[label] = [image for id, image in pairs if id not in gone]
        photos[label] = ClassPhotos(
            tuple(members.photos[position] for position in kept), tuple(id for id, _ in pairs if id not in gone)
        )
    return replace(state, statistics=statistics, photos=photos, exemplars=exemplars), removed
