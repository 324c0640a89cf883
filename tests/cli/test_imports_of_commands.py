"""Commands that only read settings start without torch, whose import takes longer than their work."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys
from cscct.cli import main
sys.argv = {arguments}
try:
    main()
finally:
    print("torch" in sys.modules, "matplotlib" in sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("list", "lucir-resnet18"),
        ("list --json", "lucir-resnet18"),
        ("config podnet+cscct imagenet-subset --json", "podnet-resnet18"),
        ("config --describe B --json", "protocol.base"),
        ("reproduce table1 --dry-run", "reuse the first task of another run"),
        ("reproduce tsne --dry-run", "reuse the first task of another run"),
    ],
)
def test_torch_is_not_imported(command: str, printed: str, tmp_path: Path) -> None:
    code = CODE.format(arguments=["cscct", *command.split()])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr.strip()) == (0, "False False")
    assert printed in done.stdout
    assert list(tmp_path.iterdir()) == []
