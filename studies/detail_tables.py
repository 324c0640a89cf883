"""Tables of docs/evidence.md about single runs, precision, predictors, tried forms and gradients."""

from __future__ import annotations

from collections.abc import Sequence

from read_records import (
    BASES,
    HARMONIC,
    LAST,
    PREDICTIONS,
    REGIMES,
    by_seed,
    difference,
    gain_at_best,
    gains_by_seed,
    interval,
    markdown,
    mean,
    paired_by_seed,
    read,
    read_csv,
    signed,
    with_harmonic,
)

from cscct.analysis.statistics import AVERAGE
from cscct.methods import split_method

KINDS = {  # losses that act on features, by kind
    "classification": ("cross_entropy", "balanced_cross_entropy", "margin_ranking", "nca"),
    "distillation": ("logit_distillation", "less_forget", "pod_flat"),
    "CSC": ("csc",),
    "CT": ("ct",),
}


def single_seed_curves(study: str) -> str:
    """Accuracy after each task of a study with one seed, sorted by the last accuracy."""
    rows = read(study, variants=True)
    by_title = {row["variant"] or f"`{row['method']}`": row for row in rows}
    if len(by_title) < len(rows):
        raise ValueError(f"a method of the study {study} has several rows: the table is for a single seed.")
    longest = max(int(row["tasks"]) for row in rows)
    lines = []
    for title in sorted(by_title, key=lambda title: float(by_title[title][LAST])):
        curve = by_title[title]["curve"].split()
        average = f"{float(by_title[title][AVERAGE]):.2f}" if len(curve) == longest else ""
        lines.append([title, *[""] * (longest - len(curve)), *curve, average])
    row = next(row for row in rows if int(row["tasks"]) == longest)
    classes = [str(int(row["B"]) + i * int(row["C"])) for i in range(longest)]
    return markdown(["classes seen", *classes, "average"], lines)


def earlier_forms() -> str:
    """Gains of another form of an add-on and of the default form, on the same seeds."""
    lines = []
    for study, title in REGIMES.items():
        rows = with_harmonic(read(study, variants=True))
        plain = [row for row in rows if not row["variant"]]
        for method, variant in dict.fromkeys((row["method"], row["variant"]) for row in rows if row["variant"]):
            base = split_method(method)[0]
            form = [row for row in rows if (row["method"], row["variant"]) == (method, variant)]
            seeds = by_seed(form, method, AVERAGE).keys()
            earlier = [*form, *(row for row in plain if row["method"] == base)]
            current = [row for row in plain if row["method"] in (method, base) and row["seed"] in seeds]
            line = [title, f"`{method}`, {variant}", str(len(seeds))]
            for metric in (AVERAGE, HARMONIC, "act"):
                line += [interval(difference(selected, method, base, metric)) for selected in (earlier, current)]
            lines.append(line)
    header = ["", "other form", "seeds", "average", "default", "harmonic", "default", "ACT", "default"]
    return markdown(header, lines)


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


def precision() -> str:
    """The same seeds in 32-bit and 16-bit precision. The precision takes the place of the method."""
    rows = [{**row, "method": row["variant"]} for row in read("precision", variants=True)]
    lines = []
    for metric, title in ((AVERAGE, "average"), (LAST, "last")):
        values = [mean(rows, bits, metric) for bits in ("32 bits", "16 bits")]
        lines.append([title, *values, interval(difference(rows, "16 bits", "32 bits", metric))])
    return markdown(["accuracy", "32 bits", "16 bits", "difference"], lines)


def birds_predictors() -> str:
    """Last accuracy on birds of fine-tuned methods with each predictor."""
    names = ("classifier", "nme", "lda", "ridge")
    methods = ("lucir", "lucir+cscct", "podnet", "podnet+cscct")
    rows = read("birds")
    lines = [[f"`{method}`", *(mean(rows, method, f"{name}.{LAST}") for name in names)] for method in methods]
    return markdown(["method", *(f"`{name}`" for name in names)], lines)


