"""Who may ask, and how much: Host and Origin checks, the token, the size of a request, and headers for the browser."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .limits import Limits

LOOPBACK = frozenset(["localhost", "127.0.0.1", "::1"])
DRAIN_SECONDS = 20.0
PUBLIC = frozenset(["/login", "/style.css", "/icon.svg"])  # what the login form itself needs
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with none at all, a browser would not tell the origin of the login form
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Token:
    """The secret that a request must carry, as a bearer token or as the cookie that the login form sets."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._session = hmac.new(self._secret, b"cscct page", hashlib.sha256).hexdigest()
        # Cookies do not know ports: two servers on a machine must not overwrite each other's.
        self._cookie = f"cscct_{hashlib.sha256(self._session.encode()).hexdigest()[:8]}"

    def matches(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "surrogateescape"), self._secret)

    def admits(self, headers: Headers) -> bool:
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.matches(text.strip()):
            return True
        # http.cookies would drop all cookies because of one that is odd, as another server on this host may set
        session = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        return hmac.compare_digest(session.encode("utf-8", "surrogateescape"), self._session.encode())

    def log_in(self, response: Response, secure: bool) -> None:
        response.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", secure=secure)


class Guard:
    """ASGI middleware that stands before every route."""

    def __init__(self, app: ASGIApp, limits: Limits, token: Token | None) -> None:
        self.app, self.limits, self.token = app, limits, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # lifespan; websockets have no route
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        files = headers.get("content-type", "").startswith("multipart/form-data")
        body = _Body(receive, headers, self.limits.request_bytes if files else self.limits.text_bytes)
        answer = self._refusal(scope, headers) or self.app
        await answer(scope, body.receive, _sender(send, body))

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request that must not reach a route."""
        if self.token is None and _host_name(headers.get("host", "")) not in LOOPBACK:
            return _problem(
                421, "This server only answers to localhost, 127.0.0.1 and [::1]: open it under one of these."
            )
        if scope["method"] not in ("GET", "HEAD") and _is_cross_origin(headers):
            return _problem(403, "Changes are only accepted from this server's own page, or from a program.")
        if self.token is None or scope["path"] in PUBLIC or self.token.admits(headers):
            return None
        if scope["path"] == "/":
            query = scope["query_string"].decode("latin-1")
            return RedirectResponse(f"/login?{query}" if query.startswith("token=") else "/login", 303)
        response = _problem(401, "A token is needed: send it as `Authorization: Bearer TOKEN`, or log in on the page.")
        response.headers["WWW-Authenticate"] = "Bearer"
        return response


def _problem(status: int, text: str) -> Response:
    return JSONResponse({"detail": text}, status)


def _host_name(host: str) -> str:
    """Without the port. What cannot be read is nobody's name."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_cross_origin(headers: Headers) -> bool:
    """Whether a browser says that another site's page asks. Programs that are no browsers say nothing."""
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
    """The body of a request, of which no more than so many bytes are taken."""

    def __init__(self, receive: Receive, headers: Headers, most: int) -> None:
        self._receive, self.most, self.seen = receive, most, 0
        length = headers.get("content-length", "0")
        self.announced = length.isdecimal() and (len(length) > 18 or int(length) > most)
        self.complete = length == "0" and "transfer-encoding" not in headers
        self.asks_first = "expect" in headers

    async def receive(self) -> Message:
        """The next part. Fails as soon as there is too much, or too much was announced."""
        message = await self._next()
        if self.announced or self.seen > self.most:
            raise HTTPException(413, f"The request is larger than {self.most:,} bytes: send fewer or smaller files.")
        return message

    async def drain(self) -> None:
        """Reads on after a refusal: most clients look for the answer only when they have sent everything."""
        self.seen = 0
        with anyio.move_on_after(DRAIN_SECONDS):
            while not (self.complete or self.asks_first or self.seen > self.most):
                await self._next()

    async def _next(self) -> Message:
        message = await self._receive()
        self.seen += len(message.get("body", b""))
        self.complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message


def _sender(send: Send, body: _Body) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            if message["status"] >= 400:
                await body.drain()
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return sender
