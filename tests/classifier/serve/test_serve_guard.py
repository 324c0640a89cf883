"""Access control and limits."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from cscct.classifier.serve import Limits, create_app, staging
from cscct.errors import UserError
from serving import HOME, RED, client_fixture, encoded, files, folder_fixture, original_fixture  # noqa: F401

TOKEN = "a token of some length"


@pytest.fixture
def guarded(folder: Path) -> Iterator[TestClient]:
    """Client of a server with a token."""
    app = create_app(folder, token=TOKEN, allowed_hosts=["Example.org"])
    with TestClient(app, base_url="http://example.org", follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:9", "LOCALHOST:1"])
def test_loopback_hosts_are_accepted(client: TestClient, host: str) -> None:
    assert client.get("/api/job", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1.example.org", "localhost.evil:8000", "", "[", "a@b:c"])
def test_other_hosts_are_rejected_without_token(client: TestClient, host: str) -> None:
    """Protects against DNS rebinding."""
    for path in ("/", "/api/model", "/api/openapi.json"):
        assert client.get(path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    ("host", "status"),
    [("example.org:8000", 200), ("localhost", 200), ("evil.example", 421), ("10.0.0.1", 421), ("", 421)],
)
def test_other_hosts_are_rejected_with_token(guarded: TestClient, host: str, status: int) -> None:
    headers = {"host": host, "authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/api/job", headers=headers).status_code == status
    assert guarded.get("/login", headers={"host": host}).status_code == status


def test_the_address_of_the_connection_and_any_host_are_accepted(folder: Path) -> None:
    with TestClient(create_app(folder), base_url="http://[fe80::1:2]") as client:
        assert client.get("/api/job").status_code == 200
        assert client.get("/api/job", headers={"host": "[FE80:0::1:2]:80"}).status_code == 200
        assert client.get("/api/job", headers={"host": "[fe80::3]"}).status_code == 421
    with TestClient(create_app(folder, allowed_hosts=["*"]), base_url="http://example.org") as client:
        assert client.get("/api/job").status_code == 200


@pytest.mark.parametrize(
    "token", [" " * 8, " leading", "trailing ", "caf\u00e9-caf\u00e9", "line\nbreak", "tab\tulator", ""]
)
def test_tokens_that_cannot_be_sent_are_rejected(token: str, folder: Path) -> None:
    with pytest.raises(UserError, match="token"):
        create_app(folder, token=token)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": HOME, "sec-fetch-site": "cross-site"},
    ],
)
def test_cross_origin_changes_are_rejected(client: TestClient, headers: dict[str, str]) -> None:
    for path, body in [
        ("undo", None),
        ("classify", None),
        ("learn", None),
        ("forget", {"classes": ["red"]}),
        ("rename", {"old": "red", "new": "x"}),
    ]:
        assert client.post(f"/api/{path}", headers=headers, json=body).status_code == 403
    assert client.delete("/api/staged", headers=headers).status_code == 403
    assert client.get("/api/model").json()["version"] == 2


def test_requests_without_token_are_rejected(guarded: TestClient) -> None:
    for path in ("/api/model", "/api/openapi.json", "/main.js", "/api/nothing"):
        response = guarded.get(path)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert "Bearer TOKEN" in response.json()["detail"]
    for header in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xff"):
        assert guarded.get("/api/model", headers={"authorization": header.encode("latin-1")}).status_code == 401
    assert guarded.get("/api/model", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert guarded.get("/").headers["location"] == "/login"
    assert guarded.get("/style.css").status_code == 200  # used by the login form
    assert guarded.post("/api/undo", headers={"cookie": "cscct_0=1; \x7f=;"}).status_code == 401


def test_login_sets_cookie(guarded: TestClient) -> None:
    assert "Log in" in guarded.get("/login").text
    assert guarded.post("/login", data={"token": "wrong"}).status_code == 401
    assert guarded.post("/login", data={"token": TOKEN}, headers={"origin": "http://evil.example"}).status_code == 403
    assert guarded.get("/api/model").status_code == 401
    response = guarded.post("/login", data={"token": TOKEN})
    assert (response.status_code, response.headers["location"]) == (303, "/")
    cookie = response.headers["set-cookie"]
    assert TOKEN not in cookie
    for word in ("HttpOnly", "SameSite=strict"):
        assert word in cookie
    assert guarded.get("/api/model").status_code == 200
    assert guarded.get("/").status_code == 200
    session_cookie = cookie.partition(";")[0]
    guarded.cookies.clear()
    cookies = f'settings={{"a": [1, 2]}}; {session_cookie}'  # the first is malformed, from another server on the host
    assert guarded.get("/api/model", headers={"cookie": cookies}).status_code == 200


def test_printed_url_logs_in(guarded: TestClient) -> None:
    first = guarded.get("/", params={"token": TOKEN})
    second = guarded.get(first.headers["location"])
    assert (second.status_code, second.headers["location"]) == (303, "/")  # the token is removed from the address bar
    assert guarded.get("/").status_code == 200


def test_responses_have_security_headers(client: TestClient) -> None:
    for path in ("/", "/main.js", "/api/model", "/api/nothing"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_exceeded_limits_have_clear_messages(folder: Path) -> None:
    limits = Limits(file_bytes=2000, request_bytes=6000, files=2, pixels=700, side=60, name_length=5, staged_files=2)
    with TestClient(create_app(folder, limits), base_url=HOME) as client:

        def rejected(status: int, *contents: bytes, label: str = "red") -> str:
            response = client.post("/api/staged", data={"label": label}, files=files(*contents))
            assert response.status_code == status, response.text
            return str(response.json()["detail"])

        small = encoded(RED, kind="JPEG")
        assert "larger than 6,000 bytes" in rejected(413, bytes(7000))
        assert "larger than 2,000 bytes" in rejected(413, bytes(2001))
        assert "Too many files" in rejected(400, small, small, small)
        assert "at most 5 are allowed" in rejected(422, small, label="yellow")
        assert "name is empty" in rejected(422, small, label=" \t ")
        assert "single line" in rejected(422, small, label="a\nb")
        assert "not an image" in rejected(422, b"GIF of a sort")
        assert "cannot be read" in rejected(422, small[: len(small) // 2])
        assert client.post("/api/staged", data={"label": "red"}, files=files(small, small)).status_code == 201
        assert "Too many staged photos" in rejected(409, small)
        assert client.post("/api/restore", json={"version": 1, "more": "x" * 200_000}).status_code == 413
    with TestClient(create_app(folder, Limits(pixels=400)), base_url=HOME) as client:
        response = client.post("/api/classify", files=files(encoded(RED)))
        assert "24 x 20 pixels, but the limit is 400" in response.json()["detail"]


def test_full_disk_is_reported(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(staging, "write_bytes", full)
    response = client.post("/api/staged", data={"label": "red"}, files=files(encoded(RED)))
    assert response.status_code == 503
    assert "No space left on device" in response.json()["detail"]
    assert client.get("/api/staged").json()["staged"] == []
