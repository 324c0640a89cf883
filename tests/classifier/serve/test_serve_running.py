"""Server process: address, token and recovery after a kill."""

import signal
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from cscct.classifier.serve import run, running
from cscct.errors import UserError
from serving import (  # noqa: F401
    YELLOW,
    encoded,
    files,
    folder_fixture,
    is_running,
    original_fixture,
    server_process,
    stopping,
    wait_for,
)


def test_killed_server_restarts_with_the_last_version(folder: Path, tmp_path: Path) -> None:
    variables, mark = stopping(tmp_path / "stopping")
    with server_process(folder, **variables) as (process, address):
        upload = files(encoded(YELLOW), encoded(YELLOW, 1))
        staged = httpx.post(f"{address}/api/staged", data={"label": "yellow"}, files=upload, timeout=60).json()
        assert len(staged["staged"]) == 2
        httpx.post(f"{address}/api/learn", timeout=60)
        wait_for(mark.exists)
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_for(lambda: not is_running(int(mark.read_text())))  # the learning process exits with the server
    with server_process(folder) as (process, address), httpx.Client(base_url=address, timeout=60) as client:
        assert client.get("/api/model").json()["version"] == 2
        assert client.get("/api/staged").json()["staged"] == staged["staged"]
        assert client.get("/api/job").json()["state"] == "idle"
        client.post("/api/learn")
        wait_for(lambda: client.get("/api/job").json()["state"] != "running")
        assert client.get("/api/model").json()["version"] == 3
        assert client.get("/api/staged").json()["staged"] == []
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]")),
        *((host, False) for host in ("0.0.0.0", "::", "192.168.1.2", "example.org")),
    ],
)
def test_is_loopback(host: str, loopback: bool) -> None:
    assert running.is_loopback(host) is loopback


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arguments of the server, which is not started."""
    import uvicorn

    arguments: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: arguments.update(app=self.config.app))
    return arguments


def test_random_token_is_printed_for_other_addresses(
    folder: Path, started: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder, host="0.0.0.0", port=0)
    output = capsys.readouterr().out
    token = output.partition("?token=")[2].split()[0]
    assert len(token) >= 20
    guard = started["app"].user_middleware[0].kwargs
    assert guard["token"].matches(token)
    assert socket.gethostname() in guard["hosts"]
    run(folder, port=0)
    assert "?token" not in capsys.readouterr().out
    run(folder, port=0, token="with space & more")
    assert "/?token=with%20space%20%26%20more " in capsys.readouterr().out


def test_invalid_arguments_have_clear_messages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1 port {number}.*--port"):
            run(folder, port=number)
    with pytest.raises(UserError, match=r"cannot listen on nowhere\.invalid"):
        run(folder, host="nowhere.invalid")
    for name in ("evil..host", "nul\0", "x" * 70 + ".example"):
        with pytest.raises(UserError, match="cannot listen on"):
            run(folder, host=name)
    with pytest.raises(UserError, match="token"):
        run(folder, token="a" * 20 + "\u00e9")
    with pytest.raises(UserError, match="at least 8"):
        run(folder, token="short")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UserError, match=r"pip install 'cscct\[serve\]'"):
        run(folder)


def test_damaged_model_is_reported_before_listening(folder: Path) -> None:
    (folder / "model.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        run(folder, port=0)


def test_missing_versions_are_reported_before_listening(folder: Path, started: dict[str, Any]) -> None:
    for path in (folder / "versions").iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"0002.json cannot be read"):
        run(folder, port=0)


def test_other_folders_are_rejected(tmp_path: Path, started: dict[str, Any]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "result.json").write_text("{}")
    for name in ("run", "run/result.json", "run/result.json/deeper"):
        with pytest.raises(UserError, match=r"is not a model folder|cannot be written to"):
            run(tmp_path / name, port=0)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["result.json"]
