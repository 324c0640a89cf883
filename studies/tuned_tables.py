"""Tables of docs/evidence.md about tuned weights and about the claims of the paper."""

from __future__ import annotations

import json
from collections.abc import Sequence

from read_records import (
    BASES,
    LAST,
    RECORDS,
    REGIMES,
    Row,
    by_seed,
    difference,
    gain,
    gain_metric,
    gains_by_seed,
    interval,
    markdown,
    mean,
    paired_by_seed,
    read,
    read_csv,
    signed,
)

from cscct.analysis.statistics import AVERAGE, Difference

TUNED_REGIMES = {name: title for name, title in REGIMES.items() if name != "from-scratch"}
METRICS = (AVERAGE, LAST, "harmonic_mean", "apt", "act", "forgetting")
TITLES = ("average", "last", "harmonic", "APT", "ACT", "forgetting")
WEIGHTS = {"": "default", "tuned": "tuned", "tuned CSCCT": "CSC and CT tuned"}
DIGITS = {"steps": ("C", "classes a task"), "batch": ("batch", "batch size"), "memory": ("memory", "exemplars a class")}


def arms(regime: str) -> list[Row]:
    """Return the reported runs with default and tuned weights. The variant is part of the method."""
    if not (RECORDS / f"tuned-{regime}.csv").exists():
        return []
    rows = read(f"tuned-{regime}", variants=True)
    return [{**row, "method": f"{row['method']} {row['variant']}".strip(), "plain": row["method"]} for row in rows]


def tuned_gain(regime: str, base: str) -> Difference | None:
    """Return the gain of CSCCT with tuned weights over the base with tuned weights."""
    rows = arms(regime)
    return difference(rows, f"{base}+cscct tuned", f"{base} tuned", gain_metric(rows, base)) if rows else None


def tuned_gains() -> str:
    """What tuned weights change, on the reported seeds."""
    pairs = (
        ("{} tuned", "{}"),
        ("{}+cscct", "{}"),
        ("{}+cscct tuned", "{} tuned"),
        ("{}+cscct tuned", "{}"),
        ("{}+balanced", "{}"),
        ("{}+cscct+balanced tuned CSCCT", "{}+balanced"),
    )
    header = ["", "method", "seeds", "tuned base", "`+cscct`, default", "`+cscct` tuned, against the tuned base"]
    header += ["the same, against the default base", "`+balanced`", "tuned CSC and CT on `+balanced`"]
    lines = []
    for regime, title in TUNED_REGIMES.items():
        rows = arms(regime)
        for base in BASES:
            seeds = by_seed(rows, f"{base}+cscct tuned", AVERAGE).keys() & by_seed(rows, base, AVERAGE).keys()
            if seeds:
                metric = gain_metric(rows, base)
                gains = [difference(rows, one.format(base), other.format(base), metric) for one, other in pairs]
                lines.append([title, f"`{base}`", str(len(seeds)), *map(interval, gains)])
    return markdown(header, lines)


def tuned_runs() -> str:
    """All metrics of the reported runs with default and tuned weights."""
    lines = []
    for regime, title in TUNED_REGIMES.items():
        rows = arms(regime)
        for base in BASES:
            for method, variant in dict.fromkeys((row["plain"], row["variant"]) for row in rows):
                if method.partition("+")[0] != base:
                    continue
                name = f"{method} {variant}".strip()
                values = [mean(rows, name, metric) for metric in METRICS]
                seeds = str(len(by_seed(rows, name, AVERAGE)))
                lines.append([title, f"`{method}`", WEIGHTS.get(variant, variant), seeds, *values])
    return markdown(["", "method", "weights", "seeds", *TITLES], lines)


def trials() -> str:
    """Result of tuning: accuracy on validation images and the chosen weights."""
    lines = []
    for regime, title in TUNED_REGIMES.items():
        if not (RECORDS / f"trials-{regime}.csv").exists():
            continue
        rows = read_csv(f"trials-{regime}")
        for method in dict.fromkeys(row["method"] for row in rows):
            own = [row for row in rows if row["method"] == method]
            complete = [row for row in own if row["state"] == "complete"]
            first = next((row["value"] for row in complete if row["trial"] == "0"), "")  # the default weights
            best = max(complete, key=lambda row: float(row["value"]), default=None)
            values = [f"{float(value):.2f}" if value else "" for value in (first, best["value"] if best else "")]
            counts = f"{len(own)} ({sum(row['state'] == 'pruned' for row in own)})"
            lines.append([title, f"`{method}`", counts, *values, weights(best["settings"]) if best else ""])
    return markdown(["", "method", "trials (pruned)", "default weights", "best", "weights of the best"], lines)


