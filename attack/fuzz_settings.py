"""Malformed settings (YAML files, studies, `--set`), and runs with unusual valid settings."""

from __future__ import annotations

import random
from pathlib import Path

from small_runs import TINY, reproducible_values, set_options
from watch import CaseResult, CommandResult, Kind, Outside, result_of, run_command

SCALARS = (
    *("", "null", "~", "true", "no", "0", "-1", "1", "2", "3.5", "1e-3", "1e400", "-0.0", ".nan", ".inf", "nan", "inf"),
    *("9" * 30, "9" * 5000, "0x1F", "0o17", "1_000", "2020-13-45", "2020-01-01", "12:30:45", "!!int x", "!!binary x"),
    *(
        "!!python/object/apply:os.system [true]",
        "!!set {a, b}",
        "!!omap [a: 1]",
        "'",
        '"',
        "é",
        "数字",
        "\u202e",
        "x" * 300,
    ),
    *(
        "[]",
        "{}",
        "[1, 2]",
        "[[[]]]",
        "{a: 1}",
        "[" * 60,
        "{a: " * 60,
        "&a [*a]",
        "*b",
        "<<: 1",
        "? a",
        "- x",
        "|",
        ">",
    ),
    *(
        "\x00",
        "\x1b[31m",
        "\ud800",
        "# x",
        "a: b: c",
        "%YAML 9.9",
        "---",
        "...",
        "@",
        "`",
        "=SUM(A1)",
        "<b>",
        "../../x",
    ),
)
SMALL = ("0", "1", "2", "3", "-1", "0.5", "1.0e-30", "1.0e+30", "null", "true", "false", "''", "x", "[]", "[1]", "{}")
FITTING: tuple[tuple[type, tuple[str, ...]], ...] = (  # by type; bool first: a subclass of int
    (bool, ("true", "false")),
    (int, ("1", "2", "3", "4", "7", "64", "0")),
    (float, ("0", "0.5", "1", "2", "1.0e-30", "1.0e+30", "-1", "0.99")),
    (
        str,
        (
            "none",
            "mean",
            "kmeans",
            "linear",
            "cosine",
            "proxies",
            "nme",
            "natural",
            "adamw",
            "cosine",
            "logits",
            "ceil",
        ),
    ),
    (list, ("[]", "[0]", "[0.5]", "[0, 1, 2, 3]", "[3, 2, 1]")),
)
METHODS = (
    "icarl",
    "lucir",
    "lucir+cscct",
    "podnet+cscct",
    "replay",
    "bic",
    "wa+csc",
    "der++",
    "er-ace",
    "LUCIR",
    "lucir+x",
)
DATASETS = ("digits", "cifar100", "folder", "imagenet-subset", "arrays", "digit", "")


def keys() -> list[str]:
    """Return the names of all settings."""
    from cscct.config import known_keys

    return known_keys()


def odd_key(rng: random.Random) -> str:
    """Return the name of a setting, correct or misspelt."""
    key = rng.choice(keys())
    forms = (
        key,
        key,
        key,
        key[:-1],
        key.upper(),
        f"{key}.x",
        f"x.{key}",
        key.rpartition(".")[0],
        "..",
        ".".join(["a"] * rng.choice((3, 100, 3000))),
        rng.choice(SCALARS),
    )
    return rng.choice(forms)


def odd_scalar(rng: random.Random) -> str:
    """Return a value from the list, or sometimes random characters."""
    if rng.random() < 0.85:
        return rng.choice(SCALARS)
    return "".join(
        chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x110000)))) for _ in range(rng.randint(1, 20))
    )


def odd_yaml(rng: random.Random, depth: int = 0) -> str:
    """Return a file of settings with some unusual lines."""
    lines = []
    for _ in range(rng.randint(0, 6)):
        section, _, name = rng.choice(keys()).partition(".")
        value = rng.choice((rng.choice(SMALL), odd_scalar(rng)))
        lines.append(f"{section}: {{{name}: {value}}}" if name and rng.random() < 0.7 else f"{section}: {value}")
    text = "\n".join(lines)
    return _mutated(text, rng) if rng.random() < 0.2 else text


def _mutated(text: str, rng: random.Random) -> str:
    """Return a text in which some characters are removed, doubled or replaced."""
    for _ in range(rng.choice((1, 1, 2, 6))):
        position = rng.randrange(len(text) + 1)
        middle = rng.choice(("", text[position : position + 5] * 2, rng.choice(SCALARS), "\n", "\t", ": ", "  - "))
        text = text[:position] + middle + text[position + rng.randrange(5) :]
    return text


