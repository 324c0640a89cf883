"""Access control: Host and Origin checks, token, request size and security headers."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import UserError
from .limits import Limits

LOOPBACK = frozenset(["localhost", "127.0.0.1", "::1"])
ANY_HOST = "*"
DRAIN_SECONDS, DRAIN_IDLE_SECONDS = 20.0, 1.0
ARRIVED_SECONDS = 0.05  # in which a body that was sent together with the headers is read
PUBLIC = frozenset(["/login", "/style.css", "/icon.svg"])  # required by the login form
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with "no-referrer", browsers send no origin for the login form
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Token:
    """The access token. Requests contain it as a bearer token or as the cookie set by the login form.

    Args:
        secret: Text of the token.

    Raises:
        UserError: If clients cannot send the token in a header.
    """

    def __init__(self, secret: str) -> None:
        if not re.fullmatch(r"[!-~]([ -~]*[!-~])?", secret):
            raise UserError(
                "The token must consist of printable ASCII characters and not begin or end with a space, because HTTP "
                "headers cannot contain others: choose another one."
            )
        self._secret = secret.encode()
        self._session = hmac.new(self._secret, b"cscct page", hashlib.sha256).hexdigest()
        # Cookies are shared by all ports of a host: servers must not overwrite the cookies of each other.
        self._cookie = f"cscct_{hashlib.sha256(self._session.encode()).hexdigest()[:8]}"

    def matches(self, text: str) -> bool:
        """Return whether a text equals the token."""
        return hmac.compare_digest(text.encode("utf-8", "surrogateescape"), self._secret)

    def admits(self, headers: Headers) -> bool:
        """Return whether the headers of a request contain the token or a valid cookie."""
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.matches(text.strip()):
            return True
        # http.cookies drops all cookies if one is malformed, e.g. set by another server on this host
        session = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        return hmac.compare_digest(session.encode("utf-8", "surrogateescape"), self._session.encode())

    def log_in(self, response: Response, secure: bool) -> None:
        """Set the cookie that grants access."""
        response.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", secure=secure)


class Guard:
    """ASGI middleware that checks every request.

    Args:
        app: The wrapped application.
        limits: Limits of requests.
        token: The access token; None if every request is accepted.
        hosts: Names, besides those of loopback and the address of the connection, that requests may be addressed to;
            `*` for all.
    """

    def __init__(self, app: ASGIApp, limits: Limits, token: Token | None, hosts: Iterable[str] = ()) -> None:
        self.app, self.limits, self.token = app, limits, token
        self.hosts = LOOPBACK | {_normalized(host) for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # lifespan; no route uses websockets
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        multipart = headers.get("content-type", "").startswith("multipart/form-data")
        body = _Body(receive, headers, self.limits, self.limits.request_bytes if multipart else self.limits.text_bytes)
        handler = self._rejection(scope, headers) or self.app
        try:
            await handler(scope, body.receive, _sender(send, body))
        except ClientDisconnect:  # while it sent the request: nobody reads a response
            body.complete = True

    def _rejection(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the response to a forbidden request, or None if the request is allowed."""
        if not self._is_own_name(_host_name(headers.get("host", "")), scope):
            return _error(
                421,
                "Requests to this host are not accepted: use the address of the server, or its option --allowed-host.",
            )
        if scope["method"] not in ("GET", "HEAD") and _is_cross_origin(headers):
            return _error(403, "Cross-origin request: changes are only accepted from the web UI and from API clients.")
        if self.token is None or scope["path"] in PUBLIC or self.token.admits(headers):
            return None
        if scope["path"] == "/":
            query = scope["query_string"].decode("latin-1")
            return RedirectResponse(f"/login?{query}" if query.startswith("token=") else "/login", 303)
        response = _error(401, "Missing or invalid token: send `Authorization: Bearer TOKEN`, or log in to the web UI.")
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    def _is_own_name(self, name: str, scope: Scope) -> bool:
        """Whether a host name is that of this server. Other names may lead here by DNS rebinding."""
        name, (address, *_) = _normalized(name), scope.get("server") or ("",)
        is_own_address = _is_address(name) and name == _normalized(str(address))
        return ANY_HOST in self.hosts or name in self.hosts or is_own_address


def _normalized(name: str) -> str:
    """Return a host name or an address in the form in which names are compared."""
    name = name.lower().strip("[]")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    return str(getattr(address, "ipv4_mapped", None) or address)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _error(status: int, text: str) -> Response:
    return JSONResponse({"detail": text}, status)


def _host_name(host: str) -> str:
    """Return a Host header without the port; empty if it is malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_cross_origin(headers: Headers) -> bool:
    """Return whether a browser sent the request from a page of another site. API clients send no origin."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        return True


class _Body:
    """Body of a request, limited in size and time."""

    def __init__(self, receive: Receive, headers: Headers, limits: Limits, max_bytes: int) -> None:
        self._receive, self.limits, self.max_bytes, self.seen = receive, limits, max_bytes, 0
        self.deadline = anyio.current_time() + limits.upload_seconds
        length = headers.get("content-length", "0")
        self.too_long = length.isdecimal() and (len(length) > 18 or int(length) > max_bytes)
        self.complete = length == "0" and "transfer-encoding" not in headers
        self.expects_continue = "expect" in headers

    async def receive(self) -> Message:
        """Return the next part. Fails if the body is larger or slower than the limits allow."""
        if self.complete:  # what follows is the end of the connection
            return await self._next()
        seconds = min(self.limits.idle_seconds, self.deadline - anyio.current_time())
        try:
            with anyio.fail_after(max(0.0, seconds)):
                message = await self._next()
        except TimeoutError as error:
            raise HTTPException(408, "The request was not received in time: send it again.") from error
        if self.too_long or self.seen > self.max_bytes:
            raise HTTPException(
                413, f"The request is larger than {self.max_bytes:,} bytes: send fewer or smaller files."
            )
        return message

    async def drain(self, seconds: float, idle_seconds: float) -> None:
        """Read the rest of a body that nobody needs, while it arrives in time."""
        self.seen = 0
        with anyio.move_on_after(seconds):
            while not (self.complete or self.expects_continue or self.seen > self.max_bytes):
                with anyio.move_on_after(idle_seconds) as idle:
                    await self._next()
                if idle.cancelled_caught:
                    return

    async def _next(self) -> Message:
        message = await self._receive()
        self.seen += len(message.get("body", b""))
        self.complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message


def _sender(send: Send, body: _Body) -> Send:
    """Add headers. A request that was not received completely is answered at once, and then read on for a while:
    most clients read the response only after sending everything, and would see a reset connection instead."""
    incomplete = False

    async def sender(message: Message) -> None:
        nonlocal incomplete
        if message["type"] == "http.response.start":
            await body.drain(ARRIVED_SECONDS, ARRIVED_SECONDS)
            incomplete = not body.complete
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if incomplete:
                headers["Connection"] = "close"
        elif incomplete and not message.get("more_body", False):
            await send({**message, "more_body": True})
            await body.drain(DRAIN_SECONDS, DRAIN_IDLE_SECONDS)
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await send(message)

    return sender