def icarl_predictors() -> str:
    """iCaRL with nearest means and with its classifier, against iCaRL with the same predictor.

    The last column compares the classifier with nearest means of iCaRL, as the paper does.
    """
    lines = []
    for study, title in REGIMES.items():
        rows = read(study)
        nearest, classifier = (f"{predictor}.{AVERAGE}" for predictor in ("nme", "classifier"))
        for method in ("icarl", "icarl+cscct", "icarl+balanced"):
            line = [title, f"`{method}`"]
            for metric in (nearest, classifier):
                gain = interval(difference(rows, method, "icarl", metric)) if method != "icarl" else ""
                line += [mean(rows, method, metric), gain]
            across = paired_by_seed(by_seed(rows, method, classifier), by_seed(rows, "icarl", nearest), "icarl")
            lines.append([*line, interval(across)])
    header = ["", "method", "nearest means", "against `icarl`", "classifier", "against `icarl`"]
    return markdown([*header, "against `icarl` by nearest means"], lines)


def predictors() -> str:
    """Accuracy of the same networks with each predictor. The best is bold."""
    lines = []
    for study, title in REGIMES.items():
        rows = read(study)
        for method in (base + addon for base in BASES for addon in ("", "+cscct", "+balanced")):
            means = [mean(rows, method, f"{predictor}.{AVERAGE}") for predictor in PREDICTIONS]
            best = max(means, key=lambda text: float(text.split()[0] if text else 0))
            if best:
                lines.append([title, f"`{method}`", *(f"**{text}**" if text == best else text for text in means)])
    return markdown(["", "method", *PREDICTIONS.values()], lines)


def best_predictors() -> str:
    """Gains of add-ons with the best predictor of each method."""
    lines = []
    for addon in ("+cscct", "+balanced"):
        for study, title in REGIMES.items():
            rows = read(study)
            lines.append([f"`{addon}`, {title}", *(interval(gain_at_best(rows, base + addon, base)) for base in BASES)])
    return markdown(["gain, each by its best prediction", *(f"`{base}`" for base in BASES)], lines)


def forms() -> str:
    """Forms that were tried on tuning orders: gains over the base in average incremental accuracy.

    iCaRL is evaluated with nearest means throughout.
    """
    names = ("digits", "digits-again", "pretrained-slow", "pretrained", "pretrained-again", "from-scratch")
    usual_seeds = (3, 3, 1, 1, 1, 1)  # of most forms
    studies = [read(f"tuning-{name}", variants=True) for name in names]
    tried = {(row["method"], row["variant"]) for rows in studies for row in rows}
    lines = []
    for method, variant in sorted(tried, key=lambda form: (form[0].partition("+")[2], form[1], form[0])):
        base, _, _ = method.partition("+")
        if method == base and not variant:
            continue
        line = []
        metric = f"nme.{AVERAGE}" if base == "icarl" else AVERAGE
        for rows, usual in zip(studies, usual_seeds, strict=True):
            values = by_seed([row for row in rows if row["variant"] == variant], method, metric)
            reference = by_seed([row for row in rows if not row["variant"]], base, metric)
            seeds = sorted(values.keys() & reference.keys())
            fewer = f" ({len(seeds)})" if 0 < len(seeds) < usual else ""
            gains = [values[seed] - reference[seed] for seed in seeds]
            line.append(signed(sum(gains) / len(gains)) + fewer if gains else "")
        if any(line):
            lines.append([f"`{method}`" + (f", {variant}" if variant else ""), *line])
    titles = ["digits", "digits, again", "pretrained top, lr 0.012", "lr 0.05", "lr 0.05, again", "from scratch"]
    return markdown(["form", *titles], lines)


def probe(study: str) -> str:
    """Effect of the losses on the features of old classes: means over tasks."""
    rows = read_csv(f"probe-{study}")

    def value(method: str, quantity: str, samples: str = "old") -> float | None:
        key = (method, quantity, samples)
        values = [float(row["value"]) for row in rows if (row["method"], row["what"], row["of"]) == key]
        return sum(values) / len(values) if values else None

    def shares(method: str, terms: Sequence[str]) -> str:
        """Return the shares of the gradient for exemplars and for new images, summed over terms."""
        active = [term for term in terms if value(method, f"gradient of {term}") is not None]
        sums = [
            sum(value(method, f"gradient of {term}", samples) or 0 for term in active) for samples in ("old", "new")
        ]
        return " / ".join(f"{share:.2f}" for share in sums) if active else ""

    lines = []
    for method in (base + addon for base in BASES for addon in ("", "+csc", "+ct", "+cscct", "+balanced")):
        distances = [value(method, quantity) for quantity in ("drift", "within", "between")]
        if None not in distances:
            texts = [f"{distance:.2f}" for distance in distances]
            lines.append([f"`{method}`", *(shares(method, terms) for terms in KINDS.values()), *texts])
    return markdown(["method", *KINDS, "drift", "within", "between"], lines)
