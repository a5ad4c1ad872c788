"""`Catalog`: all registered parts at one moment, and functions that look them up.

A catalog finds backends by name, alias, module and array type, without importing any array library. The parts of a
catalog never change. A change of the registry creates a new catalog, so that a conversion in another thread never sees
half of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from arrayferry._errors import BackendUnavailableError, PluginError, UnknownBackendError
from arrayferry._plugin.backend import AnyTarget, Backend
from arrayferry._plugin.container import Container
from arrayferry._plugin.converter import Converter
from arrayferry._plugin.origin import Source
from arrayferry._tree.kind import Kind
from arrayferry._types import AnyTree
from arrayferry._utilities.cache import Cache, once
from arrayferry._utilities.text import type_name

from .discovery import CHOICE, chosen_plugins
from .generic import GenericBackend, find_namespace, is_namespace
from .kinds import BUILT_IN, OTHER, Kinds
from .owners import Owners
from .parts import Backends, Parts, find_parts
from .plugins import Contribution, LeftOut, PluginManager

MAX_ROUTES = 1_000
"""The maximum number of cached routes."""


_asking: ContextVar[tuple[Any, ...]] = ContextVar("_asking", default=())
"""The hooks of layers whose parts are being collected now, as pairs of a registry's manager and the name of a hook."""


