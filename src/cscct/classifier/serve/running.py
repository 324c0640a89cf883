"""Entry point of `cscct serve`: address, token and console output."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import socket
import sys
import threading
import warnings
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from ...errors import UserError, install_hint
from ..versions import is_model_folder

MIN_TOKEN_LENGTH = 8


def run(
    model_dir: str | Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    open_browser: bool = False,
    allowed_hosts: Sequence[str] = (),
    queue: str | Path | None = None,
    limits: Mapping[str, str] | None = None,
) -> None:
    """Serve the web UI and the API of a model folder until interrupted.

    Args:
        model_dir: Path of the model folder. A new folder is created if needed.
        host: Address to listen on.
        port: Port to listen on; 0 selects a free port.
        token: Token that every request must contain. Default: none for loopback addresses, else a random token that is
            printed with the address.
        open_browser: Whether to open the web UI in a browser.
        allowed_hosts: Further host names that requests may be addressed to, for example that of a proxy; `*` for all.
        queue: List of `cscct suggest`, whose photos are to be labelled in the web UI.
        limits: Values of limits other than the default, by name; see `Limits`.

    Raises:
        UserError: If the server cannot be started.
    """
    try:
        import uvicorn

        from .app import create_app
        from .connections import server_config
        from .limits import parse_limits
        from .queue import read_queue
    except ModuleNotFoundError as error:
        hint = install_hint("serve")
        raise UserError(f"`cscct serve` needs {error.name}, which is not installed: {hint}.") from error
    if token is not None and len(token) < MIN_TOKEN_LENGTH:
        raise UserError(
            f"The token has {len(token)} characters but needs at least {MIN_TOKEN_LENGTH}: use a longer one."
        )
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it logs a warning for every malformed request
    warnings.filterwarnings("ignore", module=r"PIL\.")  # a line for every image with damaged metadata
    names = [host] if is_loopback(host) else [host, socket.gethostname()]
    values = parse_limits(limits or {})
    photos = [] if queue is None else read_queue(Path(queue))
    app = create_app(model_dir, values, token, [*names, *allowed_hosts], photos)
    config = server_config(app, values, lifespan="off")
    with app.state.service.opened(), listen(host, port) as listener:
        url = server_url(host, listener.getsockname()[1], token)
        print(f"Serving {Path(model_dir)} at {url} (press Ctrl+C to stop)")
        if not is_model_folder(model_dir):
            print("The folder contains no model yet: learn a first class in the web UI to create one.")
        sys.stdout.flush()  # output may be redirected to a file
        if open_browser:
            threading.Timer(1.0, webbrowser.open, [url]).start()
        uvicorn.Server(config).run(sockets=[listener])


def is_loopback(host: str) -> bool:
    """Return whether an address is only reachable from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        UserError: If the address is invalid or in use.
    """
    try:
        family = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host.strip("[]"), port), family=family)
    except (OSError, OverflowError, ValueError) as error:  # ValueError: a name that cannot be encoded
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"The server cannot listen on {host} port {port} ({reason}): choose another one with --host or --port."
        ) from error


def server_url(host: str, port: int, token: str | None) -> str:
    """Return the URL of the web UI."""
    host = host.strip("[]")
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    netloc = f"[{name}]" if ":" in name else name
    return f"http://{netloc}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")
