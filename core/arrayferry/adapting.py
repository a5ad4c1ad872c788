"""Tools for packages that build on arrayferry, besides its conversions. The adapters and the built-in plugins use them.

    from arrayferry.adapting import map_arrays, never_raises, observed_read, observers

- `map_arrays` calls a function with every array of a tree.
- `observers` and `observed_read` make reads of numbers visible to `arrayferry.trace`.
- `never_raises`, `describe_error` and `printable` write objects, errors and text for people.
- `exact_key` returns a key for the type and the contents of a value, and `IdentityKey` is one for an object itself.
- `dtype_named` finds a dtype of NumPy or `ml_dtypes` by its name, and `dtype_info` says which numbers it holds.
- `check_integers` checks the arguments of `Random.integers`.
- `refuse_more_than_values` raises for arrays with units or a mask.
- `Cache` is a dict of limited size, `CostlyCache` one for values that take long to make.
- `once` is a decorator for an attribute that is computed on first use.
- `Threads` is a pool of threads for calls that may hang.

Types to annotate such packages with are in `arrayferry.typing`. Importing this loads no array library.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from ._cache import Cache, CostlyCache, once
from ._dtypes import DtypeInfo, dtype_info, dtype_named
from ._errors import ConversionError, describe_error
from ._observers import observers
from ._plugin.random import check_integers
from ._registry.registry import default_registry
from ._repr import never_raises, printable
from ._tree.keys import IdentityKey, exact_key
from ._tree.tree import Tree
from ._tree.values import refuse_more_than_values

if TYPE_CHECKING:
    from ._plugin.threads import Threads
    from ._trace.watch import observed_read
    from ._types import K, V, X

__all__ = [
    "Cache",
    "CostlyCache",
    "DtypeInfo",
    "IdentityKey",
    "Threads",
    "check_integers",
    "describe_error",
    "dtype_info",
    "dtype_named",
    "exact_key",
    "map_arrays",
    "never_raises",
    "observed_read",
    "observers",
    "once",
    "printable",
    "refuse_more_than_values",
]


@overload
def map_arrays(function: Callable[[Any], V], value: X) -> V: ...
@overload
def map_arrays(function: Callable[[Any], V], value: dict[K, Any]) -> dict[K, Any]: ...
@overload
def map_arrays(function: Callable[[Any], V], value: Any) -> Any: ...
def map_arrays(function: Callable[[Any], Any], value: Any) -> Any:
    """Call a function with every array in a tree, and return the tree of its results.

    Args:
        function: takes an array.
        value: an array, a tree, or any other value. It is never modified.

    Raises:
        ConversionError: the function raised it. The place in the tree is added.
        StructureError: the tree is cyclic or too deep, or cannot hold the results.

    Examples:
        >>> import numpy as np
        >>> from arrayferry.adapting import map_arrays
        >>> map_arrays(np.shape, {"image": np.zeros((4, 3)), "name": "cart"})
        {'image': (4, 3), 'name': 'cart'}
    """
    tree = Tree(value, default_registry().catalog.kind)
    results = []
    for index, array in enumerate(tree.arrays):
        try:
            results.append(function(array))
        except ConversionError as error:
            error.locate(path=tree.path_of(index))
            raise
    return tree.build(results)


_PLACES = {"Threads": "_plugin.threads", "observed_read": "_trace.watch"}
"""The names that most plugins do not need. They are imported on first use."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        module = importlib.import_module(f".{_PLACES[name]}", __package__)
        globals()[name] = value = getattr(module, name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
