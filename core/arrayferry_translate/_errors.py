"""The errors of `translate`."""

from __future__ import annotations

from arrayferry import ArrayFerryError


class TranslationError(ArrayFerryError):
    """A function cannot be translated, or a library cannot run it."""


class ProgramError(ArrayFerryError, ValueError):
    """A file holds no program, or a program is called with other arguments than it was made for."""


for _public in (TranslationError, ProgramError):
    _public.__module__ = (
        "arrayferry_translate"  # the name that users know, in tracebacks and pickles
    )
