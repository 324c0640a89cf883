"""The JSON API."""

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


def test_model_info(client: TestClient) -> None:
    model = client.get("/api/model").json()
    assert (model["name"], model["version"], model["trouble"]) == ("colours", 2, None)
    assert [(entry["name"], entry["images"], entry["exemplars"]) for entry in model["classes"]] == [
        ("green", 6, 3),
        ("red", 6, 3),
        ("blue", 6, 3),
    ]
    assert all(entry["count"] == 6 for entry in model["classes"])
    assert [(entry["number"], entry["current"], entry["message"]) for entry in model["versions"]] == [
        (2, True, "blue"),
        (1, False, "red and green"),
    ]
    assert model["report"]["new"] == ["blue"]


def test_classify(client: TestClient) -> None:
    upload = files(encoded(RED, 50), encoded(BLUE, 51, "JPEG"), name="../some where/x.png")
    result = client.post("/api/classify?top=2", files=upload).json()
    assert result["version"] == 2
    assert [answer["predictions"][0]["label"] for answer in result["answers"]] == ["red", "blue"]
    assert [answer["filename"] for answer in result["answers"]] == ["x.png", "x.png"]
    for answer in result["answers"]:
        scores = [prediction["score"] for prediction in answer["predictions"]]
        assert len(scores) == 2
        assert 1 >= scores[0] >= scores[1] >= 0
        assert (answer["unknown"], answer["unknown_score"]) == (False, None)  # there are fewer than 20 photos


def test_learn_and_undo(client: TestClient, folder: Path) -> None:
    path_like = "../../yellow"
    staged = stage(client, f" {path_like} ", *(encoded(YELLOW, seed) for seed in range(5)))
    extra = stage(client, "red", encoded(RED, 60))
    assert {photo["label"] for photo in staged} == {path_like}
    thumbnail = client.get(f"/api/staged/{staged[0]['id']}/thumbnail")
    assert Image.open(io.BytesIO(thumbnail.content)).format == "JPEG"
    assert client.get(f"/api/staged/{extra[0]['id']}").json()["label"] == "red"
    assert client.delete(f"/api/staged/{extra[0]['id']}").status_code == 204
    assert client.delete(f"/api/staged/{extra[0]['id']}").status_code == 404
    job = learn(client)
    assert (job["state"], job["error"], job["version"]) == ("done", None, 3)
    assert client.get("/api/staged").json()["staged"] == []
    model = client.get("/api/model").json()
    assert model["report"]["new"] == [path_like]
    assert "../../yellow (5)" in model["versions"][0]["message"]
    assert best(client, encoded(YELLOW, 70)) == path_like
    assert [entry["name"] for entry in client.get("/api/map").json()["classes"]][-1] == path_like
    assert {path.name for path in folder.parent.iterdir()} == {folder.name}

    assert client.post("/api/undo").json()["version"] == 2
    assert best(client, encoded(YELLOW, 70)) != path_like
    assert client.post("/api/restore", json={"version": 3}).json()["version"] == 3
    assert client.post("/api/restore", json={"version": 9}).status_code == 404
    assert client.post("/api/restore", json={"version": 1}).json()["version"] == 1
    response = client.post("/api/undo")
    assert response.status_code == 409
    assert "no earlier version" in response.json()["detail"]


def test_forget_and_undo(client: TestClient, folder: Path) -> None:
    model = client.post("/api/forget", json={"classes": ["blue"]}).json()
    assert (model["version"], [entry["name"] for entry in model["classes"]]) == (3, ["green", "red"])
    assert model["versions"][0]["message"] == "1 class forgotten"
    assert model["report"]["forgotten"] == ["blue"]
    assert best(client, encoded(BLUE, 80)) != "blue"
    assert IncrementalClassifier.load(folder).class_names == ("green", "red")
    assert client.post("/api/undo").json()["version"] == 2
    assert best(client, encoded(BLUE, 80)) == "blue"
    everything = client.post("/api/forget", json={"classes": ["red", "green", "blue"]}).json()
    assert (everything["version"], everything["classes"]) == (4, [])


