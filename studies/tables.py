"""Writes the tables of studies into the documents, from the files in studies/records. `--check` only compares.

A table stands between `<!-- table NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from cscct.analysis.statistics import AVERAGE, METRICS, Difference, paired, spread
from cscct.methods import EXTRAS, split_method

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "studies" / "records"
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("evidence", "pretrained")))
BASES = ("icarl", "lucir", "podnet")
REGIMES = {"from-scratch": "from scratch", "pretrained": "pretrained top", "digits": "digits"}
LAST = "last_accuracy"
Row = dict[str, str]


def read(name: str, variants: bool = False) -> list[Row]:
    """The finished runs of a study; those of other variants of its methods if asked for."""
    if not (RECORDS / f"{name}.csv").exists():  # not run yet
        return []
    with (RECORDS / f"{name}.csv").open(newline="") as file:
        finished = [row for row in csv.DictReader(file) if row["status"] == "finished"]
    return [row for row in finished if variants or not row["variant"]]


def by_seed(rows: Sequence[Row], method: str, metric: str) -> dict[str, float]:
    return {row["seed"]: float(row[metric]) for row in rows if row["method"] == method and row[metric]}


def mean(rows: Sequence[Row], method: str, metric: str) -> str:
    """`89.2 ± 0.4` over the seeds; nothing where there is no run."""
    values = list(by_seed(rows, method, metric).values())
    if not values:
        return ""
    found = spread(values)
    return f"{found.mean:.2f}" + (f" ± {found.deviation:.2f}" if found.deviation else "")


def difference(rows: Sequence[Row], method: str, other: str, metric: str) -> Difference | None:
    """Over the seeds that both have."""
    own, against = by_seed(rows, method, metric), by_seed(rows, other, metric)
    seeds = sorted(own.keys() & against.keys())
    return paired([own[seed] for seed in seeds], [against[seed] for seed in seeds], other) if seeds else None


def told(found: Difference | None) -> str:
    """`+0.31 [-0.12, +0.74]`"""
    if found is None:
        return ""
    if found.low is None or found.high is None:
        return f"{signed(found.mean)} (one seed)"
    if found.high - found.low < 0.005:  # methods that train nothing end with the same model in every order
        return signed(found.mean)
    return f"{signed(found.mean)} [{signed(found.low)}, {signed(found.high)}]"


def signed(value: float) -> str:
    """With two digits; no sign of a rounded zero is left from the rounding."""
    return f"{round(value, 2) + 0.0:+.2f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def pretrained() -> str:
    """Photographs and birds: every method against LDA."""
    methods = ("ncm", "lda", "ridge", "lucir", "lucir+cscct", "podnet", "podnet+cscct")
    header, rows = ["method"], [[f"`{method}`"] for method in methods]
    joint = ["all classes at once"]
    for name in ("photos", "birds"):
        header += [f"{name}: average", "last", "last, against `lda`"]
        found = read(name)
        for method, line in zip(methods, rows, strict=True):
            line += [mean(found, method, AVERAGE), mean(found, method, LAST)]
            line.append(told(difference(found, method, "lda", LAST)) if method != "lda" else "")
        at_once = [*read(f"{name}-joint"), *(row for row in found if row["method"] == "lda")]
        joint += ["", mean(at_once, "lucir", LAST), told(difference(at_once, "lucir", "lda", LAST))]
    return markdown(header, [*rows, joint])


def pretrained_cscct() -> str:
    """Photographs and birds: CSCCT against the method without it."""
    header, rows = ["difference that CSCCT makes"], [[f"`{method}`"] for method in ("lucir", "podnet")]
    for name in ("photos", "birds"):
        header += [f"{name}: average", "last"]
        found = read(name)
        for method, line in zip(("lucir", "podnet"), rows, strict=True):
            line += [told(difference(found, f"{method}+cscct", method, metric)) for metric in (AVERAGE, LAST)]
    return markdown(header, rows)


def answer_in_words() -> str:
    """The answer to the title of the page, in a paragraph."""
    found = {name: read(name) for name in REGIMES}

    def gains(added: str) -> dict[tuple[str, str], Difference]:
        all_of = {
            (base, name): difference(found[name], base + added, base, AVERAGE) for base in BASES for name in REGIMES
        }
        return {place: one for place, one in all_of.items() if one is not None}

    def counted(added: str) -> str:
        """Of the comparisons with three seeds or more."""
        known = [
            (one.low or 0, one.high or 0)
            for (base, name), one in gains(added).items()
            if pairs(found[name], base + added, base) >= 3
        ]
        better, worse = sum(low > 0 for low, _ in known), sum(high < 0 for _, high in known)
        return f"in {better} of {len(known)} comparisons it is better with an interval clear of zero, in {worse} worse"

    def listed(added: str) -> str:
        bases: dict[str, list[str]] = {}
        for (base, name), one in gains(added).items():
            bases.setdefault(base, []).append(f"{told(one)} ({REGIMES[name]})")
        return "; ".join(f"{base} {', '.join(words)}" for base, words in bases.items())

    return (
        f"**CSCCT as published: {counted('+cscct')}. Cross-entropy corrected for the numbers of images of the classes "
        f"(`+balanced`): {counted('+balanced')}.** Points of average incremental accuracy that the paper's two losses "
        f"add, seed by seed with 95 % intervals: {listed('+cscct')}. What `+balanced` adds: {listed('+balanced')}. "
        "`cscct compare icarl icarl+cscct icarl+balanced --dataset digits` shows it in three minutes; the commands for "
        "the rest follow.\n"
    )


def answer() -> str:
    """What each addition changes in average incremental accuracy. With +balanced iCaRL may be tested by another
    prediction, so it is compared by the same one too."""
    predictions = {"nearest means": f"nme.{AVERAGE}", "classifier": f"classifier.{AVERAGE}"}
    header = ["gain in average incremental accuracy", "seeds", *(f"`{base}`" for base in BASES)]
    rows = []
    for added in ("+cscct", "+balanced"):
        for name, title in REGIMES.items():
            found = read(name)
            gains = [told(difference(found, base + added, base, AVERAGE)) for base in BASES]
            both = [told(difference(found, f"icarl{added}", "icarl", metric)) for metric in predictions.values()]
            seeds = sorted({str(pairs(found, base + added, base)) for base in BASES} - {"0"})
            rows.append([f"`{added}`, {title}", " to ".join(seeds), *gains, *both])
    return markdown([*header, *(f"`icarl`, both by {name}" for name in predictions)], rows)


def pairs(rows: Sequence[Row], method: str, other: str) -> int:
    """Seeds that both have."""
    return len(by_seed(rows, method, AVERAGE).keys() & by_seed(rows, other, AVERAGE).keys())


def additions(name: str) -> str:
    """Every method of a study, and what each addition changes."""
    found = read(name)
    methods = dict.fromkeys(row["method"] for row in found)
    rows = []
    for base in dict.fromkeys([*BASES, *(split_method(one)[0] for one in methods)]):
        for method in sorted((one for one in methods if split_method(one)[0] == base), key=rank):
            against = (
                [told(difference(found, method, base, metric)) for metric in METRICS[:2]]
                if method != base
                else ["", ""]
            )
            seeds = str(len(by_seed(found, method, AVERAGE)))
            rows.append([f"`{method}`", seeds, *(mean(found, method, metric) for metric in METRICS), *against])
    header = ["method", "seeds", "average", "last", "APT", "ACT", "forgetting", "average, against the base", "last"]
    return markdown(header, rows)


def claims(study: str, column: str, added: Sequence[str], title: str) -> str:
    """How gains follow a setting that was varied on digits; its usual value comes from the study of digits itself."""
    rows = [*read("digits"), *read(f"digits-{study}")]
    values = sorted({int(row[column]) for row in rows})
    lines = []
    for method in (base + one for base in ("icarl", "lucir") for one in added):
        line = [f"`{method}`"]
        for value in values:
            found = [row for row in rows if int(row[column]) == value]
            line.append(told(difference(found, method, split_method(method)[0], AVERAGE)))
        lines.append(line)
    return markdown([title, *map(str, values)], lines)


def stability() -> str:
    """What each loss changes in the accuracy on previous tasks (APT) and on the current one (ACT)."""
    lines = []
    for name, title in REGIMES.items():
        found = read(name)
        for method in (base + added for base in BASES for added in ("+csc", "+ct", "+cscct")):
            moved = [told(difference(found, method, split_method(method)[0], metric)) for metric in ("apt", "act")]
            if any(moved):
                lines.append([title, f"`{method}`", *moved])
    return markdown(["", "method", "APT", "ACT"], lines)


def reality() -> str:
    """Accuracy after each task of methods whose order is known, and of all classes at once."""
    rows = read("reality", variants=True)
    found = {row["variant"] or f"`{row['method']}`": row for row in rows}
    if not rows:
        return ""
    if len(found) < len(rows):
        raise ValueError("a method of the study reality has several rows: it is a table of one seed.")
    longest = max(int(row["tasks"]) for row in found.values())
    lines = []
    for name in sorted(found, key=lambda one: float(found[one][LAST])):
        curve = found[name]["curve"].split()
        average = f"{float(found[name][AVERAGE]):.2f}" if len(curve) == longest else ""
        lines.append([name, *[""] * (longest - len(curve)), *curve, average])
    row = next(row for row in found.values() if int(row["tasks"]) == longest)
    classes = [str(int(row["B"]) + i * int(row["C"])) for i in range(longest)]
    return markdown(["classes seen", *classes, "average"], lines)


def precision() -> str:
    """The same seeds with products of 32 and of 16 bits: `method` holds the precision here."""
    rows = [{**row, "method": row["variant"]} for row in read("precision", variants=True)]
    lines = []
    for metric, title in ((AVERAGE, "average"), (LAST, "last")):
        values = [mean(rows, bits, metric) for bits in ("32 bits", "16 bits")]
        lines.append([title, *values, told(difference(rows, "16 bits", "32 bits", metric))])
    return markdown(["accuracy", "32 bits", "16 bits", "difference"], lines)


def rank(method: str) -> list[int]:
    return [list(EXTRAS).index(one) for one in split_method(method)[1]]


def icarl_predictions() -> str:
    """iCaRL by its nearest means and by its classifier; each against iCaRL by the same, and the classifier against
    iCaRL by nearest means, as the paper has it."""
    rows = []
    for name, title in REGIMES.items():
        found = read(name)
        nearest, classifier = (f"{prediction}.{AVERAGE}" for prediction in ("nme", "classifier"))
        for method in ("icarl", "icarl+cscct", "icarl+balanced"):
            line = [title, f"`{method}`"]
            for metric in (nearest, classifier):
                gain = told(difference(found, method, "icarl", metric)) if method != "icarl" else ""
                line += [mean(found, method, metric), gain]
            own, plain = by_seed(found, method, classifier), by_seed(found, "icarl", nearest)
            seeds = sorted(own.keys() & plain.keys())
            across = paired([own[seed] for seed in seeds], [plain[seed] for seed in seeds], "icarl") if seeds else None
            rows.append([*line, told(across)])
    header = ["", "method", "nearest means", "against `icarl`", "classifier", "against `icarl`"]
    return markdown([*header, "against `icarl` by nearest means"], rows)


def forms() -> str:
    """What was tried on tuning orders: differences to the base without it in average incremental accuracy, iCaRL by
    nearest means throughout."""
    rows = []
    names = ("digits", "digits-again", "pretrained-slow", "pretrained", "pretrained-again", "from-scratch")
    studies = [read(f"tuning-{name}", variants=True) for name in names]
    tried = {(row["method"], row["variant"]) for found in studies for row in found}
    for method, variant in sorted(tried, key=lambda one: (one[0].partition("+")[2], one[1], one[0])):
        base, _, _ = method.partition("+")
        if method == base and not variant:
            continue
        line = []
        metric = f"nme.{AVERAGE}" if base == "icarl" else AVERAGE
        for found in studies:
            own = by_seed([row for row in found if row["variant"] == variant], method, metric)
            plain = by_seed([row for row in found if not row["variant"]], base, metric)
            shared = sorted(own.keys() & plain.keys())
            line.append(signed(sum(own[seed] - plain[seed] for seed in shared) / len(shared)) if shared else "")
        if any(line):
            rows.append([f"`{method}`" + (f", {variant}" if variant else ""), *line])
    titles = ["digits", "digits, again", "pretrained top, lr 0.012", "lr 0.05", "lr 0.05, again", "from scratch"]
    return markdown(["form", *titles], rows)


def probed() -> str:
    """What the losses do to the features of old classes: means over tasks."""
    with (RECORDS / "probe-digits.csv").open(newline="") as file:
        found = list(csv.DictReader(file))

    def value(method: str, what: str, of: str = "old") -> str:
        values = [float(row["value"]) for row in found if (row["method"], row["what"], row["of"]) == (method, what, of)]
        return f"{sum(values) / len(values):.2f}" if values else ""

    rows = []
    for method in (base + added for base in BASES for added in ("", "+csc", "+ct", "+balanced")):
        term = method.partition("+")[2].replace("balanced", "")  # which is no term beside the others in every method
        shares = [value(method, f"gradient of {term}", of) for of in ("old", "new")] if term else ["", ""]
        rows.append([f"`{method}`", *shares, *(value(method, what) for what in ("drift", "within", "between"))])
    return markdown(["method", "share of its gradient, old", "new", "drift", "within", "between"], rows)


def birds_predictions() -> str:
    """After the last task, by each prediction on what was fine-tuned."""
    names = ("classifier", "nme", "lda", "ridge")
    methods = ("lucir", "lucir+cscct", "podnet", "podnet+cscct")
    found = read("birds")
    rows = [[f"`{method}`", *(mean(found, method, f"{name}.{LAST}") for name in names)] for method in methods]
    return markdown(["method", *(f"`{name}`" for name in names)], rows)


TABLES: dict[str, Callable[[], str]] = {
    "answer": answer,
    "answer-in-words": answer_in_words,
    "pretrained": pretrained,
    "pretrained-cscct": pretrained_cscct,
    "birds-predictions": birds_predictions,
    "from-scratch": partial(additions, "from-scratch"),
    "pretrained-top": partial(additions, "pretrained"),
    "digits": partial(additions, "digits"),
    "from-scratch-66": partial(additions, "from-scratch-66"),
    "stability": stability,
    "steps": partial(claims, "steps", "C", ("+csc", "+ct"), "classes a task"),
    "batch": partial(claims, "batch", "batch", ("+cscct",), "images a batch"),
    "memory": partial(claims, "memory", "memory", ("+cscct",), "exemplars a class"),
    "reality": reality,
    "precision": precision,
    "icarl-predictions": icarl_predictions,
    "forms": forms,
    "probe": probed,
}


def written(text: str) -> str:
    """A page with its tables as the records give them."""
    for name, make in TABLES.items():
        begin, end = f"<!-- table {name} -->\n", "<!-- end of table -->\n"
        if begin in text:
            before, _, rest = text.partition(begin)
            text = before + begin + "\n" + make() + "\n" + end + rest.partition(end)[2]
    return text


def main() -> int:
    pages = {page: (page.read_text(), written(page.read_text())) for page in PAGES}
    if "--check" in sys.argv:
        return int(any(old != new for old, new in pages.values()))
    for page, (_, new) in pages.items():
        page.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
