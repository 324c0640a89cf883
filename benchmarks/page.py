"""Writes the measured tables into docs/performance.md: `python benchmarks/page.py [--check] RESULTS.json`

The page's own words stay; only what stands between a line `<!-- NAME -->` and the next `<!-- end -->` is replaced.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from bench import ELSEWHERE, GOALS, met, of_others
from bench import PARTS as SECTIONS
from second_task import PARTS

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"


def rows(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def machine(found: dict[str, Any]) -> str:
    """A line for each machine; the parts are named if there are several."""
    parts: dict[str, list[str]] = {}
    for part, here in found["machines"].items():
        line = (
            f"{here['processor']}, {here['threads']} threads of {here['cores']} cores, {here['system']}, Python "
            f"{here['python']}, torch {here['torch']}, cscct {here['cscct']}; load before: {here['load']}."
        )
        parts.setdefault(line, []).append(part)
    if len(parts) == 1:
        return next(iter(parts))
    return "\n".join(f"- {', '.join(names)}: {line}" for line, names in parts.items())


def goals(found: dict[str, Any]) -> str:
    body = []
    for name, (side, goal) in GOALS.items():
        value = found["ratios"].get(name)
        if value is None:  # seconds of others, on another machine
            continue
        reached = "yes" if met(name, value) else f"**no**, by {abs(value / goal - 1):.0%}"
        body.append([name, f"{value:.4g}", f"{'≤' if side == '<=' else '≥'} {goal:g}", reached])
    body += [[name, f"{value:.4g}", "", ""] for name, value in found["ratios"].items() if name not in GOALS]
    return rows(["", "measured", "goal", "reached"], body)


def second_task(found: dict[str, Any]) -> str:
    tasks = found["parts"]["second-task"]
    body = [[part, *(f"{one['package'][part]:.2f}" for one in tasks.values())] for part in PARTS]
    body.append(["**all**", *(f"**{sum(one['package'].values()):.1f}**" for one in tasks.values())])
    body.append(["floor, all", *(f"{sum(one['floor'].values()):.1f}" for one in tasks.values())])
    names = sorted(
        {part for one in tasks.values() for part in one["floor"]}, key=lambda part: [*PARTS, "training"].index(part)
    )
    body += [[f"floor, {part}", *(f"{one['floor'].get(part, 0):.2f}" for one in tasks.values())] for part in names]
    return rows(["seconds", *tasks], body)


def others(found: dict[str, Any]) -> str:
    if not any(" / ours" in name for name in found["ratios"]):
        return "Not measured on such a machine."
    sides = of_others(found["parts"]["second-task"], found["machines"]["second-task"]["epochs"])
    body = []
    for name, (theirs, seconds) in sides.items():
        ours = name.removeprefix(f"{theirs} / ours").removeprefix(", ").strip()
        body.append([theirs, f"{ELSEWHERE[theirs]:g}", ours, f"{seconds:.1f}", f"{ELSEWHERE[theirs] / seconds:.2f}"])
    return rows(["theirs", "seconds", "ours", "seconds", "times as fast"], body)


def growth(name: str) -> Any:
    def write(found: dict[str, Any]) -> str:
        grown = found["parts"]["growth"][name]
        head = [name, *next(iter(grown.values()))]
        return rows(
            head, [[str(count), *(short(value) for value in values.values())] for count, values in grown.items()]
        )

    return write


def large_images(found: dict[str, Any]) -> str:
    part = found["parts"]["large-images"]
    hows = list(next(iter(part["images/s"].values())))
    body = []
    for name, rates in part["images/s"].items():
        waits, slower = part["waiting"][name], part["from files / ready"][name]
        body.append([name, *(short(rates[how]) for how in hows), f"{waits:.1%}", f"{slower:.2f}"])
    return rows(
        ["photographs", *(f"{how}, images/s" for how in hows), "training waits", "epoch / with ready batches"], body
    )


def start_up(found: dict[str, Any]) -> str:
    return rows(["", "seconds"], [[f"`{name}`", f"{value:.2f}"] for name, value in found["parts"]["start-up"].items()])


def teacher(found: dict[str, Any]) -> str:
    part = found["parts"]["costs"]["teacher"]
    if "compiled, ms" not in part:
        return "No C++ compiler was found where this was measured."
    steps = part["to compile, s"] / max(1e-9, part["folded, ms"] - part["compiled, ms"]) * 1000
    pays = f"after {steps:,.0f} steps" if part["compiled, ms"] < part["folded, ms"] else "never"
    return rows(
        ["a teacher's forward pass, batch 128", "plain", "folded", "compiled", "to compile, once a process", "pays"],
        [
            [
                "ms",
                *(f"{part[f'{form}, ms']:.0f}" for form in ("plain", "folded", "compiled")),
                f"{part['to compile, s']:.0f} s",
                pays,
            ]
        ],
    )


BLOCKS = {
    "teacher": teacher,
    "machine": machine,
    "goals": goals,
    "second task": second_task,
    "others": others,
    "large images": large_images,
    "start-up": start_up,
    **{f"growth: {name}": growth(name) for name in ("batch", "classes", "exemplars", "image side")},
}


def filled(page: str, found: dict[str, Any]) -> str:
    for name, write in BLOCKS.items():
        pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        if len(pattern.findall(page)) != 1:
            raise SystemExit(f"{PAGE} needs one place for {name!r}: <!-- {name} --> and <!-- end -->.")
        text = f"\n{write(found)}\n\n"
        page = pattern.sub(lambda match, text=text: match[1] + text + match[2], page)  # type: ignore[misc]
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the measured tables into docs/performance.md.")
    parser.add_argument("results", type=Path, help="what bench.py --json wrote, all parts of it")
    parser.add_argument("--check", action="store_true", help="only say whether the page holds these figures")
    args = parser.parse_args()
    page, found = PAGE.read_text(), json.loads(args.results.read_text())
    # The classifier has no table of its own: its figures stand among the goals, where they were measured.
    if missing := [name for name in SECTIONS if name not in (*found["parts"], "classifier")]:
        sys.exit(f"{args.results} lacks {', '.join(missing)}: measure all parts.")
    new = filled(page, found)
    if args.check:
        sys.exit(f"{PAGE.name} does not hold the figures in {args.results}." if new != page else 0)
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
