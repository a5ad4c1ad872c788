"""What can be wrong with an environment."""

from __future__ import annotations

from arrayferry import ArrayFerryError

__all__ = ["EnvResultError", "ImpureError", "StaleStateError"]


class ImpureError(ArrayFerryError, AttributeError):
    """An environment was changed after it was made, as by an assignment to `self` in one of its methods."""


class EnvResultError(ArrayFerryError, TypeError):
    """A method of an environment returned what it must not return."""


class StaleStateError(ArrayFerryError, ValueError):
    """A step was taken from a state that is not the newest of an ordinary environment."""
