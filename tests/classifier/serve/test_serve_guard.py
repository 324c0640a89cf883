"""Who may ask, and how much."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from cscct.classifier.serve import Limits, create_app, staging
from serving import HOME, RED, client_fixture, encoded, files, folder_fixture, original_fixture  # noqa: F401

TOKEN = "a token of some length"


@pytest.fixture
def guarded(folder: Path) -> Iterator[TestClient]:
    """Beyond loopback."""
    with TestClient(create_app(folder, token=TOKEN), base_url="http://example.org", follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:9", "LOCALHOST:1"])
def test_loopback_names_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/api/job", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1.example.org", "localhost.evil:8000", "", "[", "a@b:c"])
def test_other_names_are_not_answered_without_a_token(client: TestClient, host: str) -> None:
    """A name that leads to this machine only in somebody's DNS would let his page read everything."""
    for path in ("/", "/api/model", "/api/openapi.json"):
        assert client.get(path, headers={"host": host}).status_code == 421


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
def test_other_sites_cannot_change_anything(client: TestClient, headers: dict[str, str]) -> None:
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


def test_the_page_itself_can(client: TestClient) -> None:
    headers = {"origin": HOME, "sec-fetch-site": "same-origin"}
    assert client.post("/api/undo", headers=headers).status_code == 200


def test_with_a_token_nothing_is_shown_without_it(guarded: TestClient) -> None:
    for path in ("/api/model", "/api/openapi.json", "/main.js", "/api/nothing"):
        refused = guarded.get(path)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert "Bearer TOKEN" in refused.json()["detail"]
    for header in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xff"):
        assert guarded.get("/api/model", headers={"authorization": header.encode("latin-1")}).status_code == 401
    assert guarded.get("/api/model", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert guarded.get("/").headers["location"] == "/login"
    assert guarded.get("/style.css").status_code == 200  # for the form
    assert guarded.post("/api/undo", headers={"cookie": "cscct_0=1; \x7f=;"}).status_code == 401


def test_logging_in_sets_a_cookie(guarded: TestClient) -> None:
    assert "Log in" in guarded.get("/login").text
    assert guarded.post("/login", data={"token": "wrong"}).status_code == 401
    assert guarded.post("/login", data={"token": TOKEN}, headers={"origin": "http://evil.example"}).status_code == 403
    assert guarded.get("/api/model").status_code == 401
    done = guarded.post("/login", data={"token": TOKEN})
    assert (done.status_code, done.headers["location"]) == (303, "/")
    cookie = done.headers["set-cookie"]
    assert TOKEN not in cookie
    for word in ("HttpOnly", "SameSite=strict"):
        assert word in cookie
    assert guarded.get("/api/model").status_code == 200
    assert guarded.get("/").status_code == 200
    ours = cookie.partition(";")[0]
    guarded.cookies.clear()
    odd = f'settings={{"a": [1, 2]}}; {ours}'  # the first of another server on the same host
    assert guarded.get("/api/model", headers={"cookie": odd}).status_code == 200


def test_the_printed_address_logs_in(guarded: TestClient) -> None:
    first = guarded.get("/", params={"token": TOKEN})
    second = guarded.get(first.headers["location"])
    assert (second.status_code, second.headers["location"]) == (303, "/")  # the token leaves the address bar
    assert guarded.get("/").status_code == 200


def test_answers_carry_strict_headers(client: TestClient) -> None:
    for path in ("/", "/main.js", "/api/model", "/api/nothing"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_limits_are_told_in_sentences(folder: Path) -> None:
    limits = Limits(file_bytes=2000, request_bytes=6000, files=2, pixels=700, side=60, name_length=5, staged_files=2)
    with TestClient(create_app(folder, limits), base_url=HOME) as client:

        def refusal(status: int, *contents: bytes, label: str = "red") -> str:
            done = client.post("/api/staged", data={"label": label}, files=files(*contents))
            assert done.status_code == status, done.text
            return str(done.json()["detail"])

        small = encoded(RED, kind="JPEG")
        assert "larger than 6,000 bytes" in refusal(413, bytes(7000))
        assert "larger than 2,000 bytes" in refusal(413, bytes(2001))
        assert "Too many files" in refusal(400, small, small, small)
        assert "at most 5 characters" in refusal(422, small, label="yellow")
        assert "no name" in refusal(422, small, label=" \t ")
        assert "one line" in refusal(422, small, label="a\nb")
        assert "not an image" in refusal(422, b"GIF of a sort")
        assert "cannot be used" in refusal(422, small[: len(small) // 2])
        assert client.post("/api/staged", data={"label": "red"}, files=files(small, small)).status_code == 201
        assert "Too many photographs wait" in refusal(409, small)
        assert client.post("/api/restore", json={"version": 1, "more": "x" * 200_000}).status_code == 413
    with TestClient(create_app(folder, Limits(pixels=400)), base_url=HOME) as client:
        done = client.post("/api/classify", files=files(encoded(RED)))
        assert "24 x 20 pixels; at most 400" in done.json()["detail"]


def test_a_full_disk_is_told(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(staging, "write_bytes", full)
    done = client.post("/api/staged", data={"label": "red"}, files=files(encoded(RED)))
    assert done.status_code == 503
    assert "No space left on device" in done.json()["detail"]
    assert client.get("/api/staged").json() == {"staged": []}
