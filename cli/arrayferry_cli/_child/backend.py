"""Task: whether a library can be used here, and on which devices. It is imported for it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from arrayferry import ArrayFerryError, Backend, registry
from arrayferry._contract.same import describe_type
from arrayferry._errors import describe_error
from arrayferry._registry.discovery import is_built_in

__all__ = ["answer"]


def answer(name: str) -> Iterator[dict[str, Any]]:
    """Yield one message.

    Args:
        name: the name of a backend.
    """
    backend = registry.backend(name)
    facts: dict[str, Any] = {"devices": [], "float64": None, "problem": None, "remedy": None}
    try:
        problem = backend.problem()
        if problem is not None:
            raise problem
        facts["version"] = getattr(importlib.import_module(_top(backend)), "__version__", None)
        facts["devices"] = [str(device) for device in backend.devices()]
        dtypes = backend.dtypes()
        facts["float64"] = dtypes is None or "float64" in dtypes
        _try_out(backend)
    except ArrayFerryError as error:
        facts["problem"], facts["remedy"] = error.reason, error.remedy or None
    except Exception as error:
        facts["problem"] = f"{describe_error(error)}"
    facts["version"] = str(facts["version"]) if facts.get("version") else None
    yield facts


def _top(backend: Backend) -> str:
    return backend.package.partition(".")[0]


def _try_out(backend: Backend) -> None:
    """Take three numbers in and out."""
    import numpy as np

    values = np.array([1, 2, 3], np.float32)
    plugin = f"{type(backend).__qualname__} in {type(backend).__module__}"
    remedy = f"Change {plugin}, or report it to its authors."
    step = "from_numpy"
    try:
        array = backend.from_numpy(values.copy())
        step = "to_numpy"
        found = np.asarray(backend.to_numpy(array))
    except Exception as error:
        if is_built_in(backend):
            remedy = "Are the versions of the library and of NumPy made for each other?"
        told = describe_error(error).rstrip(" .")
        raise ArrayFerryError(f"{step}() of its plugin raised {told}", remedy=remedy) from error
    kind = registry.kind(array)
    if kind.backend is None or kind.backend.name != backend.name:
        name = describe_type(array)
        raise ArrayFerryError(
            f"from_numpy() of its plugin returned a {name}, which is none of its array_types, {backend.array_types}, so "
            "its arrays are not recognised",
            remedy=f"Set array_types to ({name!r},), if that is right: {remedy[0].lower()}{remedy[1:]}",
        )
    if not np.array_equal(found, values):
        raise ArrayFerryError(f"an array of [1, 2, 3] came back as {found}", remedy=remedy)
