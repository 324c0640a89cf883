"""Writes the tables of studies into the documents, from the files in studies/records. `--check` only compares.

A table stands between `<!-- table NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from cscct.analysis.statistics import AVERAGE, METRICS, Difference, paired, spread
from cscct.methods import EXTRAS, split_method

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "studies" / "records"
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("evidence", "pretrained")))
NAMES = {"icarl": "iCaRL", "lucir": "LUCIR", "podnet": "PODNet"}
BASES = tuple(NAMES)
REGIMES = {"from-scratch": "from scratch", "pretrained": "pretrained top", "digits": "digits"}
PREDICTIONS = {"classifier": "classifier", "nme": "nearest means", "lda": "LDA", "ridge": "ridge regression"}
KINDS = {  # of losses that act on features
    "classification": ("cross_entropy", "balanced_cross_entropy", "margin_ranking", "nca"),
    "distillation": ("logit_distillation", "less_forget", "pod_flat"),
    "CSC": ("csc",),
    "CT": ("ct",),
}
LAST = "last_accuracy"
Row = dict[str, str]


def read(name: str, variants: bool = False) -> list[Row]:
    """The finished runs of a study; those of other variants of its methods if asked for."""
    with (RECORDS / f"{name}.csv").open(newline="") as file:
        finished = [row for row in csv.DictReader(file) if row["status"] == "finished"]
    return [row for row in finished if variants or not row["variant"]]


def by_seed(rows: Sequence[Row], method: str, metric: str) -> dict[str, float]:
    own = [row for row in rows if row["method"] == method and row[metric]]
    found = {row["seed"]: float(row[metric]) for row in own}
    if len(found) < len(own):
        raise ValueError(f"{method} has several rows of a seed: choose among its variants and settings first.")
    return found


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


def counts_by(rows: Sequence[Row], base: str) -> str:
    """The metric by which forms of a base are compared. iCaRL has two predictions, and with +balanced the presets
    change from nearest means to the classifier, which is no gain: all its forms count by the one that is better without
    any addition."""
    if base != "icarl":
        return AVERAGE
    return best_prediction(rows, base, ("nme", "classifier"))


def best_prediction(rows: Sequence[Row], method: str, names: Iterable[str]) -> str:
    return max((f"{one}.{AVERAGE}" for one in names), key=lambda metric: sum(by_seed(rows, method, metric).values()))


def gain(rows: Sequence[Row], method: str, base: str) -> Difference | None:
    """In average incremental accuracy."""
    return difference(rows, method, base, counts_by(rows, base))


def gain_at_best(rows: Sequence[Row], method: str, base: str) -> Difference | None:
    """The same, each of the two by the best of all predictions."""
    metrics = {one: best_prediction(rows, one, PREDICTIONS) for one in (method, base)}
    counted = [{**row, "counted": row[metrics[row["method"]]]} for row in rows if row["method"] in metrics]
    return difference(counted, method, base, "counted")


def answer_in_words() -> str:
    """The answer to the title of the page, in a paragraph."""
    found = {name: read(name) for name in REGIMES}

    def counted(added: str) -> tuple[int, int, int]:
        """How many intervals there are (with three seeds or more), above zero and below."""
        known = [
            (one.low or 0, one.high or 0)
            for name, rows in found.items()
            for base in BASES
            if pairs(rows, base + added, base) >= 3 and (one := gain(rows, base + added, base))
        ]
        return len(known), sum(low > 0 for low, _ in known), sum(high < 0 for _, high in known)

    def listed(name: str, added: str) -> str:
        gains = {base: gain(found[name], base + added, base) for base in BASES}
        return ", ".join(f"{told(one)} to {NAMES[base]}" for base, one in gains.items() if one)

    (all_of, above, below), (all_balanced, better, worse) = counted("+cscct"), counted("+balanced")
    return (
        "**"
        + ("No, not" if above <= below else "In part,")
        + f" with its published weights and in settings that a CPU can afford: of {all_of} intervals for its gain "
        f"{above} lie above zero and {below} below. Cross-entropy corrected for how many images each class has "
        f"(`+balanced`) does more in the same settings: of {all_balanced} intervals for its gain {better} lie above "
        f"zero and {worse} below.** In points of average incremental accuracy, seed by seed with 95 % "
        f"intervals: from scratch CSCCT adds {listed('from-scratch', '+cscct')}, and `+balanced` "
        f"{listed('from-scratch', '+balanced')}; on the upper part of a pretrained network CSCCT adds "
        f"{listed('pretrained', '+cscct')}, and `+balanced` {listed('pretrained', '+balanced')}. "
        "`cscct compare icarl icarl+cscct icarl+balanced --dataset digits` shows it in three minutes; the "
        "[commands for the rest](#how-it-was-measured) follow.\n"
    )


def answer() -> str:
    """What each addition changes in average incremental accuracy."""
    rows = []
    for added in ("+cscct", "+balanced"):
        for name, title in REGIMES.items():
            found = read(name)
            gains = [told(gain(found, base + added, base)) for base in BASES]
            seeds = {pairs(found, base + added, base) for base in BASES} - {0}
            rows.append([f"`{added}`, {title}", " to ".join(map(str, sorted({min(seeds), max(seeds)}))), *gains])
    return markdown(["gain in average incremental accuracy", "seeds", *(f"`{base}`" for base in BASES)], rows)


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
    for base in ("lucir", "podnet"):
        idle = first_task_only([row for row in found if row["method"] == base]) if not name.startswith("digits") else []
        if idle:
            means = [mean(idle, base, metric) for metric in METRICS[:2]]
            rows.append([f"first task of `{base}` only", str(len(idle)), *means, *[""] * 5])
    header = ["method", "seeds", "average", "last", "APT", "ACT", "forgetting", "average, against the base", "last"]
    return markdown(header, rows)


def first_task_only(rows: Sequence[Row]) -> list[Row]:
    """What the network of the first task would come to if it learned no further class: where all classes have as many
    test images, its first accuracy times the share of its classes in those seen."""
    found = []
    for row in rows:
        first, B, C = float(row["curve"].split()[0]), int(row["B"]), int(row["C"])
        curve = [first * B / (B + i * C) for i in range(int(row["tasks"]))]
        found.append({**row, AVERAGE: str(sum(curve) / len(curve)), LAST: str(curve[-1])})
    return found


def earlier() -> str:
    """Runs of the reported seeds with an earlier form of an addition, against the base."""
    lines = []
    for name, title in REGIMES.items():
        rows = read(name, variants=True)
        plain = [row for row in rows if not row["variant"]]
        for method, variant in dict.fromkeys((row["method"], row["variant"]) for row in rows if row["variant"]):
            own = [row for row in rows if (row["method"], row["variant"]) == (method, variant)]
            base = split_method(method)[0]
            found = [*own, *(row for row in plain if row["method"] == base)]
            seeds = by_seed(own, method, AVERAGE).keys()
            now = [row for row in plain if row["method"] in (method, base) and row["seed"] in seeds]
            line = [title, f"`{method}`, {variant}", str(len(seeds))]
            for metric in (AVERAGE, "act"):
                line += [told(difference(one, method, base, metric)) for one in (found, now)]
            lines.append(line)
    return markdown(["", "earlier form", "seeds", "average", "as it is now", "ACT", "as it is now"], lines)


def claims(study: str, column: str, added: Sequence[str], title: str) -> str:
    """How gains follow a setting that was varied on digits; its usual value comes from the study of digits itself."""
    rows = [*read("digits"), *read(f"digits-{study}")]
    values = sorted({int(row[column]) for row in rows})
    lines = []
    for method in (base + one for base in ("icarl", "lucir") for one in added):
        line, gains = [f"`{method}`"], []
        for value in values:
            found = [row for row in rows if int(row[column]) == value]
            line.append(told(difference(found, method, split_method(method)[0], AVERAGE)))
            gains.append(gains_by_seed(found, method, split_method(method)[0]))
        seeds = sorted(gains[0].keys() & gains[-1].keys())
        change = paired([gains[-1][seed] for seed in seeds], [gains[0][seed] for seed in seeds], method)
        lines.append([*line, told(change)])
    return markdown([title, *map(str, values), f"change from {values[0]} to {values[-1]}"], lines)


def gains_by_seed(rows: Sequence[Row], method: str, base: str) -> dict[str, float]:
    own, against = by_seed(rows, method, AVERAGE), by_seed(rows, base, AVERAGE)
    return {seed: own[seed] - against[seed] for seed in own.keys() & against.keys()}


def stability() -> str:
    """What each loss changes in the accuracy on previous tasks (APT), on the current one (ACT) and in forgetting."""
    lines = []
    for name, title in REGIMES.items():
        found = read(name)
        for method in (base + added for base in BASES for added in ("+csc", "+ct", "+cscct")):
            moved = [told(difference(found, method, split_method(method)[0], metric)) for metric in METRICS[2:]]
            if any(moved):
                lines.append([title, f"`{method}`", *moved])
    return markdown(["", "method", "APT", "ACT", "forgetting"], lines)


def reality(name: str) -> str:
    """Accuracy after each task of methods whose order is known, and of all classes at once."""
    rows = read(name, variants=True)
    found = {row["variant"] or f"`{row['method']}`": row for row in rows}
    if len(found) < len(rows):
        raise ValueError(f"a method of the study {name} has several rows: it is a table of one seed.")
    longest = max(int(row["tasks"]) for row in found.values())
    lines = []
    for title in sorted(found, key=lambda one: float(found[one][LAST])):
        curve = found[title]["curve"].split()
        average = f"{float(found[title][AVERAGE]):.2f}" if len(curve) == longest else ""
        lines.append([title, *[""] * (longest - len(curve)), *curve, average])
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


def predictions() -> str:
    """What the same networks come to by each prediction; the best is bold."""
    rows = []
    for name, title in REGIMES.items():
        found = read(name)
        for method in (base + added for base in BASES for added in ("", "+cscct", "+balanced")):
            means = [mean(found, method, f"{one}.{AVERAGE}") for one in PREDICTIONS]
            best = max(means, key=lambda told: float(told.split()[0] if told else 0))
            if best:
                rows.append([title, f"`{method}`", *(f"**{one}**" if one == best else one for one in means)])
    return markdown(["", "method", *PREDICTIONS.values()], rows)


def best_predictions() -> str:
    """What additions change if everything is tested by its best prediction."""
    rows = []
    for added in ("+cscct", "+balanced"):
        for name, title in REGIMES.items():
            found = read(name)
            rows.append([f"`{added}`, {title}", *(told(gain_at_best(found, base + added, base)) for base in BASES)])
    return markdown(["gain, each by its best prediction", *(f"`{base}`" for base in BASES)], rows)


def forms() -> str:
    """What was tried on tuning orders: differences to the base without it in average incremental accuracy, iCaRL by
    nearest means throughout."""
    rows = []
    names = ("digits", "digits-again", "pretrained-slow", "pretrained", "pretrained-again", "from-scratch")
    seeds = (3, 3, 1, 1, 1, 1)  # of most forms
    studies = [read(f"tuning-{name}", variants=True) for name in names]
    tried = {(row["method"], row["variant"]) for found in studies for row in found}
    for method, variant in sorted(tried, key=lambda one: (one[0].partition("+")[2], one[1], one[0])):
        base, _, _ = method.partition("+")
        if method == base and not variant:
            continue
        line = []
        metric = f"nme.{AVERAGE}" if base == "icarl" else AVERAGE
        for found, usual in zip(studies, seeds, strict=True):
            own = by_seed([row for row in found if row["variant"] == variant], method, metric)
            plain = by_seed([row for row in found if not row["variant"]], base, metric)
            shared = sorted(own.keys() & plain.keys())
            fewer = f" ({len(shared)})" if 0 < len(shared) < usual else ""
            gains = [own[seed] - plain[seed] for seed in shared]
            line.append(signed(sum(gains) / len(gains)) + fewer if gains else "")
        if any(line):
            rows.append([f"`{method}`" + (f", {variant}" if variant else ""), *line])
    titles = ["digits", "digits, again", "pretrained top, lr 0.012", "lr 0.05", "lr 0.05, again", "from scratch"]
    return markdown(["form", *titles], rows)


def probed(name: str) -> str:
    """What the losses do to the features of old classes: means over tasks."""
    with (RECORDS / f"probe-{name}.csv").open(newline="") as file:
        found = list(csv.DictReader(file))

    def value(method: str, what: str, of: str = "old") -> float | None:
        values = [float(row["value"]) for row in found if (row["method"], row["what"], row["of"]) == (method, what, of)]
        return sum(values) / len(values) if values else None

    def shares(method: str, terms: Sequence[str]) -> str:
        """Of exemplars and of new images, added up over terms."""
        there = [term for term in terms if value(method, f"gradient of {term}") is not None]
        sums = [sum(value(method, f"gradient of {term}", of) or 0 for term in there) for of in ("old", "new")]
        return " / ".join(f"{one:.2f}" for one in sums) if there else ""

    rows = []
    for method in (base + added for base in BASES for added in ("", "+csc", "+ct", "+cscct", "+balanced")):
        places = [value(method, what) for what in ("drift", "within", "between")]
        if None not in places:
            told_places = [f"{one:.2f}" for one in places]
            rows.append([f"`{method}`", *(shares(method, terms) for terms in KINDS.values()), *told_places])
    return markdown(["method", *KINDS, "drift", "within", "between"], rows)


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
    "digits-equal": partial(additions, "digits-equal"),
    "from-scratch-66": partial(additions, "from-scratch-66"),
    "earlier": earlier,
    "stability": stability,
    "steps": partial(claims, "steps", "C", ("+csc", "+ct"), "classes a task"),
    "batch": partial(claims, "batch", "batch", ("+cscct",), "images a batch"),
    "memory": partial(claims, "memory", "memory", ("+cscct",), "exemplars a class"),
    "reality": partial(reality, "reality"),
    "reality-memory": partial(reality, "reality-memory"),
    "precision": precision,
    "icarl-predictions": icarl_predictions,
    "predictions": predictions,
    "best-predictions": best_predictions,
    "forms": forms,
    "probe-digits": partial(probed, "digits"),
    "probe-pretrained": partial(probed, "pretrained"),
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
