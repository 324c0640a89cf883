"""The examples and limits in docs/serving.md."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cscct.classifier.serve import Limits
from serving import RED, YELLOW, encoded, folder_fixture, original_fixture, serving  # noqa: F401

PAGE = Path(__file__).parents[3] / "docs" / "serving.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_examples_run(
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


def test_documented_limits() -> None:
    text, limits = PAGE.read_text(), Limits()
    for row in (
        f"| file | {limits.file_bytes // 10**6} MB |",
        f"| request | {limits.request_bytes // 10**6} MB and {limits.files} files |",
        f"| image | {limits.pixels // 10**6} million pixels, {limits.side:,} per side |",
        f"| class name | {limits.name_length} characters |",
        f"| staged images | {limits.staged_files:,} images or {limits.staged_bytes // 10**9} GB |",
        f"| requests with images | {limits.running} processed at a time, {limits.waiting} more waiting; "
        f"{limits.per_client} per client |",
    ):
        assert row in text
