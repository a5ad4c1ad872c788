"""`Catalog`: what is registered at one moment, and what follows from it.

It looks up backends by name, alias, module and array type, without importing any array library. A
catalog is filled once; after that it only caches answers. A change of the registry makes a new
catalog, so that a conversion running in another thread never sees half of a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from arrayferry._cache import Cache
from arrayferry._errors import BackendUnavailableError, UnknownBackendError
from arrayferry._plugin.backend import Backend, Target
from arrayferry._plugin.container import Container
from arrayferry._plugin.converter import Converter
from arrayferry._plugin.origin import Origin, Source
from arrayferry._plugin.types import resolve_types
from arrayferry._tree.kind import Kind

from .backends import Backends
from .claims import Claims
from .classifier import Classifier
from .discovery import DISABLE, LeftOut, is_built_in, is_disabled
from .generic import GenericBackend, is_namespace
from .imports import find_namespace

__all__ = ["Catalog"]

MAX_TYPES = 1_000
"""How many types have their kind cached at most, so that short-lived types are not kept alive."""


MAX_ROUTES = 1_000
"""How many routes are cached at most."""


class Catalog:
    """The backends, converters, containers and sources that are registered at one moment.

    Attributes:
        left_out: installed plugins that are not used, and single backends and sources that are not.
        kinds: what values of each type are to a conversion.
        routes: the routes that were found.
    """

    def __init__(self) -> None:
        self._backends: dict[str, Backend] = {}
        self._claims = Claims()
        self._ranks: dict[int, int] = {}  # by the id of the part
        self._converters: tuple[Converter, ...] = ()
        self._containers: tuple[Container, ...] = ()
        self._sources: tuple[Source, ...] = ()
        self._generic: dict[str, GenericBackend] = {}
        self._classifier: Classifier | None = None
        self._told: set[tuple[int, str]] = set()
        self.left_out: list[LeftOut] = []
        self.kinds: Cache[type, Kind] = Cache(MAX_TYPES)
        self.routes: Cache[Any, Any] = Cache(MAX_ROUTES)

    def copy(self) -> Catalog:
        """Return a catalog with the same content and without any cached answer."""
        new = Catalog()
        new._backends = dict(self._backends)
        new._claims = self._claims.copy()
        new._ranks = dict(self._ranks)
        new._told = self._told
        new._converters = self._converters
        new._containers = self._containers
        new._sources = self._sources
        new._generic = self._generic
        new.left_out = list(self.left_out)
        return new

    # Filling.

    def conflict(self, part: Origin, who: object = None) -> str:
        """Return what a backend or a source claims that belongs to another one, "" if nothing.

        Args:
            part: the backend or source.
            who: the plugin that it is part of. Its sources may share one name.
        """
        return self._claims.conflict(part, who)

    def replacement(self, part: Origin) -> str:
        """Name the backend or source that says that it replaces this one, "" if none does. It takes over the claims."""
        holder = self._claims.replacement(part)
        if holder is None:
            return ""
        self._claims.give(part, holder)
        return self._claims.describe(holder)

    def add_origin(self, part: Origin, who: object) -> None:
        """Add a backend or a source, and remove those that it replaces."""
        for old in self._claims.add(part, who):
            if isinstance(old, Backend):
                self._backends.pop(old.name, None)
            else:
                self._sources = tuple(each for each in self._sources if each is not old)
        if isinstance(part, Backend):
            self._backends[part.name] = part
        elif isinstance(part, Source):
            self._sources = self._in_order((*self._sources, part), built_in_last=True)

    def add_converters(self, converters: list[Converter], rank: int = 0) -> None:
        """Add direct converters; of equal ones, the first is used.

        Args:
            converters: the converters.
            rank: those of a lower rank come first.
        """
        self._ranks.update((id(part), rank) for part in converters)
        self._converters = self._in_order((*self._converters, *converters))

    def add_containers(self, containers: list[Container], rank: int = 0) -> None:
        """Add containers; of several that fit a value, the first is used, of equal rank a built-in one last."""
        self._ranks.update((id(part), rank) for part in containers)
        self._containers = self._in_order((*self._containers, *containers), built_in_last=True)

    def _in_order(self, parts: tuple[Any, ...], *, built_in_last: bool = False) -> tuple[Any, ...]:
        ranks = self._ranks
        return tuple(
            sorted(parts, key=lambda p: (ranks.get(id(p), 0), built_in_last and is_built_in(p)))
        )

    def unknown_end(self, converter: Converter) -> str:
        """Return the source or target of a converter that is not a backend, "" if both are."""
        for name in (converter.source, converter.target):
            if name not in self._backends and name not in self._generic:
                try:
                    if find_namespace(name) is None:
                        return name
                except BackendUnavailableError:
                    continue
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
        """The sources: what arrays are read from, besides arrays."""
        return self._sources

    def backend(self, to: Target) -> Backend:
        """Find a backend by name, alias, namespace module, or itself.

        Raises:
            UnknownBackendError: no backend has that name.
            BackendUnavailableError: it is the name of a library without a plugin, whose import fails.
        """
        if isinstance(to, Backend):
            return self._backends.get(to.name, to)
        if isinstance(to, str):
            backend = self._named(to) or self._generic.get(to)
            module = find_namespace(to) if backend is None else None
        elif isinstance(to, ModuleType):
            backend = self._named(to.__name__)
            module = to if is_namespace(to) else None
            to = to.__name__
        else:
            raise UnknownBackendError(
                f"{to!r:.80} is not the name of an array library",
                remedy=self._remedy(to),
                name=f"{to!r:.80}",
            )
        if backend is None and module is not None:
            backend = self._generic_of(module)
        if backend is None:
            for source in self._sources:
                if to in (source.name, source.package):
                    raise UnknownBackendError(
                        f"arrays are only read from {source.name}, so it cannot be a target",
                        remedy='Pass the name of an array library, such as "numpy".',
                        name=to,
                    )
            raise self._unknown(to)
        return backend

    def _unknown(self, name: str) -> UnknownBackendError:
        """Return the error for a name that no backend has."""
        import difflib

        names = [*self._claims.names, *(part.name for part in self.left_out)]
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
                f"{guess}{remedy}{self._not_used()} For another one, install or write a plugin, "
                "or import its namespace of the Array API first."
            )
        return UnknownBackendError(reason, remedy=remedy, name=name, nearest=nearest)

    def _not_used(self) -> str:
        """Name some plugins that are left out, faulty ones first."""
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
            backend = self._claims.names.get(spelled)
            if backend is not None:
                return backend
        return None

    def _generic_of(self, namespace: ModuleType) -> Backend:
        known = self._named(namespace.__name__)
        if known is not None:
            return known
        return self._generic.setdefault(namespace.__name__, GenericBackend(namespace))

    # What values are.

    def kind(self, value: Any) -> Kind:
        """Tell what a value is to a conversion. The answer is cached for its type.

        An error that a registered part causes is raised. A value that itself causes an error is "other".
        """
        return self.kinds.get(type(value)) or self._classified(value)

    def _classified(self, value: Any) -> Kind:
        if self._classifier is None:
            self._classifier = Classifier(
                self._backends.values(), self._sources, self._containers, self._claims, self._told
            )
        kind, kept = self._classifier.kind(value, self._generic_by_module)
        if kept:
            self.kinds[type(value)] = kind
        return kind

    def _generic_by_module(self, namespace: ModuleType) -> Backend | None:
        """Return the backend made for a namespace, None if a plugin handles its library."""
        return None if self._named(namespace.__name__) is not None else self._generic_of(namespace)

    def outdated(self) -> bool:
        """Tell whether another type is at a registered path than when types were looked up."""
        return self._classifier is not None and self._classifier.outdated()