def test_rename_relabels_staged_photos(client: TestClient, folder: Path) -> None:
    before = client.get("/api/model").json()["classes"]
    stage(client, "red", encoded(RED, 60))
    stage(client, "yellow", encoded(YELLOW, 60))
    model = client.post("/api/rename", json={"old": "red", "new": " scarlet "}).json()
    assert model["version"] == 3
    assert model["classes"] == [{**old, "name": "scarlet" if old["name"] == "red" else old["name"]} for old in before]
    assert [photo["label"] for photo in client.get("/api/staged").json()["staged"]] == ["scarlet", "yellow"]
    stored = [json.loads(file.read_text())["label"] for file in (folder / "staging").glob("*.json")]
    assert sorted(stored) == ["scarlet", "yellow"]
    assert best(client, encoded(RED, 80)) == "scarlet"
    assert client.post("/api/undo").json()["version"] == 2
    assert best(client, encoded(RED, 80)) == "red"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("forget", {"classes": ["rad"]}, 404, "Did you mean 'red'?"),
        ("forget", {"classes": []}, 422, "Invalid request"),
        ("forget", {"classes": ["red", ""]}, 422, "Invalid request"),
        ("forget", {"classes": "red"}, 422, "Invalid request"),
        ("rename", {"old": "rad", "new": "x"}, 404, "Did you mean 'red'?"),
        ("rename", {"old": "red", "new": "  "}, 422, "name is empty"),
        ("rename", {"old": "red", "new": "a\nb"}, 422, "single line"),
        ("rename", {"old": "red", "new": "x" * 101}, 422, "at most 100 are allowed"),
        ("rename", {"old": "red", "new": "blue"}, 409, "Two classes would have the name 'blue'"),
        ("rename", {"old": "red", "new": "red"}, 409, "already has this name"),
        ("rename", {"old": "red"}, 422, "new"),
        ("rename", {"old": "red", "new": "x" * 200_000}, 413, "larger than"),
    ],
)
def test_invalid_changes_are_rejected(
    client: TestClient, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == status
    assert message in answer.json()["detail"]
    assert client.get("/api/model").json()["version"] == 2


def test_version_of_another_process_is_loaded(client: TestClient, folder: Path) -> None:
    assert best(client, encoded(BLUE, 80)) == "blue"
    ModelFolder(folder).undo()
    assert best(client, encoded(BLUE, 80)) != "blue"
    (folder / "model.json").write_text("{")
    assert best(client, encoded(GREEN, 80)) == "green"  # predicted by the last readable version
    assert "damaged" in client.get("/api/model").json()["trouble"]


def test_killed_learning_step_changes_nothing(
    client: TestClient, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it runs, the last version is used and other changes are rejected."""
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
    assert client.post("/api/learn").status_code == 202  # no lock is left
    assert client.delete("/api/job").status_code == 204
    assert client.get("/api/job").json()["state"] == "failed"


def test_new_model(tmp_path: Path) -> None:
    with TestClient(create_app(tmp_path / "new"), base_url=HOME) as client:
        model = client.get("/api/model").json()
        assert (model["version"], model["classes"], model["versions"], model["report"]) == (0, [], [], None)
        for method, path in [("GET", "map"), ("POST", "undo"), ("POST", "learn"), ("GET", "exemplars/0/0")]:
            assert client.request(method, f"/api/{path}").status_code == 409, path
        refused = client.post("/api/classify", files=files(encoded(RED)))
        assert refused.status_code == 409
        assert "no classes" in refused.json()["detail"]
        stage(client, "red", encoded(RED))


def test_exemplars(client: TestClient) -> None:
    response = client.get("/api/exemplars/2/0")
    assert response.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(response.content)).size == (24, 20)
    for path in ("3/0", "2/3"):
        assert client.get(f"/api/exemplars/{path}").status_code == 404
    assert client.get("/api/exemplars/-1/0").status_code == 422


def test_second_server_of_a_folder_is_rejected(client: TestClient, folder: Path) -> None:
    with (
        pytest.raises(UserError, match="is already served by process"),
        TestClient(create_app(folder), base_url=HOME),
    ):
        pass
