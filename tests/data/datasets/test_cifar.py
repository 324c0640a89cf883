"""A small CIFAR-100 with 4 classes, checked like the real files."""

import hashlib
import io
import os
import pickle
import tarfile
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cscct.data import registry as sources
from cscct.data.base import ArrayImages
from cscct.data.datasets import cifar
from cscct.errors import UserError

CLASSES = 4
PER_CLASS = {"train": 6, "test": 2}
NAMES = ["apple", "bear", "cup", "dog"]
REAL = os.environ.get("CSCCT_DATA")


def request(data_dir: Path | None, warnings: list[str] | None = None) -> sources.LoadRequest:
    def unexpected(text: str) -> None:
        raise AssertionError(f"unexpected warning: {text}")

    warn = unexpected if warnings is None else warnings.append
    return sources.LoadRequest(data_dir, skip_bad_images=False, test_fraction=0.2, seed=1, warn=warn)


def contents(per_class: dict[str, int] = PER_CLASS) -> dict[str, dict[Any, Any]]:
    rng = np.random.default_rng(0)
    made: dict[str, dict[Any, Any]] = {"meta": {"fine_label_names": list(NAMES)}}
    for part, count in per_class.items():
        labels = rng.permutation(np.repeat(np.arange(CLASSES), count)).tolist()
        pixels = rng.integers(0, 256, (CLASSES * count, 3072), dtype=np.uint8)
        made[part] = {"data": pixels, "fine_labels": labels, "filenames": ["x.png"] * len(labels)}
    return made


