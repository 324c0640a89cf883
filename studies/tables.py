"""Writes the tables of README.md and docs/ from studies/records. `--check` only compares.

A table is placed between `<!-- table NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from detail_tables import (
    best_predictors,
    birds_predictors,
    forms,
    icarl_predictors,
    precision,
    predictors,
    probe,
    single_seed_curves,
)
from read_records import (
    BASES,
    LAST,
    NAMES,
    REGIMES,
    by_seed,
    common_seeds,
    difference,
    first_task_only,
    gain,
    gains_by_seed,
    interval,
    markdown,
    mean,
    paired_by_seed,
    read,
)

from cscct.analysis.statistics import AVERAGE, METRICS
from cscct.methods import ADDONS, split_method

ROOT = Path(__file__).parents[1]
TABULATED = tuple(metric for metric in METRICS if metric != "harmonic_mean")  # which older records do not have
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("evidence", "pretrained")))


def answer_paragraph() -> str:
    """The answer to the title of docs/evidence.md in a paragraph."""
    records = {study: read(study) for study in REGIMES}

    def count_intervals(addon: str) -> tuple[int, int, int]:
        """Return the number of intervals over at least three seeds, of those above and of those below zero."""
        gains = [
            gain(rows, base + addon, base)
            for rows in records.values()
            for base in BASES
            if common_seeds(rows, base + addon, base) >= 3
        ]
        bounds = [(stats.low or 0, stats.high or 0) for stats in gains if stats]
        return len(bounds), sum(low > 0 for low, _ in bounds), sum(high < 0 for _, high in bounds)

    def listed(study: str, addon: str) -> str:
        gains = {base: gain(records[study], base + addon, base) for base in BASES}
        return ", ".join(f"{interval(stats)} to {NAMES[base]}" for base, stats in gains.items() if stats)

    (total, above, below), (total_balanced, better, worse) = count_intervals("+cscct"), count_intervals("+balanced")
    return (
        "**"
        + ("No, not" if above <= below else "In part,")
        + f" with its published weights and in settings that a CPU can afford: of {total} intervals for its gain "
        f"{above} lie above zero and {below} below. Cross-entropy corrected for how many images each class has "
        f"(`+balanced`) does more in the same settings: of {total_balanced} intervals for its gain {better} lie above "
        f"zero and {worse} below.** In points of average incremental accuracy, seed by seed with 95 % "
        f"intervals: from scratch CSCCT adds {listed('from-scratch', '+cscct')}, and `+balanced` "
        f"{listed('from-scratch', '+balanced')}; on the upper part of a pretrained network CSCCT adds "
        f"{listed('pretrained', '+cscct')}, and `+balanced` {listed('pretrained', '+balanced')}. "
        "`cscct compare icarl icarl+cscct icarl+balanced --dataset digits` shows it in three minutes; the "
        "[commands for the rest](#how-it-was-measured) follow.\n"
    )


def answer() -> str:
    """Gains of the add-ons in average incremental accuracy."""
    lines = []
    for addon in ("+cscct", "+balanced"):
        for study, title in REGIMES.items():
            rows = read(study)
            gains = [interval(gain(rows, base + addon, base)) for base in BASES]
            seeds = {common_seeds(rows, base + addon, base) for base in BASES} - {0}
            lines.append([f"`{addon}`, {title}", " to ".join(map(str, sorted({min(seeds), max(seeds)}))), *gains])
    return markdown(["gain in average incremental accuracy", "seeds", *(f"`{base}`" for base in BASES)], lines)


def pretrained() -> str:
    """Photographs and birds: every method against LDA."""
    methods = ("ncm", "lda", "ridge", "lucir", "lucir+cscct", "podnet", "podnet+cscct")
    header, lines = ["method"], [[f"`{method}`"] for method in methods]
    joint = ["all classes at once"]
    for study in ("photos", "birds"):
        header += [f"{study}: average", "last", "last, against `lda`"]
        rows = read(study)
        for method, line in zip(methods, lines, strict=True):
            line += [mean(rows, method, AVERAGE), mean(rows, method, LAST)]
            line.append(interval(difference(rows, method, "lda", LAST)) if method != "lda" else "")
        joint_rows = [*read(f"{study}-joint"), *(row for row in rows if row["method"] == "lda")]
        joint += ["", mean(joint_rows, "lucir", LAST), interval(difference(joint_rows, "lucir", "lda", LAST))]
    return markdown(header, [*lines, joint])


def pretrained_cscct() -> str:
    """Photographs and birds: CSCCT against the method without it."""
    header, lines = ["difference that CSCCT makes"], [[f"`{method}`"] for method in ("lucir", "podnet")]
    for study in ("photos", "birds"):
        header += [f"{study}: average", "last"]
        rows = read(study)
        for method, line in zip(("lucir", "podnet"), lines, strict=True):
            line += [interval(difference(rows, f"{method}+cscct", method, metric)) for metric in (AVERAGE, LAST)]
    return markdown(header, lines)


def addons(study: str) -> str:
    """Every method of a study, and the gains of its add-ons."""
    rows = read(study)
    methods = dict.fromkeys(row["method"] for row in rows)
    lines = []
    for base in dict.fromkeys([*BASES, *(split_method(method)[0] for method in methods)]):
        for method in sorted((method for method in methods if split_method(method)[0] == base), key=addon_order):
            gains = ["", ""]
            if method != base:
                gains = [interval(difference(rows, method, base, metric)) for metric in METRICS[:2]]
            seeds = str(len(by_seed(rows, method, AVERAGE)))
            lines.append([f"`{method}`", seeds, *(mean(rows, method, metric) for metric in TABULATED), *gains])
    if not study.startswith("digits"):
        for base in ("lucir", "podnet"):
            if stopped := first_task_only([row for row in rows if row["method"] == base]):
                means = [mean(stopped, base, metric) for metric in METRICS[:2]]
                lines.append([f"first task of `{base}` only", str(len(stopped)), *means, *[""] * 5])
    header = ["method", "seeds", "average", "last", "APT", "ACT", "forgetting", "average, against the base", "last"]
    return markdown(header, lines)


def addon_order(method: str) -> list[int]:
    """Return the positions of a method's add-ons in the registry."""
    return [list(ADDONS).index(addon) for addon in split_method(method)[1]]


