"""Types to annotate code with that passes on what arrayferry takes. Importing this loads no array library.

Example:
    >>> import arrayferry as af
    >>> from arrayferry.typing import Narrowing, Target
    >>> def load(path: str, to: Target, narrowing: Narrowing = "checked"):
    ...     import numpy as np
    ...     return af.convert(np.load(path), to, narrowing=narrowing)
"""

from __future__ import annotations

from ._agnostic import Agnostic
from ._options import Narrowing, Scalars, Sparse, Unknown, Unsupported
from ._plugin.backend import Target
from ._plugin.converter import Cost
from ._plugin.origin import Memory

__all__ = [
    "Agnostic",
    "Cost",
    "Memory",
    "Narrowing",
    "Scalars",
    "Sparse",
    "Target",
    "Unknown",
    "Unsupported",
]


def __dir__() -> list[str]:
    return sorted(__all__)
