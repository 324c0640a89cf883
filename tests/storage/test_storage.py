"""Atomic writes, locks, checksums and files of tensors."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cscct.errors import FolderInUse, UserError
from cscct.storage import (
    HOLDER,
    LOCK,
    append_line,
    check_free_space,
    file_sha256,
    json_sha256,
    lock_holder,
    locked,
    make_folder,
    plain_tensors,
    read_tensors,
    save_tensors,
    temporary_path,
    tensors_sha256,
    truncate,
    write_bytes,
    write_text,
)


def test_a_failed_write_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_text(path, "old")

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_temporary_file_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    outside, path = tmp_path / "outside", tmp_path / "file"
    outside.write_text("precious")
    temporary_path(path).symlink_to(outside)
    write_bytes(path, b"content")
    assert path.read_bytes() == b"content"
    assert outside.read_text() == "precious"
    assert not temporary_path(path).is_symlink()


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside, link = tmp_path / "outside", tmp_path / "link"
    outside.mkdir()
    link.symlink_to(outside)
    with pytest.raises(UserError, match="link is a link"):
        make_folder(link)
    (tmp_path / LOCK).symlink_to(outside / "lock")
    with pytest.raises(UserError, match="lock is a link"), locked(tmp_path):
        pass
    link.unlink()
    link.symlink_to(outside / "file")
    with pytest.raises(UserError, match="link is a link"):
        append_line(link, "line")
    assert not list(outside.iterdir())


def test_pipes_do_not_block(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="is a pipe"):
        append_line(pipe, "line")
    with pytest.raises(UserError, match="is a pipe"):
        truncate(pipe, 0)
    with pytest.raises(ValueError, match="does not exist"):
        read_tensors(pipe)
    os.mkfifo(tmp_path / HOLDER)
    assert lock_holder(tmp_path) == "another process"


def test_a_lock_names_its_holder(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert lock_holder(tmp_path).startswith(f"process {os.getpid()} on ")
        with pytest.raises(FolderInUse, match=f"{tmp_path} is in use by process {os.getpid()} on "), locked(tmp_path):
            pass
    assert lock_holder(tmp_path) == "another process"
    with locked(tmp_path):
        pass


def test_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2e9))
    check_free_space(tmp_path, 2e9, "Copies", "delete some files")
    with pytest.raises(UserError, match=r"Copies need up to 3\.5 GB, but .* only 2\.0 GB .*: delete some files\."):
        check_free_space(tmp_path, 3.5e9, "Copies", "delete some files")


def test_tensor_checksum_covers_names_shapes_types_and_values() -> None:
    tensors = {"a": torch.zeros(2, 3), "b": torch.ones(1)}
    reordered = {"b": torch.ones(1), "a": torch.zeros(2, 3)}
    assert tensors_sha256(tensors) == tensors_sha256(reordered)
    changed = [
        {**tensors, "b": torch.ones(1) + 1e-7},
        {**tensors, "a": torch.zeros(3, 2)},
        {**tensors, "a": torch.zeros(2, 3, dtype=torch.int32)},
        {"a": tensors["a"], "c": tensors["b"]},
    ]
    assert len({tensors_sha256(version) for version in [tensors, *changed]}) == 5


def test_checksums_are_those_of_earlier_versions(tmp_path: Path) -> None:
    """Stored in run folders and model folders."""
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(3)}
    assert tensors_sha256(tensors) == "ab289cb3ccc60ae909a7d8c3f38ba47a9adc1fd997ca9ce157dae9997bdf2228"
    assert (
        json_sha256({"b": 1, "a": [1.5, None, "x"]})
        == "01ad9360d0bf1f051bb220b0d20eb2cbf17c5c2a4d967fef37987eede6ea94fd"
    )
    (tmp_path / "file").write_bytes(b"abc")
    assert file_sha256(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_shared_memory_is_stored_per_name(tmp_path: Path) -> None:
    weight = torch.arange(4.0)
    plain = plain_tensors({"a": weight, "b": weight.view(2, 2).T})
    assert len({tensor.untyped_storage().data_ptr() for tensor in plain.values()}) == 2
    save_tensors(tmp_path / "file", {"a": weight, "b": weight})
    assert torch.equal(read_tensors(tmp_path / "file")[0]["b"], weight)


def test_files_of_tensors_contain_a_checksum(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    tensors = {
        "a": torch.ones(3),
        "b": torch.ones(2, 2, dtype=torch.bfloat16),
        "c": torch.tensor(3),
        "d": torch.empty(0, 2),
    }
    save_tensors(path, tensors, {"names": "abc"})
    stored, metadata = read_tensors(path)
    assert tensors_sha256(stored) == tensors_sha256(tensors)
    assert metadata["names"] == "abc"
    content = path.read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    for damaged in (content.replace(b"abc", b"abd"), flipped, content.replace(b'"a"', b'"e"')):
        assert damaged != content
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="checksum of its content differs"):
            read_tensors(path)
    for damaged in (content[:-1], b""):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"header|incomplete|buffer|small|mmap|empty"):
            read_tensors(path)
