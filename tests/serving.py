"""Test fixtures: a small model folder, images of plain colours, and servers."""

import io
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import uvicorn
from fastapi.testclient import TestClient
from PIL import Image

from cscct import IncrementalClassifier
from cscct.classifier.serve import Limits, create_app
from cscct.classifier.serve.connections import server_config
from cscct.classifier.serve.queue import QueuedPhoto
from cscct.classifier.store import ModelFolder
from small_models import pictures

RED, GREEN, BLUE, YELLOW = (200, 50, 50), (50, 200, 50), (50, 50, 200), (210, 200, 40)
HOME = "http://127.0.0.1"  # base URL of test clients


def make_model(folder: Path) -> Path:
    """Create a model with two versions: red and green, then also blue."""
    model = IncrementalClassifier("lucir-resnet", method="ncm", image_size=32, memory_per_class=3, device="cpu")
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
    """Copy of the model for each test."""
    return Path(shutil.copytree(original, tmp_path / "colours"))


@pytest.fixture(name="client")
def client_fixture(folder: Path) -> Iterator[TestClient]:
    with TestClient(create_app(folder), base_url=HOME) as client:
        yield client


def encoded(colour: tuple[int, int, int], seed: int = 0, kind: str = "PNG") -> bytes:
    """Return an encoded image."""
    file = io.BytesIO()
    Image.fromarray(pictures(colour, 1, seed)[0]).save(file, kind)
    return file.getvalue()


def files(*contents: bytes, name: str = "photo.png") -> list[tuple[str, tuple[str, bytes, str]]]:
    """Return the files of a request."""
    return [("images", (name, content, "image/png")) for content in contents]


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait until a condition returns a true value, and return it. The timeout is an upper bound for hanging tests."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, "timeout"
        time.sleep(0.05)
    return result


@contextmanager
def serving(
    folder: Path, limits: Limits | None = None, token: str | None = None, queue: Sequence[QueuedPhoto] = ()
) -> Iterator[str]:
    """Run a server in a thread. Yields its URL."""
    limits = limits or Limits()
    config = server_config(create_app(folder, limits, token, queue=queue), limits, lifespan="on")
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


# sitecustomize.py of subprocesses: learning steps block before the commit takes effect, and write their process id.
STOPPING = """
import os, sys, time
if any("serve.job" in argument for argument in sys.orig_argv):
    from cscct.classifier.store import ModelFolder

    def wait(self, *arguments):
        with open({mark!r} + ".part", "w") as file:
            file.write(str(os.getpid()))
        os.replace({mark!r} + ".part", {mark!r})
        time.sleep(600)

    ModelFolder._point = wait
"""


def stopping(folder: Path) -> tuple[dict[str, str], Path]:
    """Return environment variables that block learning steps before their commit, and the file of the process id."""
    folder.mkdir()
    mark = folder / "mark"
    (folder / "sitecustomize.py").write_text(STOPPING.format(mark=str(mark)))
    source = str(Path(__file__).parents[1] / "src")
    return {"PYTHONPATH": os.pathsep.join([str(folder), source, os.environ.get("PYTHONPATH", "")])}, mark


START = "import sys; from cscct.classifier.serve import run; run(sys.argv[1], port=0)"


@contextmanager
def server_process(
    folder: Path, stderr: IO[str] | None = None, **env: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a server in a subprocess, which may write its log to a file. Yields the process and the URL."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    command = [sys.executable, "-c", START, str(folder)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            line = process.stdout.readline()
            address = next(part for part in line.split() if part.startswith("http"))
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
