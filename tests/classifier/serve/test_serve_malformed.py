"""Malformed requests to a running server."""

import gc
import random
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from cscct.classifier.serve import Limits
from serving import RED, client_fixture, encoded, files, folder_fixture, original_fixture, serving  # noqa: F401

REJECTED = {400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 422, 503}
SIZE = 150_000  # maximum body size in bytes: large enough to detect memory leaks
PATHS = ["../../etc/passwd", "/etc/passwd", "C:\\x", "..", "."]
NAMES = [*PATHS, "\x00", "a\x00b", "a\r\nb", "x" * 5000, "", " ", "\u202e"]


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    with serving(folder, Limits(request_bytes=1_000_000)) as address:
        yield address


def malformed(random: random.Random) -> dict[str, Any]:
    """Return arguments of a request that must be rejected."""
    noise = random.randbytes(random.randrange(SIZE))
    image = encoded(RED, random.randrange(1000))
    path = random.choice(["classify", "staged"])
    damaged = random.choice(
        [
            noise,
            image[: random.randrange(len(image) // 2)],  # at most the header
            image[:33] + noise,
            b"\x89PNG\r\n\x1a\n" + noise,
            b"\xff\xd8\xff" + noise,
            b"GIF89a\xff\xff\xff\xff" + noise,
            b"P6 99999 99999 255 ",
            b"",
            b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>",
            b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        ]
    )
    name = random.choice(NAMES)
    kind = {"content-type": "multipart/form-data; boundary=x"}
    head = b'--x\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\n'
    return random.choice(
        [
            {"url": path, "data": {"label": "red"}, "files": files(damaged, name="a.png")},
            {"url": path, "data": {"label": name}, "files": files(damaged, name=name.replace("\x00", "") or "a")},
            {
                "url": "staged",
                "data": {"label": random.choice(["", " ", "x" * 101, "a\nb"])},
                "files": files(image),
            },
            {"url": path, "content": noise, "headers": kind},
            {"url": path, "content": head + noise, "headers": kind},
            {"url": path, "content": noise, "headers": {"content-type": "image/png"}},
            {"url": path, "content": iter([noise] * 8), "headers": kind},
            {"url": path, "content": b"{" * 5000, "headers": {"content-type": "application/json"}},
            {"url": path, "files": [("images", (None, "text", None))]},
            {"url": path, "files": files(*[b"x"] * 60)},
            {"url": "classify?top=many", "files": files(image)},
            {"url": "restore", "content": noise, "headers": {"content-type": "application/json"}},
            {"url": "restore", "json": random.choice([{"version": 99}, {"version": -1}, {"version": "x"}, [], None])},
            {"url": f"staged/{random.choice(['..%2f..', '%00', 'x' * 300, '0' * 24])}", "method": "DELETE"},
            {"url": "exemplars/..%2f/0", "method": "GET"},
            {"url": "learn", "method": random.choice(["GET", "PUT", "PATCH"])},
        ]
    )


def send(client: httpx.Client, request: dict[str, Any]) -> int:
    request = {"method": "POST", **request}
    answer = client.request(url=f"/api/{request.pop('url')}", **request)
    assert answer.json()["detail"], request
    return answer.status_code


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def tree(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if ".lock" not in path.name}


def test_malformed_requests_are_rejected(address: str, folder: Path, tmp_path: Path) -> None:
    before = tree(tmp_path)
    generator = random.Random(1)
    with httpx.Client(base_url=address, timeout=60) as client:
        counts = Counter(send(client, malformed(generator)) for _ in range(200))
        first = resident() if Path("/proc/self/statm").exists() else None
        counts += Counter(send(client, malformed(generator)) for _ in range(700))
        with ThreadPoolExecutor(100) as pool:
            together = list(pool.map(lambda request: send(client, request), [malformed(generator) for _ in range(100)]))
        counts += Counter(together)
        assert client.get("/api/model").json()["version"] == 2
        assert client.post("/api/classify", files=files(encoded(RED))).status_code == 200
    assert counts.total() == 1000
    assert set(counts) <= REJECTED, counts
    assert {400, 404, 405, 413, 415, 422} <= set(counts)
    assert tree(tmp_path) == before
    if first is not None:
        assert resident() - first < 0.6 * 800 * SIZE / 2  # less than the amount of data sent since then


@pytest.mark.parametrize("charset", ["punycode", "undefined", "idna", "nonsense", "utf-16", "base64", "\u00ff"])
def test_charsets_are_no_server_errors(charset: str, client: TestClient) -> None:
    kind = f"multipart/form-data; boundary=x; charset={charset}"
    body = b'--x\r\nContent-Disposition: form-data; name="label"\r\n\r\n\xff\xfe\r\n--x\r\n'
    body += b'Content-Disposition: form-data; name="images\xff"; filename="\xffa.png"\r\n\r\nx\r\n--x--\r\n'
    for path in ("classify", "staged"):
        response = client.post(f"/api/{path}", content=body, headers={"content-type": kind.encode("latin-1")})
        assert response.status_code in (400, 422), response.text
        assert response.json()["detail"]


def test_aborted_uploads_leave_no_files(address: str, folder: Path, tmp_path: Path) -> None:
    before = tree(tmp_path)
    host, port = address.removeprefix("http://").split(":")
    for length in range(0, 2000, 100):
        with socket.create_connection((host, int(port))) as connection:
            head = f"POST /api/staged HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n"
            head += "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
            body = '--x\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\n'
            connection.sendall((head + body).encode() + bytes(length))
    with httpx.Client(base_url=address, timeout=60) as client:
        assert client.get("/api/staged").json()["staged"] == []
        assert client.post("/api/classify", files=files(encoded(RED))).status_code == 200
    assert tree(tmp_path) == before


def test_concurrent_requests_succeed_or_get_503(folder: Path) -> None:
    with (
        serving(folder, Limits(running=1, waiting=3)) as address,
        httpx.Client(base_url=address, timeout=120, limits=httpx.Limits(max_connections=100)) as client,
        ThreadPoolExecutor(100) as pool,
    ):

        def ask(_: int) -> httpx.Response:
            return client.post("/api/classify", files=files(encoded(RED) + bytes(400_000)))

        answers = list(pool.map(ask, range(100)))
        assert {answer.status_code for answer in answers} <= {200, 503}
        assert sum(answer.status_code == 200 for answer in answers) >= 4
        assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 503)
        assert ask(0).status_code == 200


def test_a_body_that_is_not_read_is_no_server_error(folder: Path) -> None:
    with serving(folder, token="a-secret-token") as address:
        host, port = address.removeprefix("http://").split(":")
        for method, path, status in (("POST", "/login", b"401"), ("GET", "/style.css", b"200")):
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                lines = [f"{method} {path} HTTP/1.0", "Host: localhost", "Content-Type: ", "Content-Length: 1000000000"]
                connection.sendall("\r\n".join([*lines, "", "{}"]).encode())
                assert connection.recv(100)[9:12] == status
