"""`Catalog`: all registered parts at one moment, and lookups among them.

It looks up backends by name, alias, module and array type, without importing any array library. The parts of a
catalog never change: a change of the registry makes a new catalog, so that a conversion running in another thread
never sees half of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType, ModuleType
from typing import Any

from arrayferry._cache import Cache, once
from arrayferry._errors import BackendUnavailableError, PluginError, UnknownBackendError
from arrayferry._plugin.backend import AnyTarget, Backend
from arrayferry._plugin.container import Container
from arrayferry._plugin.converter import Converter
from arrayferry._plugin.origin import Source
from arrayferry._repr import never_raises
from arrayferry._tree.kind import Kind

from .discovery import CHOICE, chosen_plugins
from .generic import GenericBackend, find_namespace, is_namespace
from .kinds import OTHER, Kinds
from .owners import Owners
from .plugins import Contribution, LeftOut, PluginManager

MAX_ROUTES = 1_000
"""The maximum number of cached routes."""


class Catalog:
    """The backends, converters, containers and sources that are registered at one moment.

    Args:
        manager: the plugins. Parts that claim a name or type of another one are left out.
        warn: called with the text of a warning.
        changed: called when a library was imported in the meantime, so that its types are now known.
        refuse: the name of a plugin. If it is part of a conflict, an error is raised.

    Attributes:
        backends: all backends by name.
        sources: the sources, in the order in which they are tried.
        converters: the direct converters; of equal ones, the first is used.
        containers: the containers; of several that fit a value, the first is used.
        left_out: plugins, and single parts of plugins, that are not used.
        routes: the routes found so far.

    Raises:
        PluginError: that plugin claims a name or type of another one.
    """

    def __init__(
        self,
        manager: PluginManager,
        warn: Callable[[str], None],
        changed: Callable[[], None],
        refuse: str = "",
    ) -> None:
        contributions = manager.contributions()
        self.left_out: list[LeftOut] = [*manager.left_out, *manager.blocked()]
        self._warn = warn
        self._changed = changed
        self._owners = owners = Owners()
        unused = self._claim(sorted(contributions, key=lambda each: each.turn), refuse)
        used = [each for each in contributions if id(each) not in unused]
        self.converters: tuple[Converter, ...] = _parts(used, "arrayferry_converters")
        self.containers: tuple[Container, ...] = _parts(used, "arrayferry_containers")
        self.sources: tuple[Source, ...] = _parts(owners.parts, "arrayferry_sources")
        backends = (each.part for each in owners.parts if isinstance(each.part, Backend))
        self.backends: Mapping[str, Backend] = Backends({each.name: each for each in backends})
        names = [*owners.packages.items(), *owners.names.items()]
        self._named: dict[str, Backend] = {
            name: each.part for name, each in names if isinstance(each.part, Backend)
        }
        self._generic: dict[str, GenericBackend] = {}
        self.routes: Cache[Any, Any] = Cache(MAX_ROUTES)

    def _claim(self, contributions: Sequence[Contribution], refuse: str) -> set[int]:
        """Let parts claim their names and types. Return the ids of those that are left out."""
        owners, unused = self._owners, set()
        for new in contributions:
            if new.hook == "arrayferry_converters":
                continue
            by = owners.replacement(new)
            conflict = "" if by else owners.conflict(new)
            if not by and not conflict:
                owners.add(new)
                continue
            if new.plugin == refuse:
                raise PluginError(
                    f"{new} cannot be registered: {conflict or f'it is replaced by {by}'}",
                    remedy="Give it another name or type, or list the other one in its `replaces`.",
                )
            why = f"{new} is replaced by {by}" if by else f"arrayferry left out {new}: {conflict}"
            if by:
                owners.assign(new.part, by)
            else:
                self._warn(why)
            self.left_out.append(LeftOut(new.name, why, new.plugin, broken=not by))
            unused.add(id(new))
        return unused

    @once
    def unknown_ends(self) -> list[str]:
        """A text for each source or target of a direct converter that is no backend."""
        left_out, unknown = {part.name for part in self.left_out}, []
        for converter in self.converters:
            for name in {converter.source, converter.target} - self.backends.keys() - left_out:
                with suppress(BackendUnavailableError):
                    if find_namespace(name) is None:
                        unknown.append(
                            f"arrayferry does not use {converter!r} of {type(converter).__module__}: no backend is "
                            f"named {name!r}"
                        )
        return unknown

    def backend(self, to: AnyTarget) -> Backend:
        """Find a backend by name, alias or namespace module. A backend is also accepted.

        Raises:
            UnknownBackendError: no backend has that name.
            BackendUnavailableError: the name is that of a library without a plugin, whose import fails.
        """
        if isinstance(to, Backend):
            return self.backends.get(to.name, to)
        if not isinstance(to, (str, ModuleType)):
            raise UnknownBackendError(
                f"{to!r:.80} is not the name of an array library",
                remedy=self._remedy(to),
                name=f"{to!r:.80}",
            )
        name = to if isinstance(to, str) else to.__name__
        backend = self._by_name(name)
        if backend is None:
            module = find_namespace(name) if isinstance(to, str) else to
            if module is not None and is_namespace(module):
                backend = self._by_name(module.__name__) or self.generic(module)
        if backend is None:
            raise self._unknown(name)
        return backend

    def _by_name(self, name: str) -> Backend | None:
        spellings = (name, name.lower(), name.removeprefix("array_api_compat."))
        return next((self._named[each] for each in spellings if each in self._named), None)

    def generic(self, namespace: ModuleType) -> Backend | None:
        """Return a generic backend for a namespace of the Array API, None if a plugin handles its library."""
        name = namespace.__name__
        if self._by_name(name) is not None:
            return None
        return self._generic.setdefault(name, GenericBackend(namespace))

    def _unknown(self, name: str) -> UnknownBackendError:
        """Return the error for a name that no backend has."""
        import difflib

        for source in self.sources:
            if name in (source.name, source.package):
                return UnknownBackendError(
                    f"arrays are only read from {source.name}, so it cannot be a target",
                    remedy='Pass the name of an array library, such as "numpy".',
                    name=name,
                )
        faulty_first = sorted(self.left_out, key=lambda part: (not part.broken, part.name))
        reasons = {part.name: part.why for part in reversed(faulty_first)}
        nearest = tuple(difflib.get_close_matches(name.lower(), [*self._named, *reasons], n=3))
        reason = f"no array library is known as {name!r}"
        disabled = f", since {CHOICE} is empty" if chosen_plugins() == [] else ""
        known = ", ".join(sorted(self.backends)) or f"none: no plugin is loaded{disabled}"
        remedy = f"Known are: {known}."
        if name in reasons:
            reason += f": {reasons[name]}"
        else:
            guess = f"Did you mean {nearest[0]!r}? " if nearest else ""
            others = f" Left out are: {', '.join(reversed(reasons))}." if reasons else ""
            remedy = (
                f"{guess}{remedy}{others} For another one, install or write a plugin, "
                "or import its namespace of the Array API first."
            )
        return UnknownBackendError(reason, remedy=remedy, name=name, nearest=nearest)

    def _remedy(self, to: Any) -> str:
        """Return advice for an array or its class that was given as a target."""
        kind = self.kinds.arrays.get(to) if isinstance(to, type) else self.kind(to)
        if kind is None or kind.backend is None:
            return 'Pass a name such as "torch", a namespace module, or a Backend.'
        return (
            f"Write {kind.backend.name!r}, or like=array; the value comes first, then the target."
        )

    @once
    def kinds(self) -> Kinds:
        """The kinds of values, by the types that have been imported."""
        return Kinds(self._owners.types, self.containers, self.generic, self._warn)

    def kind(self, value: Any) -> Kind:
        """Return how a conversion treats a value."""
        kinds = self.kinds
        try:
            kind = kinds.cached.get(type(value))
        except RecursionError:
            raise
        except Exception:  # a class that cannot be hashed
            return OTHER
        if kind is None:
            self.notice_imports()
            kind = self.kinds.of(value)
        return kind

    def notice_imports(self) -> None:
        """Look up types again if a library has been imported or reloaded since."""
        if self.kinds.outdated():
            vars(self).pop("kinds", None)
            self._changed()


def _parts(contributions: Sequence[Contribution], hook: str) -> tuple[Any, ...]:
    return tuple(each.part for each in contributions if each.hook == hook)


class Backends(Mapping[str, Backend]):
    """A mapping of backends by name. It cannot be changed."""

    __slots__ = ("_backends",)

    def __init__(self, backends: dict[str, Backend]) -> None:
        self._backends = MappingProxyType(backends)

    def __getitem__(self, name: str) -> Backend:
        return self._backends[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._backends)

    def __len__(self) -> int:
        return len(self._backends)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._backends)

    def copy(self) -> dict[str, Backend]:
        """Return the backends as a dict."""
        return dict(self._backends)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._backends)

    @never_raises
    def __repr__(self) -> str:
        names = [
            name if _installed(each) else f"{name} (not installed)" for name, each in self.items()
        ]
        return f"<Backends: {', '.join(names) or 'none'}>"


def _installed(backend: Backend) -> bool:
    try:
        return backend.installed
    except Exception:
        return False
