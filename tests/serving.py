"""A small model in a folder, photographs of plain colours as files, and servers for it."""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient
from PIL import Image

from cscct import IncrementalClassifier
from cscct.classifier.serve import Limits, create_app
from cscct.classifier.store import ModelFolder
from small_models import pictures

RED, GREEN, BLUE, YELLOW = (200, 50, 50), (50, 200, 50), (50, 50, 200), (210, 200, 40)
HOME = "http://127.0.0.1"  # what a test client calls itself


def make_model(folder: Path) -> Path:
    """Two versions: red and green, then blue too."""
    model = IncrementalClassifier("lucir-resnet", predictor="ncm", image_size=32, memory_per_class=3, device="cpu")
    model.learn([*pictures(RED, 6), *pictures(GREEN, 6, 1)], ["red"] * 6 + ["green"] * 6)
    ModelFolder(folder).commit(model, "red and green")
    model.learn(pictures(BLUE, 6, 2), "blue")
    ModelFolder(folder).commit(model, "blue")
    return folder


@pytest.fixture(scope="module", name="original")
def original_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("serving") / "colours")


@pytest.fixture(name="folder")
def folder_fixture(original: Path, tmp_path: Path) -> Path:
    """A model of its own for each test."""
    return Path(shutil.copytree(original, tmp_path / "colours"))


@pytest.fixture(name="client")
def client_fixture(folder: Path) -> Iterator[TestClient]:
    with TestClient(create_app(folder), base_url=HOME) as client:
        yield client


def encoded(colour: tuple[int, int, int], seed: int = 0, kind: str = "PNG") -> bytes:
    """A photograph as a file."""
    file = io.BytesIO()
    Image.fromarray(pictures(colour, 1, seed)[0]).save(file, kind)
    return file.getvalue()


def files(*contents: bytes, name: str = "photograph.png") -> list[tuple[str, tuple[str, bytes, str]]]:
    """The files of a request."""
    return [("images", (name, content, "image/png")) for content in contents]


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """What the condition gives, as soon as it is true. The time only ends what hangs."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.05)
    return found


@contextmanager
def serving(folder: Path, limits: Limits | None = None, token: str | None = None) -> Iterator[str]:
    """A real server in a thread; its address."""
    config = uvicorn.Config(create_app(folder, limits, token), log_level="critical", lifespan="on")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        wait_for(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)


# What a process of Python does first: a learning step stops just before its version would count, and leaves its id.
STOPPING = """
import os, sys, time
if any("serve.job" in word for word in sys.orig_argv):
    from cscct.classifier.store import ModelFolder

    def wait(self, *arguments):
        with open({mark!r} + ".part", "w") as file:
            file.write(str(os.getpid()))
        os.replace({mark!r} + ".part", {mark!r})
        time.sleep(600)

    ModelFolder._point = wait
"""


def stopping(folder: Path) -> tuple[dict[str, str], Path]:
    """Variables with which learning steps stop just before the end, and the file that then holds the process id."""
    folder.mkdir()
    mark = folder / "mark"
    (folder / "sitecustomize.py").write_text(STOPPING.format(mark=str(mark)))
    source = str(Path(__file__).parents[1] / "src")
    return {"PYTHONPATH": os.pathsep.join([str(folder), source, os.environ.get("PYTHONPATH", "")])}, mark


START = "import sys; from cscct.classifier.serve import run; run(sys.argv[1], port=0)"


@contextmanager
def server_process(folder: Path, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    command = [sys.executable, "-c", START, str(folder)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            address = next(word for word in line.split() if word.startswith("http"))
            yield process, address.rstrip("/")
        finally:
            process.kill()


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")