def odd_study(rng: random.Random) -> str:
    """Return a study with some unusual entries."""

    def pick(good: str, odds: float = 0.25) -> str:
        return odd_scalar(rng) if rng.random() < odds else good

    lines = [f"dataset: {pick('digits')}", f"methods: {pick('[lucir, lucir+cscct]')}", f"seeds: {pick('[1, 2]')}"]
    grid = f"{{{odd_key(rng)}: [{odd_scalar(rng)}, {rng.choice(SMALL)}]}}"
    lines += [
        f"grid: {pick(grid)}",
        f"set: {pick(f'{{{odd_key(rng)}: {rng.choice(SMALL)}}}')}",
        f"linear_lr: {pick('true')}",
    ]
    rng.shuffle(lines)
    text = "\n".join(lines[: rng.randint(3, 6)])
    return _mutated(text, rng) if rng.random() < 0.3 else text


def complete_config() -> str:
    """Return a complete config file."""
    import yaml

    from cscct.config import resolve

    return yaml.safe_dump(resolve("lucir+cscct", "digits").dump(), sort_keys=False)


class SettingsTexts(Kind):
    """`cscct config` and `cscct sweep --dry-run`, which read all settings and train nothing."""

    name, cases = "settings", 1000

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        outside, workdir = Outside(folder / "outside"), folder / "inside"
        workdir.mkdir()
        arguments = self._arguments(number % 5, rng, workdir)
        completed = run_command(*arguments, folder=workdir)
        return result_of([completed], outside, "accepted", completed.description[:300])

    def _arguments(self, form: int, rng: random.Random, workdir: Path) -> list[str]:
        if form < 2:  # --set with any key, or with an existing one
            texts = [
                f"{odd_key(rng) if form else rng.choice(keys())}={odd_scalar(rng)}" for _ in range(rng.randint(1, 3))
            ]
            texts = [text.replace("\x00", "") for text in texts]  # not possible in arguments of a process
            method, dataset = (rng.choice(METHODS), rng.choice(DATASETS)) if form else ("lucir+cscct", "digits")
            return ["config", method, dataset, *set_options(*(_argument(text) for text in texts))]
        file = workdir / "file.yaml"
        text = _mutated(complete_config(), rng) if form == 2 else odd_yaml(rng) if form == 3 else odd_study(rng)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        if rng.random() < 0.05:
            file.write_bytes(rng.randbytes(rng.randint(0, 200)))
        if form == 4:
            return ["sweep", "file.yaml", "--dry-run", "--out", "study"]
        return ["config", *(["lucir", "digits"] if form == 3 else []), "--config", "file.yaml"]


def _argument(text: str) -> str:
    """Return a text as an argument of a process: bytes that are not valid UTF-8 become lone surrogates."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")


def fitting(method: str, rng: random.Random) -> str:
    """Return a setting of a method with a value of the right type, which may still be invalid."""
    from cscct.config import resolve

    tree = resolve(method, "digits").dump()
    tree = {key: value for key, value in tree.items() if isinstance(value, dict) and key != "runtime"}
    path: list[str] = []
    while isinstance(tree, dict) and tree:
        path.append(rng.choice(sorted(tree)))
        tree = tree[path[-1]]
    if "compile" in path:  # compilation takes minutes
        return "numerics.fold=false"
    values = next((values for kind, values in FITTING if isinstance(tree, kind)), ("null", "1", "2"))
    return f"{'.'.join(path)}={rng.choice(values)}"


class OddRuns(Kind):
    """Small runs with one to three random settings. Accepted runs finish, and a repeated run gives the same numbers."""

    name, cases = "odd runs", 200

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        method = rng.choice(METHODS[:9])
        odd = [fitting(method, rng) for _ in range(rng.randint(1, 3))]
        arguments = ["run", method, "digits", *set_options(*TINY, *odd), "--json"]
        results = [run_command(*arguments, "--out", str(folder / f"run-{i}"), folder=folder) for i in range(2)]
        result = CaseResult(
            "rejected with a message" if results[0].code else "same numbers", f"{method} {' '.join(odd)}"
        )
        result.faults = results[0].faults()
        if _numbers(results[0]) != _numbers(results[1]):
            result.faults.append("changed number: a second run completed otherwise")
        return result


def _numbers(completed: CommandResult) -> object:
    import json

    return (completed.code, reproducible_values(json.loads(completed.stdout)) if completed.code == 0 else "")
