"""Task: whether a library can be used here, and on which devices. The library is imported for this."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from arrayferry import ArrayFerryError, Backend, registry
from arrayferry.inspection import Origin, describe_value, is_built_in

Facts = dict[str, Any]
Announce = Callable[[str, str], None]


def examine(step: Announce, kind: str, name: str) -> Facts:
    """Return the version of a library and its devices.

    Args:
        step: called with what is done next, and what to do if that fails.
        kind: "backend" or "source".
        name: the name of the backend, or the package of the sources.

    Raises:
        ArrayFerryError: the library cannot be used here, or a few numbers came back as something else.
    """
    facts: Facts = {}
    sources = [source for source in registry.sources() if source.package == name]
    for origin in sources if kind == "source" else [registry.backend(name)]:
        _import(step, origin, facts)
        if isinstance(origin, Backend):
            _try_out(step, origin, facts)
    return facts


def _import(step: Announce, origin: Origin, facts: Facts) -> None:
    """Import a library.

    Raises:
        BackendUnavailableError: it cannot be used here.
    """
    top = origin.package.partition(".")[0]
    step(f"importing {origin.package}", f"Update or reinstall {top}.")
    problem = origin.problem()
    if problem is not None:
        raise problem
    version = getattr(importlib.import_module(top), "__version__", None)
    facts["version"] = " ".join(str(version).split()) if version else None


def _try_out(step: Announce, backend: Backend, facts: Facts) -> None:
    """Ask the plugin of a library, and convert a few numbers in both directions.

    Raises:
        ArrayFerryError: the numbers came back as something else.
    """
    import numpy as np

    change = f"Change {type(backend).__qualname__} in {type(backend).__module__}, or report it to its authors."
    step("devices() of its plugin", change)
    facts["devices"] = [str(device) for device in backend.devices()]
    step("default_device() of its plugin", change)
    facts["default_device"] = str(backend.default_device())
    step("dtypes() of its plugin", change)
    dtypes = backend.dtypes()
    facts["float64"] = dtypes is None or "float64" in dtypes
    known = [name for name in ("float32", "int32", "bool") if dtypes is None or name in dtypes]
    if not known:
        return
    if is_built_in(backend):
        change = "Are the versions of the library and of NumPy made for each other?"
    values = np.array([[1, 0, 1], [0, 1, 0]], known[0])
    step("from_numpy() of its plugin", change)
    array = backend.from_numpy(values.copy())
    if not registry.kind(array).is_array_of(backend):
        raise ArrayFerryError(
            f"from_numpy() of its plugin returned {describe_value(array)}, which is none of its array_types, "
            f"{backend.array_types}, so its arrays are not recognised",
            remedy=change,
        )
    step("to_numpy() of its plugin", change)
    returned = backend.to_numpy(array)
    if not isinstance(returned, np.ndarray):
        raise ArrayFerryError(
            f"to_numpy() of its plugin returned {describe_value(returned)}, not a numpy.ndarray",
            remedy=change,
        )
    if returned.dtype != values.dtype or not np.array_equal(returned, values):
        raise ArrayFerryError(
            f"an array of {values.tolist()} and dtype {values.dtype} came back as "
            f"{returned.tolist()} and dtype {returned.dtype}",
            remedy=f"to_numpy() or from_numpy() is wrong. {change}",
        )
