"""The ways a command can end other than well, each with its exit code.

Every message is a sentence for the person at the terminal: what is wrong, and what to do about it.
"""

from collections.abc import Callable

Warn = Callable[[str], None]  # takes a sentence for the person at the terminal


class UserError(Exception):
    """The request cannot be carried out as given: exit 2, nothing written."""


class DamagedRun(UserError):
    """A file of a run folder does not hold what was written to it. In a study, the other runs go on."""


class FolderInUse(UserError):
    """Another process works in the folder."""


class RunFailed(Exception):
    """The request was right but the work could not go on: exit 1, what was finished stays."""


class Interrupted(Exception):
    """Stopped on request, after a checkpoint or before training: exit 130."""
