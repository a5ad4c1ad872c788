"""Use a Gymnasium environment written for one array library with an agent written for another.

The adapters have the names and arguments of Gymnasium's wrappers, so that users only have to change the import. The
module `arrayferry_gym.vector` has adapters for vector environments, with the same names.
"""

from __future__ import annotations

try:
    import gymnasium  # noqa: F401
except ImportError as _error:
    from arrayferry import BackendUnavailableError

    raise BackendUnavailableError(
        "arrayferry_gym needs gymnasium, which is not installed",
        remedy="In a checkout of arrayferry, run: pip install '.[gym]'",
        backend="gymnasium",
    ) from _error

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import vector, wrappers
    from ._adapters.env import ArrayConversion, JaxToNumpy, JaxToTorch, NumpyToTorch
    from ._adapters.functions import (
        array_conversion,
        jax_to_numpy,
        jax_to_torch,
        numpy_to_jax,
        numpy_to_torch,
        torch_to_jax,
        torch_to_numpy,
    )
    from ._adapters.simulator import from_simulator
    from ._advantages import advantages
    from ._random import Random, RandomFactory, check_integers, make_rng

__all__ = [
    "ArrayConversion",
    "JaxToNumpy",
    "JaxToTorch",
    "NumpyToTorch",
    "Random",
    "RandomFactory",
    "advantages",
    "array_conversion",
    "check_integers",
    "from_simulator",
    "jax_to_numpy",
    "jax_to_torch",
    "make_rng",
    "numpy_to_jax",
    "numpy_to_torch",
    "torch_to_jax",
    "torch_to_numpy",
    "vector",
    "wrappers",
]

_PLACES = {
    **dict.fromkeys(
        ("ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch"), "_adapters.env"
    ),
    **dict.fromkeys(("Random", "RandomFactory", "check_integers", "make_rng"), "_random"),
    "advantages": "_advantages",
    "from_simulator": "_adapters.simulator",
}
"""The modules that define these names. A module is imported when one of its names is first used."""


if not TYPE_CHECKING:  # type checkers that see `__getattr__` would accept any name

    def __getattr__(name: str) -> Any:
        if name in ("vector", "wrappers"):
            return importlib.import_module(f".{name}", __name__)
        if name not in __all__:
            from ._options.refusals import MOVED, missing_adapter, moved

            raise moved(name) if name in MOVED else missing_adapter(__name__, name)
        module = importlib.import_module(f".{_PLACES.get(name, '_adapters.functions')}", __name__)
        globals()[name] = value = getattr(module, name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
