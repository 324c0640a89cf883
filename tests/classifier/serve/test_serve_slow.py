"""Slow clients, and the end of the server."""

from __future__ import annotations

import select
import signal
import socket
import warnings
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from PIL import Image

from cscct.classifier.serve import Limits, guard
from serving import (  # noqa: F401
    HOME,
    RED,
    encoded,
    files,
    folder_fixture,
    original_fixture,
    server_process,
    serving,
    wait_for,
)

LONG = 600.0  # seconds; no test waits for it
UPLOAD = "POST /api/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
HALF_BODY = UPLOAD + "Content-Length: 100000\r\n\r\n--x\r\n"
HALF_JSON = HALF_BODY.replace("classify", "restore").replace("multipart/form-data; boundary=x", "application/json")
HALF_HEADERS = "GET /api/job HTTP/1.1\r\nHost:"


def connect(address: str, text: str) -> socket.socket:
    """Send a part of a request."""
    host, port = address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=120)
    connection.sendall(text.encode())
    return connection


def answer(connection: socket.socket) -> str:
    """Return what the server sends until it closes the connection."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts).decode()


def test_half_sent_requests_end(folder: Path) -> None:
    with serving(folder, Limits(header_seconds=0.3, idle_seconds=0.3)) as address:
        complete = "GET /api/job HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for text, status in [("", ""), (HALF_HEADERS, ""), (complete + HALF_HEADERS, "200"), (complete, "200")]:
            with connect(address, text) as connection:
                assert answer(connection)[9:12] == status
        for text in (HALF_BODY, HALF_JSON):
            with connect(address, text) as connection:
                assert answer(connection)[9:12] == "408"
    with serving(folder, Limits(upload_seconds=0.0)) as address, connect(address, HALF_BODY) as connection:
        assert answer(connection)[9:12] == "408"


def test_rejected_requests_are_answered_before_their_body_is_complete(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "DRAIN_SECONDS", LONG)
    monkeypatch.setattr(guard, "DRAIN_IDLE_SECONDS", LONG)
    with serving(folder, token="a token of some length") as address, connect(address, HALF_BODY) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 401")


def test_slow_uploads_do_not_take_all_places(folder: Path) -> None:
    limits = Limits(running=1, waiting=3, idle_seconds=LONG, upload_seconds=LONG, slow_seconds=0.0, slow_bytes=1e9)
    with serving(folder, limits) as address, ExitStack() as stack:
        slow = [stack.enter_context(connect(address, HALF_BODY)) for _ in range(8)]
        wait_for(lambda: len(select.select(slow, [], [], 0)[0]) >= 4)  # dropped in favour of later ones
        with httpx.Client(base_url=address, timeout=120) as client:
            assert client.post("/api/classify", files=files(encoded(RED))).status_code == 200
        dropped = select.select(slow, [], [], 0)[0]
        assert all(b" 503 " in connection.recv(100) for connection in dropped)


def test_a_client_has_only_its_share_of_places(folder: Path) -> None:
    with serving(folder, Limits(per_client=2, slow_seconds=LONG)) as address, ExitStack() as stack:
        uploads = [stack.enter_context(connect(address, HALF_BODY)) for _ in range(5)]
        wait_for(lambda: len(select.select(uploads, [], [], 0)[0]) >= 3)
        assert all(b" 503 " in one.recv(100) for one in select.select(uploads, [], [], 0)[0])


@pytest.mark.parametrize("name", ["connections", "connections_per_client"])
def test_waiting_connections_are_closed_in_favour_of_new_ones(name: str, folder: Path) -> None:
    limits = Limits(header_seconds=LONG, **{name: 3})  # type: ignore[arg-type]
    with serving(folder, limits) as address, ExitStack() as stack:
        waiting = [stack.enter_context(connect(address, HALF_HEADERS)) for _ in range(6)]
        assert [answer(connection) for connection in waiting[:3]] == [""] * 3
        assert httpx.get(f"{address}/api/job", timeout=120).status_code == 200


def test_clients_that_do_not_read_are_disconnected(folder: Path) -> None:
    request = b"GET /main.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100

    def send_on(connection: socket.socket) -> None:
        while True:
            connection.sendall(request)

    limits = Limits(idle_seconds=0.3, header_seconds=LONG)
    with serving(folder, limits) as address, connect(address, "") as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            send_on(connection)


def test_server_stops_and_logs_nothing(folder: Path, tmp_path: Path) -> None:
    """With half-sent requests open, after aborted uploads and images with damaged metadata."""
    file = BytesIO()
    Image.new("RGB", (32, 32)).save(file, "JPEG", exif=b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x05\x00\x12\x01")
    image = file.getvalue()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Image.open(BytesIO(image)).getexif()
    assert caught  # the test would be void otherwise
    log = tmp_path / "log"
    with log.open("w") as stderr, server_process(folder, stderr) as (process, address), ExitStack() as stack:
        assert httpx.post(f"{address}/api/classify", files=files(image), timeout=120).status_code == 200
        assert (
            httpx.post(f"{address}/api/staged", data={"label": "x"}, files=files(image), timeout=120).status_code == 201
        )
        connect(address, HALF_BODY).close()
        for text in (HALF_BODY, HALF_JSON, HALF_HEADERS, ""):
            stack.enter_context(connect(address, text))
        assert httpx.get(f"{address}/api/job", timeout=120).status_code == 200
        process.send_signal(signal.SIGTERM)
        process.wait(120)
    assert log.read_text() == ""
