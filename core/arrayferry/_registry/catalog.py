"""`Catalog`: what is registered at one moment, and what follows from it.

It looks up backends by name, alias, module and array type, without importing any array library. A
catalog is filled once; after that it only caches answers. A change of the registry makes a new
catalog, so that a conversion running in another thread never sees half of a change.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType, ModuleType, NoneType
from typing import Any

from arrayferry._errors import PluginWarning, UnknownBackendError, describe_error
from arrayferry._plugin.backend import Backend, Target
from arrayferry._plugin.container import Container
from arrayferry._plugin.converter import Converter
from arrayferry._plugin.origin import Origin, Source
from arrayferry._plugin.types import resolve_type, resolve_types
from arrayferry._repr import never_raises
from arrayferry._tree.kind import Kind
from arrayferry._tree.sequences import OBJECT_ARRAY
from arrayferry._tree.structures import container_for, pytrees_are_known

from .discovery import DISABLE, LeftOut, is_built_in, is_disabled
from .generic import GenericBackend, is_namespace
from .imports import import_module

__all__ = ["Catalog"]

MAX_TYPES = 1_000
"""Types whose kind is cached at most, so that types that live shortly are not kept alive."""

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
        missing: dotted paths of types that have not been imported yet.
        pytrees: whether JAX is imported, so that its pytrees are known.
    """

    def __init__(self) -> None:
        self.arrays: dict[type, Origin] = {}
        self.deferred: dict[type, Backend] = {}
        self.containers: dict[type, Container] = {}
        self.missing: set[str] = set()
        self.pytrees = pytrees_are_known()

    def add(self, entry: Any, parts: dict[type, Any], part: Any) -> None:
        """Note which part handles a type, if that has been imported and is not handled by an earlier one."""
        found = resolve_type(entry)
        if found is None:
            self.missing.add(entry)
        else:
            parts.setdefault(found, part)


class Backends(Mapping[str, Backend]):
    """Backends by name. It cannot be changed."""

    __slots__ = ("_held",)

    def __init__(self, held: Mapping[str, Backend]) -> None:
        self._held = MappingProxyType(held)

    def __getitem__(self, name: str) -> Backend:
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._held)

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self}

    def copy(self) -> dict[str, Backend]:
        """Return them as a dict."""
        return dict(self._held)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._held)

    @never_raises
    def __repr__(self) -> str:
        known = [
            name if _installed(each) else f"{name} (not installed)" for name, each in self.items()
        ]
        return f"<Backends: {', '.join(known) or 'none'}>"


def _installed(backend: Backend) -> bool:
    try:
        return backend.installed
    except Exception:
        return False


