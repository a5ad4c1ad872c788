"""Functions across libraries: written for one, called with arrays of any, with gradients."""

from ._agnostic import Agnostic as Agnostic
from ._agnostic import agnostic as agnostic

__all__ = ["Agnostic", "agnostic"]
