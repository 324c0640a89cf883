"""YAML is parsed or rejected with a message."""

import random
from contextlib import suppress
from pathlib import Path

import pytest

from cscct.config import resolve
from cscct.errors import UserError
from cscct.yamltext import flatten, nested, parse_override, parse_yaml, read_config

LAUGHS = "a0: &a0 [ha]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 10))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, "aliases repeat more than 1000 values"),
        (MERGES, "aliases repeat more than 1000 values"),
        ("a: &a [*a]", "the alias *a is inside its own anchor"),
        ("a: " + "[" * 60 + "]" * 60, "nested deeper than 50 levels"),
        ("a: " + "[" * 100_000, "nest"),
        ("a: " + "{a: " * 900, "not valid YAML"),
        ("day: 2020-13-45", "line 1: '2020-13-45' cannot be read as timestamp"),
        ("\nn: !!int x", "line 2: 'x' cannot be read as int"),
        ("n: !!bool perhaps", "'perhaps' cannot be read as bool"),
        ("n: !!timestamp now", "'now' cannot be read as timestamp"),
        ("n: !!float x", "'x' cannot be read as float"),
        ("n: !!binary 'ä'", "line 1"),
        ("n: " + "9" * 5000, "cannot be read as int"),
        ("n: 0x" + "f" * 5000, "more than 64 bits"),
        ("n: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("n: !mine 1", "could not determine a constructor"),
        (".nan: 1", "the key nan is not a string"),
        ("2020-01-01: 1", "the key 2020-01-01 is not a string"),
        ("on: 1", "the key True is not a string"),
        ("{a: 1, a: 2}", "the key 'a' is repeated"),
        ("? [a, b]\n: 1", "is not a string"),
        ("a: \0", "not valid YAML"),
        ("a: \udce9", "not valid UTF-8"),
        ("a: *b", "undefined alias"),
        ("--- 1\n--- 2", "another document"),
        ("just words", "`key: value` lines, not a str"),
    ],
    ids=lambda value: value[:24].encode("ascii", "backslashreplace").decode(),
)
def test_invalid_yaml(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_yaml(text, "study.yaml")
    sentence = str(caught.value)
    assert sentence.startswith("study.yaml ")
    assert message in sentence
    assert len(sentence) < 300


def test_few_aliases() -> None:
    text = "one: &one {train.epochs: 1}\ntwo: {<<: *one, seed: 2}\nseeds: &seeds [1, 2]\nmore: *seeds"
    assert parse_yaml(text, "x")["two"] == {"train.epochs": 1, "seed": 2}
    assert len(parse_yaml("order: [" + ", ".join(map(str, range(5000))) + "]", "x")["order"]) == 5000


def test_files_are_utf8_whatever_the_locale(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes("name: Käfer".encode())
    assert read_config(tmp_path / "c.yaml") == {"name": "Käfer"}
    (tmp_path / "c.yaml").write_bytes("name: Käfer".encode("latin-1"))
    with pytest.raises(UserError, match=r"c\.yaml cannot be read"):
        read_config(tmp_path / "c.yaml")


NAMES = ("train", "epochs", "loss", "ct", "seed", "data", "order", "protocol", "base", "network", "method", "null")
TAGS = ("!!int", "!!set", "!!", "!!binary", "!!omap", "!!pairs", "!!timestamp", "!!float", "!!python/name:os")
VALUES = ("1", "-3", "1e3", ".inf", ".nan", "1e999", "0o7", "1:30", "2020-01-01", "yes", "é", "...", "---\n", "|\n")
SIGNS = (*[": "] * 3, "\n", "\n  ", "- ", ", ", *"[]{}~'\"#%\t\\@", "&a ", "*a", "<<: ", "? ")
PIECES = (*NAMES, *(f"{tag} " for tag in TAGS), *VALUES, *SIGNS)


@pytest.mark.parametrize("seed", range(4))
def test_random_text(seed: int) -> None:
    rng = random.Random(seed)
    accepted = 0
    for _ in range(1500):
        text = "".join(rng.choices(PIECES, k=rng.randint(1, 14)))
        with suppress(UserError):
            parse_override(f"train={text}")
        with suppress(UserError):
            raw = parse_yaml(text if rng.random() < 0.3 else f"{rng.choice(NAMES)}: {text}", "x")
            accepted += 1
            resolve("lucir+cscct", "digits", config=raw)
    assert accepted > 50


def test_a_name_of_very_many_parts_is_refused() -> None:
    with pytest.raises(UserError, match="at most 50 parts"):
        parse_override(".".join(["a"] * 3000) + "=1")


def test_flatten_is_the_inverse_of_nested() -> None:
    assert nested("train.schedule.kind", "cosine") == {"train": {"schedule": {"kind": "cosine"}}}
    assert flatten({"seed": 1, "train": {"lr": 0.1, "schedule": {"milestones": [1]}}, "finetune": None}) == {
        "seed": 1,
        "train.lr": 0.1,
        "train.schedule.milestones": [1],
        "finetune": None,
    }
