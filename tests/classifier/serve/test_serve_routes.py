"""The JSON API."""

from __future__ import annotations

import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from cscct import IncrementalClassifier
from cscct.classifier.changes import forget_classes
from cscct.classifier.serve import create_app
from cscct.classifier.store import ModelFolder
from cscct.errors import UserError
from serving import (  # noqa: F401
    BLUE,
    GREEN,
    HOME,
    RED,
    YELLOW,
    client_fixture,
    encoded,
    files,
    folder_fixture,
    original_fixture,
    stopping,
    wait_for,
)


def stage(client: TestClient, label: str, *contents: bytes) -> list[dict[str, Any]]:
    done = client.post("/api/staged", data={"label": label}, files=files(*contents))
    assert done.status_code == 201, done.text
    return done.json()["staged"]


def learn(client: TestClient) -> dict[str, Any]:
    assert client.post("/api/learn").status_code == 202
    wait_for(lambda: client.get("/api/job").json()["state"] != "running")
    return client.get("/api/job").json()


def best(client: TestClient, content: bytes) -> str:
    done = client.post("/api/classify", files=files(content))
    assert done.status_code == 200, done.text
    return done.json()["answers"][0]["predictions"][0]["label"]


def test_the_model_is_described(client: TestClient) -> None:
    model = client.get("/api/model").json()
    assert (model["name"], model["version"], model["trouble"]) == ("colours", 2, None)
    assert [(one["name"], one["images"], one["exemplars"]) for one in model["classes"]] == [
        ("green", 6, 3),
        ("red", 6, 3),
        ("blue", 6, 3),
    ]
    assert all(one["count"] == 6 for one in model["classes"])
    assert [(one["number"], one["current"], one["message"]) for one in model["versions"]] == [
        (2, True, "blue"),
        (1, False, "red and green"),
    ]
    assert model["report"]["new"] == ["blue"]


def test_images_are_classified(client: TestClient) -> None:
    sent = files(encoded(RED, 50), encoded(BLUE, 51, "JPEG"), name="../some where/x.png")
    found = client.post("/api/classify?top=2", files=sent).json()
    assert found["version"] == 2
    assert [one["predictions"][0]["label"] for one in found["answers"]] == ["red", "blue"]
    assert [one["filename"] for one in found["answers"]] == ["x.png", "x.png"]
    for one in found["answers"]:
        scores = [prediction["score"] for prediction in one["predictions"]]
        assert len(scores) == 2
        assert 1 >= scores[0] >= scores[1] >= 0
        assert isinstance(one["unknown"], bool)


def test_a_class_is_added_and_undone(client: TestClient, folder: Path) -> None:
    path_like = "../../yellow"
    staged = stage(client, f" {path_like} ", *(encoded(YELLOW, seed) for seed in range(5)))
    extra = stage(client, "red", encoded(RED, 60))
    assert {one["label"] for one in staged} == {path_like}
    thumbnail = client.get(f"/api/staged/{staged[0]['id']}/thumbnail")
    assert Image.open(io.BytesIO(thumbnail.content)).format == "JPEG"
    assert client.get(f"/api/staged/{extra[0]['id']}").json()["label"] == "red"
    assert client.delete(f"/api/staged/{extra[0]['id']}").status_code == 204
    assert client.delete(f"/api/staged/{extra[0]['id']}").status_code == 404
    job = learn(client)
    assert (job["state"], job["error"], job["version"]) == ("done", None, 3)
    assert client.get("/api/staged").json() == {"staged": []}
    model = client.get("/api/model").json()
    assert model["report"]["new"] == [path_like]
    assert "../../yellow (5)" in model["versions"][0]["message"]
    assert best(client, encoded(YELLOW, 70)) == path_like
    assert [one["name"] for one in client.get("/api/map").json()["classes"]][-1] == path_like
    assert {one.name for one in folder.parent.iterdir()} == {folder.name}

    assert client.post("/api/undo").json()["version"] == 2
    assert best(client, encoded(YELLOW, 70)) != path_like
    assert client.post("/api/restore", json={"version": 3}).json()["version"] == 3
    assert client.post("/api/restore", json={"version": 9}).status_code == 404
    assert client.post("/api/restore", json={"version": 1}).json()["version"] == 1
    nothing = client.post("/api/undo")
    assert nothing.status_code == 409
    assert "no earlier version" in nothing.json()["detail"]


