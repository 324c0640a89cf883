"""The application: guard, API, page files and the login form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Form, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response

from ... import __version__
from ...errors import RunFailed, UserError
from .guard import Guard, Token
from .limits import Limits
from .routes import router
from .service import Service

PAGE = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def create_app(model_dir: str | Path, limits: Limits | None = None, token: str | None = None) -> FastAPI:
    """The application for a model folder, for any ASGI server with one process.

    token: what requests must carry. Without one, only requests that were sent to localhost are answered.
    """
    limits = limits or Limits()
    service = Service(Path(model_dir), limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with service.opened():
            yield

    # The usual pages of FastAPI load scripts from elsewhere, so only the description itself is served.
    app = FastAPI(
        title="cscct",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.service = service
    secret = None if token is None else Token(token)
    app.add_middleware(Guard, limits=limits, token=secret)
    app.include_router(router)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(UserError)(_failed)
    app.exception_handler(RunFailed)(_failed)
    app.exception_handler(OSError)(_unwritable)
    _add_page(app)
    if secret is not None:
        _add_login(app, secret)
    return app


def _add_page(app: FastAPI) -> None:
    """Each file by its own route: no path of a request is ever looked up on disk."""
    for file in sorted(PAGE.iterdir()):
        if file.suffix in TYPES and file.name != "login.html":
            address = "/" if file.name == "index.html" else f"/{file.name}"
            app.get(address, include_in_schema=False)(_sender(file))


def _sender(file: Path) -> Callable[[], Response]:
    def send() -> Response:
        return FileResponse(file, media_type=TYPES[file.suffix])

    return send


def _add_login(app: FastAPI, secret: Token) -> None:
    def form(status: int) -> Response:
        return FileResponse(PAGE / "login.html", status, media_type="text/html")

    def log_in(request: Request, text: str) -> Response:
        if not secret.matches(text):
            return form(401)
        response = RedirectResponse("/", 303)
        secret.log_in(response, secure=request.url.scheme == "https")
        return response

    @app.get("/login", include_in_schema=False)
    def show_login(request: Request, token: Annotated[str, Query()] = "") -> Response:
        return log_in(request, token) if token else form(200)

    @app.post("/login", include_in_schema=False)
    def check_login(request: Request, token: Annotated[str, Form()] = "") -> Response:
        return log_in(request, token)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """What pydantic found, as one sentence."""
    assert isinstance(error, RequestValidationError)
    found = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return JSONResponse({"detail": f"The request is not valid: {'; '.join(found)}."[:1000]}, 422)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 409)


async def _unwritable(request: Request, error: Exception) -> JSONResponse:
    reason = getattr(error, "strerror", None) or type(error).__name__
    return JSONResponse({"detail": f"The server cannot read or write its files: {reason}."}, 503)
