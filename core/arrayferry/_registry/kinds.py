"""`Kinds`: how a conversion treats values, by their types alone."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from types import ModuleType, NoneType
from typing import Any

from arrayferry._errors import describe_error
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import overrides
from arrayferry._plugin.container import Container
from arrayferry._plugin.origin import Source
from arrayferry._plugin.types import is_importing, resolve_type
from arrayferry._tree.kind import Kind
from arrayferry._tree.sequences import OBJECT_ARRAY
from arrayferry._tree.state import class_attribute
from arrayferry._tree.structures import EXACT, container_for
from arrayferry._types import AnyTree
from arrayferry._utilities.cache import Cache

from .plugins import Contribution

MAX_TYPES = 1_000
"""The maximum number of types whose kinds are cached. Without a limit, short-lived types would stay in memory."""

BUILT_IN = frozenset((*(cls for cls in vars(builtins).values() if isinstance(cls, type)), NoneType))
"""Types of Python itself. Their kinds do not change when a library is imported."""

OTHER = Kind("other")
_OTHER_SO_FAR = Kind("other", cacheable=False)
_NUMBER = Kind("number")


class Kinds:
    """The kinds of values: how a conversion treats each type. Registered types are looked up in imported modules.

    Args:
        arrays: the backend or source that owns each type, by the dotted path of the type.
        containers: the containers, in the order in which they are tried.
        generic: a function that maps an Array API namespace to a backend, or to None if a plugin handles the library.
        warn: a function to call with the text of a warning.

    Attributes:
        arrays: maps each registered type of a backend or source to its kind.
        cached: the kinds of the types of values that were classified before, by type.
        fresh: True until the first value is classified. While it is True, registered types are not looked up again.
    """

    def __init__(
        self,
        arrays: Mapping[str, Contribution],
        containers: Sequence[Container],
        generic: Callable[[ModuleType], Backend | None],
        warn: Callable[[str], None],
    ) -> None:
        self.cached: Cache[type, Kind] = Cache(MAX_TYPES)
        self.fresh = True
        entries = (*arrays, *(entry for container in containers for entry in container.types))
        # the type at each dotted path, or None if it has not been imported yet
        self._found = {path: resolve_type(path) for path in entries if not isinstance(path, type)}
        # the type by its module and qualified name, or None if several types have both
        self._by_name: dict[tuple[str, str], type | None] = {}
        self.arrays: dict[type, Kind] = {}
        self._containers: dict[type, Kind] = {}
        self._asking = [each for each in containers if overrides(each, Container.takes)]
        self._generic = generic
        self._warn = warn
        for imported_type in filter(None, self._found.values()):
            if "<locals>" not in imported_type.__qualname__:
                full_name = imported_type.__module__, imported_type.__qualname__
                is_unique = self._by_name.get(full_name, imported_type) is imported_type
                self._by_name[full_name] = imported_type if is_unique else None
        owners: dict[type, Contribution] = {}
        for path, owner in sorted(arrays.items(), key=lambda claim: claim[1].kind is Source):
            cls, part = self._found[path], owner.part
            if cls is None or self._cannot_be_asked(cls, owner):
                continue
            kind = Kind("array", part) if isinstance(part, Backend) else Kind("source", source=part)
            self.arrays.setdefault(cls, kind)
            first_owner = owners.setdefault(cls, owner)
            if first_owner.part is not part:
                warn(
                    f"arrayferry does not use {owner} for {path}: {first_owner} lists that type by another path"
                )
        for container in containers:
            for entry in container.types:
                cls = entry if isinstance(entry, type) else self._found[entry]
                if cls is not None and not self._cannot_be_asked(cls, container):
                    self._containers.setdefault(cls, Kind("container", container=container))

    def _cannot_be_asked(self, cls: type, owner: object) -> bool:
        """Return whether `issubclass` fails for a class, as for a Protocol with attributes. If so, warn."""
        try:
            issubclass(object, cls)
        except Exception as error:
            self._warn(
                f"arrayferry does not use {cls.__qualname__} of {owner!r}: issubclass() fails for it ({describe_error(error)})"
            )
            return True
        return False

    def outdated(self) -> bool:
        """Return whether a registered path now leads to another type than when the paths were looked up."""
        return any(
            (new_type := resolve_type(path)) is not None and new_type is not cls
            for path, cls in self._found.items()
        )

    def may_have_changed(self, cls: type) -> bool:
        """Return whether a container now accepts a class that had the kind "other".

        This happens, for example, if the class has been registered as a pytree in JAX.
        """
        return cls not in BUILT_IN and self._registered_container(cls) is not None

    def of(self, value: AnyTree) -> Kind:
        """Return the kind of a value. If finding it raises an error, the kind is "other"."""
        try:
            kind = self._classify(value)
            if kind is OTHER and self._is_importing():
                return _OTHER_SO_FAR
            self.cached[type(value)] = kind
            return kind
        except (MemoryError, RecursionError):
            raise
        except Exception:  # code of the type raised an error
            return OTHER

    def _classify(self, value: AnyTree) -> Kind:
        """Find the kind of a value by its type alone, since the `__class__` of an object may return any class."""
        cls = type(value)
        # a reloaded module defines its types again, so replace an old type by the new type of the same name
        mro = [
            base
            if base in self.arrays or base in self._containers
            else self._by_name.get((base.__module__, base.__qualname__)) or base
            for base in cls.__mro__
        ]
        kind = self._containers.get(mro[0])
        if kind is not None:
            return kind
        if cls in (bool, int, float, complex):
            return _NUMBER
        if issubclass(cls, (NoneType, str, bytes, bytearray, memoryview, type, ModuleType, Enum)):
            return OTHER
        numpy: Any = sys.modules.get("numpy")
        if issubclass(cls, getattr(numpy, "generic", ())):
            non_number_types = (numpy.character, numpy.void, numpy.datetime64, numpy.timedelta64)
            if issubclass(cls, non_number_types):
                return OTHER
            ndarray_kind = self.arrays.get(numpy.ndarray)
            return Kind("scalar", ndarray_kind.backend if ndarray_kind else self._generic(numpy))
        kind = next((self.arrays[base] for base in mro if base in self.arrays), None)
        if kind is None:  # the mro lacks virtual base classes, such as jax.Array
            array_kinds = self.arrays.items()
            kind = next((kind for base, kind in array_kinds if issubclass(cls, base)), None)
        if kind is not None:
            is_ndarray = issubclass(cls, getattr(numpy, "ndarray", ()))
            return (
                Kind("objects", kind.backend, OBJECT_ARRAY) if is_ndarray and kind.backend else kind
            )
        for base, kind in self._containers.items():
            if any(ancestor is base for ancestor in mro) or issubclass(cls, base):
                return kind
        container = EXACT.get(cls) or self._registered_container(cls) or container_for(cls)
        if container is not None:
            return Kind("container", container=container)
        namespace = _namespace_of(value)
        # `_generic` returns None if a plugin handles the library: that plugin does not list cls
        backend = None if namespace is None else self._generic(namespace)
        return OTHER if backend is None else Kind("array", backend)

    def _registered_container(self, cls: type) -> Container | None:
        """Find a registered container that accepts a class, although the class is not derived from its `types`."""
        for container in self._asking:
            try:
                if container.takes(cls):
                    return container
            except Exception as error:
                self._warn(
                    f"takes() of the container {type(container).__qualname__} of "
                    f"{type(container).__module__} failed for {cls.__qualname__} ({describe_error(error)})"
                )
        return None

    def _is_importing(self) -> bool:
        """Return whether a package is being imported now in which a registered type was not found."""
        return is_importing(
            {path.partition(".")[0] for path, cls in self._found.items() if cls is None}
        )


def _namespace_of(value: AnyTree) -> ModuleType | None:
    namespace = None
    if class_attribute(type(value), "__array_namespace__") is not None:
        with suppress(Exception):
            namespace = value.__array_namespace__()
    return namespace if isinstance(namespace, ModuleType) else None
