"""Settings as people write them: YAML files, and KEY=VALUE on the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from .errors import UserError

Raw = dict[str, Any]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the first is ten times as fast
    """YAML as people write it: 1e-3 is a number, and a key that stands twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        doubled = next((key for i, key in enumerate(keys) if key in keys[:i]), None)
        if doubled is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {doubled!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*(\.[\d_]*)?|\.\d[\d_]*)([eE][-+]?\d+)$|^[-+]?\.?(inf|Inf|nan|NaN)$"),
    list("-+0123456789.inN"),
)


def parse_yaml(text: str, name: str) -> Raw:
    try:
        raw = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        raise UserError(f"{name} is not valid YAML{line}: {getattr(error, 'problem', error)}.") from error
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise UserError(f"{name} must hold settings as `key: value` lines, not a {type(raw).__name__}.")
    return raw


def read_config(path: Path) -> Raw:
    try:
        return parse_yaml(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The config file {path} cannot be read: {error}.") from error


def parse_override(text: str) -> Raw:
    """`train.lr=0.1` -> {"train": {"lr": 0.1}}."""
    key, found, value = text.partition("=")
    if not found or not key.strip():
        raise UserError(f"--set takes KEY=VALUE, for example --set train.epochs=20, not {text!r}.")
    parsed: Any = parse_yaml(f"value: {value}" if value.strip() else "value:", f"--set {text}")["value"]
    return nested(key, parsed)


def nested(key: str, value: Any) -> Raw:
    """`train.lr`, 0.1 -> {"train": {"lr": 0.1}}."""
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return dict(value)
