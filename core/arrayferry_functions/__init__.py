"""Functions that are written for one library, accept arrays of any library, and support gradients."""

from ._agnostic import Agnostic as Agnostic
from ._agnostic import agnostic as agnostic
from ._autodiff import Autodiff as Autodiff
from ._autodiff import Crossing as Crossing
from ._autodiff import Flat as Flat
from ._autodiff import autodiff_of as autodiff_of

__all__ = ["Agnostic", "Autodiff", "Crossing", "Flat", "agnostic", "autodiff_of"]
