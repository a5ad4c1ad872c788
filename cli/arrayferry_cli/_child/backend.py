"""Task: whether a library can be used here, and on which devices. The library is imported for this."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from arrayferry import ArrayFerryError, Backend, registry
from arrayferry.adapting import describe_error
from arrayferry.inspection import describe_value, is_built_in
from arrayferry_cli._reports import Doing, Facts


def answer(name: str) -> Iterator[Doing | Facts]:
    """Yield each step before it is taken, with what to do if it fails; and at the end what was found.

    Args:
        name: the name of a backend.
    """
    backend = registry.backend(name)
    facts = Facts()
    step = ""
    try:
        for step, remedy in _look(backend, facts):
            facts.remedy = remedy
            yield Doing(step, remedy)
        facts.remedy = None
    except ArrayFerryError as error:
        facts.problem, facts.remedy = error.reason, error.remedy or facts.remedy
    except Exception as error:
        facts.problem = f"{step} raised {describe_error(error).rstrip(' .')}"
    yield facts


def _look(backend: Backend, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield what is called next, and what to do if that fails."""
    package = backend.package
    yield f"importing {package}", f"Update or reinstall {package.partition('.')[0]}."
    problem = backend.problem()
    if problem is not None:
        facts.remedy = None  # the problem has its own, if there is one
        raise problem
    top = importlib.import_module(package.partition(".")[0])
    version = getattr(top, "__version__", None)
    facts.version = str(version) if version else None
    change = f"Change {type(backend).__qualname__} in {type(backend).__module__}, or report it to its authors."
    yield "devices() of its plugin", change
    facts.devices = [str(device) for device in backend.devices()]
    yield "dtypes() of its plugin", change
    dtypes = backend.dtypes()
    facts.float64 = dtypes is None or "float64" in dtypes
    if is_built_in(backend):
        change = "Are the versions of the library and of NumPy made for each other?"
    yield from _try_out(backend, dtypes, change)


def _try_out(backend: Backend, dtypes: Any, change: str) -> Iterator[tuple[str, str]]:
    """Convert a few numbers in both directions."""
    import numpy as np

    known = [name for name in ("float32", "int32", "bool") if dtypes is None or name in dtypes]
    if not known:
        return
    values = np.array([[1, 0, 1], [0, 1, 0]], known[0])
    yield "from_numpy() of its plugin", change
    array = backend.from_numpy(values.copy())
    if not registry.kind(array).is_array_of(backend):
        raise ArrayFerryError(
            f"from_numpy() of its plugin returned {describe_value(array)}, which is none of its array_types, "
            f"{backend.array_types}, so its arrays are not recognised",
            remedy=change,
        )
    yield "to_numpy() of its plugin", change
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
