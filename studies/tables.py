"""Writes the tables of README.md and docs/ from studies/records. `--check` only compares.

A table is placed between `<!-- table NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from detail_tables import (
    best_predictors,
    birds_predictors,
    earlier_forms,
    forms,
    icarl_predictors,
    precision,
    predictors,
    probe,
    single_seed_curves,
    varied_setting,
)
from read_records import (
    BASES,
    HARMONIC,
    LAST,
    NAMES,
    REGIMES,
    by_seed,
    common_seeds,
    difference,
    first_task_only,
    gain,
    interval,
    markdown,
    mean,
    read,
    with_harmonic,
)
from tuned_tables import TUNED_REGIMES, arms, claims, trials, tuned_gain, tuned_gains, tuned_runs

from cscct.analysis.statistics import AVERAGE, METRICS, Difference
from cscct.methods import ADDONS, split_method

ROOT = Path(__file__).parents[1]
TABULATED = (AVERAGE, LAST, HARMONIC, "apt", "act", "forgetting")
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("evidence", "pretrained")))


def answer_paragraph() -> str:
    """The answer to the title of docs/evidence.md in a paragraph."""
    records = {study: read(study) for study in REGIMES}
    tuned_records = {regime: arms(regime) for regime in TUNED_REGIMES}

    def counted(gains: Iterable[tuple[int, Difference | None]]) -> tuple[int, int, int]:
        """Return the number of intervals over at least three seeds, of those above and of those below zero."""
        bounds = [(stats.low or 0, stats.high or 0) for seeds, stats in gains if stats and seeds >= 3]
        return len(bounds), sum(low > 0 for low, _ in bounds), sum(high < 0 for _, high in bounds)

    def gains_of(addon: str) -> Iterator[tuple[int, Difference | None]]:
        for rows, base in itertools.product(records.values(), BASES):
            yield common_seeds(rows, base + addon, base), gain(rows, base + addon, base)

    def listed(gains: Mapping[str, Difference | None]) -> str:
        return ", ".join(f"{interval(stats)} to {NAMES[base]}" for base, stats in gains.items() if stats)

    def published(study: str) -> str:
        return listed({base: gain(records[study], f"{base}+cscct", base) for base in BASES})

    total, above, below = counted(gains_of("+cscct"))
    total_balanced, better, worse = counted(gains_of("+balanced"))
    tried, gained, lost = counted(
        (common_seeds(rows, f"{base}+cscct tuned", f"{base} tuned"), tuned_gain(regime, base))
        for (regime, rows), base in itertools.product(tuned_records.items(), BASES)
    )
    verdict = "No" if above <= below and gained <= lost else "In part"
    sentences = [
        f"**{verdict}, in settings that a CPU can afford; nothing was run at the size of the paper. With the published "
        f"weights (3 and 1.5), {above} of {total} intervals for the gain of CSCCT lie above zero and {below} below."
    ]
    if tried:
        sentences.append(
            "With weights tuned on validation images, against a base whose own weights had as many trials, "
            f"{gained} of {tried} lie above zero and {lost} below."
        )
    sentences.append(
        "Cross-entropy corrected for how many images each class has (`+balanced`) gains more: "
        f"{better} of {total_balanced} above, {worse} below.**"
    )
    sentences.append(
        "In points of average incremental accuracy against the same base, with 95 % intervals over 3 to 5 orders: "
        f"from scratch (ResNet-14, 58 classes) CSCCT with published weights adds {published('from-scratch')}; on the "
        f"upper part of a pretrained network (100 classes) {published('pretrained')}; on digits (10 classes) "
        f"{published('digits')}."
    )
    for regime, title in TUNED_REGIMES.items():
        if gains := listed({base: tuned_gain(regime, base) for base in BASES}):
            sentences.append(f"With tuned weights it adds {gains} ({title}).")
    return " ".join(sentences) + "\n"


def answer() -> str:
    """Gains of the add-ons in average incremental accuracy."""
    lines = []
    for addon in ("+cscct", "+balanced"):
        for study, title in REGIMES.items():
            rows = read(study)
            gains = [interval(gain(rows, base + addon, base)) for base in BASES]
            seeds = {common_seeds(rows, base + addon, base) for base in BASES} - {0}
            lines.append([f"`{addon}`, {title}", " to ".join(map(str, sorted({min(seeds), max(seeds)}))), *gains])
        if addon == "+cscct":
            lines += [tuned_line(regime, title) for regime, title in TUNED_REGIMES.items() if arms(regime)]
    return markdown(["gain", "seeds", *(f"`{base}`" for base in BASES)], lines)


def tuned_line(regime: str, title: str) -> list[str]:
    """Return the gains of tuned CSCCT over tuned bases in a regime."""
    rows = arms(regime)
    seeds = {common_seeds(rows, f"{base}+cscct tuned", f"{base} tuned") for base in BASES} - {0}
    gains = [interval(tuned_gain(regime, base)) for base in BASES]
    return [
        f"`+cscct` tuned, {title}",
        " to ".join(map(str, sorted({min(seeds), max(seeds)}))) if seeds else "",
        *gains,
    ]


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
    rows = with_harmonic(read(study))
    methods = dict.fromkeys(row["method"] for row in rows)
    lines = []
    for base in dict.fromkeys([*BASES, *(split_method(method)[0] for method in methods)]):
        for method in sorted((method for method in methods if split_method(method)[0] == base), key=addon_order):
            gains = ["", ""]
            if method != base:
                gains = [interval(difference(rows, method, base, metric)) for metric in METRICS[:2]]
            seeds = str(len(by_seed(rows, method, AVERAGE)))
            lines.append([f"`{method}`", seeds, *(mean(rows, method, metric) for metric in TABULATED), *gains])
    for base in ("lucir", "podnet"):
        if stopped := first_task_only([row for row in rows if row["method"] == base]):
            means = [mean(stopped, base, metric) for metric in METRICS[:2]]
            lines.append([f"first task of `{base}` only", str(len(stopped)), *means, "0.00", *[""] * 5])
    header = ["method", "seeds", "average", "last", "harmonic", "APT", "ACT", "forgetting"]
    header += ["average, against the base", "last"]
    return markdown(header, lines)


def addon_order(method: str) -> list[int]:
    """Return the positions of a method's add-ons in the registry."""
    return [list(ADDONS).index(addon) for addon in split_method(method)[1]]


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
    "claims": claims,
    "trials": trials,
    "tuned": tuned_gains,
    "tuned-runs": tuned_runs,
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
