"""HTTP connections with time limits and a limit on their number, so that slow clients do not block others."""

from __future__ import annotations

import asyncio
import functools
import time
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import Limits

SHUTDOWN_SECONDS = 10  # for requests that are being processed when the server is stopped


def server_config(app: ASGIApp, limits: Limits, **options: Any) -> uvicorn.Config:
    """Return the configuration of a server whose connections are limited.

    Args:
        app: The application.
        limits: Limits of requests.
        options: Further arguments of `uvicorn.Config`.
    """
    return uvicorn.Config(
        app,
        http=functools.partial(LimitedConnection, limits=limits),  # type: ignore[arg-type]
        ws="none",
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        **options,
    )


class LimitedConnection(H11Protocol):
    """A connection that is closed if the client does not send the headers of a request, or read a response, in time.

    If there are too many connections, the one that has waited for a request for the longest time is closed. On
    shutdown, requests that were not received completely are dropped.

    Args:
        limits: Limits of requests.
        options: Arguments of uvicorn.
    """

    def __init__(self, *arguments: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.limits = limits
        self.waiting_since: float | None = None  # None while a request is being processed
        self._request_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._unread = 0  # bytes when the timer was started

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self._wait_for_request()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """End the time limit when the headers of a request are complete. Parts of them do not extend it."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Start the time limit of the next request."""
        self._wait_for_request()
        super().on_response_complete()  # may start a request that was received already
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all time limits."""
        super().connection_lost(exc)
        self._stop_waiting()
        self.resume_writing()

    def pause_writing(self) -> None:
        """Start the time limit for reading a part of a response."""
        super().pause_writing()
        if self._write_timer is None:
            self._limit_reading()

    def resume_writing(self) -> None:
        """Stop the time limit for reading a response."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def shutdown(self) -> None:
        """Close the connection, after the response if a request was received completely."""
        if self.cycle is not None and not self.cycle.response_complete and self.cycle.more_body:
            self.transport.abort()
        else:
            super().shutdown()

    def _limit_reading(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.limits.idle_seconds, self._check_reading)

    def _check_reading(self) -> None:
        """End the connection if the client reads slower than uploads may be."""
        read = self._unread - self.transport.get_write_buffer_size()
        if read < self.limits.slow_bytes * self.limits.idle_seconds:
            self.transport.abort()
        else:
            self._limit_reading()

    def _wait_for_request(self) -> None:
        self._stop_waiting()
        self.waiting_since = time.monotonic()
        self._request_timer = self.loop.call_later(self.limits.header_seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        self.waiting_since = None
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _make_room(self) -> None:
        connections = [other for other in self.connections if isinstance(other, LimitedConnection) and other._is_open()]
        host = self.client and self.client[0]
        same_client = [other for other in connections if (other.client and other.client[0]) == host]
        for group, limit in (
            (same_client, self.limits.connections_per_client),
            (connections, self.limits.connections),
        ):
            if sum(other._is_open() for other in group) > limit:
                waiting = [other for other in group if other.waiting_since is not None and other is not self]
                min(waiting, key=lambda other: other.waiting_since or 0, default=self).transport.abort()

    def _is_open(self) -> bool:
        return not self.transport.is_closing()
