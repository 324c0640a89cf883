"""Malicious and damaged CIFAR files and archives: no code is executed, and an error message is printed."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from damage import CONTENTS
from watch import CaseResult, Kind, Outside, result_of, run_command

FILES = ("train", "test", "meta")
CLASSES, PER_CLASS = 3, {"train": 2, "test": 1}
CALLS = (
    ("posix", "system"),
    ("os", "system"),
    ("builtins", "eval"),
    ("builtins", "exec"),
    ("__builtin__", "eval"),
    ("subprocess", "call"),
    ("numpy.f2py.diagnose", "run_command"),
    ("numpy", "load"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("_codecs", "encode"),
    ("pathlib", "Path"),
    ("torch.serialization", "load"),
    ("cscct.plugins", "load_plugins"),
    ("functools", "partial"),
    ("importlib", "import_module"),
)


def use_small_layout() -> None:
    """Replace the layout of CIFAR-100 by one with three classes, so that a case has a few kilobytes. Called in the
    child process."""
    from cscct.data.datasets import cifar

    cifar.CIFAR100 = cifar._Layout(CLASSES, PER_CLASS, dict.fromkeys(FILES, ""))


def valid_file(name: str, protocol: int) -> bytes:
    """Return a small file in the published format."""
    content: dict[Any, Any]
    if name == "meta":
        content = {b"fine_label_names": [b"a", b"b", b"c"]}
    else:
        count = CLASSES * PER_CLASS[name]
        pixels = np.arange(count * 3072, dtype=np.uint64).astype(np.uint8).reshape(count, 3072)
        content = {b"data": pixels, b"fine_labels": [index % CLASSES for index in range(count)]}
    return pickle.dumps(content, protocol=protocol)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def malicious(rng: random.Random, marker: Path) -> bytes:
    """Return a pickle that creates a file if an ordinary reader loads it."""
    module, name = rng.choice(CALLS)
    shell, code = f"touch {marker}", f"__import__('os').system('touch {marker}')"
    argument = _string(code if name in ("eval", "exec") else shell)
    function = f"c{module}\n{name}\n".encode()
    stacked = _string(module) + _string(name) + b"\x93"
    forms = (
        function + b"(" + argument + b"tR.",
        b"\x80\x04" + stacked + argument + b"\x85R.",
        b"(" + argument + f"i{module}\n{name}\n.".encode(),
        b"(" + function + argument + b"o.",
        b"\x80\x02" + function + argument + b"\x85\x81.",
        b"\x80\x02" + function + b"(" + argument + b"t}\x92.",
        b"\x80\x02}" + _string("data") + function + argument + b"\x85Rs.",
        function + argument + b"b.",
        b"\x80\x02cnumpy\ndtype\n(" + _string("O8") + b"K\x00K\x01tR" + function + b"b.",
        b"P" + str(marker).encode() + b"\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x04" + _string(module + ".os") + _string(name) + b"\x93.",
    )
    return rng.choice(forms)


def bomb(rng: random.Random, marker: Path) -> bytes:
    """Return a short pickle that requests much memory or deep nesting."""
    forms = (
        b"(" * 200_000 + b".",
        b"]" * 50_000 + b"a" * 49_999 + b".",
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x.",
        b"\x8b" + struct.pack("<i", 2**31 - 1) + b"1.",
        b"L" + b"9" * 100_000 + b"L\n.",
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 50) + b".",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b".",
        b"r" + struct.pack("<I", 2**32 - 1) + b".",
        b"]r\xff\xff\xff\x7f.",
        b"\x80\x02]q\x00h\x00a.",
        b"}" + _string("data") + b"I" + b"1" * 4999 + b"\ns.",
        rng.randbytes(rng.randint(1, 300)),
    )
    return rng.choice(forms)


def damaged(rng: random.Random, marker: Path) -> bytes:
    """Return a valid file with damage."""
    content = bytearray(valid_file(rng.choice(FILES), rng.choice((0, 2, 4, 5))))
    return CONTENTS[rng.choice(sorted(CONTENTS))](content, rng)


MAKERS: tuple[Callable[[random.Random, Path], bytes], ...] = (malicious, malicious, bomb, damaged, damaged)


def archive(files: dict[str, bytes], rng: random.Random, outside: Path) -> bytes:
    """Return a tar archive with the files, sometimes with members outside of its folder."""
    buffer = io.BytesIO()
    folder = rng.choice(("cifar-100-python", "cifar-100-python", "./cifar-100-python", "../outside", "/", str(outside)))
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            if rng.random() < 0.15:
                member.type = rng.choice(
                    (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)
                )
                member.linkname, member.size = str(outside / "notes.txt"), 0
            tar.addfile(member, io.BytesIO(content))
    packed = buffer.getvalue()
    return CONTENTS[rng.choice(sorted(CONTENTS))](bytearray(packed), rng) if rng.random() < 0.4 else packed


class Pickles(Kind):
    """`cscct data check cifar100` on three files or on an archive. Code that is executed creates a file outside of the
    folder."""

    name, cases = "pickles", 600

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        outside, workdir = Outside(folder / "outside"), folder / "inside" / "cifar-100-python"
        workdir.mkdir(parents=True)
        marker = outside.folder / "marker"
        files = {name: valid_file(name, rng.choice((2, 4))) for name in FILES}
        maker = rng.choice(MAKERS)
        files[rng.choice(FILES)] = maker(rng, marker)
        packed = rng.random() < 0.4
        if packed:
            (workdir.parent / "cifar-100-python.tar.gz").write_bytes(archive(files, rng, outside.folder))
        else:
            for name, content in files.items():
                (workdir / name).write_bytes(content)
            if rng.random() < 0.03:
                (workdir / "train").unlink()
                os.mkfifo(workdir / "train")
        completed = run_command(
            "data", "check", "cifar100", "--data-dir", ".", folder=workdir.parent, before=use_small_layout
        )
        return result_of([completed], outside, "read", f"{maker.__name__}{' in an archive' if packed else ''}")
