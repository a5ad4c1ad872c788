"""`Registry`: makes catalogs of installed plugins and of parts that are registered at run time.

A catalog is only replaced as a whole. Plugins are discovered once, at first use, and again on `refresh()`.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from arrayferry._cache import existing
from arrayferry._errors import PluginError, PluginWarning
from arrayferry._plugin.backend import AnyTarget, Backend
from arrayferry._plugin.hooks import HOOKS
from arrayferry._plugin.origin import Source
from arrayferry._repr import never_raises
from arrayferry._tree.kind import Kind

from .catalog import Catalog
from .contributions import Contribution, LeftOut, Plugin, contributions
from .discovery import discover
from .kinds import OTHER


class Watcher(Protocol):
    """An object with a cache that depends on a registry."""

    def registry_changed(self) -> None:
        """Clear the cache. This must not raise."""


class Registry:
    """The backends, converters, containers and sources that conversions choose from.

    Args:
        autoload: whether to look for installed plugins on first use. If not, the registry starts empty.

    Examples:
        >>> from arrayferry import Registry
        >>> Registry(autoload=False).backends()
        <Backends: none>
    """

    def __init__(self, *, autoload: bool = True) -> None:
        self._autoload = autoload
        self._lock = threading.RLock()
        self._watchers: weakref.WeakValueDictionary[int, Watcher] = weakref.WeakValueDictionary()
        self._installed: tuple[list[Contribution], list[LeftOut]] = [], []
        self._at_run_time: list[tuple[object, list[Contribution]]] = []
        self._catalog: Catalog | None = None
        self._checked: Catalog | None = None
        self._warned: set[str] = set()
        _registries[id(self)] = self

    @property
    def catalog(self) -> Catalog:
        """The current registrations."""
        catalog = self._catalog
        if catalog is None:
            with self._lock:
                catalog = self._catalog
                if catalog is None:
                    catalog = self._catalog = self._discover()
        return catalog

    def _discover(self) -> Catalog:
        """Look for installed plugins."""
        self._warned = set()
        if self._autoload:
            self._installed = discover()
        return self._gather()

    def _gather(self, new: Sequence[Contribution] = ()) -> Catalog:
        """Make a catalog of all known parts and of new ones."""
        installed, left_out = self._installed
        at_run_time = [each for _, parts in self._at_run_time for each in parts]
        refuse = new[0].plugin if new else None
        catalog = Catalog([*installed, *at_run_time, *new], left_out, self._warn, refuse)
        for each in catalog.left_out:
            if each.broken:
                self._warn(each.why)
        return catalog

    def _warn(self, text: str) -> None:
        """Issue a warning, once until the next discovery of plugins."""
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text, PluginWarning, stacklevel=3)

    def _replace(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._notify()

    def _notify(self) -> None:
        for watcher in self.watchers():
            watcher.registry_changed()

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher.registry_changed()` after each change, as long as the watcher exists."""
        with self._lock:
            self._watchers[id(watcher)] = watcher  # by id, since two of them may be equal

    def watchers(self) -> list[Watcher]:
        """Return the watchers, which are notified of changes."""
        return existing(self._watchers)

    def refresh(self) -> None:
        """Look for installed plugins again. Parts registered at run time stay registered.

        Conversions that are running in other threads finish with the previous registrations.
        """
        with self._lock:
            self._replace(self._discover())

    def notice_imports(self) -> None:
        """Look up array types again if a library has been imported or reloaded since the last lookup."""
        self._notice_imports(self.catalog)

    def _notice_imports(self, catalog: Catalog) -> None:
        if catalog.kinds.outdated():
            with self._lock:
                if catalog.notice_imports():
                    self._notify()

    def check_converters(self) -> None:
        """Warn once about direct converters from or to a backend that no plugin has."""
        catalog = self.catalog
        if self._checked is catalog:
            return
        self._checked = catalog
        for converter in catalog.converters:
            unknown = catalog.unknown_end(converter)
            if unknown and all(part.name != unknown for part in catalog.left_out):
                self._warn(
                    f"arrayferry does not use {converter!r} of {type(converter).__module__}: no backend is "
                    f"named {unknown!r}"
                )

    def register(self, part: object, name: str | None = None) -> None:
        """Register a plugin, or a single backend, converter, container or source, at run time.

        Args:
            part: a module or object that implements hooks, or one part.
            name: the name of the plugin in messages.

        Raises:
            PluginError: the part is faulty, or a name or an array type is already taken.
        """
        if isinstance(part, type) and issubclass(part, tuple(HOOKS.values())):
            raise PluginError(
                f"the class {part.__qualname__} was given instead of an instance",
                remedy=f"Register {part.__qualname__}().",
            )
        plugin = Plugin(name or getattr(part, "__name__", None) or type(part).__qualname__)
        parts = contributions(part, plugin)
        with self._lock:
            _ = self.catalog  # installed plugins come first
            catalog = self._gather(parts)
            self._at_run_time.append((part, parts))
            self._replace(catalog)

    def unregister(self, part: object) -> None:
        """Undo `register`.

        Raises:
            PluginError: the part was not registered at run time.
        """
        with self._lock:
            kept = [entry for entry in self._at_run_time if entry[0] is not part]
            if len(kept) == len(self._at_run_time):
                raise PluginError(
                    f"{part!r:.80} was not registered at run time",
                    remedy="Pass the same object that was passed to register().",
                )
            self._at_run_time = kept
            self._replace(self._gather())

    def backends(self) -> Mapping[str, Backend]:
        """Return all backends by name, installed or not."""
        return self.catalog.backends

    def sources(self) -> Sequence[Source]:
        """Return the sources, installed or not: objects that arrays are read from, such as table columns."""
        return self.catalog.sources

    def backend(self, to: AnyTarget) -> Backend:
        """Find a backend by name, alias or namespace module. A backend is also accepted.

        Raises:
            UnknownBackendError: no backend has that name.
            BackendUnavailableError: the name is that of a library without a plugin, whose import fails.
        """
        __tracebackhide__ = True
        return self.catalog.backend(to)

    def kind(self, value: Any, catalog: Catalog | None = None) -> Kind:
        """Return how a conversion treats a value.

        Args:
            value: anything.
            catalog: the registrations that the conversion began with, None for the current ones.
        """
        catalog = catalog or self.catalog
        kinds = catalog.kinds
        try:
            kind = kinds.cached.get(type(value))
        except RecursionError:
            raise
        except Exception:  # a class that cannot be hashed
            return OTHER
        if kind is None:
            self._notice_imports(catalog)
            kind = catalog.kind(value)
        return kind

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    @never_raises
    def __repr__(self) -> str:
        catalog = self._catalog
        if catalog is None:
            return "<Registry, plugins are looked up at first use>"
        names = ("backends", "sources", "converters", "containers")
        counts = (f"{len(getattr(catalog, name))} {name}" for name in names)
        return f"<Registry of {', '.join(counts)}>"


_registries: weakref.WeakValueDictionary[int, Registry] = weakref.WeakValueDictionary()


def registries() -> list[Registry]:
    """Return all registries."""
    return existing(_registries)


def _after_fork() -> None:
    """Replace locks that were held by threads that do not exist in this process."""
    for registry in registries():
        if registry._lock.acquire(blocking=False):
            registry._lock.release()
        else:
            registry._lock = threading.RLock()
            registry._notify()  # that thread may have been about to do so


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_default = Registry()


def default_registry() -> Registry:
    """Return the registry that `arrayferry.convert` and the other functions use."""
    return _default
