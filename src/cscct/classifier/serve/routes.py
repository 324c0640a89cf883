"""Routes of the JSON API. All error responses are declared, so that clients can be generated from the schema."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response

from ..folder import forget_classes, rename_class
from .schemas import (
    Answers,
    ErrorDetail,
    FeatureMap,
    Forget,
    JobInfo,
    ModelInfo,
    Rename,
    Restore,
    ServerState,
    StagedInfo,
    StagedList,
)
from .service import Service
from .staging import StagedPhoto
from .uploads import class_name

REASONS = {
    400: "Malformed request",
    401: "Missing or invalid token",
    403: "Cross-origin request",
    404: "Not found",
    408: "The request was not received in time",
    409: "Conflict with the current state of the model or the learning step",
    413: "Request too large",
    415: "Content type is not multipart/form-data",
    421: "Host is not a name of the server",
    422: "Invalid value or unsupported image",
    503: "Too many concurrent requests, or storage failure",
}


def error_responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI declarations of error responses, including the ones common to all routes."""
    return {code: {"model": ErrorDetail, "description": REASONS[code]} for code in sorted({*codes, 401, 403, 421})}


def multipart(**fields: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI declaration of a multipart request with images."""
    images = {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
    schema = {"type": "object", "required": ["images", *fields], "properties": {"images": images, **fields}}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDependency = Annotated[Service, Depends(_service)]


async def _changed_service(service: ServiceDependency) -> AsyncIterator[Service]:
    async with service.changing:
        yield service


# Of routes that make another version. They run one after another: each loads a copy of the model.
ChangeDependency = Annotated[Service, Depends(_changed_service)]
Id = Annotated[str, Path(max_length=64)]
Index = Annotated[int, Path(ge=0, le=1_000_000)]
UPLOAD_ERRORS = (400, 408, 409, 413, 415, 422, 503)
CHANGE_ERRORS = error_responses(400, 404, 408, 409, 413, 422)
JPEG = {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}, "description": "The image"}
router = APIRouter(prefix="/api", responses=error_responses())


@router.get("/model")
def get_model(service: ServiceDependency) -> ModelInfo:
    """Current model, its classes and its versions."""
    loaded = service.model.get()  # read once: a newer version may be loaded concurrently
    unknown = loaded.unknown()
    return ModelInfo(
        name=service.path.resolve().name,
        version=loaded.number,
        classes=loaded.classes(),
        versions=loaded.version_infos(),
        report=loaded.report(),
        detects_unknown=unknown is not None and unknown.refusal() is None,
        unknown_detection=None if unknown is None else unknown.detection_rate(),
        trouble=service.model.trouble,
        limits=asdict(service.limits),
    )


@router.post("/classify", responses=error_responses(*UPLOAD_ERRORS), openapi_extra=multipart())
async def classify(
    request: Request, service: ServiceDependency, top: Annotated[int, Query(ge=1, le=1000)] = 5
) -> Answers:
    """Classify images. The request fails if any image is invalid."""
    async with service.form(request) as form:
        version, answers = await service.work(lambda: service.model.classify(form.uploads, top))
    return Answers(version=version, answers=answers)


@router.get("/staged")
def list_staged(service: ServiceDependency) -> StagedList:
    """Photos staged for the next learning step, oldest first."""
    revision = service.staging.revision  # before the list: a later change must not be missed
    return _staged_list(revision, service.staging.all())


@router.post(
    "/staged",
    status_code=201,
    responses=error_responses(*UPLOAD_ERRORS),
    openapi_extra=multipart(label={"type": "string", "minLength": 1, "maxLength": 100}),
)
async def stage(request: Request, service: ServiceDependency) -> StagedList:
    """Stage photos of a new or existing class for the next learning step."""
    async with service.form(request) as form:
        label = class_name(form.fields.get("label"), service.limits)
        photos = await service.work(lambda: service.staging.add(label, form.uploads))
        return _staged_list(service.staging.revision, photos)


@router.delete("/staged", status_code=204, responses=error_responses(409))
def clear_staged(service: ServiceDependency) -> None:
    """Remove all staged photos."""
    _check_not_learning(service)
    service.staging.remove(photo.id for photo in service.staging.all())


@router.get("/staged/{id}", responses=error_responses(404, 422))
def get_staged(id: Id, service: ServiceDependency) -> StagedInfo:
    """Details of a staged photo."""
    return StagedInfo(**asdict(service.staging.get(id)))


@router.delete("/staged/{id}", status_code=204, responses=error_responses(404, 409, 422))
def remove_staged(id: Id, service: ServiceDependency) -> None:
    """Remove a staged photo."""
    service.staging.get(id)
    _check_not_learning(service)
    service.staging.remove([id])


@router.get("/staged/{id}/thumbnail", responses={**error_responses(404, 422), 200: JPEG}, response_class=Response)
async def get_thumbnail(id: Id, service: ServiceDependency, large: bool = False) -> Response:
    """Thumbnail of a staged photo, or a large image of it."""
    return Response(await service.view(lambda: service.staging.thumbnail(id, large)), media_type="image/jpeg")


@router.post("/learn", status_code=202, responses=error_responses(409, 503))
def learn(service: ServiceDependency) -> JobInfo:
    """Start learning all staged photos."""
    return service.job.start()


@router.get("/state")
def get_state(service: ServiceDependency) -> ServerState:
    """Version, staged photos and learning step, to be polled."""
    revision, job = service.staging.revision, service.job.info()
    version = service.model.get().number
    return ServerState(version=version, trouble=service.model.trouble, staged_revision=revision, job=job)


@router.get("/job")
def get_job(service: ServiceDependency) -> JobInfo:
    """Progress of the running learning step, or result of the last one."""
    return service.job.info()


@router.delete("/job", status_code=204)
def stop_job(service: ServiceDependency) -> None:
    """Stop the running learning step, if any. The model does not change and the photos stay staged."""
    service.job.stop()


@router.post("/undo", responses=error_responses(409))
def undo(service: ChangeDependency) -> ModelInfo:
    """Go back to the version from which the current one was made."""
    service.change_version(service.model.folder.undo)
    return get_model(service)


@router.post("/restore", responses=CHANGE_ERRORS)
def restore(request: Restore, service: ChangeDependency) -> ModelInfo:
    """Make a stored version the current one."""
    if request.version not in {version.number for version in service.model.get().versions}:
        raise HTTPException(404, f"Version {request.version} does not exist.")
    service.change_version(lambda: service.model.folder.restore(request.version))
    return get_model(service)


@router.post("/forget", responses=CHANGE_ERRORS)
def forget(request: Forget, service: ChangeDependency) -> ModelInfo:
    """Remove classes and store the result as a new version. Can be undone."""
    for name in request.classes:
        service.model.check_class(name)
    service.change_version(lambda: forget_classes(service.path, request.classes))
    return get_model(service)


@router.post("/rename", responses=CHANGE_ERRORS)
def rename(request: Rename, service: ChangeDependency) -> ModelInfo:
    """Rename a class and store the result as a new version. Staged photos of the class are relabeled."""
    service.model.check_class(request.old)
    new = class_name(request.new, service.limits)
    service.change_version(lambda: rename_class(service.path, request.old, new))
    service.staging.rename(request.old, new)
    return get_model(service)


@router.get("/map", responses=error_responses(409))
def get_map(service: ServiceDependency) -> FeatureMap:
    """Two-dimensional map of the feature space."""
    return service.model.map()


@router.get(
    "/exemplars/{class_index}/{number}",
    responses={**error_responses(404, 409, 422), 200: JPEG},
    response_class=Response,
)
def get_exemplar(class_index: Index, number: Index, service: ServiceDependency) -> Response:
    """Stored exemplar of a class. `class_index` is the position in the list of classes."""
    image, media_type = service.model.exemplar(class_index, number)
    return Response(image, media_type=media_type)


def _check_not_learning(service: Service) -> None:
    if service.job.running:
        raise HTTPException(
            409, "The staged photos are being learned: wait until the learning step is finished, or stop it."
        )


def _staged_list(revision: int, photos: list[StagedPhoto]) -> StagedList:
    return StagedList(revision=revision, staged=[StagedInfo(**asdict(photo)) for photo in photos])