def test_a_class_is_forgotten_and_brought_back(client: TestClient, folder: Path) -> None:
    model = client.post("/api/forget", json={"classes": ["blue"]}).json()
    assert (model["version"], [one["name"] for one in model["classes"]]) == (3, ["green", "red"])
    assert model["versions"][0]["message"] == "1 class forgotten"
    assert model["report"]["forgotten"] == ["blue"]
    assert best(client, encoded(BLUE, 80)) != "blue"
    assert IncrementalClassifier.load(folder).class_names == ("green", "red")
    assert client.post("/api/undo").json()["version"] == 2
    assert best(client, encoded(BLUE, 80)) == "blue"
    everything = client.post("/api/forget", json={"classes": ["red", "green", "blue"]}).json()
    assert (everything["version"], everything["classes"]) == (4, [])


def test_a_class_is_renamed_with_what_waits_for_it(client: TestClient, folder: Path) -> None:
    before = client.get("/api/model").json()["classes"]
    stage(client, "red", encoded(RED, 60))
    stage(client, "yellow", encoded(YELLOW, 60))
    model = client.post("/api/rename", json={"old": "red", "new": " scarlet "}).json()
    assert model["version"] == 3
    assert model["classes"] == [{**one, "name": "scarlet" if one["name"] == "red" else one["name"]} for one in before]
    assert [one["label"] for one in client.get("/api/staged").json()["staged"]] == ["scarlet", "yellow"]
    stored = [json.loads(file.read_text())["label"] for file in (folder / "staging").glob("*.json")]
    assert sorted(stored) == ["scarlet", "yellow"]
    assert best(client, encoded(RED, 80)) == "scarlet"
    assert client.post("/api/undo").json()["version"] == 2
    assert best(client, encoded(RED, 80)) == "red"


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("forget", {"classes": ["rad"]}, 404, "Did you mean 'red'?"),
        ("forget", {"classes": []}, 422, "not valid"),
        ("forget", {"classes": ["red", ""]}, 422, "not valid"),
        ("forget", {"classes": "red"}, 422, "not valid"),
        ("rename", {"old": "rad", "new": "x"}, 404, "Did you mean 'red'?"),
        ("rename", {"old": "red", "new": "  "}, 422, "no name"),
        ("rename", {"old": "red", "new": "a\nb"}, 422, "one line"),
        ("rename", {"old": "red", "new": "x" * 101}, 422, "at most 100 characters"),
        ("rename", {"old": "red", "new": "blue"}, 409, "Two classes would be called 'blue'"),
        ("rename", {"old": "red", "new": "red"}, 409, "is called so already"),
        ("rename", {"old": "red"}, 422, "new"),
        ("rename", {"old": "red", "new": "x" * 200_000}, 413, "larger than"),
    ],
)
def test_changes_that_cannot_be_made_are_refused(
    client: TestClient, path: str, body: dict[str, Any], status: int, told: str
) -> None:
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == status
    assert told in answer.json()["detail"]
    assert client.get("/api/model").json()["version"] == 2


def test_a_version_from_elsewhere_is_noticed(client: TestClient, folder: Path) -> None:
    assert best(client, encoded(BLUE, 80)) == "blue"
    ModelFolder(folder).undo()
    assert best(client, encoded(BLUE, 80)) != "blue"
    (folder / "model.json").write_text("{")
    assert best(client, encoded(GREEN, 80)) == "green"  # from the last that could be read
    assert "damaged" in client.get("/api/model").json()["trouble"]


