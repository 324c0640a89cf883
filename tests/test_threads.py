import os
import subprocess
import sys
from pathlib import Path

import pytest

from cscct.threads import WAITING, available_cores, default_threads, limit_spinning

PROGRAM = "import os, sys, cscct; assert 'torch' not in sys.modules; print(os.environ.get('GOMP_SPINCOUNT'))"


def test_importing_the_package_limits_spinning_before_torch_is_loaded() -> None:
    free = {key: value for key, value in os.environ.items() if key not in WAITING and key != "OMP_WAIT_POLICY"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=free, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == WAITING["GOMP_SPINCOUNT"]


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_variables_of_the_user_are_respected(name: str) -> None:
    environment = {name: "7"}
    limit_spinning(environment)
    assert environment == {name: "7"}


@pytest.mark.parametrize(("value", "threads"), [("3", 3), ("5,2", 5), ("many", None), ("0", None), (None, None)])
def test_default_threads(value: str | None, threads: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if value is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert default_threads() == (threads or available_cores())


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "max 100000"}, 8),
        ("0::/\n", {"cpu.max": "250000 100000"}, 3),
        ("0::/user/job\n", {"user/cpu.max": "200000 100000", "user/job/cpu.max": "max 100000"}, 2),
        ("0::/user/job\n", {"cpu.max": "50000 100000"}, 1),  # the group is the root of the mount in a container
        ("4:cpu,cpuacct:/job\n", {"cpu/job/cpu.cfs_quota_us": "400000", "cpu/job/cpu.cfs_period_us": "100000"}, 4),
        ("4:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("0::/\n", {"cpu.max": "damaged"}, 8),
        ("damaged\n", {}, 8),
        (None, {}, 8),
    ],
)
def test_cores_are_limited_by_the_quota_of_the_container(
    groups: str | None, files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    if groups is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, content in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    assert available_cores(tmp_path) == cores


FORKS = """
import os, sys, threading, torch, cscct

def work():
    together.wait()
    try:
        torch.ones(40_000).add_(1)
    except RuntimeError as error:
        errors.append(error)

torch.set_num_threads(2)
torch.ones(40_000).add_(1)
failed = 0
for _ in range(50):
    child = os.fork()
    if child == 0:
        errors, together = [], threading.Barrier(24)
        threads = [threading.Thread(target=work) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os._exit(bool(errors))
    failed += os.waitpid(child, 0)[1] != 0
sys.exit(bool(failed))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_threads_of_a_forked_process_can_compute_at_the_same_time() -> None:
    """Else they replace the thread pool of torch at the same time, and some find none: most children fail."""
    assert subprocess.run([sys.executable, "-c", FORKS], check=False).returncode == 0
