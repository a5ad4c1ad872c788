"""`Registry`: the registered plugins, and a catalog of their parts.

A change replaces the whole catalog. Installed plugins are loaded on first use, and again by `refresh()`.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Any, Protocol

from arrayferry._errors import PluginError, PluginWarning
from arrayferry._plugin.backend import AnyTarget, Backend
from arrayferry._plugin.origin import Source
from arrayferry._tree.kind import Kind
from arrayferry._types import AnyTree
from arrayferry._utilities.cache import existing
from arrayferry._utilities.text import never_raises

from .catalog import Catalog
from .discovery import Installed
from .parts import Parts
from .plugins import PluginManager


class Watcher(Protocol):
    """An object with a cache that depends on a registry."""

    def registry_changed(self) -> None:
        """Clear the cache. The method must not raise an error."""


class Registry:
    """The backends, converters, containers and sources that conversions choose from.

    Args:
        autoload: whether to look for installed plugins on first use. If False, the registry starts empty.

    Examples:
        >>> from arrayferry import Registry
        >>> Registry(autoload=False).backends()
        <Backends: none>
    """

    def __init__(self, *, autoload: bool = True) -> None:
        self.lock: Any = threading.RLock()
        self._watchers: weakref.WeakValueDictionary[int, Watcher] = weakref.WeakValueDictionary()
        self._manager = PluginManager(self, autoload)
        self._loaded = self._loading = False
        self.current: Catalog | None = None
        self.partial: Catalog | None = None  # the catalog while plugins are imported or loaded
        self._missing: set[str] | None = None  # the names of the plugins that `partial` lacks
        self._aside: Registry | None = None
        self._warned: set[str] = set()
        _registries[id(self)] = self

    @property
    def manager(self) -> PluginManager:
        """The plugins, as pluggy manages them. Reading this attribute loads the installed plugins."""
        _ = self.catalog
        return self._manager

    @property
    def catalog(self) -> Catalog:
        """The catalog of the parts that are registered now."""
        catalog = self.current
        while catalog is None:
            installed = None if self._loaded else self._manager.find()
            is_ready = self._loaded and not self._loading
            if not self.lock.acquire(blocking=is_ready or not _is_in_import()):
                return self._beside().catalog
            try:
                if self._loaded or (installed and installed.unfinished == self._missing):
                    catalog = self.current or self.partial or self.update()
                elif installed is not None:
                    catalog = self._load(installed)
            finally:
                self.lock.release()
        return catalog

    def _beside(self) -> Registry:
        """Return a registry to use in this thread while another thread loads the plugins of this registry.

        This thread is importing a module. It must not wait for the other thread, which may itself wait for that module.
        So the returned registry loads the plugins separately, and is used until the other thread is done.
        """
        other_registry = self._aside
        if other_registry is None:
            self._aside = other_registry = Registry()
            other_registry._watchers, other_registry._warned = self._watchers, self._warned
            other_registry._manager.take_choices(self._manager)
        return other_registry

    def _load(self, installed: Installed) -> Catalog:
        """Register the installed plugins, and return a catalog of their parts. The caller holds the lock.

        A plugin that uses the registry during its own import is missing in this catalog, and is loaded later.
        """
        try:
            self._loaded = self._loading = True
            self._manager.reload(installed)
            self._loaded, self._loading = not installed.unfinished, False
            catalog = self.update()
            self._missing = installed.unfinished
            return catalog
        except BaseException:
            # after any error, also an interrupt, all plugins are loaded again on next use
            self._loaded = self._loading = False
            self.invalidate()
            raise

    def warn(self, text: str) -> None:
        """Log and issue a warning. The same text is issued once until `refresh` is called."""
        if text not in self._warned:
            self._warned.add(text)
            import logging  # imported here, since the import takes time, and most programs issue no warning

            logger = logging.getLogger("arrayferry")
            # without a handler, `logging` would print the text to stderr, in addition to the warning
            if not logger.handlers:
                logger.addHandler(logging.NullHandler())
            logger.warning(text)
            warnings.warn(text, PluginWarning, stacklevel=3)

    def update(self, new: str = "", hooks: Iterable[str] = ()) -> Catalog:
        """Make a new catalog of the parts of all plugins. The caller holds the lock.

        Args:
            new: the name of a plugin, or "". If this plugin is faulty, an error is raised.
            hooks: the hooks of layers whose parts are collected now, instead of on first use.

        Raises:
            PluginError: the plugin `new` claims a name or a type of another plugin. The catalog is unchanged.
        """
        catalog = Catalog(self._manager, self._notify, new)
        for hook in hooks:
            catalog.parts(hook, new)
        self.invalidate()
        if self._loaded and not self._loading:
            self.current = catalog
        else:
            self.partial = catalog
        return catalog

    def invalidate(self) -> None:
        """Drop the catalog before plugins change. The next use makes a new catalog. The caller holds the lock."""
        self.current = self.partial = self._aside = self._missing = None
        self._notify()

    def _notify(self) -> None:
        for watcher in self.watchers():
            watcher.registry_changed()

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher.registry_changed()` after each change, as long as the watcher exists."""
        # do not wait for the lock: this thread may be importing a module that creates a conversion,
        # and the thread that holds the lock may wait for that import
        self._watchers[id(watcher)] = watcher  # the key is the id, since two watchers may be equal

    def watchers(self) -> list[Watcher]:
        """Return the watchers that still exist."""
        return existing(self._watchers)

    def refresh(self) -> None:
        """Load the installed plugins again. Plugins registered at run time stay registered.

        Conversions that are running in other threads finish with the previous registrations.
        """
        self._warned = set()
        installed = self._manager.find()
        with self.lock:
            self._load(installed)

    def register(
        self,
        part: object,
        name: str | None = None,
        *,
        parts: Mapping[str, object] | None = None,
    ) -> None:
        """Register a plugin, or a single backend, converter, container or source, at run time.

        Args:
            part: a module or object that implements hooks, or one part.
            name: the name of the plugin. Default: the name of the module or class.
            parts: further parts, by the name of the layer's hook, such as
                `{"arrayferry_gradients": MyGradients()}`.

        Raises:
            PluginError: a part is faulty, its name or array type is already taken, or its hook does not exist.
        """
        if self.manager.register(part, name, parts) is None:
            raise PluginError(
                f"the plugin cannot be registered, since the name {name!r} is blocked",
                remedy="Pass another name, or call manager.unblock() of the registry.",
            )

    def unregister(self, part: object) -> None:
        """Undo `register`.

        Raises:
            PluginError: the part was not registered at run time.
        """
        manager = self.manager
        with self.lock:
            name = manager.get_name(part)
            if name is None or not manager.is_at_run_time(name):
                raise PluginError(
                    f"{part!r:.80} was not registered at run time",
                    remedy="Pass the same object that was passed to register().",
                )
            manager.unregister(name=name)

    def parts(self, hook: str) -> Parts:
        """Return the parts of plugins for a layer, a package that builds on arrayferry and has its own hooks.

        The hook of each plugin is called on the first use, and on the first use after a change. A part is left out with
        a `PluginWarning` if its hook fails, or if it has a wrong type or the name of another part.

        Args:
            hook: the name of the hook that the layer announces.

        Raises:
            PluginError: no installed package announces that hook, or the class of its parts cannot be imported.

        Examples:
            >>> import arrayferry as af
            >>> af.registry.parts("arrayferry_blocks")["h5py"]
            <Streaming h5py>
        """
        __tracebackhide__ = True
        return self.catalog.parts(hook)

    def backends(self) -> Mapping[str, Backend]:
        """Return all backends by name, whether their libraries are installed or not."""
        return self.catalog.backends

    def sources(self) -> Sequence[Source]:
        """Return the sources, installed or not. A source describes objects that arrays are read from."""
        return self.catalog.sources

    def backend(self, to: AnyTarget) -> Backend:
        """Find a backend by name, alias or namespace module. `to` may also be a backend.

        Raises:
            UnknownBackendError: no backend has that name, or another class of backend has the name of `to`.
            BackendUnavailableError: a library without a plugin has that name, and its import fails.
        """
        __tracebackhide__ = True
        return self.catalog.backend(to)

    def kind(self, value: AnyTree) -> Kind:
        """Return how a conversion treats a value."""
        return self.catalog.kind(value)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    @never_raises
    def __repr__(self) -> str:
        if not self._loaded:
            return "<Registry, plugins are looked up at first use>"
        catalog = self.catalog
        attributes = ("backends", "sources", "converters", "containers")
        count_texts = (f"{len(getattr(catalog, name))} {name}" for name in attributes)
        return f"<Registry of {', '.join(count_texts)}>"


def _is_in_import() -> bool:
    """Return whether this thread is importing a module. Other threads may wait for that module."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "importlib._bootstrap":
        frame = frame.f_back
    return frame is not None


_registries: weakref.WeakValueDictionary[int, Registry] = weakref.WeakValueDictionary()


def registries() -> list[Registry]:
    """Return all registries that still exist."""
    return existing(_registries)


def _after_fork() -> None:
    """Replace the locks that threads of the parent process held, since these threads do not exist in this process."""
    for registry in registries():
        if registry.lock.acquire(blocking=False):
            registry.lock.release()
        else:
            registry.lock = threading.RLock()
            registry._loaded = registry._loading = False
            registry._manager.forget_unfinished()
            # the thread that held the lock may have changed plugins without invalidating the catalog
            registry.invalidate()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_default = Registry()


def default_registry() -> Registry:
    """Return the registry that `arrayferry.convert` and the other functions use."""
    return _default
