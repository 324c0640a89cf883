"""The server as a process: address, token, and what it prints."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import socket
import sys
import threading
import webbrowser
from pathlib import Path
from urllib.parse import quote

from ...errors import UserError
from ..store import is_model_folder

SHORTEST_TOKEN = 8


def run(
    model_dir: str | Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    open_browser: bool = False,
) -> None:
    """Serves the page and the API of a model folder until it is interrupted.

    Beyond loopback every request needs the token; without one given, it is made up and printed with the address.
    """
    try:
        import uvicorn

        from .app import create_app
    except ModuleNotFoundError as error:
        raise UserError(
            f"`cscct serve` needs {error.name}, which is not installed: pip install 'cscct[serve]'."
        ) from error
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise UserError(f"The token has {len(token)} characters; take at least {SHORTEST_TOKEN}, or none to get one.")
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of every malformed request
    app = create_app(model_dir, token=token)
    config = uvicorn.Config(
        app, lifespan="off", log_level="warning", server_header=False, timeout_keep_alive=10, proxy_headers=False
    )
    with app.state.service.opened(), bound(host, port) as listener:
        address = page_address(host, listener.getsockname()[1], token)
        print(f"Serving {Path(model_dir)} at {address} (Ctrl+C ends it)")
        if not is_model_folder(model_dir):
            print("There is no model in this folder yet: the first class that is taught on the page makes one.")
        sys.stdout.flush()  # for a log file
        if open_browser:
            threading.Timer(1.0, webbrowser.open, [address]).start()
        uvicorn.Server(config).run(sockets=[listener])


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there, so that a port in use is told in a sentence."""
    try:
        family = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host.strip("[]"), port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"The server cannot listen on {host} port {port} ({reason}): choose another with --port or --host."
        ) from error


def page_address(host: str, port: int, token: str | None) -> str:
    """What to open in a browser."""
    host = host.strip("[]")
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")
