"""Types for annotations of code that calls arrayferry. Importing this module imports no array library.

The types of arrays, such as `TorchArray`, are only for type checkers. At run time they are `Any`, since the libraries
may not be installed. Use these types to write an overload for each target:

    @overload
    def load(path: str, to: ToTorch) -> TorchArray: ...
    @overload
    def load(path: str, to: ToJax) -> JaxArray: ...

- `NumpyArray`, `TorchArray`, `JaxArray`, `CupyArray`, `DaskArray`: arrays of one library.
- `ToNumpy`, `ToTorch`, `ToJax`, `ToCupy`, `ToDask`: the names of one library as a target, such as "jax" or "jnp".
- `AnyArray`, `AnyTree`, `Device`, `Namespace`: types of arguments for functions that accept every library.
- `Array`: an array or a NumPy scalar of numbers or bools, but not of text or objects.
- `Keywords`: the options of `convert`, for `**options: Unpack[Keywords]`.

Example:
    >>> import arrayferry as af
    >>> from arrayferry.typing import Narrowing, Target
    >>> def load(path: str, to: Target, narrowing: Narrowing = "checked"):
    ...     import numpy as np
    ...     return af.convert(np.load(path), to, narrowing=narrowing)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._options import Narrowing, Scalars, Sparse, Unknown, Unsupported
from ._plugin.backend import Target
from ._plugin.converter import Cost
from ._plugin.origin import Memory
from ._types import AnyArray, AnyTree, Device, Namespace, ToCupy, ToDask, ToJax, ToNumpy, ToTorch

if TYPE_CHECKING:
    from ._options import Keywords
    from ._types import Array, CupyArray, DaskArray, JaxArray, NumpyArray, TorchArray
else:
    Keywords = dict
    Array = NumpyArray = TorchArray = JaxArray = CupyArray = DaskArray = Any

__all__ = [
    "AnyArray",
    "AnyTree",
    "Array",
    "Cost",
    "CupyArray",
    "DaskArray",
    "Device",
    "JaxArray",
    "Keywords",
    "Memory",
    "Namespace",
    "Narrowing",
    "NumpyArray",
    "Scalars",
    "Sparse",
    "Target",
    "ToCupy",
    "ToDask",
    "ToJax",
    "ToNumpy",
    "ToTorch",
    "TorchArray",
    "Unknown",
    "Unsupported",
]


def __dir__() -> list[str]:
    return sorted(__all__)
