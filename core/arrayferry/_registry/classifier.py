"""`Classifier`: what values are to a conversion, by their types alone."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from types import ModuleType, NoneType
from typing import Any

from arrayferry._errors import PluginWarning, describe_error
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import overrides
from arrayferry._plugin.container import Container
from arrayferry._plugin.origin import Origin, Source
from arrayferry._plugin.types import resolve_type
from arrayferry._tree.kind import Kind
from arrayferry._tree.sequences import OBJECT_ARRAY
from arrayferry._tree.structures import container_for, pytrees_are_known

from .claims import Claims

__all__ = ["Classifier"]

_OTHER = Kind("other")
_OTHER_SO_FAR = Kind("other", settled=False)
_NUMBER = Kind("number")
_SCALAR = Kind("scalar")


class _Types:
    """The registered types that have been imported by now.

    Attributes:
        arrays: array types and their backends, and the types of sources and their sources.
        deferred: types of values that are yet to be computed, and the backends that compute them.
        containers: container types and their containers, in the order in which they are asked.
        found: the type at each dotted path, None if it has not been imported yet.
        pytrees: whether JAX is imported, so that its pytrees are known.
    """

    def __init__(self) -> None:
        self.arrays: dict[type, Origin] = {}
        self.deferred: dict[type, Backend] = {}
        self.containers: dict[type, Container] = {}
        self.found: dict[str, type | None] = {}
        self.pytrees = pytrees_are_known()
        self._by_name: dict[tuple[str, str], type] = {}

    def add(self, entry: Any, parts: dict[type, Any], part: Any) -> Any:
        """Note which part handles a type, if that has been imported. Return another part that already does."""
        cls = resolve_type(entry)
        if cls is not entry:
            self.found[entry] = cls
            if cls is not None and "<locals>" not in cls.__qualname__:
                self._by_name[cls.__module__, cls.__qualname__] = cls
        if cls is None:
            return None
        holder = parts.setdefault(cls, part)
        return None if holder is part else holder

    def mro(self, cls: type) -> list[type]:
        """Return the bases of a type, with what is at a path now for what was there before a module was run again."""
        by_name = self._by_name
        return [by_name.get((base.__module__, base.__qualname__), base) for base in cls.__mro__]


class Classifier:
    """Tells what values are, from the types that have been imported when it is made.

    Args:
        backends: the backends.
        sources: the sources, in the order in which they are asked.
        containers: the containers, in that order.
        claims: which array type belongs to which part.
        told: the types that two parts claim, for which a warning has been issued already.
    """

    def __init__(
        self,
        backends: Iterable[Backend],
        sources: Sequence[Source],
        containers: Sequence[Container],
        claims: Claims,
        told: set[tuple[int, str]],
    ) -> None:
        self._backends = backends
        self._sources = sources
        self._containers = containers
        self._claims = claims
        self._told = told
        self._types = self._find_types()

    def kind(
        self, value: Any, generic: Callable[[ModuleType], Backend | None]
    ) -> tuple[Kind, bool]:
        """Tell what a value is.

        Args:
            value: anything.
            generic: returns a backend for a namespace of the Array API, None if a plugin handles its library.

        Returns:
            What it is, and whether that holds for all values of its type from now on.
        """
        types = self._types
        try:
            kind = self._classify(value, types, generic)
        except (MemoryError, RecursionError):
            raise
        except Exception:  # an object so odd that even its type cannot be examined
            return _OTHER, False
        if kind is _OTHER and _importing(path for path, cls in types.found.items() if cls is None):
            return _OTHER_SO_FAR, False
        return kind, True

    def _find_types(self) -> _Types:
        types = _Types()
        order = {id(source): place for place, source in enumerate(self._sources, 1)}
        paths = sorted(self._claims.paths.items(), key=lambda item: order.get(id(item[1]), 0))
        twice = [(path, part, types.add(path, types.arrays, part)) for path, part in paths]
        for backend in self._backends:
            for path in backend.deferred_types:
                types.add(path, types.deferred, backend)
        for container in self._containers:
            for entry in container.types:
                types.add(entry, types.containers, container)
        for path, part, holder in twice:
            if holder is not None and (id(part), path) not in self._told:
                self._told.add((id(part), path))
                warnings.warn(
                    f"arrayferry does not use {self._claims.describe(part)} for {path}: that type is taken by "
                    f"{self._claims.describe(holder)} under another path",
                    PluginWarning,
                    stacklevel=2,
                )
        return types

    def _classify(
        self, value: Any, types: _Types, generic: Callable[[ModuleType], Backend | None]
    ) -> Kind:
        """Classify by the type alone: an object's `__class__` and attributes may say anything."""
        cls = type(value)
        mro = types.mro(cls)
        container = types.containers.get(mro[0])
        if container is not None:
            return Kind("container", container=container)
        if cls in (bool, int, float, complex):
            return _NUMBER
        if issubclass(cls, (NoneType, str, bytes, bytearray, memoryview, type, ModuleType, Enum)):
            return _OTHER
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None and issubclass(cls, getattr(numpy, "generic", ())):
            words = (numpy.character, numpy.void, numpy.datetime64, numpy.timedelta64)
            return _OTHER if issubclass(cls, words) else _SCALAR
        backend = _origin_of(cls, mro, types.arrays)
        if isinstance(backend, Source):
            return Kind("source", source=backend)
        if isinstance(backend, Backend):
            if numpy is not None and issubclass(cls, getattr(numpy, "ndarray", ())):
                return Kind("objects", backend, OBJECT_ARRAY)
            return Kind("array", backend)
        deferred = next((types.deferred[b] for b in mro if b in types.deferred), None)
        if deferred is not None:
            return Kind("deferred", deferred)
        for base, container in types.containers.items():
            if any(each is base for each in mro) or issubclass(cls, base):
                return Kind("container", container=container)
        container = self._asked_container(cls) or container_for(value)
        if container is not None:
            return Kind("container", container=container)
        namespace = _namespace_of(value)
        backend = None if namespace is None else generic(namespace)
        # if a plugin handles the library, its array types are known, and this is none of them
        return _OTHER if backend is None else Kind("array", backend)

    def _asked_container(self, cls: type) -> Container | None:
        """Find a registered container that takes a class, although the class is derived from none of its types."""
        for container in self._containers:
            if not overrides(container, Container.takes):
                continue
            try:
                if container.takes(cls):
                    return container
            except Exception as error:
                warnings.warn(
                    f"takes() of the container {type(container).__qualname__} of "
                    f"{type(container).__module__} failed for {cls.__qualname__} ({describe_error(error)})",
                    PluginWarning,
                    stacklevel=2,
                )
        return None

    def outdated(self) -> bool:
        """Tell whether another type is at a registered path than when types were looked up."""
        types = self._types
        return types.pytrees != pytrees_are_known() or any(
            (now := resolve_type(path)) is not None and now is not cls
            for path, cls in types.found.items()
        )


def _origin_of(cls: type, mro: list[type], arrays: dict[type, Origin]) -> Origin | None:
    for base in mro:
        backend = arrays.get(base)
        if backend is not None:
            return backend
    for base, backend in arrays.items():  # abstract base classes, such as jax.Array
        if issubclass(cls, base):
            return backend
    return None


def _importing(missing: Iterable[str]) -> bool:
    """Tell whether a package with one of these types is being imported now, by another thread."""
    for top in {path.partition(".")[0] for path in missing}:
        spec = getattr(sys.modules.get(top), "__spec__", None)
        if getattr(spec, "_initializing", False):
            return True
    return False


def _namespace_of(value: Any) -> ModuleType | None:
    if not any("__array_namespace__" in base.__dict__ for base in type(value).__mro__):
        return None
    try:
        namespace = value.__array_namespace__()
    except Exception:
        return None
    return namespace if isinstance(namespace, ModuleType) else None