def weights(settings: str) -> str:
    """Return tuned values without `loss.` and rounded."""
    values = json.loads(settings).items()
    return ", ".join(f"{k.removeprefix('loss.')} {v if isinstance(v, str) else format(v, '.3g')}" for k, v in values)


def verdict(result: Difference, positive: bool = True) -> str:
    """Return what an interval says about a claim that a difference is positive or negative."""
    if result.low is None or result.high is None:
        return "open (one seed)"
    low, high = (result.low, result.high) if positive else (-result.high, -result.low)
    return "supported" if low > 0 else "contradicted" if high < 0 else "not seen"


def claim(text: str, where: str, what: str, result: Difference | None, positive: bool = True) -> list[list[str]]:
    """Return the row of a claim, or nothing if it was not measured."""
    if result is None:
        return []
    ends = "" if result.low is None or result.high is None else f"[{signed(result.low)}, {signed(result.high)}]"
    return [[text, where, what, signed(result.mean), ends, verdict(result, positive)]]


def claims() -> str:
    """The claims of the paper one by one."""
    lines = []
    records = {title: read(name) for name, title in REGIMES.items()}
    records["digits, equal tasks"] = read("digits-equal")
    for title, rows in records.items():
        for base in BASES:
            lines += claim("CSCCT raises the average (Table 1)", title, f"`{base}`", gain(rows, f"{base}+cscct", base))
    for regime, title in TUNED_REGIMES.items():
        for base in BASES:
            lines += claim("the same with tuned weights", title, f"`{base}`", tuned_gain(regime, base))
    for addon, name in (("+csc", "CSC"), ("+ct", "CT")):
        for title, rows in records.items():
            for base in BASES:
                lines += claim(
                    f"{name} alone raises the average (Table 3)", title, f"`{base}`", alone(rows, base, addon)
                )
    for text, metric, addon, positive in (
        ("CSC raises the accuracy on previous tasks (APT)", "apt", "+csc", True),
        ("CSCCT raises APT", "apt", "+cscct", True),
        ("CT raises the accuracy on current tasks (ACT)", "act", "+ct", True),
        ("CSCCT reduces forgetting", "forgetting", "+cscct", False),
    ):
        for title, rows in records.items():
            for base in BASES:
                lines += claim(text, title, f"`{base}`", difference(rows, base + addon, base, metric), positive)
    for study, text, addon, positive in (
        ("steps", "CSC gains more with fewer classes a task", "+csc", False),
        ("steps", "CT gains more with more classes a task", "+ct", True),
        ("batch", "gains increase with the batch size (S1)", "+cscct", True),
        ("memory", "gains increase with the memory (S2)", "+cscct", True),
    ):
        for base in ("icarl", "lucir"):
            where, result = change(study, base, addon)
            lines += claim(text, where, f"`{base}`", result, positive)
    return markdown(["claim", "setting", "method", "result", "95 % interval", "verdict"], lines)


def alone(rows: Sequence[Row], base: str, addon: str) -> Difference | None:
    """Return the gain of a single loss, or None if it was not run."""
    return difference(rows, base + addon, base, gain_metric(rows, base)) if by_seed(rows, base, AVERAGE) else None


def change(study: str, base: str, addon: str) -> tuple[str, Difference | None]:
    """Return a setting of digits and how the gain changes from its smallest to its largest value."""
    column, title = DIGITS[study]
    rows = [*read("digits"), *read(f"digits-{study}")]
    ends = sorted({int(row[column]) for row in rows})
    gains = [
        gains_by_seed([row for row in rows if int(row[column]) == end], base + addon, base)
        for end in (ends[0], ends[-1])
    ]
    return f"digits, {title} from {ends[0]} to {ends[-1]}", paired_by_seed(gains[1], gains[0], base)
