"""The errors of `translate`."""

from __future__ import annotations

from arrayferry import ArrayFerryError


class TranslationError(ArrayFerryError):
    """A function cannot be translated, or a library cannot run it."""


class ProgramError(ArrayFerryError, ValueError):
    """A file contains no valid program, or the arguments do not fit the program."""


for _public in (TranslationError, ProgramError):
    _public.__module__ = "arrayferry_translate"  # tracebacks and pickles contain this public name
