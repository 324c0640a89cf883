"""Standard streams that are closed, full or without a reader."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cscct.streams import output_error, protect_streams

pytestmark = pytest.mark.skipif(os.name != "posix", reason="streams of POSIX systems")
BROKEN = ["closed", "no reader", "full"]
RUN = ("run", "replay", "digits", "--threads", "1", "--set", "train.epochs=1", "--set", "data.train_per_class=10")


def call(*arguments: str, out: str = "", err: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Call the command with broken streams. The other streams are captured."""
    if "full" in (out, err) and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    reader, writer = os.pipe()
    os.close(reader)
    closing = " ".join(f"{number}>&-" for number, how in ((1, out), (2, err)) if how == "closed")
    command = ["/bin/sh", "-c", f'"$@" {closing}', "sh", sys.executable, "-m", "cscct", *arguments]
    with os.fdopen(writer, "wb") as gone, Path("/dev/full" if "full" in (out, err) else os.devnull).open("wb") as full:
        ways = {"": subprocess.PIPE, "closed": subprocess.PIPE, "no reader": gone, "full": full}
        return subprocess.run(command, stdout=ways[out], stderr=ways[err], text=True, cwd=cwd, timeout=300, check=False)


@pytest.mark.parametrize("how", BROKEN)
def test_broken_stderr(how: str) -> None:
    done = call("list", err=how)
    assert done.returncode == 0
    assert not done.stderr
    assert "lucir" in done.stdout
    assert call("run", "nothing", "digits", err=how).returncode == 2


@pytest.mark.parametrize("how", BROKEN)
def test_broken_stdout(how: str) -> None:
    done = call("list", out=how)
    if how == "full":
        assert (done.returncode, done.stderr) == (
            1,
            "error: The output could not be written: No space left on device.\n",
        )
    else:
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("how", ["closed", "no reader"])
def test_run_without_streams(how: str, tmp_path: Path) -> None:
    done = call(*RUN, "--out", "r", out=how, err=how, cwd=tmp_path)
    assert done.returncode == 0
    assert '"status": "finished"' in (tmp_path / "r" / "result.json").read_text()


def test_captured_streams_are_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    protect_streams()
    assert (sys.stdout, sys.stderr) == before
    assert output_error() is None
    assert capsys.readouterr().out == ""
