"""Requests that need much memory or time, many at a time."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi.testclient import TestClient
from starlette.exceptions import HTTPException
from starlette.responses import Response

import cscct.classifier.export
from cscct.classifier.serve import Limits, current, photo_routes, routes, staging
from cscct.classifier.serve.connections import server_config
from cscct.classifier.serve.exporting import Exporter
from cscct.classifier.serve.queue import QueuedPhoto
from serving import (  # noqa: F401
    RED,
    client_fixture,
    encoded,
    files,
    folder_fixture,
    original_fixture,
    serving,
    wait_for,
)


class Counted:
    """A function that counts how many of its calls run at the same time. They wait for `released`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.running, self.most = function, 0, 0
        self.mutex, self.released = threading.Lock(), threading.Event()

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        with self.mutex:
            self.running += 1
            self.most = max(self.most, self.running)
        self.released.wait(60)
        try:
            return self.function(*arguments, **options)
        finally:
            with self.mutex:
                self.running -= 1


def test_few_stored_images_are_decoded_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may need hundreds of megabytes. Meanwhile images are classified."""
    shown = Counted(staging.thumbnail)
    with serving(folder, Limits(running=2)) as address, httpx.Client(base_url=address, timeout=120) as client:
        staged = client.post("/api/staged", data={"label": "red"}, files=files(encoded(RED))).json()["staged"][0]
        monkeypatch.setattr(staging, "thumbnail", shown)
        monkeypatch.setattr(photo_routes, "photo_image", shown)

        def show(_: int) -> int:
            return httpx.get(f"{address}/api/staged/{staged['id']}/thumbnail?large=true", timeout=120).status_code

        with ThreadPoolExecutor(50) as pool:
            answers = [pool.submit(show, number) for number in range(50)]
            wait_for(lambda: shown.running >= 2)
            assert client.post("/api/classify", files=files(encoded(RED))).status_code == 200
            assert client.get("/api/job").status_code == 200
            shown.released.set()
            assert {answer.result() for answer in answers} == {200}
    assert shown.most == 2


def test_changes_run_one_after_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each loads a copy of the model, and those at the same time would be refused."""
    renaming = Counted(routes.rename_class)
    monkeypatch.setattr(routes, "rename_class", renaming)
    renaming.released.set()
    with serving(folder) as address:

        def rename(name: str) -> int:
            change = {"old": name, "new": f"new {name}"}
            return httpx.post(f"{address}/api/rename", json=change, timeout=120).status_code

        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(rename, ["red", "green", "blue"])) == [200] * 3
        names = {entry["name"] for entry in httpx.get(f"{address}/api/model", timeout=120).json()["classes"]}
    assert names == {"new red", "new green", "new blue"}
    assert renaming.most == 1


def test_the_map_of_a_version_is_computed_once(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    compute, calls = current.feature_map, list[int]()

    def counted(version: int, model: Any) -> Any:
        calls.append(version)
        return compute(version, model)

    monkeypatch.setattr(current, "feature_map", counted)
    first = client.get("/api/map").json()
    assert client.get("/api/map").json() == first
    assert client.post("/api/undo").status_code == 200
    assert client.get("/api/map").json()["version"] == 1
    assert calls == [2, 1]


def test_exports_do_not_run_in_the_server(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would change settings of torch, and thereby predictions of other threads."""

    def fail(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(cscct.classifier.export, "export", fail)
    response = client.post("/api/export", json={"format": "pt2"})
    assert response.status_code == 200
    assert response.content.startswith(b"PK")


def test_problems_and_ends_of_exports(folder: Path) -> None:
    (folder / "model.json").write_text("{}")
    exporter = Exporter(folder)
    with pytest.raises(HTTPException) as refused:
        exporter.export("pt2")
    assert refused.value.status_code == 409
    assert str(folder) in refused.value.detail
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(exporter.export, "pt2")
        process = wait_for(lambda: exporter._process if exporter._process and exporter._process.poll() is None else 0)
        exporter.stop()
        with pytest.raises(HTTPException, match="exit code -9"):
            running.result(60)
    assert process.returncode == -9
    with pytest.raises(HTTPException, match="stopping"):
        exporter.export("pt2")


def test_responses_may_be_read_slowly_but_steadily() -> None:
    content = bytes(range(256)) * 32_768  # 8 MB, more than the buffers of sockets
    limits = Limits(idle_seconds=1.5, slow_bytes=1.0)
    server = uvicorn.Server(server_config(Response(content), limits, lifespan="off", port=0))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    received = []
    with httpx.stream("GET", f"http://127.0.0.1:{port}/", timeout=120) as response:
        for part in response.iter_raw(65_536):
            received.append(part)
            time.sleep(0.04)
    server.should_exit = True
    thread.join(60)
    assert b"".join(received) == content


def test_listed_photos_are_sent_in_parts(folder: Path, tmp_path: Path) -> None:
    photo = tmp_path / "large.bmp"
    photo.write_bytes(bytes(3_000_000))
    with serving(folder, queue=[QueuedPhoto(photo, "red")]) as address:
        with httpx.stream("GET", f"{address}/api/queue/0", timeout=120) as response:
            assert response.status_code == 200
            assert "content-length" not in response.headers
            assert sum(map(len, response.iter_raw())) == 3_000_000
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=120) as connection:  # with a body, which is not read
            connection.sendall(b"GET /api/queue/0 HTTP/1.0\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n{}")
            assert connection.recv(100)[9:12] == b"200"
        photo.unlink()
        assert httpx.get(f"{address}/api/queue/0", timeout=120).status_code == 404