def earlier_forms() -> str:
    """Gains of an earlier form of an add-on and of the current form, on the same seeds."""
    lines = []
    for study, title in REGIMES.items():
        rows = read(study, variants=True)
        plain = [row for row in rows if not row["variant"]]
        for method, variant in dict.fromkeys((row["method"], row["variant"]) for row in rows if row["variant"]):
            base = split_method(method)[0]
            form = [row for row in rows if (row["method"], row["variant"]) == (method, variant)]
            seeds = by_seed(form, method, AVERAGE).keys()
            earlier = [*form, *(row for row in plain if row["method"] == base)]
            current = [row for row in plain if row["method"] in (method, base) and row["seed"] in seeds]
            line = [title, f"`{method}`, {variant}", str(len(seeds))]
            for metric in (AVERAGE, "act"):
                line += [interval(difference(selected, method, base, metric)) for selected in (earlier, current)]
            lines.append(line)
    return markdown(["", "earlier form", "seeds", "average", "as it is now", "ACT", "as it is now"], lines)


def varied_setting(study: str, column: str, variants: Sequence[str], title: str) -> str:
    """Gains on digits for each value of a setting. The default value is that of the study of digits."""
    rows = [*read("digits"), *read(f"digits-{study}")]
    settings = sorted({int(row[column]) for row in rows})
    lines = []
    for base, method in ((base, base + addon) for base in ("icarl", "lucir") for addon in variants):
        line, gains = [f"`{method}`"], []
        for setting in settings:
            selected = [row for row in rows if int(row[column]) == setting]
            line.append(interval(difference(selected, method, base, AVERAGE)))
            gains.append(gains_by_seed(selected, method, base))
        lines.append([*line, interval(paired_by_seed(gains[-1], gains[0], method))])
    return markdown([title, *map(str, settings), f"change from {settings[0]} to {settings[-1]}"], lines)


def stability() -> str:
    """Effect of each loss on the accuracy on previous tasks (APT), on the current task (ACT) and on forgetting."""
    lines = []
    for study, title in REGIMES.items():
        rows = read(study)
        for base, method in ((base, base + addon) for base in BASES for addon in ("+csc", "+ct", "+cscct")):
            gains = [interval(difference(rows, method, base, metric)) for metric in TABULATED[2:]]
            if any(gains):
                lines.append([title, f"`{method}`", *gains])
    return markdown(["", "method", "APT", "ACT", "forgetting"], lines)


TABLES: dict[str, Callable[[], str]] = {
    "answer": answer,
    "answer-in-words": answer_paragraph,
    "pretrained": pretrained,
    "pretrained-cscct": pretrained_cscct,
    "birds-predictions": birds_predictors,
    "from-scratch": partial(addons, "from-scratch"),
    "pretrained-top": partial(addons, "pretrained"),
    "digits": partial(addons, "digits"),
    "digits-equal": partial(addons, "digits-equal"),
    "from-scratch-66": partial(addons, "from-scratch-66"),
    "earlier": earlier_forms,
    "stability": stability,
    "steps": partial(varied_setting, "steps", "C", ("+csc", "+ct"), "classes a task"),
    "batch": partial(varied_setting, "batch", "batch", ("+cscct",), "images a batch"),
    "memory": partial(varied_setting, "memory", "memory", ("+cscct",), "exemplars a class"),
    "reality": partial(single_seed_curves, "reality"),
    "reality-memory": partial(single_seed_curves, "reality-memory"),
    "precision": precision,
    "icarl-predictions": icarl_predictors,
    "predictions": predictors,
    "best-predictions": best_predictors,
    "forms": forms,
    "probe-digits": partial(probe, "digits"),
    "probe-pretrained": partial(probe, "pretrained"),
}


def with_tables(text: str) -> str:
    """Return a page with its tables replaced by those of the records."""
    for name, make in TABLES.items():
        begin, end = f"<!-- table {name} -->\n", "<!-- end of table -->\n"
        if begin in text:
            before, _, rest = text.partition(begin)
            text = before + begin + "\n" + make() + "\n" + end + rest.partition(end)[2]
    return text


def main() -> int:
    pages = {page: (page.read_text(), with_tables(page.read_text())) for page in PAGES}
    if "--check" in sys.argv:
        return int(any(old != new for old, new in pages.values()))
    for page, (_, new) in pages.items():
        page.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
