"""Problems with settings as sentences that name the setting and the nearest valid one."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from ..methods import suggest


def explain(error: ValidationError, known: Sequence[str], prefix: tuple[str | int, ...] = ()) -> list[str]:
    """Pydantic's findings as sentences with the full name of the setting. known: the names that settings can have."""
    sentences = []
    for finding in error.errors():
        place = (*prefix, *(part for part in finding["loc"] if not is_union_branch(part)))
        path = ".".join(str(part) for part in place)
        if finding["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            sentences.append(f"there is no setting {path}{suggest(path, known)}")
        elif finding["type"] == "missing":
            sentences.append(f"{path} is missing")
        elif place == ("loss",):
            sentences.append(str(finding["msg"]).removeprefix("Value error, "))
        else:
            message = finding["msg"][0].lower() + finding["msg"][1:]
            sentences.append(f"{path} is {finding['input']!r}: {message}")
    return list(dict.fromkeys(sentences))


def is_union_branch(part: str | int) -> bool:
    return isinstance(part, str) and (part in ("str", "int", "Finetune") or part.startswith(("tuple[", "constrained")))
