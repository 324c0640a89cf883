"""Help as people read it: plain text, with the default of every option."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cscct import cli

WITHOUT_DEFAULT = {
    "--config",
    "--set",
    "--plugin",
    "--title",
    "--order",
    "--message",
    "--install-completion",
    "--show-completion",
}


def commands() -> dict[str, Any]:
    """Each command by the words that call it."""
    top: Any = typer.main.get_command(cli.app)
    found = {"": top, **top.commands}
    for name, command in top.commands.items():
        found |= {f"{name} {inner}": one for inner, one in getattr(command, "commands", {}).items()}
    return found


def helped(words: str) -> str:
    answer = CliRunner().invoke(cli.app, [*words.split(), "--help"], prog_name="cscct")
    assert answer.exit_code == 0
    return answer.stdout


def test_every_option_with_a_value_tells_its_default() -> None:
    options = [(words, one) for words, command in commands().items() for one in command.params]
    assert len(options) > 80
    for words, option in options:
        if option.param_type_name == "argument" or option.is_flag or option.hidden:
            continue
        if not WITHOUT_DEFAULT & set(option.opts):
            told = "[default: " in (option.help or "") or option.default is not None
            assert told, f"cscct {words} {option.opts[0]} does not tell its default"


@pytest.mark.parametrize("words", sorted(commands()))
def test_help_is_plain_text(words: str) -> None:
    text = helped(words)
    assert text.startswith(f"Usage: cscct {words}".rstrip())
    for bad in ("<bool>", "--plugin <", "╭"):
        assert bad not in text
    cut = [line for line in text.splitlines() if line.endswith("...") and not line.startswith("Usage:")]
    assert cut == []


def test_extras_keep_their_brackets() -> None:
    assert "cscct[ray]" in helped("sweep").replace("\n", " ").replace("  ", "")
    assert "cscct[tensorboard]" in helped("report")


@pytest.mark.parametrize("words", ["", "data"])
def test_a_group_without_a_command_prints_its_help(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["cscct", *words.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.err) == (0, "")
    assert printed.out.startswith("Usage: cscct")
    assert ("Experiments:" if not words else "Commands:") in printed.out


def test_commands_are_listed_in_sections() -> None:
    lines = helped("").splitlines()
    sections = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert sections == ["Options:", "A classifier of your own images:", "Experiments:", "Settings, parts and data:"]
    top: Any = typer.main.get_command(cli.app)
    for name in top.commands:
        assert any(line.split()[:1] == [name] for line in lines)
