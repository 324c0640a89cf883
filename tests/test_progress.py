"""Progress displays of a run."""

import io

import pytest
from rich.console import Console

from conftest import settings_for
from cscct.progress import Display, default_display, display_mode
from cscct.structs import Task


@pytest.mark.parametrize("width", [80, 100])
def test_narrow_terminal(width: int) -> None:
    """With five losses, which are truncated."""
    display = Display("live")
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    task = Task(index=2, n_old=60, n_new=10)
    losses = dict.fromkeys(("cross_entropy", "less_forget", "margin_ranking", "csc", "ct"), 1.234)
    display.run_started(settings_for("lucir+cscct"), (task,) * 6, 100_000)
    display.step(task, "finetune", 9, 160, 12_345, losses)
    with screen.capture() as captured:
        screen.print(display.live.get_renderable())
    (line,) = captured.get().splitlines()
    place = "task 3/6 finetune epoch 10/160 "
    assert line.startswith(place)
    assert set(line[len(place) : len(place) + 18]) <= set("━╸╺ ")
    assert "images/s" in line


class Stream(io.StringIO):
    """Standard error as a terminal or as a redirected stream."""

    def __init__(self, terminal: bool):
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class ZMQInteractiveShell:
    """The class name by which rich recognizes a Jupyter kernel."""


def replace_stderr(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> Stream:
    """Replace standard error. Not a fixture: pytest restores its own stream before the test begins."""
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Stream(terminal)
    monkeypatch.setattr("sys.stderr", stream)
    return stream


def follow_short_run(display: Display) -> None:
    """Report two steps of a run with one task."""
    task = Task(index=0, n_old=0, n_new=5)
    with display:
        display.reading("checking images", 1, 2)
        display.run_started(settings_for("lucir"), (task,), 128)
        for epoch in range(2):
            display.step(task, "train", epoch, 2, 64, {"cross_entropy": 1.0})
        display.task_finished({"task": 0, "accuracy": {"classifier": 50.0}, "seconds": 3})


def test_default_display_is_live_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = replace_stderr(monkeypatch, terminal=True)
    display = default_display()
    assert display.mode == "live"
    follow_short_run(display)
    printed = stderr.getvalue()
    assert "lucir on digits, seed 1: 1 tasks of 5 classes" in printed
    assert "task 1/1: classifier 50.00 %, 0:03" in printed
    assert "\x1b[?25l" in printed  # the cursor is hidden while the bar is displayed
    assert "━" in printed


def test_default_display_is_silent_if_standard_error_is_redirected(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = replace_stderr(monkeypatch, terminal=False)
    follow_short_run(default_display())
    assert stderr.getvalue() == ""
    assert display_mode(fallback="plain") == "plain"  # the command line prints lines


def test_quiet_and_processes_of_higher_rank_display_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = replace_stderr(monkeypatch, terminal=True)
    follow_short_run(default_display(quiet=True))
    monkeypatch.setenv("LOCAL_RANK", "1")
    follow_short_run(default_display())
    assert stderr.getvalue() == ""


@pytest.mark.parametrize(("widgets", "mode"), [(True, "live"), (False, "plain")])
def test_notebooks_are_live_with_ipywidgets(widgets: bool, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_stderr(monkeypatch, terminal=False)
    monkeypatch.setattr("builtins.get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setattr("cscct.progress.find_spec", lambda name: object() if widgets else None)
    assert default_display().mode == mode
    assert display_mode(quiet=True) == "quiet"


def test_missing_standard_error_displays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs without a console, such as those started with pythonw, have no standard error."""
    monkeypatch.setattr("sys.stderr", None)
    assert display_mode() == "quiet"
