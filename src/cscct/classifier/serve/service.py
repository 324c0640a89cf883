"""State of the server: model, staged photos, learning step and concurrency limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ...errors import RunFailed, UserError
from ...storage import HOLDER, LOCK, make_folder
from ..versions import is_model_folder
from .current import CurrentModel
from .exporting import Exporter
from .job import STAGING
from .learning import LearningJob
from .limits import Limits
from .queue import QueuedPhoto
from .staging import Staging
from .uploads import Form, Transfer, receive_form

Result = TypeVar("Result")
LEFTOVERS = frozenset([STAGING, "files", "versions", LOCK, HOLDER])  # of a first learning step that was killed


class Service:
    """State of the server of a model folder.

    Args:
        path: Path of the model folder.
        limits: Limits of requests.
        queue: Photos to label.
    """

    def __init__(self, path: Path, limits: Limits, queue: Sequence[QueuedPhoto] = ()) -> None:
        self.path, self.limits, self.queue = path, limits, queue
        self.changing = asyncio.Lock()
        self.model = CurrentModel(path)
        self.staging = Staging(path / STAGING, limits)
        self.job = LearningJob(path, self.staging, self.model.refresh)
        self.exporter = Exporter(path)
        self._workers: anyio.CapacityLimiter | None = None
        self._viewers: anyio.CapacityLimiter | None = None
        self._transfers: list[Transfer] = []

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Lock the folder and load the model. On exit, stop the learning step and an export.

        Raises:
            UserError: If the folder cannot be served.
        """
        _check_folder(self.path)
        with self.staging.opened():
            self.model.refresh()
            self.staging.recover(version.message for version in self.model.get().versions)
            try:
                yield
            finally:
                self.exporter.stop()
                self.job.stop()

    @property
    def workers(self) -> anyio.CapacityLimiter:
        """Limiter of the threads that process images, created inside the event loop that uses it."""
        if self._workers is None:
            self._workers = anyio.CapacityLimiter(self.limits.running)
        return self._workers

    @property
    def viewers(self) -> anyio.CapacityLimiter:
        """Limiter of the threads that decode stored images for display, so that predictions do not wait for them."""
        if self._viewers is None:
            self._viewers = anyio.CapacityLimiter(self.limits.running)
        return self._viewers

    @asynccontextmanager
    async def form(self, request: Request) -> AsyncIterator[Form]:
        """Receive a multipart request.

        Raises:
            HTTPException: 503 if too many requests are active, 4xx if the request is invalid.
        """
        transfer = Transfer(request.client.host if request.client else "")
        of_client = [other for other in self._transfers if other.client == transfer.client]
        for transfers, limit in (
            (of_client, self.limits.per_client),
            (self._transfers, self.limits.running + self.limits.waiting),
        ):
            if len(transfers) >= limit and not self._drop_slowest(transfers):
                raise HTTPException(503, "Too many concurrent requests: try again later.", {"Retry-After": "1"})
        self._transfers.append(transfer)
        try:
            async with receive_form(request, self.limits, self.workers, transfer) as form:
                yield form
        finally:
            if transfer in self._transfers:
                self._transfers.remove(transfer)

    def _drop_slowest(self, transfers: Sequence[Transfer]) -> bool:
        """End the slowest upload, so that slow clients do not take the places of others. Returns whether there was a
        slow one."""
        slow = [
            transfer
            for transfer in transfers
            if transfer.receiving
            and transfer.seconds > self.limits.slow_seconds
            and transfer.rate < self.limits.slow_bytes
        ]
        if slow:
            slowest = min(slow, key=lambda transfer: transfer.rate)
            slowest.scope.cancel()
            self._transfers.remove(slowest)
        return bool(slow)

    async def work(self, function: Callable[[], Result]) -> Result:
        """Run a function in a worker thread, because decoding and prediction would block the event loop."""
        return await anyio.to_thread.run_sync(function, limiter=self.workers, abandon_on_cancel=True)

    async def view(self, function: Callable[[], Result]) -> Result:
        """Run a function that decodes a stored image for display."""
        return await anyio.to_thread.run_sync(function, limiter=self.viewers, abandon_on_cancel=True)

    def change_version(self, change: Callable[[], object]) -> None:
        """Run a function that makes another version the current one, and load that version.

        Args:
            change: The function to run.

        Raises:
            HTTPException: 409 if a learning step is running or the change fails.
        """
        if self.job.running:
            raise HTTPException(409, "A learning step is running: wait until it is finished, or stop it.")
        try:
            change()
        except (UserError, RunFailed) as error:
            raise HTTPException(409, str(error)) from error
        self.model.refresh()


def _check_folder(path: Path) -> None:
    """Check that a folder contains a model or that a new model can be stored in it."""
    usable = is_model_folder(path) or not path.exists()
    if not usable and (not path.is_dir() or any(entry.name not in LEFTOVERS for entry in path.iterdir())):
        raise UserError(f"{path} is not a model folder: pass a folder created by `cscct learn`, or a new folder.")
    try:
        make_folder(path / STAGING)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written to ({error.strerror}), but staged photos are stored there: change its "
            "permissions or serve a copy."
        ) from error
