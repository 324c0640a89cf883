"""Help texts: plain text, with the default of every option."""

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cscct import cli

WITHOUT_DEFAULT = {
    "--describe",
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
    """All commands by name."""
    top: Any = typer.main.get_command(cli.app)
    result = {"": top, **top.commands}
    for name, command in top.commands.items():
        result |= {f"{name} {inner}": command for inner, command in getattr(command, "commands", {}).items()}
    return result


def helped(name: str) -> str:
    answer = CliRunner().invoke(cli.app, [*name.split(), "--help"], prog_name="cscct")
    assert answer.exit_code == 0
    return answer.stdout


def test_every_option_has_a_default() -> None:
    options = [(name, option) for name, command in commands().items() for option in command.params]
    assert len(options) > 80
    for name, option in options:
        if option.param_type_name == "argument" or option.is_flag or option.hidden:
            continue
        if not WITHOUT_DEFAULT & set(option.opts):
            has_default = "[default: " in (option.help or "") or option.default is not None
            assert has_default, f"cscct {name} {option.opts[0]} has no default"


@pytest.mark.parametrize("name", sorted(commands()))
def test_help_is_plain_text(name: str) -> None:
    text = helped(name)
    assert text.startswith(f"Usage: cscct {name}".rstrip())
    for bad in ("<bool>", "--plugin <", "╭"):
        assert bad not in text
    cut = [line for line in text.splitlines() if line.endswith("...") and not line.startswith("Usage:")]
    assert cut == []


def test_extras_keep_their_brackets() -> None:
    assert "cscct[ray]" in helped("sweep").replace("\n", " ").replace("  ", "")
    assert "cscct[tensorboard]" in helped("report")


@pytest.mark.parametrize("name", ["", "data"])
def test_a_group_without_a_command_prints_its_help(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["cscct", *name.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.err) == (0, "")
    assert printed.out.startswith("Usage: cscct")
    assert ("Experiments:" if not name else "Commands:") in printed.out


def test_commands_are_listed_in_sections() -> None:
    lines = helped("").splitlines()
    sections = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert sections == ["Options:", "A classifier of your own images:", "Experiments:", "Settings, parts and data:"]
    top: Any = typer.main.get_command(cli.app)
    for name in top.commands:
        assert any(line.split()[:1] == [name] for line in lines)
