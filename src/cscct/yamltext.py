"""Settings as text: YAML files and KEY=VALUE on the command line; nested and dotted forms."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .errors import UserError

Raw = dict[str, Any]


MAX_DEPTH = 50  # of sections within sections
MAX_REPEATED = 1000  # values that aliases repeat
MAX_BITS = 64  # of an integer


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the first is ten times as fast
    """A YAML loader for which 1e-3 is a number and a repeated key is an error."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct a value; the various errors of PyYAML's constructors become a YAMLError."""
        try:
            value = super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            kind = node.tag.rpartition(":")[2]
            raise _problem(f"{str(node.value)[:40]!r} cannot be read as {kind}", node) from error
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise _problem(f"an integer of more than {MAX_BITS} bits", node)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for entry, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if entry.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(entry, deep=True)
            if not isinstance(key, str):
                raise _problem(f"the key {str(key)[:40]} is not a string; put it in quotes", entry)
            if key in seen:
                raise _problem(f"the key {key!r} is repeated", node)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _problem(text: str, node: Any) -> yaml.constructor.ConstructorError:
    """Return an error at a node or an event of PyYAML."""
    return yaml.constructor.ConstructorError(None, None, text, node.start_mark)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*(\.[\d_]*)?|\.\d[\d_]*)([eE][-+]?\d+)$|^[-+]?\.?(inf|Inf|nan|NaN)$"),
    list("-+0123456789.inN"),
)


def _check_extent(text: str) -> None:
    """Raise an error for deep nesting, and for aliases that expand to many values or to themselves.

    This is checked before construction: PyYAML's constructor is recursive and would crash.
    """
    sizes: dict[str, int] = {}  # number of values of each anchor
    open_: list[tuple[str | None, int]] = []  # anchors of the enclosing collections, and the count at their start
    count = repeated = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_):
                raise _problem(f"the alias *{event.anchor} is inside its own anchor", event)
            size = sizes.get(event.anchor or "", 0)
            count, repeated = count + size, repeated + size
            if repeated > MAX_REPEATED:
                raise _problem(f"its aliases repeat more than {MAX_REPEATED} values", event)
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, count))
            count += 1
            if len(open_) > MAX_DEPTH:
                raise _problem(f"it is nested deeper than {MAX_DEPTH} levels", event)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, start = open_.pop()
            sizes[anchor or ""] = count - start
        elif isinstance(event, yaml.ScalarEvent):
            sizes[event.anchor or ""] = 1
            count += 1


def parse_yaml(text: str, name: str) -> Raw:
    """Parse settings in YAML.

    Args:
        text: The YAML.
        name: Name of the source, for messages.

    Raises:
        UserError: If the text is not valid YAML, with the line, or not a mapping.
    """
    try:
        _check_extent(text)
        raw = yaml.load(text, _Loader)
    except UnicodeEncodeError as error:
        raise UserError(f"{name.encode(errors='backslashreplace').decode()} is not valid UTF-8.") from error
    except yaml.reader.ReaderError as error:
        raise UserError(f"{name} is not valid YAML: {error.reason} (character {error.character!r}).") from error
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        raise UserError(f"{name} is not valid YAML{line}: {getattr(error, 'problem', error)}.") from error
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise UserError(f"{name} must contain settings as `key: value` lines, not a {type(raw).__name__}.")
    return raw


def read_config(path: Path) -> Raw:
    """Read settings from a YAML file; raise a `UserError` if that fails."""
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The config file {path} cannot be read: {error}.") from error


def parse_override(text: str) -> Raw:
    """Parse an argument of `--set`: `train.lr=0.1` -> {"train": {"lr": 0.1}}."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set takes KEY=VALUE, for example --set train.epochs=20, not {text!r}.")
    parsed: Any = parse_yaml(f"value: {value}" if value.strip() else "value:", f"--set {text}")["value"]
    return nested(key, parsed)


def nested(key: str, value: Any) -> Raw:
    """Return nested settings with one value: `train.lr`, 0.1 -> {"train": {"lr": 0.1}}."""
    parts = key.strip().split(".")
    if len(parts) > MAX_DEPTH:
        raise UserError(f"There is no setting {key[:40]}...: a name has at most {MAX_DEPTH} parts.")
    for part in reversed(parts):
        value = {part: value}
    return dict(value)


def flatten(raw: Mapping[str, Any], prefix: str = "") -> Raw:
    """Return settings by dotted name: {"train": {"lr": 0.1}} -> {"train.lr": 0.1}. The inverse of `nested`."""
    flat: Raw = {}
    for key, value in raw.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def merge(into: Raw, layer: Mapping[str, Any]) -> Raw:
    """Merge nested settings in place: mappings are merged, all other values replaced. Returns `into`."""
    for key, value in layer.items():
        if isinstance(value, Mapping):
            below = into.get(key)
            into[key] = merge(dict(below) if isinstance(below, Mapping) else {}, value)
        else:
            into[key] = copy.deepcopy(value)
    return into
