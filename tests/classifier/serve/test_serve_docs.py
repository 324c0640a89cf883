"""What docs/serving.md shows is done with a real server."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from cscct.classifier.serve import Limits
from serving import RED, YELLOW, encoded, folder_fixture, original_fixture, serving  # noqa: F401

PAGE = Path(__file__).parents[3] / "docs" / "serving.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_its_commands_and_its_python_work(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, colour in (("photograph", RED), ("owl-1", YELLOW), ("owl-2", YELLOW)):
        Path(f"{name}.jpg").write_bytes(encoded(colour, len(name), "JPEG"))
    (shell,), (program,) = blocks("bash"), blocks("python")
    with serving(folder) as address:
        for line in shell.splitlines():
            command = line.replace("curl ", "curl --silent --fail ").replace("http://127.0.0.1:8000", address)
            subprocess.run(["bash", "-c", command], check=True, capture_output=True)
        exec(program.replace("http://127.0.0.1:8000", address), {})
    first, second = capsys.readouterr().out.splitlines()
    assert first == "done 3"
    assert "('red', " in second


def test_the_limits_are_those_of_the_program() -> None:
    text, limits = PAGE.read_text(), Limits()
    for words in (
        f"A file may have {limits.file_bytes // 10**6} MB, a request {limits.request_bytes // 10**6} MB",
        f"and {limits.files} files",
        f"{limits.pixels // 10**6} million pixels and {limits.side:,} a side",
        f"{limits.name_length} characters",
        f"{limits.staged_files:,} photographs or {limits.staged_bytes // 10**9} GB",
    ):
        assert words in text.replace("\n", " ")
    assert (limits.running, limits.waiting) == (2, 30)  # in words there


def test_its_pictures_are_small() -> None:
    found = re.findall(r"!\[[^]]+\]\((images/[^)]+)\)", PAGE.read_text())
    assert found
    for name in found:
        assert (PAGE.parent / name).stat().st_size < 250_000
        assert Image.open(PAGE.parent / name).format == "PNG"
