"""Downloads from a local server, without a network."""

import hashlib
import io
import json
import pickle
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cscct.data import registry as sources
from cscct.data.datasets import cifar
from cscct.data.fetch import CIFAR_URL, check, fetch
from cscct.errors import UserError


def no_warning(text: str) -> None:
    raise AssertionError(f"unexpected warning: {text}")


class Server:
    """Answers each request with `data`, of which only `cut` bytes arrive; counts the requests."""

    def __init__(self, data: bytes) -> None:
        self.data, self.cut, self.status, self.requests = data, len(data), 200, 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests += 1
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.data)))
                self.end_headers()
                self.wfile.write(outer.data[: outer.cut])

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture(autouse=True)
def straight_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bypass the proxy of this machine."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """CIFAR-100 with two classes of two training images and one test image."""
    files: dict[str, dict[str, Any]] = {"meta": {"fine_label_names": ["apple", "bear"]}}
    for part, count in (("train", 2), ("test", 1)):
        pixels = np.zeros((2 * count, 3072), dtype=np.uint8)
        files[part] = {"data": pixels, "fine_labels": [0, 1] * count}
    packed = {name: pickle.dumps(content, protocol=2) for name, content in files.items()}
    md5 = {name: hashlib.md5(data).hexdigest() for name, data in packed.items()}
    monkeypatch.setattr(cifar, "CIFAR100", cifar._Layout(2, {"train": 2, "test": 1}, md5))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in packed.items():
            info = tarfile.TarInfo(f"cifar-100-python/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def server(archive: bytes) -> Iterator[Server]:
    server = Server(archive)
    yield server
    server.close()


def get(server: Server, folder: Path, progressbar: bool = False) -> Path:
    md5 = hashlib.md5(server.data).hexdigest()
    return fetch("cifar100", folder, progressbar, no_warning, base_url=server.url, md5=md5)


def test_the_published_address() -> None:
    assert CIFAR_URL == "https://www.cs.toronto.edu/~kriz"
    assert cifar.CIFAR100.archive_md5 == "eb9058c3a382ffc7106e4002c42a8d85"


@pytest.mark.parametrize("progressbar", [False, True])
def test_fetch_then_load(server: Server, tmp_path: Path, progressbar: bool, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "place"
    path = get(server, folder, progressbar)
    assert path == folder / "cifar-100-python.tar.gz"
    assert path.read_bytes() == server.data
    assert list(folder.iterdir()) == [path]
    out, err = capfd.readouterr()
    assert out == ""
    assert bool(err) == (progressbar and find_spec("tqdm") is not None)
    request = sources.LoadRequest(folder, skip_bad_images=False, test_fraction=0.2, seed=1, warn=no_warning)
    assert sources.load("cifar100", request).class_names == ("apple", "bear")


def test_default_folder(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSCCT_DATA", str(tmp_path))
    md5 = hashlib.md5(server.data).hexdigest()
    path = fetch("cifar100", None, False, no_warning, base_url=server.url, md5=md5)
    assert path == tmp_path / "cifar-100-python.tar.gz"


def test_only_wrong_files_are_fetched_again(server: Server, tmp_path: Path) -> None:
    path = get(server, tmp_path)
    get(server, tmp_path)
    assert server.requests == 1
    path.write_bytes(b"half a file")
    get(server, tmp_path)
    assert server.requests == 2
    assert path.read_bytes() == server.data


def test_incomplete_download(server: Server, tmp_path: Path) -> None:
    server.cut = len(server.data) // 2
    with pytest.raises(UserError, match=r"download of .* failed: .*save it as .*cifar-100-python.tar.gz"):
        get(server, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_wrong_checksum(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not have the published checksum"):
        fetch("cifar100", tmp_path, False, no_warning, base_url=server.url)
    assert list(tmp_path.iterdir()) == []


def test_http_error(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(UserError, match="failed: the server answered 404 Not Found"):
        get(server, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_server(server: Server, tmp_path: Path) -> None:
    server.close()
    with pytest.raises(UserError, match="failed: the server cannot be reached"):
        get(server, tmp_path)


def test_folder_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"file/sub/cifar-100-python.tar.gz cannot be written"):
        get(server, tmp_path / "file" / "sub")


def test_fetched_file_must_load(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "CIFAR100", cifar._Layout(3, {"train": 2, "test": 1}, cifar.CIFAR100.md5))
    with pytest.raises(UserError, match="does not contain CIFAR-100"):
        get(server, tmp_path)


def test_warning_about_extracted_files(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test", "meta"):
        (folder / name).write_bytes(b"damaged")
    warnings: list[str] = []
    md5 = hashlib.md5(server.data).hexdigest()
    fetch("cifar100", tmp_path, False, warnings.append, base_url=server.url, md5=md5)
    assert len(warnings) == 1
    assert f"The extracted files in {folder} are used before the archive" in warnings[0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digits", "part of scikit-learn"),
        ("folder", "your own images"),
        ("imagenet-subset", "licence.*`cscct data check imagenet-subset --data-dir DIR`"),
        ("cifar-100", "did you mean 'cifar100'"),
    ],
)
def test_datasets_without_download(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        fetch(name, tmp_path, False, no_warning)
    assert list(tmp_path.iterdir()) == []


def test_check_of_images_in_memory() -> None:
    request = sources.LoadRequest(None, skip_bad_images=False, test_fraction=0.2, seed=1, warn=no_warning)
    summary = check("digits", request)
    assert summary == {
        "name": "digits",
        "classes": 10,
        "train_images": 1442,
        "train_images_per_class": {"min": 140, "max": 147},
        "test_images": 355,
        "test_images_per_class": {"min": 34, "max": 36},
        "image_size": [1, 8, 8],
        "warnings": [],
    }
    json.dumps(summary)


def test_check_of_files_collects_warnings(tmp_path: Path) -> None:
    from PIL import Image

    for name, count in (("a", 2), ("b", 5)):
        (tmp_path / name).mkdir()
        for i in range(count):
            Image.new("RGB", (4, 4)).save(tmp_path / name / f"{i}.png")
    (tmp_path / "a" / "notes.txt").write_text("hello")
    request = sources.LoadRequest(tmp_path, skip_bad_images=True, test_fraction=0.2, seed=1, warn=no_warning)
    summary = check("folder", request)
    assert summary["train_images_per_class"] == {"min": 1, "max": 4}
    assert summary["image_size"] is None
    assert len(summary["warnings"]) == 1
    assert "a/notes.txt" in summary["warnings"][0]
