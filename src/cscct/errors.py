"""Exceptions with a message for the user, the exit codes of commands that raise them, and installation hints.

Every message says what is wrong and what to do.
"""

from collections.abc import Callable

Warn = Callable[[str], None]  # called with a message for the user


class UserError(Exception):
    """The input of the user is invalid. Exit code 2; nothing has been written."""


class DamagedRun(UserError):
    """A file of a run folder is damaged. In a study, the other runs continue."""


class FolderInUse(UserError):
    """Another process uses the folder."""


class UnreadableImage(UserError):
    """An image cannot be read.

    Args:
        image: How messages name the image, for example `The image cat.jpg`.
        reason: Why, as the end of a sentence.
    """

    def __init__(self, image: str, reason: str):
        super().__init__(f"{image} cannot be read: {reason}.")
        self.reason = reason


class RunFailed(Exception):
    """The input is valid but the work failed. Exit code 1; finished results are kept."""


class Interrupted(Exception):
    """The run was stopped by the user, after a checkpoint or before training. Exit code 130."""


def install_hint(extra: str) -> str:
    """Return the commands that install an optional dependency, from a package index and in a clone.

    Args:
        extra: Name of an extra in pyproject.toml, such as `serve`.

    Example:
        >>> install_hint("serve")
        "pip install 'cscct[serve]', or in a clone: pip install -e '.[serve]'"
    """
    return f"pip install 'cscct[{extra}]', or in a clone: pip install -e '.[{extra}]'"
