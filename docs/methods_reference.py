"""Write docs/methods.md from the registry. `make docs` runs it, and a test checks that it is current."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from cscct.losses import TERMS
from cscct.methods import METHODS, Method
from cscct.yamltext import flatten

PAGE = Path(__file__).parent / "methods.md"
SOURCE = Path(__file__).parents[1] / "src" / "cscct" / "methods"
INTRODUCTION = """# Methods

<!-- Written by docs/methods_reference.py: change the methods in the source, and run `make docs`. -->

All built-in methods by family. *Kept* is what a method needs in the next task besides its network; the teacher is a
frozen copy of the network after the previous task. *Lines* are those of its file in `src/cscct/methods` that are not
blank; methods in the same file share them. *Settings* are its own losses, extension and stages, which
[Settings](settings.md) describes. Every loss agrees with a slow implementation in the tests to 1e-6; *compared with*
names what else was consulted, and [Fidelity](fidelity.md) lists all differences. `cscct list` prints the methods, too.
"""
COLUMNS = ("method", "paper", "idea", "kept", "lines", "settings", "compared with")


class Source(NamedTuple):
    """Where a method comes from."""

    paper: str
    file: str  # in src/cscct/methods, without suffix
    compared: str


CODE, MEMORY = "released code", "paper and PyCIL, from memory"
SOURCES = {
    "a-gem": Source("Chaudhry et al., ICLR 2019", "a_gem", "paper and Mammoth, not its current code"),
    "afc": Source("Kang et al., CVPR 2022", "afc", CODE),
    "bic": Source("Wu et al., CVPR 2019", "bic", "released code, Mammoth and PyCIL"),
    "co2l": Source("Cha et al., ICCV 2021", "co2l", CODE),
    "der": Source("Yan et al., CVPR 2021", "der", MEMORY),
    "der++": Source("Buzzega et al., NeurIPS 2020", "replay", "Mammoth"),
    "eeil": Source("Castro et al., ECCV 2018", "eeil", "FACIL, in copies"),
    "er-ace": Source("Caccia et al., ICLR 2022", "replay", "released code as quoted, Mammoth"),
    "ewc": Source("Kirkpatrick et al., PNAS 2017", "ewc", "FACIL and PyCIL, in copies"),
    "fecam": Source("Goswami et al., NeurIPS 2023", "fecam", CODE),
    "finetune": Source("", "bounds", ""),
    "foster": Source("Wang et al., ECCV 2022", "foster", MEMORY),
    "gdumb": Source("Prabhu et al., ECCV 2020", "bounds", "paper, from memory"),
    "icarl": Source("Rebuffi et al., CVPR 2017", "distillation", "code of CSCCT"),
    "icarl-bce": Source("Rebuffi et al., CVPR 2017", "distillation", "code of PODNet"),
    "il2m": Source("Belouadah and Popescu, ICCV 2019", "il2m", "FACIL, in copies"),
    "joint": Source("", "bounds", ""),
    "lda": Source("", "training_free", "scikit-learn"),
    "lucir": Source("Hou et al., CVPR 2019", "distillation", "code of LUCIR and CSCCT"),
    "lwf": Source("Li and Hoiem, ECCV 2016", "lwf", ""),
    "mas": Source("Aljundi et al., ECCV 2018", "mas", "FACIL, in copies"),
    "memo": Source("Zhou et al., ICLR 2023", "memo", MEMORY),
    "ncm": Source("", "training_free", ""),
    "podnet": Source("Douillard et al., ECCV 2020", "distillation", CODE),
    "ranpac": Source("McDonnell et al., NeurIPS 2023", "ranpac", CODE),
    "replay": Source("", "replay", ""),
    "ridge": Source("", "training_free", ""),
    "si": Source("Zenke et al., ICML 2017", "si", "released code and FACIL, in copies"),
    "ss-il": Source("Ahn et al., ICCV 2021", "ss_il", "released code, from memory"),
    "wa": Source("Zhao et al., CVPR 2020", "wa", "PyCIL, in a copy"),
}


def page() -> str:
    """The page as Markdown."""
    families: dict[str, list[Method]] = {}
    for name in sorted(SOURCES):
        families.setdefault(METHODS[name].family, []).append(METHODS[name])
    text = INTRODUCTION
    for family in sorted(families):
        lines = [COLUMNS, ("---",) * len(COLUMNS), *map(_row, families[family])]
        text += f"\n## {family.capitalize()}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return text


def _row(method: Method) -> tuple[str, ...]:
    source = SOURCES[method.name]
    code = (SOURCE / f"{source.file}.py").read_text(encoding="utf-8").splitlines()
    lines = str(sum(bool(line.strip()) for line in code))
    return f"`{method.name}`", source.paper, method.summary, kept(method), lines, settings(method), source.compared


def kept(method: Method) -> str:
    """What a method keeps between tasks, from its settings."""
    chosen: dict[str, Any] = flatten(dict(method.settings))
    if not method.trains:
        return "statistics of the features"
    parts = []
    if chosen.get("memory.policy") == "all":
        parts.append("all images")
    elif chosen.get("memory.per_class") != 0:
        parts.append("exemplars" + (" with logits" if chosen.get("memory.store") == "logits" else ""))
    losses = [TERMS[name] for name in method.settings.get("loss", {})]
    if any(term.reads_teacher for term in losses):
        parts.append("teacher")
    parts += [f"state of `{name}`" for name in method.settings.get("extension", {}) if name != "a-gem"]
    parts += ["growing network"] if method.grows and chosen.get("stages.compression.reset") != "compress" else []
    return ", ".join(parts) or "nothing"


def settings(method: Method) -> str:
    """Names of the losses, the extension and the stages of a method."""
    chosen = method.settings
    names = [f"`{section}.{name}`" for section in ("loss", "extension", "stages") for name in chosen.get(section, {})]
    return ", ".join([*names, *(["`finetune`"] if "finetune" in chosen else [])])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
