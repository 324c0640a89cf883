"""Routes of learned photos: lists, images, and changes, each of which makes a new version."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Response

from ...errors import UserError
from ..photo_changes import keep_photos, merge_classes, move_photos, remove_photos
from ..review import class_photos, find_photo, photo_image, suspicious
from .routes import CHANGE_ERRORS, JPEG, ChangeDependency, ServiceDependency, error_responses, get_model
from .schemas import Merge, ModelInfo, MovePhotos, PhotoInfo, PhotoList, Photos
from .service import Service
from .staging import LARGE
from .uploads import class_name

router = APIRouter(prefix="/api", responses=error_responses())
Id = Annotated[str, Path(pattern="^[0-9a-f]{4,64}$")]


@router.get("/photos", responses=error_responses(404, 409, 422))
def list_photos(
    service: ServiceDependency,
    label: Annotated[str, Query(max_length=1000)] = "",
    predicted: Annotated[str, Query(max_length=1000)] = "",
    offset: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 24,
) -> PhotoList:
    """Learned photos: those of the class `label`; with `predicted`, those of it that are assigned to that class;
    without either, those that look mislabelled or are not recognised and whose label was not confirmed."""
    version, model = service.model.model()
    labels = {str(known): known for known in model.classes_.tolist()}
    for name in (label, predicted):
        if name and name not in labels:
            service.model.check_class(name)
    if label and not predicted:
        photos = class_photos(model.state_, labels[label])
    else:
        photos = suspicious(model.state_, confirmed=bool(label or predicted))
        photos = [
            photo
            for photo in photos
            if photo.label == (label or photo.label) and photo.predicted == (predicted or photo.predicted)
        ]
    shown = [
        PhotoInfo(**{**photo.as_dict(), "name": PurePath(photo.name).name or photo.name})
        for photo in photos[offset : offset + limit]
    ]
    return PhotoList(version=version, total=len(photos), photos=shown)


@router.get("/photos/{id}", responses={**error_responses(404, 409, 422), 200: JPEG}, response_class=Response)
async def get_photo(id: Id, service: ServiceDependency, large: bool = False) -> Response:
    """Image of a learned photo: of its file, if it is unchanged, or as it is stored in the model."""
    return Response(await service.view(lambda: _image(service, id, large)), media_type="image/jpeg")


def _image(service: Service, id: str, large: bool) -> bytes:
    state = service.model.model()[1].state_
    try:
        label, position = find_photo(state, id)
    except UserError as error:
        raise HTTPException(404, str(error)) from error
    photo = state.photos[label].padded(state.statistics[label].count).photos[position]
    image = photo_image(state, photo.id, photo.name, *([LARGE] if large else []))
    if image is None:
        raise HTTPException(404, "The model does not store an image of this photo.")
    return image


@router.post("/photos/move", responses=CHANGE_ERRORS)
def move(request: MovePhotos, service: ChangeDependency) -> ModelInfo:
    """Move photos to another class, new or existing, and store the result as a new version."""
    label = class_name(request.label, service.limits)
    service.change_version(lambda: move_photos(service.path, request.ids, label))
    return get_model(service)


@router.post("/photos/remove", responses=CHANGE_ERRORS)
def remove(request: Photos, service: ChangeDependency) -> ModelInfo:
    """Remove photos and store the result as a new version. Can be undone."""
    service.change_version(lambda: remove_photos(service.path, request.ids))
    return get_model(service)


@router.post("/photos/keep", responses=CHANGE_ERRORS)
def keep(request: Photos, service: ChangeDependency) -> ModelInfo:
    """Confirm the labels of photos, which are then no longer listed for review; stored as a new version."""
    service.change_version(lambda: keep_photos(service.path, request.ids))
    return get_model(service)


@router.post("/merge", responses=CHANGE_ERRORS)
def merge(request: Merge, service: ChangeDependency) -> ModelInfo:
    """Merge classes into another class and store the result as a new version. Their staged photos are relabeled."""
    for name in (*request.classes, request.into):
        service.model.check_class(name)
    service.change_version(lambda: merge_classes(service.path, request.classes, request.into))
    for name in request.classes:
        service.staging.rename(name, request.into)
    return get_model(service)
