"""Writes the counts of attack/results.json into docs/reliability.md. `--check` only compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "reliability.md", ROOT / "attack" / "results.json"
BEGIN, END = "<!-- counts -->\n", "<!-- end of counts -->\n"


def table(results: dict[str, Any]) -> str:
    """Return a Markdown table with a row for each kind and seed."""
    rows = ["| attack | seed | cases | outcomes | failures |", "|---|---|---|---|---|"]
    for kind in dict.fromkeys(kind for result in results.values() for kind in result["kinds"]):
        for seed, result in results.items():
            if counts := result["kinds"].get(kind):
                outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts["outcomes"].items())
                rows.append(f"| {kind} | {seed} | {counts['cases']} | {outcomes} | {len(counts['failures'])} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    text = before + BEGIN + "\n" + table(json.loads(RESULTS.read_text())) + "\n" + END + after
    if "--check" in sys.argv:
        return int(text != PAGE.read_text())
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
