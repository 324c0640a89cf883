"""Write docs/settings.md from the settings in the source. `make docs` runs it, and a test checks that it is current."""

from __future__ import annotations

from pathlib import Path

from cscct.config.reference import ReferenceSection, settings_reference

PAGE = Path(__file__).parent / "settings.md"
INTRODUCTION = """# Settings

<!-- Written by docs/settings_reference.py: change the descriptions in the source, and run `make docs`. -->

All settings of a run, as `--set KEY=VALUE`, `settings={...}` in Python and the `config.yaml` of a run name them.
`cscct config METHOD DATASET` prints their values for a run, `cscct config --describe KEY` describes one or a section.

Later sources win: the defaults in this table; the preset of the dataset; the settings of the method, with those it has
for this dataset; the preset of a pretrained backbone, for what the method does not set; `--config`; `--set` and flags.

The last column names the built-in methods that read a setting, and those that set it to a value of their own.
`config.yaml` also records `cscct_version` and, for a run with parts from plugins, `plugins`: hashes of their sources.
"""
COLUMNS = ("setting", "type", "default", "description", "used by")


def page() -> str:
    """The page as Markdown."""
    return INTRODUCTION + "".join(map(_table, settings_reference()))


def _table(section: ReferenceSection) -> str:
    title = f"`{section.name}`" if section.name else "Run"
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for entry in section.entries:
        rows.append((f"`{entry.key}`", entry.type, f"`{entry.default}`", entry.description, entry.used_by))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return f"\n## {title}\n\n{section.description}\n\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