def test_a_killed_learning_step_changes_nothing(
    client: TestClient, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And while it runs, answers come from the last version and nothing else can be changed."""
    variables, mark = stopping(tmp_path / "stopping")
    monkeypatch.setenv("PYTHONPATH", variables["PYTHONPATH"])
    staged = stage(client, "yellow", encoded(YELLOW), encoded(YELLOW, 1))
    assert client.post("/api/learn").status_code == 202
    wait_for(mark.exists)
    assert client.get("/api/job").json()["state"] == "running"
    assert best(client, encoded(BLUE, 80)) == "blue"
    for method, path in [
        ("POST", "learn"),
        ("POST", "undo"),
        ("DELETE", f"staged/{staged[0]['id']}"),
        ("DELETE", "staged"),
    ]:
        assert client.request(method, f"/api/{path}").status_code == 409, path
    assert client.post("/api/forget", json={"classes": ["red"]}).status_code == 409
    assert client.post("/api/rename", json={"old": "red", "new": "scarlet"}).status_code == 409
    os.kill(int(mark.read_text()), signal.SIGKILL)
    wait_for(lambda: client.get("/api/job").json()["state"] == "failed")
    assert "signal 9" in client.get("/api/job").json()["error"]
    assert client.get("/api/staged").json()["staged"] == staged
    assert client.get("/api/model").json()["version"] == 2
    assert client.post("/api/learn").status_code == 202  # nothing is left locked
    assert client.delete("/api/job").status_code == 204
    assert client.get("/api/job").json()["state"] == "failed"


def test_a_model_can_begin_with_nothing(tmp_path: Path) -> None:
    with TestClient(create_app(tmp_path / "new"), base_url=HOME) as client:
        model = client.get("/api/model").json()
        assert (model["version"], model["classes"], model["versions"], model["report"]) == (0, [], [], None)
        for method, path in [("GET", "map"), ("POST", "undo"), ("POST", "learn"), ("GET", "exemplars/0/0")]:
            assert client.request(method, f"/api/{path}").status_code == 409, path
        refused = client.post("/api/classify", files=files(encoded(RED)))
        assert refused.status_code == 409
        assert "no classes" in refused.json()["detail"]
        stage(client, "red", encoded(RED))


def test_a_model_without_classes_is_told_as_such(client: TestClient, folder: Path) -> None:
    forget_classes(folder, ["red", "green", "blue"])
    model = client.get("/api/model").json()
    assert (model["version"], model["classes"]) == (3, [])
    for answer in (client.get("/api/map"), client.post("/api/classify", files=files(encoded(RED)))):
        assert (answer.status_code, "no classes" in answer.json()["detail"]) == (409, True)


def test_exemplars_are_served(client: TestClient) -> None:
    found = client.get("/api/exemplars/2/0")
    assert found.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(found.content)).size == (24, 20)
    for path in ("3/0", "2/3"):
        assert client.get(f"/api/exemplars/{path}").status_code == 404
    assert client.get("/api/exemplars/-1/0").status_code == 422


def test_two_servers_do_not_share_a_folder(client: TestClient, folder: Path) -> None:
    with (
        pytest.raises(UserError, match="is served already by process"),
        TestClient(create_app(folder), base_url=HOME),
    ):
        pass


@pytest.mark.parametrize("path", ["/api/staged", "/api/classify"])
def test_a_form_needs_images(client: TestClient, path: str) -> None:
    assert client.post(path, data={"label": "red"}).status_code == 415
    assert client.post(path, files={"images": (None, "text")}).status_code == 422
    assert client.post(path, files={"other": ("x.png", encoded(RED))}).status_code == 422
    damaged = client.post(path, content=b"--x\r\nwhat", headers={"content-type": "multipart/form-data; boundary=x"})
    assert damaged.status_code in (400, 422)
    assert client.post(path, content=b"", headers={"content-type": "multipart/form-data"}).status_code == 400
