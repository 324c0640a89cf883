"""Write the measured tables into docs/performance.md: `python benchmarks/page.py [--check] RESULTS.json`

Only the text between a line `<!-- NAME -->` and the next `<!-- end -->` is replaced.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from statistics import median
from typing import Any

from bench import ELSEWHERE, GOALS, met, published_comparisons
from bench import PARTS as SECTIONS
from second_task import PARTS

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"


GROWTHS = ("batch", "classes", "exemplars", "image side", "versions", "classes of 1", "classes of 5", "photos")


def rows(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def machine(results: dict[str, Any]) -> str:
    """Return one line per machine, with the names of its parts if there are several machines."""
    parts: dict[str, list[str]] = {}
    for part, entry in results["machines"].items():
        line = (
            f"{entry['processor']}, {entry['threads']} threads of {entry['cores']} cores, {entry['system']}, Python "
            f"{entry['python']}, torch {entry['torch']}, cscct {entry['cscct']}; load before: {entry['load']}."
        )
        parts.setdefault(line, []).append(part)
    if len(parts) == 1:
        return next(iter(parts))
    return "\n".join(f"- {', '.join(names)}: {line}" for line, names in parts.items())


def goals(results: dict[str, Any]) -> str:
    body = []
    for name, (side, goal) in GOALS.items():
        value = results["ratios"].get(name)
        if value is None:  # durations of other implementations, measured on another machine
            continue
        reached = "yes" if met(name, value) else f"**no**, by {abs(value / goal - 1):.0%}"
        body.append([name, f"{value:.4g}", f"{'≤' if side == '<=' else '≥'} {goal:g}", reached])
    body += [[name, f"{value:.4g}", "", ""] for name, value in results["ratios"].items() if name not in GOALS]
    return rows(["", "measured", "goal", "reached"], body)


def second_task(results: dict[str, Any]) -> str:
    tasks = results["parts"]["second-task"]
    body = [[part, *(f"{entry['package'][part]:.2f}" for entry in tasks.values())] for part in PARTS]
    body.append(["**all**", *(f"**{sum(entry['package'].values()):.1f}**" for entry in tasks.values())])
    body.append(["floor, all", *(f"{sum(entry['floor'].values()):.1f}" for entry in tasks.values())])
    names = sorted(
        {part for entry in tasks.values() for part in entry["floor"]}, key=lambda part: [*PARTS, "training"].index(part)
    )
    body += [[f"floor, {part}", *(f"{entry['floor'].get(part, 0):.2f}" for entry in tasks.values())] for part in names]
    return rows(["seconds", *tasks], body)


def others(results: dict[str, Any]) -> str:
    same = any(" / ours" in name for name in results["ratios"])  # the same kind of machine
    sides = published_comparisons(results["parts"]["second-task"])
    body = []
    for name, (theirs, seconds) in sides.items():
        ours = name.removeprefix(f"{theirs} / ours").removeprefix(", ").strip()
        speedup = f"{ELSEWHERE[theirs] / seconds:.2f}" if same else "other machine"
        body.append([theirs, f"{ELSEWHERE[theirs]:g}", ours, f"{seconds:.1f}", speedup])
    return rows(["other implementation", "seconds", "cscct", "seconds", "speedup"], body)


def growth(name: str) -> Any:
    def write(results: dict[str, Any]) -> str:
        grown = results["parts"]["growth"][name]
        head = [name, *next(iter(grown.values()))]
        return rows(
            head, [[str(count), *(short(value) for value in values.values())] for count, values in grown.items()]
        )

    return write


def large_images(results: dict[str, Any]) -> str:
    part = results["parts"]["large-images"]
    hows = list(next(iter(part["images/s"].values())))
    body = []
    for name, rates in part["images/s"].items():
        waits, slower = part["waiting"][name], part["from files / ready"][name]
        body.append([name, *(short(rates[how]) for how in hows), f"{waits:.1%}", f"{slower:.2f}"])
    return rows(
        ["photographs", *(f"{how}, images/s" for how in hows), "training waits", "epoch / with ready batches"], body
    )


def busy(results: dict[str, Any]) -> str:
    part = results["parts"]["busy"]["images/s"]
    body = [[work, *(short(median(values)) for values in rates.values())] for work, rates in part.items()]
    return rows(["images/s", *next(iter(part.values()))], body)


def start_up(results: dict[str, Any]) -> str:
    return rows(
        ["", "seconds"], [[f"`{name}`", f"{value:.2f}"] for name, value in results["parts"]["start-up"].items()]
    )


def teacher(results: dict[str, Any]) -> str:
    part = results["parts"]["costs"]["teacher"]
    if "compiled, ms" not in part:
        return "No C++ compiler was found where this was measured."
    steps = part["to compile, s"] / max(1e-9, part["folded, ms"] - part["compiled, ms"]) * 1000
    pays = f"after {steps:,.0f} steps" if part["compiled, ms"] < part["folded, ms"] else "never"
    return rows(
        [
            "forward pass of a teacher, batch size 128",
            "plain",
            "folded",
            "compiled",
            "compilation, once per process",
            "compiling pays off",
        ],
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
    "busy": busy,
    **{f"growth: {name}": growth(name) for name in GROWTHS},
}


def filled(page: str, results: dict[str, Any]) -> str:
    for name, write in BLOCKS.items():
        pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        if len(pattern.findall(page)) != 1:
            raise SystemExit(f"{PAGE} needs one place for {name!r}: <!-- {name} --> and <!-- end -->.")
        text = f"\n{write(results)}\n\n"
        page = pattern.sub(lambda match, text=text: match[1] + text + match[2], page)  # type: ignore[misc]
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the measured tables into docs/performance.md.")
    parser.add_argument("results", type=Path, help="file written by bench.py --json, with all parts")
    parser.add_argument("--check", action="store_true", help="only check whether the page contains these figures")
    args = parser.parse_args()
    page, results = PAGE.read_text(), json.loads(args.results.read_text())
    # The classifier has no separate table: its figures are listed among the goals.
    if missing := [name for name in SECTIONS if name not in (*results["parts"], "classifier")]:
        sys.exit(f"{args.results} lacks {', '.join(missing)}: measure all parts.")
    new = filled(page, results)
    if args.check:
        sys.exit(f"{PAGE.name} does not hold the figures in {args.results}." if new != page else 0)
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
