"""`Catalog`: what is registered at one moment, and what follows from it.

It answers by name, alias, module and array type, and imports no array library to do so. A catalog
is filled once and then only remembers what it was asked; a change makes a new one, so that a
conversion under way in another thread never sees half of a change.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType, ModuleType, NoneType
from typing import Any, Literal, NamedTuple

from ._backend import Backend
from ._container import Container
from ._converter import Converter
from ._errors import UnknownBackendError
from ._generic import GenericBackend, is_namespace
from ._imports import import_module, resolve_types
from ._structures import OBJECT_ARRAY, container_for

__all__ = ["Catalog", "Kind"]

_MOST_TYPES = 20_000


class Kind(NamedTuple):
    """What a type of value is to a conversion, and who serves it.

    Attributes:
        what: "array"; "objects" for a NumPy array, which may hold objects; "scalar" for NumPy's
            numbers; "number" for Python's; "container"; or "other".
        by: the backend, the container, or both.
    """

    what: Literal["array", "objects", "scalar", "number", "container", "other"]
    by: Any = None


_OTHER = Kind("other")
_NUMBER = Kind("number")
_SCALAR = Kind("scalar")


class Catalog:
    """The backends, converters and containers that are registered at one moment."""

    def __init__(self) -> None:
        self._backends: dict[str, Backend] = {}
        self._names: dict[str, str] = {}
        self._owners: dict[str, object] = {}
        self._types: dict[str, str] = {}
        self._converters: tuple[Converter, ...] = ()
        self._containers: tuple[Container, ...] = ()
        self._generic: dict[str, GenericBackend] = {}
        self._classes: dict[type, Backend] | None = None
        self._imported: frozenset[str] = frozenset()
        self.kinds: dict[type, Kind] = {}
        self.routes: dict[Any, Any] = {}

    def copy(self) -> Catalog:
        """Give a catalog of the same content that has not been asked anything yet."""
        new = Catalog()
        new._backends = dict(self._backends)
        new._names = dict(self._names)
        new._owners = dict(self._owners)
        new._types = dict(self._types)
        new._converters = self._converters
        new._containers = self._containers
        new._generic = self._generic
        return new

    # Filling it.

    def conflict(self, backend: Backend) -> str:
        """Say what a backend claims that another one has already, "" if nothing."""
        for name in (backend.name, backend.namespace, *backend.aliases):
            holder = self._names.get(name)
            if name and holder is not None and holder not in backend.replaces:
                return f"the name {name!r} is taken by the backend {holder!r} of {self._owners[holder]}"
        for path in backend.array_types:
            holder = self._types.get(path)
            if holder is not None and holder not in backend.replaces:
                return f"the array type {path} is taken by the backend {holder!r} of {self._owners[holder]}"
        return ""

    def add_backend(self, backend: Backend, who: object) -> None:
        """Add a backend, taking out those that it replaces."""
        for replaced in backend.replaces:
            if self._backends.pop(replaced, None) is not None:
                self._names = {
                    name: backend.name if holder == replaced else holder
                    for name, holder in self._names.items()
                }
                self._types = {
                    path: backend.name if holder == replaced else holder
                    for path, holder in self._types.items()
                }
        self._backends[backend.name] = backend
        self._owners[backend.name] = who
        for name in (backend.name, backend.namespace, *backend.aliases):
            if name:
                self._names[name] = backend.name
        self._names.setdefault(backend.package, backend.name)
        for path in backend.array_types:
            self._types[path] = backend.name

    def add_converters(self, converters: list[Converter]) -> None:
        """Add direct crossings; of equals, the first is taken."""
        self._converters += tuple(converters)

    def add_containers(self, containers: list[Container]) -> None:
        """Add structures to look inside; of several that fit a value, the first is taken."""
        self._containers += tuple(containers)

    # Asking it.

    @property
    def backends(self) -> Mapping[str, Backend]:
        """Every known name and its backend."""
        return MappingProxyType(self._backends)

    @property
    def converters(self) -> tuple[Converter, ...]:
        """The direct crossings."""
        return self._converters

    def backend(self, to: str | ModuleType | Backend) -> Backend:
        """Find a backend by name, alias, namespace module, or itself.

        Raises:
            UnknownBackendError: nothing is known under that name.
        """
        if isinstance(to, Backend):
            return self._backends.get(to.name, to)
        if isinstance(to, str):
            found = self._named(to)
            module = import_module(to) if found is None else None
            module = module if module is not None and is_namespace(module) else None
        elif isinstance(to, ModuleType):
            found = self._named(to.__name__)
            module = to if is_namespace(to) else None
            to = to.__name__
        else:
            raise UnknownBackendError(
                f"{to!r:.80} does not name an array library",
                remedy='Pass a name such as "torch", a namespace module, or a Backend.',
                name=f"{to!r:.80}",
            )
        if found is None and module is not None:
            found = self._generic_of(module)
        if found is None:
            import difflib

            nearest = tuple(difflib.get_close_matches(to.lower(), self._names, n=3))
            guess = f"Did you mean {nearest[0]!r}? " if nearest else ""
            known = ", ".join(sorted(self._backends)) or "none, since no plugin is loaded"
            raise UnknownBackendError(
                f"no array library is known as {to!r}",
                remedy=f"{guess}Known are: {known}. Plugins bring others.",
                name=to,
                nearest=nearest,
            )
        return found

    def _named(self, name: str) -> Backend | None:
        for spelled in (name, name.lower(), name.removeprefix("array_api_compat.")):
            found = self._names.get(spelled)
            if found is not None:
                return self._backends[found]
        return None

    def _generic_of(self, namespace: ModuleType) -> Backend:
        known = self._named(namespace.__name__)
        if known is not None:
            return known
        return self._generic.setdefault(namespace.__name__, GenericBackend(namespace))

    def kind(self, value: Any) -> Kind:
        """Tell what a value is to a conversion. The answer is remembered for its type."""
        cls = type(value)
        kind = self.kinds.get(cls)
        if kind is None:
            try:
                kind = self._classify(value)
            except Exception:  # an object so odd that looking at it fails is left alone
                return _OTHER
            if len(self.kinds) > _MOST_TYPES:
                self.kinds.clear()
            self.kinds[cls] = kind
        return kind

    def _classify(self, value: Any) -> Kind:
        """By its type alone: what an object says of its class, or answers to names, is not trusted."""
        cls = type(value)
        if cls in (bool, int, float, complex):
            return _NUMBER
        if issubclass(cls, (NoneType, str, bytes, bytearray, memoryview, type, ModuleType, Enum)):
            return _OTHER
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None and issubclass(cls, getattr(numpy, "generic", ())):
            words = (numpy.character, numpy.void, numpy.datetime64, numpy.timedelta64)
            return _OTHER if issubclass(cls, words) else _SCALAR
        backend = self._backend_of(cls)
        if backend is not None:
            if numpy is not None and issubclass(cls, getattr(numpy, "ndarray", ())):
                return Kind("objects", (backend, OBJECT_ARRAY))
            return Kind("array", backend)
        for container in self._containers:
            if issubclass(cls, tuple(resolve_types(container.types))):
                return Kind("container", container)
        found = container_for(value)
        if found is not None:
            return Kind("container", found)
        namespace = _namespace_of(value)
        if namespace is None or self._named(namespace.__name__) is not None:
            return _OTHER  # of a library whose array types are known, this is none
        return Kind("array", self._generic_of(namespace))

    def _backend_of(self, cls: type) -> Backend | None:
        if self._classes is None:
            self._imported = self._imported_now()
            classes: dict[type, Backend] = {}
            for path, name in self._types.items():
                for found in resolve_types((path,)):
                    classes.setdefault(found, self._backends[name])
            self._classes = classes
        for base in cls.__mro__:
            backend = self._classes.get(base)
            if backend is not None:
                return backend
        for found, backend in self._classes.items():
            if issubclass(cls, found):
                return backend
        return None

    def outdated(self) -> bool:
        """Whether a library of a backend has been imported since array types were looked up."""
        return self._classes is not None and self._imported != self._imported_now()

    def _imported_now(self) -> frozenset[str]:
        modules = {path.rpartition(".")[0] for path in self._types} | {"jax"}
        return frozenset(module for module in modules if module in sys.modules)


def _namespace_of(value: Any) -> ModuleType | None:
    if not any("__array_namespace__" in base.__dict__ for base in type(value).__mro__):
        return None
    try:
        namespace = value.__array_namespace__()
    except Exception:
        return None
    return namespace if isinstance(namespace, ModuleType) else None
