"""The ASGI application: access control, API, web UI and login form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Form, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response

from ... import __version__
from ...errors import RunFailed, UserError
from .extra_routes import router as extra_router
from .guard import Guard, Token
from .limits import Limits
from .photo_routes import router as photo_router
from .queue import QueuedPhoto
from .routes import router
from .service import Service

PAGE = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def create_app(
    model_dir: str | Path,
    limits: Limits | None = None,
    token: str | None = None,
    allowed_hosts: Iterable[str] = (),
    queue: Sequence[QueuedPhoto] = (),
) -> FastAPI:
    """Create the ASGI application of a model folder. It must run in a single server process.

    Args:
        model_dir: Path of the model folder.
        limits: Limits of requests.
        token: Token that every request must contain.
        allowed_hosts: Host names that requests may be addressed to, besides those of loopback and the address of the
            server; `*` for all.
        queue: Photos to label; see `read_queue`.

    Returns:
        The application.

    Raises:
        UserError: If clients cannot send the token.
    """
    limits = limits or Limits()
    service = Service(Path(model_dir), limits, queue)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with service.opened():
            yield

    # The documentation pages of FastAPI load scripts from a CDN, so only the schema is served.
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
    app.add_middleware(Guard, limits=limits, token=secret, hosts=tuple(allowed_hosts))
    app.include_router(router)
    app.include_router(photo_router)
    app.include_router(extra_router)
    app.exception_handler(RequestValidationError)(_validation_error)
    app.exception_handler(UserError)(_user_error)
    app.exception_handler(RunFailed)(_user_error)
    app.exception_handler(OSError)(_storage_error)
    _add_page(app)
    if secret is not None:
        _add_login(app, secret)
    return app


def _add_page(app: FastAPI) -> None:
    """Add a route per file, so that request paths are never used as file paths."""
    for file in sorted(PAGE.iterdir()):
        if file.suffix in TYPES and file.name != "login.html":
            url_path = "/" if file.name == "index.html" else f"/{file.name}"
            app.get(url_path, include_in_schema=False)(_sender(file))


def _sender(file: Path) -> Callable[[], Response]:
    def send() -> Response:
        return _page_file(file)

    return send


def _page_file(file: Path) -> Response:
    """Return a file of the page. `FileResponse` would read the body of the request while it responds, and a body beyond
    the limits would become a server error."""
    return Response(file.read_bytes(), media_type=TYPES[file.suffix])


def _add_login(app: FastAPI, secret: Token) -> None:
    def log_in(request: Request, text: str) -> Response:
        if not secret.matches(text):
            form = (PAGE / "login.html").read_bytes().replace(b" hidden>", b">")  # shows that the token is wrong
            return Response(form, 401, media_type=TYPES[".html"])
        response = RedirectResponse("/", 303)
        secret.log_in(response, secure=request.url.scheme == "https")
        return response

    @app.get("/login", include_in_schema=False)
    def show_login(request: Request, token: Annotated[str, Query()] = "") -> Response:
        return log_in(request, token) if token else _page_file(PAGE / "login.html")

    @app.post("/login", include_in_schema=False)
    def check_login(request: Request, token: Annotated[str, Form()] = "") -> Response:
        return log_in(request, token)


async def _validation_error(request: Request, error: Exception) -> JSONResponse:
    """Return all validation errors in a single message."""
    assert isinstance(error, RequestValidationError)
    problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
    return JSONResponse({"detail": f"Invalid request: {'; '.join(problems)}."[:1000]}, 422)


async def _user_error(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 409)


async def _storage_error(request: Request, error: Exception) -> JSONResponse:
    reason = getattr(error, "strerror", None) or type(error).__name__
    return JSONResponse({"detail": f"The server cannot read or write the model folder: {reason}."}, 503)
