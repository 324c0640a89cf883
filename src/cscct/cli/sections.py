"""Help text with the commands in sections."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class SectionedGroup(TyperGroup):
    """A group that lists its commands by section."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one list per section, in the order of registration."""
        sections: dict[str, list[tuple[str, str]]] = {}
        width = max(len(name) for name in self.commands)
        for name, command in self.commands.items():
            section = getattr(command, "rich_help_panel", None) or "Commands"
            rows = sections.setdefault(section, [])
            rows.append((f"{name:{width}}", command.get_short_help_str(formatter.width - 6 - width)))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)
