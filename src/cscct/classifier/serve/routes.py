"""The JSON API. Every refusal is declared, so that clients can be generated from the OpenAPI page."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response

from ..changes import forget_classes, rename_class
from .schemas import (
    Answers,
    FeatureMap,
    Forget,
    JobInfo,
    ModelInfo,
    Problem,
    Rename,
    Restore,
    StagedInfo,
    StagedList,
)
from .service import Service
from .staging import Staged
from .uploads import class_name

REASONS = {
    400: "The request cannot be parsed",
    401: "The token is missing or wrong",
    403: "A page of another site asked",
    404: "There is no such thing",
    408: "The request took too long to arrive",
    409: "It does not fit the present state; the text says why",
    413: "Too large",
    415: "Not multipart/form-data",
    421: "The server was asked for under another name than localhost",
    422: "A value is wrong, or a file is not an image that is accepted",
    503: "Too many requests at once, or the disk is full",
}


def refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Declares them, with those that every route can give."""
    return {code: {"model": Problem, "description": REASONS[code]} for code in sorted({*codes, 401, 403, 421})}


def _multipart(**fields: dict[str, Any]) -> dict[str, Any]:
    """Declares the body of a request with images."""
    images = {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
    schema = {"type": "object", "required": ["images", *fields], "properties": {"images": images, **fields}}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(_service)]
Id = Annotated[str, Path(max_length=64)]
Index = Annotated[int, Path(ge=0, le=1_000_000)]
UPLOAD = (400, 408, 409, 413, 415, 422, 503)
JPEG = {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}, "description": "The image"}
router = APIRouter(prefix="/api", responses=refusals())


@router.get("/model")
def get_model(service: Served) -> ModelInfo:
    """The model that answers now, its classes and its versions."""
    loaded = service.model.get()  # once: a newer version may come meanwhile
    return ModelInfo(
        name=service.path.resolve().name,
        version=loaded.number,
        classes=loaded.classes(),
        versions=loaded.version_infos(),
        report=loaded.report(),
        trouble=service.model.trouble,
        limits=asdict(service.limits),
    )


@router.post("/classify", responses=refusals(*UPLOAD), openapi_extra=_multipart())
async def classify(request: Request, service: Served, top: Annotated[int, Query(ge=1, le=1000)] = 5) -> Answers:
    """What the images show. If one of them cannot be used, all are refused."""
    async with service.form(request) as form:
        version, answers = await service.work(lambda: service.model.classify(form.uploads, top))
    return Answers(version=version, answers=answers)


@router.get("/staged")
def list_staged(service: Served) -> StagedList:
    """The photographs that wait for the next learning step, oldest first."""
    return _staged_list(service.staging.all())


@router.post(
    "/staged",
    status_code=201,
    responses=refusals(*UPLOAD),
    openapi_extra=_multipart(label={"type": "string", "minLength": 1, "maxLength": 100}),
)
async def stage(request: Request, service: Served) -> StagedList:
    """Adds photographs of one class, new or known, to the next learning step."""
    async with service.form(request) as form:
        label = class_name(form.fields.get("label"), service.limits)
        return _staged_list(await service.work(lambda: service.staging.add(label, form.uploads)))


@router.delete("/staged", status_code=204, responses=refusals(409))
def clear_staged(service: Served) -> None:
    """Removes all photographs that wait."""
    _not_while_learning(service)
    service.staging.remove(one.id for one in service.staging.all())


@router.get("/staged/{id}", responses=refusals(404, 422))
def get_staged(id: Id, service: Served) -> StagedInfo:
    """A photograph that waits."""
    return StagedInfo(**asdict(service.staging.get(id)))


@router.delete("/staged/{id}", status_code=204, responses=refusals(404, 409, 422))
def remove_staged(id: Id, service: Served) -> None:
    """Removes a photograph that waits."""
    service.staging.get(id)
    _not_while_learning(service)
    service.staging.remove([id])


@router.get("/staged/{id}/thumbnail", responses={**refusals(404, 422), 200: JPEG}, response_class=Response)
def get_thumbnail(id: Id, service: Served) -> Response:
    """A photograph that waits, small."""
    return Response(service.staging.thumbnail(id), media_type="image/jpeg")


@router.post("/learn", status_code=202, responses=refusals(409, 503))
def learn(service: Served) -> JobInfo:
    """Starts to learn everything that waits."""
    return service.job.start()


@router.get("/job")
def get_job(service: Served) -> JobInfo:
    """How far the learning step is, or how the last one ended."""
    return service.job.info()


@router.delete("/job", status_code=204)
def stop_job(service: Served) -> None:
    """Stops the learning step, if one runs. The model stays as it was, and the photographs still wait."""
    service.job.stop()


@router.post("/undo", responses=refusals(409))
def undo(service: Served) -> ModelInfo:
    """Goes back to the version before the current one."""
    service.change_version(service.model.folder.undo)
    return get_model(service)


@router.post("/restore", responses=refusals(400, 404, 409, 413, 422))
def restore(wanted: Restore, service: Served) -> ModelInfo:
    """Makes another version the current one."""
    if wanted.version not in {one.number for one in service.model.get().versions}:
        raise HTTPException(404, f"There is no version {wanted.version}.")
    service.change_version(lambda: service.model.folder.restore(wanted.version))
    return get_model(service)


@router.post("/forget", responses=refusals(400, 404, 409, 413, 422))
def forget(wanted: Forget, service: Served) -> ModelInfo:
    """Removes classes, as a new version. Older versions keep them, so that this can be undone."""
    for name in wanted.classes:
        service.model.check_class(name)
    service.change_version(lambda: forget_classes(service.path, wanted.classes))
    return get_model(service)


@router.post("/rename", responses=refusals(400, 404, 409, 413, 422))
def rename(wanted: Rename, service: Served) -> ModelInfo:
    """Gives a class another name, as a new version; photographs of it that wait get the name too."""
    service.model.check_class(wanted.old)
    new = class_name(wanted.new, service.limits)
    service.change_version(lambda: rename_class(service.path, wanted.old, new))
    service.staging.rename(wanted.old, new)
    return get_model(service)


@router.get("/map", responses=refusals(409))
def get_map(service: Served) -> FeatureMap:
    """The feature space in two dimensions."""
    return service.model.map()


@router.get(
    "/exemplars/{class_index}/{number}",
    responses={**refusals(404, 409, 422), 200: JPEG},
    response_class=Response,
)
def get_exemplar(class_index: Index, number: Index, service: Served) -> Response:
    """A photograph that the model keeps of a class. class_index: its place in the list of classes."""
    return Response(service.model.exemplar(class_index, number), media_type="image/jpeg")


def _not_while_learning(service: Service) -> None:
    if service.job.running:
        raise HTTPException(409, "These photographs are being learned: wait, or stop the learning step.")


def _staged_list(found: list[Staged]) -> StagedList:
    return StagedList(staged=[StagedInfo(**asdict(one)) for one in found])