def dump_all(parts: dict[str, dict[Any, Any]], protocol: int = 2) -> dict[str, bytes]:
    return {name: pickle.dumps(content, protocol=protocol) for name, content in parts.items()}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def write_tar(path: Path, files: dict[str, bytes], prefix: str = "cifar-100-python/") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(prefix + name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def mini(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The three files of the small dataset, whose checksums replace the published ones."""
    files = dump_all(contents())
    md5 = {name: hashlib.md5(data).hexdigest() for name, data in files.items()}
    monkeypatch.setattr(cifar, "CIFAR100", cifar._Layout(CLASSES, PER_CLASS, md5))
    return files


def test_wrong_number_of_images(tmp_path: Path) -> None:
    write(tmp_path, dump_all(contents()))
    with pytest.raises(UserError, match=r"uint8 \(24, 3072\) instead of uint8 \(50000, 3072\)"):
        cifar.load_cifar100(request(tmp_path))


@pytest.mark.parametrize("parent", [True, False])
def test_pixels_labels_and_names(tmp_path: Path, mini: dict[str, bytes], parent: bool) -> None:
    folder = write(tmp_path / "cifar-100-python", mini)
    dataset = sources.load("cifar100", request(tmp_path if parent else folder))
    expected = contents()
    assert dataset.class_names == tuple(NAMES)
    assert dataset.channels == 3
    for split, part in ((dataset.train, "train"), (dataset.test, "test")):
        assert isinstance(split.images, ArrayImages)
        assert split.images.pixels.shape == (CLASSES * PER_CLASS[part], 3, 32, 32)
        np.testing.assert_array_equal(split.images.pixels.numpy().reshape(-1, 3072), expected[part]["data"])
        assert split.labels.dtype == np.int64
        assert split.labels.tolist() == expected[part]["fine_labels"]


def test_found_through_the_environment(tmp_path: Path, mini: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "cifar-100-python", mini)
    monkeypatch.setenv("CSCCT_DATA", str(tmp_path))
    assert len(cifar.load_cifar100(request(None)).train) == 24


def test_read_from_the_archive_without_extracting(tmp_path: Path, mini: dict[str, bytes]) -> None:
    write_tar(tmp_path / cifar.CIFAR100.archive, {"file.txt~": b"", "../train": b"evil", **mini})
    dataset = cifar.load_cifar100(request(tmp_path))
    assert dataset.train.labels.tolist() == contents()["train"]["fine_labels"]
    assert [path.name for path in tmp_path.iterdir()] == [cifar.CIFAR100.archive]


def test_archive_used_when_the_folder_is_incomplete(tmp_path: Path, mini: dict[str, bytes]) -> None:
    write(tmp_path / "cifar-100-python", {"train": mini["train"]})
    write_tar(tmp_path / cifar.CIFAR100.archive, mini)
    assert len(cifar.load_cifar100(request(tmp_path)).test) == 8


@pytest.mark.parametrize("kept", [10, 400, 0.5, 0.95])
def test_cut_archive(tmp_path: Path, mini: dict[str, bytes], kept: float) -> None:
    path = write_tar(tmp_path / cifar.CIFAR100.archive, mini)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if kept < 1 else int(kept)])
    with pytest.raises(UserError, match=r"cifar-100-python.tar.gz.*(broken|does not contain)"):
        cifar.load_cifar100(request(tmp_path))


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`cscct data fetch cifar100`") as caught:
        cifar.load_cifar100(request(tmp_path))
    assert str(tmp_path / "cifar-100-python") in str(caught.value)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_every_pickle_protocol_and_one_warning(tmp_path: Path, mini: dict[str, bytes], protocol: int) -> None:
    files = {name: data + b" " for name, data in dump_all(contents(), protocol).items()}
    write(tmp_path, files)
    warnings: list[str] = []
    dataset = cifar.load_cifar100(request(tmp_path, warnings))
    assert len(warnings) == 1
    assert "train, test, meta" in warnings[0]
    assert "The layout and the number of images per class are correct" in warnings[0]
    assert isinstance(dataset.train.images, ArrayImages)
    pixels = dataset.train.images.pixels
    np.testing.assert_array_equal(pixels.numpy().reshape(-1, 3072), contents()["train"]["data"])
    pixels[0, 0, 0, 0] = 7  # memory that may be written to, whatever the file held


def test_checksum_warning(tmp_path: Path, mini: dict[str, bytes]) -> None:
    made = contents()
    made["train"]["data"][0, 0] ^= 1
    files = dump_all(made)
    write(tmp_path, files)
    warnings: list[str] = []
    cifar.load_cifar100(request(tmp_path, warnings))
    (warning,) = warnings
    md5 = [hashlib.md5(version["train"]).hexdigest() for version in (files, mini)]
    assert f"(md5 of train: {md5[0]}, published: {md5[1]})" in warning
    assert "pixels, labels or names may differ" in warning


def test_bytes_keys_array_labels_and_fortran_pixels(tmp_path: Path, mini: dict[str, bytes]) -> None:
    made = contents()
    made["train"]["fine_labels"] = np.array(made["train"]["fine_labels"], dtype=">i4")
    made["test"]["fine_labels"] = list(np.array(made["test"]["fine_labels"]))  # numpy scalars
    made["train"]["data"] = np.asfortranarray(made["train"]["data"])
    made["meta"]["fine_label_names"] = [name.encode() for name in NAMES]
    write(tmp_path, dump_all({k: {key.encode(): v for key, v in c.items()} for k, c in made.items()}))
    dataset = cifar.load_cifar100(request(tmp_path, []))
    assert dataset.class_names == tuple(NAMES)
    assert dataset.train.labels.tolist() == contents()["train"]["fine_labels"]
    assert dataset.test.labels.tolist() == contents()["test"]["fine_labels"]
    assert isinstance(dataset.train.images, ArrayImages)
    np.testing.assert_array_equal(dataset.train.images.pixels.numpy().reshape(-1, 3072), contents()["train"]["data"])


class Bomb:
    def __init__(self, call: Any, *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> Any:
        return self.call, self.args


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("part", ["train", "test", "meta"])
def test_a_pickle_that_runs_a_command_is_refused(
    tmp_path: Path, mini: dict[str, bytes], part: str, protocol: int
) -> None:
    trace = tmp_path / "was-here"
    bomb = pickle.dumps({"data": Bomb(os.system, f"touch {trace}")}, protocol=protocol)
    write(tmp_path, mini | {part: bomb})
    with pytest.raises(UserError, match=rf"{part} tries to build `(posix|nt)\.system` and is refused") as caught:
        cifar.load_cifar100(request(tmp_path))
    assert "cscct data fetch cifar100" in str(caught.value)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (eval, "eval"),
        (getattr, "getattr"),
        (np.load, "numpy.load"),
        (np.frombuffer, "frombuffer"),
        (bytearray, "bytearray"),
    ],
)
def test_other_names_are_refused(tmp_path: Path, mini: dict[str, bytes], call: Any, name: str) -> None:
    write(tmp_path, mini | {"train": pickle.dumps(Bomb(call, "1"))})
    with pytest.raises(UserError, match=f"tries to build `.*{name}`"):
        cifar.load_cifar100(request(tmp_path))


def test_bomb_inside_the_archive(tmp_path: Path, mini: dict[str, bytes]) -> None:
    trace = tmp_path / "was-here"
    write_tar(tmp_path / cifar.CIFAR100.archive, mini | {"meta": pickle.dumps(Bomb(os.mkdir, str(trace)))})
    with pytest.raises(UserError, match=r"meta in .*tar.gz tries to build `(posix|nt)\.mkdir`"):
        cifar.load_cifar100(request(tmp_path))
    assert not trace.exists()


@pytest.mark.parametrize("array", [np.array([1, "a"], dtype=object), np.zeros(2, dtype="i4,O")])
def test_arrays_of_objects_are_refused(tmp_path: Path, mini: dict[str, bytes], array: Any) -> None:
    write(tmp_path, mini | {"train": pickle.dumps({"data": array}, protocol=2)})
    with pytest.raises(UserError, match=r"holds an array of type '[OV]\d+' .*refused"):
        cifar.load_cifar100(request(tmp_path))


@pytest.mark.parametrize("part", ["train", "meta"])
@pytest.mark.parametrize("kept", [0, 1, 30, 0.3, 0.999])
def test_cut_pickle_names_the_file(tmp_path: Path, mini: dict[str, bytes], part: str, kept: float) -> None:
    length = int(kept) if kept >= 1 else int(kept * len(mini[part]))
    write(tmp_path, mini | {part: mini[part][:length]})
    with pytest.raises(UserError, match=rf"{tmp_path.name}/{part} is broken or incomplete .*cscct data fetch"):
        cifar.load_cifar100(request(tmp_path))


@pytest.mark.parametrize("junk", [b"hello\n", b"\x80\x02]q\x00.", b"\x80\x05\x8e" + b"\xff" * 7 + b"\x7f."])
def test_junk_instead_of_a_pickle(tmp_path: Path, mini: dict[str, bytes], junk: bytes) -> None:
    write(tmp_path, mini | {"train": junk})
    with pytest.raises(UserError, match=r"train (is broken|does not contain CIFAR-100: it is not a dictionary)"):
        cifar.load_cifar100(request(tmp_path))


def _one_label_moved(made: dict[str, Any]) -> None:
    labels = made["train"]["fine_labels"]
    labels[labels.index(1)] = 2


WRONG: dict[str, Callable[[dict[str, Any]], object]] = {
    r"class 1 has 5 images instead of 6": _one_label_moved,
    r"uint8 \(23, 3072\) instead of uint8 \(24": lambda m: m["train"].update(data=m["train"]["data"][1:]),
    r"float32 \(24, 3072\)": lambda m: m["train"].update(data=m["train"]["data"].astype("f4")),
    r"no array of pixels": lambda m: m["train"].update(data=m["train"]["data"].tolist()),
    r"it has 23 labels for 24 images": lambda m: m["train"]["fine_labels"].pop(),
    r"labels outside 0 to 3": lambda m: m["train"]["fine_labels"].__setitem__(0, -1),
    r"no list of integers": lambda m: m["train"]["fine_labels"].__setitem__(0, 1.0),
    r"test does not contain .*'fine_labels'": lambda m: m["test"].pop("fine_labels"),
    r"3 different class names instead of 4": lambda m: m["meta"]["fine_label_names"].__setitem__(0, "dog"),
    r"no list of names": lambda m: m["meta"].pop("fine_label_names"),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_content(tmp_path: Path, mini: dict[str, bytes], message: str) -> None:
    made = contents()
    WRONG[message](made)
    write(tmp_path, dump_all(made))
    with pytest.raises(UserError, match=message) as caught:
        cifar.load_cifar100(request(tmp_path, []))
    assert "cscct data fetch cifar100" in str(caught.value)


@pytest.mark.parametrize("from_archive", [False, True])
def test_memory_holds_pixels_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_archive: bool) -> None:
    """Files as Python 2 wrote them, like the published ones: pixels as a string of bytes."""
    per_class = {"train": 400, "test": 100}
    monkeypatch.setattr(cifar, "CIFAR100", cifar._Layout(CLASSES, per_class, dict.fromkeys(PER_CLASS, "")))
    cifar.CIFAR100.md5["meta"] = ""
    files = dump_all(contents(per_class), protocol=3)
    if from_archive:
        write_tar(tmp_path / cifar.CIFAR100.archive, files)
    else:
        write(tmp_path, files)
    del files
    size = 3072 * CLASSES * 500
    tracemalloc.start()
    try:
        dataset = cifar.load_cifar100(request(tmp_path, []))
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(dataset.train) == 1600
    assert held > size  # tracemalloc does see the pixels
    assert peak < 1.25 * size


@pytest.mark.parametrize("from_archive", [False, True])
def test_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_archive: bool) -> None:
    """Training images in five files, in which classes are not balanced."""
    made = contents({"train": 10, "test": 2})
    pixels, labels = made["train"]["data"], made["train"]["fine_labels"]
    parts: dict[str, dict[Any, Any]] = {"batches.meta": {"label_names": list(NAMES)}}
    for number in range(5):
        rows = slice(8 * number, 8 * number + 8)
        parts[f"data_batch_{number + 1}"] = {"data": pixels[rows], "labels": labels[rows]}
    parts["test_batch"] = {"data": made["test"]["data"], "labels": made["test"]["fine_labels"]}
    files = dump_all(dict(reversed(parts.items())))
    md5 = {name: hashlib.md5(data).hexdigest() for name, data in files.items()}
    layout = replace(cifar.CIFAR10, classes=CLASSES, per_class={"train": 10, "test": 2}, md5=md5)
    monkeypatch.setattr(cifar, "CIFAR10", layout)
    if from_archive:
        write_tar(tmp_path / "cifar-10-python.tar.gz", files, "cifar-10-batches-py/")
    else:
        write(tmp_path / "cifar-10-batches-py", files)
    dataset = sources.load("cifar10", request(tmp_path))
    assert dataset.class_names == tuple(NAMES)
    assert dataset.train.labels.tolist() == labels
    assert isinstance(dataset.train.images, ArrayImages)
    np.testing.assert_array_equal(dataset.train.images.pixels.numpy().reshape(-1, 3072), pixels)
    assert dataset.test.labels.tolist() == made["test"]["fine_labels"]
    if not from_archive:
        parts["data_batch_2"]["labels"][0] = (parts["data_batch_2"]["labels"][0] + 1) % CLASSES
        write(tmp_path / "cifar-10-batches-py", dump_all(parts))
        with pytest.raises(
            UserError, match=r"data_batch_1 to data_batch_5 in .*class \d has .* `cscct data fetch cifar10`"
        ):
            sources.load("cifar10", request(tmp_path))


@pytest.mark.skipif(not REAL, reason="set CSCCT_DATA to a folder with cifar-100-python")
def test_the_real_files() -> None:
    warnings: list[str] = []
    dataset = sources.load("cifar100", request(None, warnings))
    assert (len(dataset.train), len(dataset.test), len(dataset.class_names)) == (50_000, 10_000, 100)
    assert dataset.class_names[:2] == ("apple", "aquarium_fish")
    assert len(warnings) <= 1
    assert isinstance(dataset.train.images, ArrayImages)
    mean = dataset.train.images.pixels.float().mean(dim=(0, 2, 3)) / 255
    np.testing.assert_allclose(mean.numpy(), [0.5071, 0.4865, 0.4409], atol=1e-3)  # the well-known figures