class Catalog:
    """The backends, converters, containers and sources that are registered at one moment.

    Args:
        manager: the registered plugins. A part that claims a name or type of another part is left out.
        changed: a function without arguments that is called when the kinds of values change, as after an import.
        refuse: the name of a plugin, or "". If a part of this plugin is left out, an error is raised.

    Attributes:
        backends: all backends by name.
        sources: the sources, in the order in which they are tried.
        converters: the direct converters. Of several with equal libraries, devices and costs, the first is used.
        containers: the containers. Of several that fit a value, the first is used.
        left_out: plugins, and single parts of plugins, that are not used.
        routes: a cache of the routes found so far.

    Raises:
        PluginError: the plugin `refuse` claims a name or type of another plugin.
    """

    def __init__(
        self,
        manager: PluginManager,
        changed: Callable[[], None],
        refuse: str = "",
    ) -> None:
        contributions, self._calls = manager.contributions(), manager.layer_calls()
        self._changed = changed
        self._owners = owners = Owners(contributions, refuse, manager.warn)
        self.left_out: list[LeftOut] = [*manager.left_out, *manager.blocked(), *owners.left_out]
        used_parts = [part for part in contributions if id(part) not in owners.unused]
        self.converters: tuple[Converter, ...] = _parts(used_parts, Converter)
        self.containers: tuple[Container, ...] = _parts(used_parts, Container)
        self.sources: tuple[Source, ...] = _parts(owners.parts, Source)
        backends = (owner.part for owner in owners.parts if isinstance(owner.part, Backend))
        self.backends: Mapping[str, Backend] = Backends({each.name: each for each in backends})
        name_owners = [*owners.packages.items(), *owners.names.items()]
        self._named: dict[str, Backend] = {
            name: owner.part for name, owner in name_owners if isinstance(owner.part, Backend)
        }
        self._generic: dict[str, GenericBackend] = {}
        self.routes: Cache[Any, Any] = Cache(MAX_ROUTES)
        self._manager = manager
        self._parts: dict[str, Parts] = {}

    def parts(self, hook: str, refuse: str = "") -> Parts:
        """Return the parts of a layer's hook. See `Registry.parts`.

        Args:
            hook: the name of the hook.
            refuse: the name of a plugin, or "". If this plugin is faulty, an error is raised.
        """
        parts = self._parts.get(hook)
        if parts is None:  # hold no lock: hooks may wait for a thread that needs the lock
            query = self._manager, hook
            if query in _asking.get():
                raise PluginError(
                    f"a plugin requests the parts of {hook} while its own parts are collected",
                    remedy="Request them later, in a method of the part that the hook returns.",
                )
            token = _asking.set((*_asking.get(), query))
            try:
                found_parts = find_parts(self._manager, self._calls, hook, refuse)
            finally:
                _asking.reset(token)
            parts = self._parts.setdefault(hook, found_parts)
        return parts

    @once
    def unknown_ends(self) -> list[str]:
        """The texts of warnings, one for each direct converter whose source or target is not the name of a backend."""
        names, texts = {*self.backends, *(part.name for part in self.left_out)}, []
        for converter in self.converters:
            for name in {converter.source, converter.target} - names:
                with suppress(BackendUnavailableError):
                    if find_namespace(name) is None:
                        texts.append(
                            f"arrayferry does not use {converter!r} of {type(converter).__module__}: no backend is "
                            f"named {name!r}"
                        )
        return texts

    def backend(self, to: AnyTarget) -> Backend:
        """Find a backend by name, alias or namespace module. `to` may also be a backend.

        Raises:
            UnknownBackendError: no backend has that name, or another class of backend has the name of `to`.
            BackendUnavailableError: a library without a plugin has that name, and its import fails.
        """
        if isinstance(to, Backend):
            registered = self.backends.get(to.name, to)
            if type_name(type(registered)) != type_name(type(to)):
                raise UnknownBackendError(
                    f"{to!r} is a {type_name(type(to))}, but its name is registered for a {type_name(type(registered))}",
                    remedy="Rename the backend, or register it with this name in its `replaces`.",
                    name=to.name,
                )
            return registered
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
        return next((self._named[spelled] for spelled in spellings if spelled in self._named), None)

    def generic(self, namespace: ModuleType) -> Backend | None:
        """Return a generic backend for a namespace of the Array API, or None if a plugin handles its library."""
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
                    f"arrays are only read from {source.name}, and cannot be converted to it",
                    remedy='Pass the name of an array library, such as "numpy".',
                    name=name,
                )
        faulty_first = sorted(self.left_out, key=lambda part: (not part.broken, part.name))
        reasons = {part.name: part.why for part in reversed(faulty_first)}
        nearest = tuple(difflib.get_close_matches(name.lower(), [*self._named, *reasons], n=3))
        reason = f"no array library is known as {name!r}"
        disabled_text = f", since {CHOICE} is empty" if chosen_plugins() == [] else ""
        names = ", ".join(sorted(self.backends)) or f"none: no plugin is loaded{disabled_text}"
        remedy = f"Known are: {names}."
        if name in reasons:
            reason += f": {reasons[name]}"
        else:
            hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
            left_out_text = f" Left out are: {', '.join(reversed(reasons))}." if reasons else ""
            remedy = (
                f"{hint}{remedy}{left_out_text} For another library, install or write a "
                "plugin, or import its namespace of the Array API first."
            )
        return UnknownBackendError(reason, remedy=remedy, name=name, nearest=nearest)

    def _remedy(self, to: Any) -> str:
        """Return a sentence that says what to pass instead of `to`, which is not a target."""
        kind = self.kinds.arrays.get(to) if isinstance(to, type) else self.kind(to)
        if kind is None or kind.backend is None:
            return 'Pass a name such as "torch", a namespace module, or a Backend.'
        return f"Pass {kind.backend.name!r}, or like=array. In a call, the value comes first, then the target."

    @once
    def kinds(self) -> Kinds:
        """The `Kinds` of this catalog, for the registered types that have been imported so far."""
        return Kinds(self._owners.types, self.containers, self.generic, self._manager.warn)

    def kind(self, value: AnyTree) -> Kind:
        """Return how a conversion treats a value."""
        kinds = self.kinds
        try:
            kind = kinds.cached.get(type(value))
        except RecursionError:
            raise
        except Exception:  # the class cannot be hashed: its objects stay unchanged
            return OTHER
        if kind is OTHER and kinds.may_have_changed(type(value)):
            kind = kinds.of(value)
            if kind.container is not None:
                self._changed()
        if kind is None:
            if not kinds.fresh and type(value) not in BUILT_IN:
                self.notice_imports()
                kinds = self.kinds
            kinds.fresh = False
            kind = kinds.of(value)
        return kind

    def notice_imports(self) -> None:
        """Look up the registered types again if a library was imported or reloaded after they were looked up."""
        if self.kinds.outdated():
            vars(self).pop("kinds", None)
            self._changed()
        else:
            # check again at the next value of an unknown type, since its library may be imported by then
            self.kinds.fresh = False


def _parts(contributions: Sequence[Contribution], kind: type) -> tuple[Any, ...]:
    return tuple(contribution.part for contribution in contributions if contribution.kind is kind)
