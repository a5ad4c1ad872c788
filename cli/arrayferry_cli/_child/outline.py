"""Task: what a new plugin would clash with, and what can be seen of its library."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from types import ModuleType
from typing import Any

from arrayferry import STANDARD_DTYPES, Backend, registry
from arrayferry.adapting import describe_error
from arrayferry.inspection import array_classes
from arrayferry_cli._reports import Conflict, Outline

MAKERS = ("asarray", "array", "from_numpy", "tensor", "constant")
READERS = ("np.asarray(x)", "np.from_dlpack(x)", "x.to_numpy()", "x.numpy()")


def answer(name: str, package: str) -> Iterator[Conflict | Outline]:
    """Yield a conflict of names; or what is known of the library, first without importing it.

    Args:
        name: the name of the new backend.
        package: the module of its library.
    """
    conflict = registry.catalog.conflict(_Named(name))
    for backend in registry.backends().values():
        if package in (backend.package, backend.namespace):
            conflict = conflict or f"{package} has a backend already, {backend.name!r}"
    if conflict:
        yield Conflict(conflict)
        return
    top = package.partition(".")[0]
    try:
        installed = importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        installed = False
    if not installed:
        yield Outline(missing=f"{top} is not installed here")
        return
    distribution = next(iter(packages_distributions().get(top, ())), None)
    yield Outline(distribution)
    try:
        module = importlib.import_module(package)
    except Exception as error:
        why = f"importing {package} failed with {describe_error(error)}"
        yield Outline(distribution, missing=why)
        return
    yield _outline(module, package, distribution)


class _Named(Backend):
    """A backend that claims nothing but a name."""

    array_types = ()

    def __init__(self, name: str) -> None:
        self.name = self.package = name

    def to_numpy(self, x: Any) -> Any:
        """Refuse: it has no arrays."""
        raise NotImplementedError

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        """Refuse: it has no arrays."""
        raise NotImplementedError


def _outline(module: ModuleType, package: str, distribution: str | None) -> Conflict | Outline:
    import numpy as np

    made: tuple[str, str] | None = None
    for name in MAKERS:
        make = getattr(module, name, None)
        try:
            array: Any = make(np.array([[1.0, 2.0, 3.0]], np.float32))  # type: ignore[misc]
        except Exception:
            continue
        if isinstance(array, np.ndarray) or array is None:
            continue
        path = _path(type(array), module, package)
        owner = registry.kind(array).backend
        if owner is not None and owner.name in registry.backends():
            return Conflict(f"{path} is an array of the backend {owner.name!r}")
        for expression in READERS:
            held = sorted(d for d in STANDARD_DTYPES if _survives(make, expression, d))
            if "float32" in held:
                return Outline(distribution, name, expression, held, [path], _memory(array))
        made = made or (name, path)
    calls = ", ".join(f"{name}()" for name in MAKERS)
    if made is None:
        why = f"no array came out of {calls} of {package}"
        return Outline(distribution, classes=array_classes(module), missing=why)
    name, path = made
    why = f"it is not known how values are read from a {path}"
    return Outline(distribution, name, classes=[path], missing=why)


def _memory(array: Any) -> str:
    """Tell whether an array can be written to, "unknown" if not in the usual way."""
    try:
        array[...] = 0
    except Exception:
        return "unknown"
    return "writable"


def _survives(make: Any, expression: str, dtype: str) -> bool:
    """Tell whether values of a dtype, with and without dimensions, come back as they were."""
    import numpy as np

    for shape in ((2, 3), (), (0,)):
        values = np.ones(shape, dtype)
        try:
            returned = eval(expression, {"np": np, "x": make(values.copy())})
        except Exception:
            return False
        right = (
            type(returned) is np.ndarray
            and returned.dtype == values.dtype
            and returned.shape == shape
        )
        if not right or not (returned == values).all():
            return False
    return True


def _path(cls: type, module: ModuleType, package: str) -> str:
    """Return the dotted path of a type as a user would write it."""
    for name, value in vars(module).items():
        if value is cls and not name.startswith("_"):
            return f"{package}.{name}"
    return f"{cls.__module__}.{cls.__qualname__}"
