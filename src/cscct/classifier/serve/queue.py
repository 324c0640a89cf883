"""Photos to label: the list of `cscct suggest`."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

from ...errors import UserError


@dataclass(frozen=True)
class QueuedPhoto:
    """A photo of the list.

    Attributes:
        path: The file.
        label: The most probable class when the list was made.
    """

    path: Path
    label: str


def read_queue(file: Path) -> list[QueuedPhoto]:
    """Read the output of `cscct suggest --json` or `--csv`. Images that could not be read are left out.

    Relative paths are those of the working folder, or of the folder of the list.

    Args:
        file: The list.

    Raises:
        UserError: The file is not such a list, or a photo does not exist.
    """
    try:
        text = file.read_text(encoding="utf-8")
        entries = json.loads(text) if text.lstrip().startswith("[") else list(csv.DictReader(text.splitlines()))
        pairs = [(str(entry["image"]), str(entry.get("label") or "")) for entry in entries if not entry.get("error")]
    except OSError as error:
        raise UserError(f"The list {file} cannot be read ({error.strerror}).") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file} is not a list of `cscct suggest`: write one with --json or --csv.") from error
    if not pairs:
        raise UserError(f"{file} is not a list of `cscct suggest`: it names no readable photo.")
    photos = []
    for name, label in pairs:
        path = next((path for path in (Path(name), file.parent / name) if path.is_file()), None)
        if path is None:
            raise UserError(f"The photo {name} in {file} does not exist: start in the folder where the list was made.")
        photos.append(QueuedPhoto(path.resolve(), label))
    return photos
