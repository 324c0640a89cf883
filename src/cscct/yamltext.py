"""Settings as people write them: YAML files, and KEY=VALUE on the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from .errors import UserError

Raw = dict[str, Any]


MAX_DEPTH = 50  # of sections within sections
MAX_REPEATED = 1000  # values that come again through aliases
MAX_BITS = 64  # of a whole number


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the first is ten times as fast
    """YAML as people write it: 1e-3 is a number, and a key that stands twice is a mistake."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """PyYAML's own readers of dates, numbers and so on fail in many ways on odd values: always a YAMLError here."""
        try:
            value = super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            kind = node.tag.rpartition(":")[2]
            raise _problem(f"{str(node.value)[:40]!r} cannot be read as {kind}", node) from error
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise _problem(f"a whole number of more than {MAX_BITS} bits", node)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for entry, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if entry.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(entry, deep=True)
            if not isinstance(key, str):
                raise _problem(f"the key {str(key)[:40]} is not a name; if it is meant as one, put it in quotes", entry)
            if key in seen:
                raise _problem(f"the key {key!r} stands twice", node)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _problem(text: str, node: Any) -> yaml.constructor.ConstructorError:
    """An error at a node or an event of PyYAML's."""
    return yaml.constructor.ConstructorError(None, None, text, node.start_mark)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*(\.[\d_]*)?|\.\d[\d_]*)([eE][-+]?\d+)$|^[-+]?\.?(inf|Inf|nan|NaN)$"),
    list("-+0123456789.inN"),
)


def _check_extent(text: str) -> None:
    """Refuse what is nested too deeply, and aliases that expand to very much, or to themselves.

    Before anything is built of it: PyYAML's builder calls itself for each level and would crash.
    """
    sizes: dict[str, int] = {}  # how many values each anchor stands for
    open_: list[tuple[str | None, int]] = []  # anchors of the collections around, and where each began
    count = repeated = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_):
                raise _problem(f"the alias *{event.anchor} stands inside of what it repeats", event)
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
    """The settings in a text, or a `UserError` that says what is wrong in which line."""
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
        raise UserError(f"{name} must hold settings as `key: value` lines, not a {type(raw).__name__}.")
    return raw


def read_config(path: Path) -> Raw:
    """The settings in a YAML file."""
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), str(path))
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
    parts = key.strip().split(".")
    if len(parts) > MAX_DEPTH:
        raise UserError(f"There is no setting {key[:40]}...: a name has at most {MAX_DEPTH} parts.")
    for part in reversed(parts):
        value = {part: value}
    return dict(value)
