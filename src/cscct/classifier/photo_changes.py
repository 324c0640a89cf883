"""Changes of photos of the model in a folder, each as a new version: move, remove, keep, and merge classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch

from ..errors import UserError
from ..features import ClassStatistics
from .folder import change_model, existing_model, own_label
from .labels import Label, as_label, check_one_kind, nearest
from .photos import ClassPhotos
from .review import ReviewPhoto, find_photo, photo_image, without_photos
from .state import ModelState, statistics_predictor
from .step import refitted

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier

Ranked = TypeVar("Ranked")


def review_photos(path: Path) -> list[ReviewPhoto]:
    """Return the photos of the model in a folder that look mislabelled or are not recognised, most suspicious first.

    Args:
        path: The folder.

    Raises:
        UserError: There is no model.
    """
    return existing_model(path).load().review()


def review_images(path: Path) -> list[tuple[ReviewPhoto, bytes | None]]:
    """Return the photos to review with a small JPEG of each; None where neither an image nor the file is available.

    Args:
        path: The folder.
    """
    model = existing_model(path).load()
    return [(photo, photo_image(model.state_, photo.id, photo.name)) for photo in model.review()]


def move_photos(path: Path, ids: Sequence[str], label: str) -> int:
    """Move photos to another class, which is created if it does not exist.

    Args:
        path: The model folder.
        ids: Identities of the photos; their first characters are enough.
        label: The class.

    Returns:
        Number of the new version.

    Raises:
        UserError: A photo does not exist or cannot be moved. The model is unchanged.
    """

    def change(model: IncrementalClassifier) -> str:
        move(model, ids, as_label(own_label(label, model.classes_.tolist())))
        return f"{_count(ids)} moved to {label}"

    return change_model(path, change)


def remove_photos(path: Path, ids: Sequence[str]) -> int:
    """Remove photos from the model. Earlier versions keep them.

    Args:
        path: The model folder.
        ids: Identities of the photos; their first characters are enough.

    Returns:
        Number of the new version.

    Raises:
        UserError: A photo does not exist or cannot be removed. The model is unchanged.
    """

    def change(model: IncrementalClassifier) -> str:
        _restore(model, without_photos(model.state_, ids)[0])
        return f"{_count(ids)} removed"

    return change_model(path, change)


def keep_photos(path: Path, ids: Sequence[str]) -> int:
    """Confirm the labels of photos, so that they are no longer listed for review.

    Args:
        path: The model folder.
        ids: Identities of the photos; their first characters are enough.

    Returns:
        Number of the new version.

    Raises:
        UserError: A photo does not exist. The model is unchanged.
    """

    def change(model: IncrementalClassifier) -> str:
        photos = dict(model.state_.photos)
        for id in ids:
            label, position = find_photo(model.state_, id)
            members = list(photos[label].padded(model.statistics_[label].count).photos)
            members[position] = replace(members[position], confirmed=True)
            photos[label] = replace(photos[label], photos=tuple(members))
        thumbnails = {id: image for id, image in model.state_.thumbnails.items() if not id.startswith(tuple(ids))}
        model.restore_state(replace(model.state_, photos=photos, thumbnails=thumbnails))
        return f"{_count(ids)} confirmed"

    return change_model(path, change)


def move(model: IncrementalClassifier, ids: Sequence[str], label: Label) -> None:
    """Move photos of a model to another class.

    Args:
        model: The model; it changes only if all photos can be moved.
        ids: Identities of the photos.
        label: The class.

    Raises:
        UserError: A photo does not exist, is in this class already or cannot be moved.
    """
    check_one_kind(model.classes_.tolist(), [label])
    images = {
        id: image
        for name, members in model.state_.photos.items()
        for id, image in zip(members.exemplars, model.state_.exemplars.get(name, ()), strict=False)
    }
    state, removed = without_photos(model.state_, ids)
    if any(old == label for old, _, _ in removed):
        raise UserError(f"A photo is in the class {label} already: choose another class.")
    if label not in state.statistics and model.tuned_:
        raise UserError(f"There is no class {label}, and the network is trained on its classes: learn the class first.")
    rows = torch.stack([features for _, _, features in removed])
    known, members = state.statistics.get(label, ClassStatistics.of(rows[:0])), state.photos.get(label, ClassPhotos())
    statistics = {**state.statistics, label: known.extended(rows, keep_samples=_keeps_samples(model))}
    members = members.padded(known.count)
    kept = len(state.exemplars.get(label, ()))
    room = max(0, model.memory_per_class - kept)
    stored = [photo.id for _, photo, _ in removed if photo.id in images][:room]
    photos = ClassPhotos((*members.photos, *(photo for _, photo, _ in removed)), (*members.exemplar_ids(kept), *stored))
    exemplars = {**state.exemplars, label: [*state.exemplars.get(label, ()), *(images[id] for id in stored)]}
    exemplars = {name: encoded for name, encoded in exemplars.items() if encoded}
    _restore(model, replace(state, statistics=statistics, photos={**state.photos, label: photos}, exemplars=exemplars))


def merge_classes(path: Path, names: Sequence[str], into: str) -> int:
    """Merge classes of the model in a folder into another class.

    Args:
        path: The model folder.
        names: Names of the classes that are merged into the other one.
        into: Name of the class that remains.

    Returns:
        Number of the new version.

    Raises:
        UserError: A class does not exist, or the classes cannot be merged. The model is unchanged.
    """

    def change(model: IncrementalClassifier) -> str:
        labels = {str(label): label for label in model.classes_.tolist()}
        for name in (*names, into):
            if name not in labels:
                raise UserError(f"There is no class {name!r} in this model. {nearest(name, list(labels))}")
        merge(model, [labels[name] for name in dict.fromkeys(names)], labels[into])
        return f"{', '.join(dict.fromkeys(names))} merged into {into}"

    return change_model(path, change)


def merge(model: IncrementalClassifier, sources: Sequence[Label], target: Label) -> None:
    """Merge classes of a model. Stored images of all of them are kept in turn, as many as a class may have.

    Args:
        model: The model; it changes only if the classes can be merged.
        sources: The classes that are merged into the other one.
        target: The class that remains.

    Raises:
        UserError: The class would be merged into itself, or the network is trained on its classes.
    """
    if target in sources:
        raise UserError(f"The class {target} cannot be merged into itself: choose another class.")
    if model.training_ is not None:
        raise UserError("The network is trained on its classes, which cannot be merged: move single photos instead.")
    state = model.state_
    statistics, photos, exemplars = dict(state.statistics), dict(state.photos), dict(state.exemplars)
    for source in sources:
        known, added = statistics[target], statistics.pop(source)
        statistics[target] = known.merged(added, keep_samples=_keeps_samples(model))
        first, second = exemplars.get(target, []), exemplars.pop(source, [])
        exemplars[target] = _in_turn(first, second)[: model.memory_per_class]
        if photos:
            members, others = photos.get(target, ClassPhotos()), photos.pop(source, ClassPhotos())
            ids = _in_turn(members.exemplar_ids(len(first)), others.exemplar_ids(len(second)))
            photos[target] = ClassPhotos(
                (*members.padded(known.count).photos, *others.padded(added.count).photos),
                tuple(ids[: model.memory_per_class]),
            )
    exemplars = {label: images for label, images in exemplars.items() if images}
    _restore(model, replace(state, statistics=statistics, photos=photos, exemplars=exemplars))


def _in_turn(first: Sequence[Ranked], second: Sequence[Ranked]) -> list[Ranked]:
    """Return the entries of both lists alternately, then the rest of the longer one."""
    shared = min(len(first), len(second))
    pairs = [entry for pair in zip(first, second, strict=False) for entry in pair]
    return [*pairs, *first[shared:], *second[shared:]]


def _keeps_samples(model: IncrementalClassifier) -> bool:
    """Whether the predictor of a model needs the features of all photos."""
    training_free, _ = model.candidates()
    return bool(training_free) and statistics_predictor(training_free, model.training_).reads_samples


def _restore(model: IncrementalClassifier, state: ModelState) -> None:
    new_state, report = refitted(model, state)
    model.restore_state(new_state)
    model.report_ = report
    model.history_ = [*model.history_, {"action": "photos"}]


def _count(ids: Sequence[str]) -> str:
    return f"{len(ids)} {'photo' if len(ids) == 1 else 'photos'}"
