"""Why a command has no answer. They are together here so that completion need not import what raises them."""

from __future__ import annotations


class NoAnswerError(Exception):
    """A process ended without an answer, or took too long."""


class RefusedError(Exception):
    """A plugin with that name, or in that place, cannot be written."""


class WrongNameError(Exception):
    """There is no such plugin or environment, or it has nothing that can be checked."""