class Catalog:
    """The backends, converters and containers that are registered at one moment.

    Attributes:
        left_out: plugins that are installed but not used, and backends.
        kinds: what types are to a conversion.
        routes: the routes that were found.
    """

    def __init__(self) -> None:
        self._backends: dict[str, Backend] = {}
        self._names: dict[str, str] = {}
        self._owners: dict[str, object] = {}
        self._paths: dict[str, str] = {}
        self._converters: tuple[Converter, ...] = ()
        self._containers: tuple[Container, ...] = ()
        self._sources: tuple[Source, ...] = ()
        self._generic: dict[str, GenericBackend] = {}
        self._types: _Types | None = None
        self.left_out: list[LeftOut] = []
        self.kinds: dict[type, Kind] = {}
        self.routes: dict[Any, Any] = {}

    def copy(self) -> Catalog:
        """Return a catalog with the same content and without any cached answer."""
        new = Catalog()
        new._backends = dict(self._backends)
        new._names = dict(self._names)
        new._owners = dict(self._owners)
        new._paths = dict(self._paths)
        new._converters = self._converters
        new._containers = self._containers
        new._sources = self._sources
        new._generic = self._generic
        new.left_out = list(self.left_out)
        return new

    # Filling.

    def conflict(self, backend: Backend) -> str:
        """Return what a backend claims that belongs to another backend, "" if nothing."""
        for name in (backend.name, backend.namespace, *backend.aliases):
            holder = self._names.get(name)
            if name and holder is not None and holder not in backend.replaces:
                return f"the name {name!r} is taken by the backend {holder!r} of {self._owners[holder]}"
        for path in backend.array_types:
            holder = self._paths.get(path)
            if holder is not None and holder not in backend.replaces:
                return f"the array type {path} is taken by the backend {holder!r} of {self._owners[holder]}"
        return ""

    def add_backend(self, backend: Backend, who: object) -> None:
        """Add a backend, and remove those that it replaces."""
        for replaced in backend.replaces:
            if self._backends.pop(replaced, None) is not None:
                self._names = {
                    name: backend.name if holder == replaced else holder
                    for name, holder in self._names.items()
                }
                self._paths = {
                    path: backend.name if holder == replaced else holder
                    for path, holder in self._paths.items()
                }
        self._backends[backend.name] = backend
        self._owners[backend.name] = who
        for name in (backend.name, backend.namespace, *backend.aliases):
            if name:
                self._names[name] = backend.name
        self._names.setdefault(backend.package, backend.name)
        for path in backend.array_types:
            self._paths[path] = backend.name

    def add_converters(self, converters: list[Converter]) -> None:
        """Add direct converters; of equal ones, the first is used."""
        self._converters += tuple(converters)

    def add_containers(self, containers: list[Container]) -> None:
        """Add containers; of several that fit a value, the first is used, a built-in one last."""
        self._containers = _built_in_last((*self._containers, *containers))

    def add_sources(self, sources: list[Source]) -> None:
        """Add sources; of several for one type, the first is used, a built-in one last."""
        self._sources = _built_in_last((*self._sources, *sources))

    def unknown_end(self, converter: Converter) -> str:
        """Return the name of an end of a converter that is not a backend, "" if both are."""
        for name in (converter.source, converter.target):
            if name not in self._backends and name not in self._generic:
                module = import_module(name)
                if module is None or not is_namespace(module):
                    return name
        return ""

    # Looking up.

    @property
    def backends(self) -> Mapping[str, Backend]:
        """All backends by name."""
        return Backends(self._backends)

    @property
    def converters(self) -> tuple[Converter, ...]:
        """The direct converters."""
        return self._converters

    @property
    def containers(self) -> tuple[Container, ...]:
        """The containers of plugins."""
        return self._containers

    @property
    def sources(self) -> tuple[Source, ...]:
        """What arrays are read from, besides arrays."""
        return self._sources

    def backend(self, to: Target) -> Backend:
        """Find a backend by name, alias, namespace module, or itself.

        Raises:
            UnknownBackendError: no backend has that name.
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
                f"{to!r:.80} is not the name of an array library",
                remedy=self._remedy(to),
                name=f"{to!r:.80}",
            )
        if found is None and module is not None:
            found = self._generic_of(module)
        if found is None:
            for source in self._sources:
                if to in (source.name, source.package):
                    raise UnknownBackendError(
                        f"arrays are only read from {source.name}, so it is no target",
                        remedy='Pass the name of an array library, such as "numpy".',
                        name=to,
                    )
            raise self._unknown(to)
        return found

    def _unknown(self, name: str) -> UnknownBackendError:
        """Return the error for a name that nothing has."""
        import difflib

        names = [*self._names, *(part.name for part in self.left_out)]
        nearest = tuple(difflib.get_close_matches(name.lower(), names, n=3))
        disabled = f", since {DISABLE} is set" if is_disabled() else ""
        known = ", ".join(sorted(self._backends)) or f"none: no plugin is loaded{disabled}"
        reason, remedy = f"no array library is known as {name!r}", f"Known are: {known}."
        own = next((part for part in self.left_out if part.name == name), None)
        if own is not None:
            reason += f": {own.why}"
        else:
            guess = f"Did you mean {nearest[0]!r}? " if nearest else ""
            remedy = (
                f"{guess}{remedy}{self._not_used()} For another one, install or write a plugin."
            )
        return UnknownBackendError(reason, remedy=remedy, name=name, nearest=nearest)

    def _not_used(self) -> str:
        """Name some plugins that are left out, those with a fault first."""
        parts = sorted(self.left_out, key=lambda part: not part.broken)
        names = list(dict.fromkeys(part.name for part in parts))
        if not names:
            return ""
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f" Left out are: {', '.join(names[:3])}{more}."

    def _remedy(self, to: Any) -> str:
        """Say what to write instead of an array or its class as a target."""
        is_class = isinstance(to, type)
        for backend in self._backends.values():
            types = tuple(resolve_types(backend.array_types))
            if types and (issubclass(to, types) if is_class else isinstance(to, types)):
                if is_class:
                    return f"Write {backend.name!r}."
                return f"Write {backend.name!r}, or like=array; the value comes first, then the target."
        return 'Pass a name such as "torch", a namespace module, or a Backend.'

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
        """Tell what a value is to a conversion. The answer is cached for its type.

        What a registered part causes is raised. What an odd value causes makes it "other".
        """
        cls = type(value)
        kind = self.kinds.get(cls)
        if kind is None:
            types = self._types or self._find_types()
            try:
                kind = self._classify(value, types)
            except (MemoryError, RecursionError):
                raise
            except Exception:  # an object so odd that even its type cannot be examined
                return _OTHER
            if kind is _OTHER and _importing(types.missing):
                return _OTHER_SO_FAR
            if len(self.kinds) >= MAX_TYPES:
                self.kinds.clear()
            self.kinds[cls] = kind
        return kind

    def _find_types(self) -> _Types:
        types = _Types()
        for path, name in self._paths.items():
            types.add(path, types.arrays, self._backends[name])
        for backend in self._backends.values():
            for path in backend.deferred_types:
                types.add(path, types.deferred, backend)
        for source in self._sources:
            for path in source.array_types:
                types.add(path, types.arrays, source)
        for container in self._containers:
            for entry in container.types:
                types.add(entry, types.containers, container)
        self._types = types
        return types

    def _classify(self, value: Any, types: _Types) -> Kind:
        """By the type alone: an object's `__class__` and attributes may say anything."""
        cls = type(value)
        container = types.containers.get(cls)
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
        backend = _origin_of(cls, types.arrays)
        if isinstance(backend, Source):
            return Kind("source", source=backend)
        if isinstance(backend, Backend):
            if numpy is not None and issubclass(cls, getattr(numpy, "ndarray", ())):
                return Kind("objects", backend, OBJECT_ARRAY)
            return Kind("array", backend)
        deferred = next((types.deferred[b] for b in cls.__mro__ if b in types.deferred), None)
        if deferred is not None:
            return Kind("deferred", deferred)
        for base, container in types.containers.items():
            if issubclass(cls, base):
                return Kind("container", container=container)
        container = self._taker(cls) or container_for(value)
        if container is not None:
            return Kind("container", container=container)
        namespace = _namespace_of(value)
        if namespace is None or self._named(namespace.__name__) is not None:
            return _OTHER  # the array types of that library are known, and this is none of them
        return Kind("array", self._generic_of(namespace))

    def _taker(self, cls: type) -> Container | None:
        """Find a registered container that takes a class that is derived from none of its types."""
        for container in self._containers:
            if type(container).takes is Container.takes:
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
        """Tell whether a registered type has been imported since types were looked up."""
        types = self._types
        return types is not None and (
            types.pytrees != pytrees_are_known()
            or any(resolve_type(path) is not None for path in types.missing)
        )


def _built_in_last(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(parts, key=is_built_in))


def _origin_of(cls: type, arrays: dict[type, Origin]) -> Origin | None:
    for base in cls.__mro__:
        backend = arrays.get(base)
        if backend is not None:
            return backend
    for base, backend in arrays.items():  # abstract base classes, such as jax.Array
        if issubclass(cls, base):
            return backend
    return None


def _importing(missing: set[str]) -> bool:
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
