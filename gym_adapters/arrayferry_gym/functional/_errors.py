"""What can be wrong with an environment."""

from __future__ import annotations

import arrayferry as af

__all__ = ["EnvResultError", "ImpureError"]


class ImpureError(af.ArrayFerryError, AttributeError):
    """An environment was changed after it was made, as by an assignment to `self` in one of its methods."""


class EnvResultError(af.ArrayFerryError, TypeError):
    """A method of an environment returned what it must not return."""
