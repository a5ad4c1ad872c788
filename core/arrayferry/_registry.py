"""`Registry`: fills catalogs from installed plugins and by hand, and swaps them whole.

Discovery happens once, at first use, and again on `refresh()`.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol

from ._backend import Backend
from ._catalog import Catalog, Kind
from ._discovery import HOOKS, check_part, contributions, discover
from ._errors import PluginError, PluginWarning

__all__ = ["Registry", "default_registry"]


class Watcher(Protocol):
    """Something that derives from a registry and wants to hear of changes."""

    def registry_changed(self) -> None:
        """Forget what was derived."""


class Registry:
    """The backends, converters and containers that conversions choose from.

    Args:
        autoload: whether to look for installed plugins at first use. Without, it starts empty.

    Example:
        >>> from arrayferry import Registry
        >>> Registry(autoload=False).backends()
        mappingproxy({})
    """

    def __init__(self, *, autoload: bool = True) -> None:
        self._autoload = autoload
        self._lock = threading.RLock()
        self._watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()
        self._by_hand: list[tuple[object, str, dict[str, list[Any]]]] = []
        self._catalog: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        """What is registered now."""
        catalog = self._catalog
        if catalog is None:
            with self._lock:
                catalog = self._catalog
                if catalog is None:
                    catalog = self._catalog = self._gather()
        return catalog

    def _gather(self) -> Catalog:
        catalog = Catalog()

        def add(given: dict[str, list[Any]], who: object) -> None:
            _add(catalog, given, who)

        if self._autoload:
            discover(add)
        for _, who, given in self._by_hand:
            add(given, who)
        return catalog

    def _swap(self, catalog: Catalog) -> None:
        self._catalog = catalog
        for watcher in list(self._watchers):
            watcher.registry_changed()

    def watch(self, watcher: Watcher) -> None:
        """Have `registry_changed()` called whenever what is registered changes."""
        with self._lock:
            self._watchers.add(watcher)

    def refresh(self) -> None:
        """Look for installed plugins again. What was registered at run time stays.

        Conversions under way in other threads finish with what was registered before.
        """
        with self._lock:
            self._swap(self._gather())

    def notice_imports(self) -> None:
        """Look up array types again if a library was imported since that was done."""
        if self.catalog.outdated():
            with self._lock:
                if self.catalog.outdated():
                    self._swap(self.catalog.copy())

    def register(self, part: object, name: str | None = None) -> None:
        """Register a plugin, or a single backend, converter or container, at run time.

        Args:
            part: a module or object that implements hooks, or one part.
            name: what to call it in messages.

        Raises:
            PluginError: it is at fault, or a name or an array type is taken already.
        """
        who = name or getattr(part, "__name__", None) or type(part).__qualname__
        given: dict[str, list[Any]] = {
            hook: [part] if isinstance(part, expected) else [] for hook, expected in HOOKS.items()
        }
        if any(given.values()):
            check_part(part)
        else:
            given = contributions(part, who)
        with self._lock:
            catalog = self.catalog.copy()
            for backend in given["arrayferry_backends"]:
                conflict = catalog.conflict(backend)
                if conflict:
                    raise PluginError(
                        f"the backend {backend.name!r} of {who} cannot be registered: {conflict}",
                        remedy="Give it another name, or name the other one in its `replaces`.",
                    )
                catalog.add_backend(backend, who)
            _add(catalog, {**given, "arrayferry_backends": []}, who)
            self._by_hand.append((part, who, given))
            self._swap(catalog)

    def unregister(self, part: object) -> None:
        """Take back what was given to `register`.

        Raises:
            PluginError: it was not registered at run time.
        """
        with self._lock:
            kept = [entry for entry in self._by_hand if entry[0] is not part]
            if len(kept) == len(self._by_hand):
                raise PluginError(f"{part!r:.80} was not registered at run time")
            self._by_hand = kept
            self.refresh()

    def backends(self) -> Mapping[str, Backend]:
        """Map every known name to its backend, installed or not."""
        return self.catalog.backends

    def backend(self, to: str | ModuleType | Backend) -> Backend:
        """Find a backend by name, alias, namespace module, or itself.

        Raises:
            UnknownBackendError: nothing is known under that name.
        """
        return self.catalog.backend(to)

    def kind(self, value: Any) -> Kind:
        """Tell what a value is to a conversion."""
        try:
            kind = self.catalog.kinds.get(type(value))
        except Exception:  # a class that cannot be hashed
            return Kind("other")
        if kind is None:
            self.notice_imports()
            kind = self.catalog.kind(value)
        return kind


def _add(catalog: Catalog, given: dict[str, list[Any]], who: object) -> None:
    """Add what a plugin gives, leaving out backends that claim what others have."""
    for backend in given["arrayferry_backends"]:
        conflict = catalog.conflict(backend)
        if conflict:
            warnings.warn(
                f"arrayferry left out the backend {backend.name!r} of {who}: {conflict}",
                PluginWarning,
                stacklevel=2,
            )
        else:
            catalog.add_backend(backend, who)
    catalog.add_converters(given["arrayferry_converters"])
    catalog.add_containers(given["arrayferry_containers"])


_default = Registry()


def default_registry() -> Registry:
    """Give the registry that `arrayferry.convert` and the other functions use."""
    return _default
