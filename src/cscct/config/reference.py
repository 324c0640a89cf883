"""Reference of all settings: type, default, description and the methods that use each one."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from ..features import DEFAULT_PREDICTORS, PREDICTORS
from ..losses import TERMS
from ..methods import ADDONS, EXTENSIONS, METHODS
from ..specs import Finetune
from ..yamltext import flatten
from .checks import OTHER_NAMES, PARTS
from .schema import Settings, configurable_predictors

_LIBRARIES = ("builtins", "pydantic", "typing")
_TYPES = {"integer": "int", "number": "float", "boolean": "bool", "string": "str", "null": "null", "object": "mapping"}


class SettingEntry(NamedTuple):
    """One setting of the reference."""

    key: str  # dotted, as `--set` takes it
    type: str
    default: str  # as YAML
    description: str
    used_by: str


class ReferenceSection(NamedTuple):
    """A section of the settings."""

    name: str  # `train` or `loss.ct`; empty for the settings that are in no section
    description: str
    entries: tuple[SettingEntry, ...]


def settings_reference() -> list[ReferenceSection]:
    """Collect all settings, those of every registered loss included."""
    defaults: Any = Settings(method="", dataset="", finetune=Finetune(epochs=1))
    schema = Settings.model_json_schema()
    texts = field_descriptions(Settings)
    run, sections = [], []
    for name in Settings.model_fields:
        value = getattr(defaults, name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            sections.append(_section(name, type(value), texts.get(name, "")))
        elif name == "stages":
            sections.append(_section("stages.NAME", Finetune, "A further stage after each task, under any name."))
        elif name not in ("loss", "extension", "plugins"):
            default = _yaml(value) if value != "" else "required"
            run.append(SettingEntry(name, _type_text(schema["properties"][name]), default, texts.get(name, ""), "all"))
    sections += [_section(f"predict.options.{name}", PREDICTORS[name], "") for name in configurable_predictors()]
    sections += [_section(f"loss.{name}", term, _first_paragraph(term)) for name, term in TERMS.items()]
    sections += [_section(f"extension.{name}", part, _first_paragraph(part)) for name, part in EXTENSIONS.items()]
    return [ReferenceSection("", "Method, dataset and seed.", tuple(run)), *sections]


def find_entries(key: str) -> list[SettingEntry]:
    """Return the setting with a dotted key, or all settings of the section with that name."""
    entries = [entry for section in settings_reference() for entry in section.entries]
    return [entry for entry in entries if entry.key == key or entry.key.startswith(f"{key}.")]


def field_descriptions(owner: type) -> dict[str, str]:
    """Read the descriptions of the fields of a class and its bases: the strings below them, or else the section
    `Attributes:` of the docstring."""
    descriptions: dict[str, str] = {}
    for base in reversed([base for base in owner.__mro__ if base.__module__.partition(".")[0] not in _LIBRARIES]):
        definition = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(definition, ast.ClassDef)
        descriptions |= _attributes_section(ast.get_docstring(definition) or "")
        for field, text in zip(definition.body, definition.body[1:], strict=False):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(description))):
                    descriptions[name] = " ".join(description.split())
    return descriptions


def _attributes_section(docstring: str) -> dict[str, str]:
    """Return the entries below `Attributes:` of a Google-style docstring."""
    _, _, text = docstring.partition("Attributes:\n")
    descriptions: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line and not line.startswith(" "):
            break
        if line.startswith("        "):
            descriptions[name] += f" {line.strip()}"
        elif line.strip():
            name, _, description = line.strip().partition(": ")
            descriptions[name] = description
    return descriptions


def _section(name: str, spec: type, description: str) -> ReferenceSection:
    return ReferenceSection(name, description or _first_paragraph(spec), tuple(_entries(name, spec)))


def _first_paragraph(documented: type) -> str:
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def _entries(path: str, spec: Any) -> Iterator[SettingEntry]:
    schema = TypeAdapter(spec).json_schema()
    texts = field_descriptions(spec)
    for field in dataclasses.fields(spec):
        key = f"{path}.{field.name}"
        if key == "predict.options":  # a section for each predictor
            continue
        factory = field.default_factory
        if isinstance(factory, type) and dataclasses.is_dataclass(factory):
            yield from _entries(key, factory)
            continue
        default = field.default if factory is dataclasses.MISSING else factory()
        shown = "required" if default is dataclasses.MISSING else _yaml(default)
        if key == "train.epochs":
            shown = _yaml(Settings.model_fields["train"].default.epochs)
        type_text = _part_text(key) or _type_text(schema["properties"][field.name])
        yield SettingEntry(key, type_text, shown, texts.get(field.name, ""), _used_by(key))


def _part_text(key: str) -> str | None:
    """Return the names that are valid for a setting, if it names a registered part."""
    generic = "loss.*.weight_scaling" if key.startswith("loss.") and key.endswith(".weight_scaling") else key
    if generic not in PARTS:
        return None
    names = [*OTHER_NAMES.get(generic, ()), *PARTS[generic]]
    kind = "list of names" if generic == "data.transform.augment" else "name"
    return f"{kind}: {_alternatives(f'`{name}`' for name in names)}"


def _type_text(schema: Mapping[str, Any]) -> str:
    """Return a short description of a JSON schema."""
    if "anyOf" in schema:
        return _alternatives(map(_type_text, schema["anyOf"]))
    if "enum" in schema:
        return _alternatives(f"`{name}`" for name in schema["enum"])
    if schema.get("type") == "array":
        most = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
        return f"list of {_type_text(schema['items'])}{most}"
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {schema[bound]}" for bound, sign in bounds.items() if bound in schema]
    return f"{_TYPES.get(schema.get('type', ''), 'any')} {' and '.join(limits)}".strip()


def _alternatives(texts: Iterable[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} or {last}" if first else last


def _yaml(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_yaml, value))}]"
    return f"{value:g}" if isinstance(value, float) and value == float(f"{value:g}") else str(value)


def _used_by(key: str) -> str:
    """Return the names of the built-in methods that read a setting, and of those that set it."""
    section, _, rest = key.partition(".")
    if section == "loss":
        term = rest.partition(".")[0]
        readers = [name for name, method in METHODS.items() if term in method.settings.get("loss", {})]
        readers += [f"+{name}" for name, terms in ADDONS.items() if term in terms]
        return ", ".join(readers) or "no method by default"
    if section == "extension":
        name = rest.partition(".")[0]
        return ", ".join(key for key, method in METHODS.items() if name in method.settings.get("extension", {}))
    if section == "stages":
        users = [name for name, method in METHODS.items() if method.settings.get("stages")]
        return f"{', '.join(users)}; every other one that trains, if it is set"
    if key.startswith("predict.options."):
        name = key.split(".")[2]
        users = [m.name for m in METHODS.values() if m.settings.get("predict", {}).get("predictor") == name]
        return "all" if name in DEFAULT_PREDICTORS else ", ".join(users) or "no method by default"
    if section == "finetune":
        stages = [name for name, method in METHODS.items() if method.settings.get("finetune")]
        return f"{', '.join(stages)}; every other one that trains, if `finetune.epochs` is set"
    untrained = [name for name, method in METHODS.items() if not method.trains] if section == "train" else []
    readers_text = f"all but {', '.join(untrained)}" if untrained else "all"
    setters = [name for name, method in METHODS.items() if key in flatten(method.settings)]
    if len(setters) == len(METHODS):
        return f"{readers_text}; every method sets it"
    return f"{readers_text}; set by {', '.join(setters)}" if setters else readers_text
