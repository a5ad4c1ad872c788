"""Why a command has no result."""

from __future__ import annotations


class CommandError(Exception):
    """A library, a plugin or an environment cannot be used.

    Args:
        reason: the problem.
        remedy: what to do about it, as sentences, or "".

    Attributes:
        status: the exit status of the command.
    """

    status = 1

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.reason}. {self.remedy}" if self.remedy else self.reason


class UsageError(CommandError):
    """A name is wrong or taken, or there are files in the way."""

    status = 2
