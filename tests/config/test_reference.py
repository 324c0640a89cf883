"""The reference of settings is complete and current."""

import dataclasses
import runpy
from dataclasses import dataclass
from pathlib import Path

import pytest

from cscct.config import known_keys
from cscct.config.reference import SettingEntry, field_descriptions, find_entries, settings_reference
from cscct.config.schema import configurable_predictors
from cscct.losses import TERMS
from cscct.methods import EXTENSIONS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def entries() -> dict[str, SettingEntry]:
    return {entry.key: entry for section in settings_reference() for entry in section.entries}


def test_every_setting_is_described(entries: dict[str, SettingEntry]) -> None:
    without_settings = {f"extension.{name}" for name, part in EXTENSIONS.items() if not dataclasses.fields(part)}
    sections = {key.rpartition(".")[0] for key in known_keys()} | {"loss", "extension"} | without_settings
    assert set(entries) == set(known_keys()) - sections
    assert len(entries) > 90
    for key, entry in entries.items():
        assert entry.description.endswith("."), f"{key} has no description"
        assert entry.type, key
        assert entry.default, key
        assert entry.used_by, key
    assert all(section.description.endswith(".") for section in settings_reference())


def test_the_page_is_current() -> None:
    page = runpy.run_path(str(DOCS / "settings_reference.py"))["page"]()
    assert (DOCS / "settings.md").read_text(encoding="utf-8") == page, "run `python docs/settings_reference.py`"
    assert page.count("\n## ") == len(TERMS) + len(EXTENSIONS) + len(configurable_predictors()) + 12


@pytest.mark.parametrize(
    ("key", "type_text", "default", "used_by"),
    [
        ("train.lr", "float > 0", "0.1", "all but ncm, lda, ridge, fecam, ranpac"),
        ("train.epochs", "int > 0", "160", "all but ncm, lda, ridge, fecam, ranpac"),
        ("train.momentum", "float ≥ 0 and < 1", "0.9", "all but ncm, lda, ridge, fecam, ranpac"),
        ("protocol.base", "int > 0 or null", "null", "all"),
        ("data.transform.mean", "list of float, at most 3", "[0.5]", "all"),
        ("memory.store", "name: `none`, `logits` or `features`", "none", "all; set by der++"),
        (
            "network.head",
            "name: `linear`, `il2m`, `positive`, `cosine` or `proxies`",
            "cosine",
            "all; every method sets it",
        ),
        ("loss.csc.weight", "float", "3", "+csc, +cscct"),
        ("predict.options.ranpac.dimension", "int > 0", "2000", "ranpac"),
        ("predict.options.lda.shrinkage", "float ≥ 0 and ≤ 1 or null", "null", "all"),
        ("loss.margin_ranking.k", "int > 0", "2", "lucir"),
        ("method", "str", "required", "all"),
    ],
)
def test_entries(entries: dict[str, SettingEntry], key: str, type_text: str, default: str, used_by: str) -> None:
    entry = entries[key]
    assert (entry.type, entry.default, entry.used_by) == (type_text, default, used_by)


def test_descriptions_are_read_from_strings_and_docstrings() -> None:
    @dataclass
    class Base:
        """A class.

        Attributes:
            first: One
                sentence.
            second: Replaced.

        Note:
            third: Not an attribute.
        """

        first: int = 0
        second: int = 0
        """Another
        sentence."""

    @dataclass
    class Derived(Base):
        third: int = 0

    assert field_descriptions(Derived) == {"first": "One sentence.", "second": "Another sentence."}


def test_sections_are_found() -> None:
    assert [entry.key for entry in find_entries("loss.ct")] == [
        f"loss.ct.{name}" for name in ("weight", "weight_scaling", "temperature", "form")
    ]
    assert find_entries("loss.c") == []
