"""What the routes work with: the model, the photographs that wait, the learning step, and how many requests at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ...errors import RunFailed, UserError
from ...runs.files import HOLDER, LOCK, own_folder
from ..store import is_model_folder
from .current import CurrentModel
from .job import STAGING
from .learning import LearningJob
from .limits import Limits
from .staging import Staging
from .uploads import Form, received

Result = TypeVar("Result")
LEFT = frozenset([STAGING, "files", "versions", LOCK, HOLDER])  # by a first learning step that was killed


class Service:
    """All that belongs to a model folder while it is served."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path, self.limits = path, limits
        self.model = CurrentModel(path)
        self.staging = Staging(path / STAGING, limits)
        self.job = LearningJob(path, self.staging, self.model.refresh)
        self._workers: anyio.CapacityLimiter | None = None
        self._inside = 0

    @contextmanager
    def opened(self) -> Iterator[None]:
        """While the server runs."""
        _check_folder(self.path)
        with self.staging.opened():
            self.model.refresh()
            self.staging.recover(one.message for one in self.model.get().versions)
            try:
                yield
            finally:
                self.job.stop()

    @property
    def workers(self) -> anyio.CapacityLimiter:
        """Threads for images. Made inside the event loop that uses it."""
        if self._workers is None:
            self._workers = anyio.CapacityLimiter(self.limits.running)
        return self._workers

    @asynccontextmanager
    async def form(self, request: Request) -> AsyncIterator[Form]:
        """The files of a request, if there is room for one more."""
        if self._inside >= self.limits.running + self.limits.waiting:
            raise HTTPException(503, "Too many requests at once: try again in a moment.", {"Retry-After": "1"})
        self._inside += 1
        try:
            async with received(request, self.limits, self.workers) as form:
                yield form
        finally:
            self._inside -= 1

    async def work(self, function: Callable[[], Result]) -> Result:
        """In a thread: decoding and predicting would block everybody else."""
        return await anyio.to_thread.run_sync(function, limiter=self.workers)

    def change_version(self, change: Callable[[], object]) -> None:
        """Something that makes another version the current one, not while something is learned."""
        if self.job.running:
            raise HTTPException(409, "A learning step is running: wait for it, or stop it.")
        try:
            change()
        except (UserError, RunFailed) as error:
            raise HTTPException(409, str(error)) from error
        self.model.refresh()


def _check_folder(path: Path) -> None:
    """A folder with a model, or one in which a model can begin."""
    begun = is_model_folder(path) or not path.exists()
    if not begun and (not path.is_dir() or any(one.name not in LEFT for one in path.iterdir())):
        raise UserError(f"{path} is not the folder of a model: name one that `cscct learn` made, or a new one.")
    try:
        own_folder(path / STAGING)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written to ({error.strerror}), and what waits to be learned is kept there: "
            "change its permissions, or serve a copy."
        ) from error
