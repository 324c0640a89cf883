"""Routes that explain answers, export the model, and give the photos to label."""

from __future__ import annotations

from dataclasses import asdict
from typing import IO, Any

import anyio
from fastapi import APIRouter, HTTPException, Request, Response
from starlette.types import Receive, Scope, Send

from ..neighbours import explain
from .routes import UPLOAD_ERRORS, Index, ServiceDependency, error_responses, multipart
from .schemas import ExplanationInfo, Export, NeighbourInfo, QueuedInfo, QueueInfo
from .service import Service
from .uploads import Upload, image_errors

router = APIRouter(prefix="/api", responses=error_responses())
BINARY: dict[str, Any] = {
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    "description": "The file",
}
PART = 1 << 18  # bytes


class FileContent(Response):
    """A file that is read while it is sent, and closed. The responses of starlette that do so read the request
    meanwhile, and a body beyond the limits would become a server error.

    Args:
        file: The open file.
    """

    media_type = "application/octet-stream"

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self.file = file
        del self.headers["content-length"]  # the file may be changed meanwhile

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            while part := await anyio.to_thread.run_sync(self.file.read, PART):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.file.close()


@router.post("/explain", responses=error_responses(*UPLOAD_ERRORS), openapi_extra=multipart())
async def explain_answer(request: Request, service: ServiceDependency) -> ExplanationInfo:
    """Stored images that resemble the first of the images most, of the most probable class and of others."""
    async with service.form(request) as form:
        return await service.work(lambda: _explanation(service, form.uploads[0]))


def _explanation(service: Service, upload: Upload) -> ExplanationInfo:
    version, model = service.model.model()
    with image_errors(upload.path, upload.filename):
        explanation = explain(model, upload.path)
    same, others = (
        [NeighbourInfo(**asdict(neighbour)) for neighbour in group] for group in (explanation.same, explanation.others)
    )
    label, probability = explanation.label, explanation.probability
    return ExplanationInfo(version=version, label=label, probability=probability, same=same, others=others)


@router.post("/export", responses={**error_responses(400, 408, 409, 413, 422), 200: BINARY}, response_class=Response)
def export_model(request: Export, service: ServiceDependency) -> Response:
    """The current model as one file for other programs, as `cscct export` writes it."""
    service.model.model()
    return FileContent(service.exporter.export(request.format))


@router.get("/queue")
def get_queue(service: ServiceDependency) -> QueueInfo:
    """Photos of the list of `cscct suggest` that the server was started with, most useful first."""
    photos = enumerate(service.queue)
    return QueueInfo(photos=[QueuedInfo(number=i, name=photo.path.name, label=photo.label) for i, photo in photos])


@router.get("/queue/{number}", responses={**error_responses(404, 422, 503), 200: BINARY}, response_class=Response)
def get_queued(number: Index, service: ServiceDependency) -> Response:
    """A photo of the list."""
    if number >= len(service.queue):
        raise HTTPException(404, "The list does not contain this photo.")
    path = service.queue[number].path
    if not path.is_file():
        raise HTTPException(404, f"{path.name} does not exist any more.")
    return FileContent(path.open("rb"))
