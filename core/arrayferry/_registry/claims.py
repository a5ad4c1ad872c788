"""`Claims`: which names and array types belong to which backend or source."""

from __future__ import annotations

from typing import TypeVar

from arrayferry._plugin.backend import Backend
from arrayferry._plugin.origin import Origin

__all__ = ["Claims"]

_Part = TypeVar("_Part", bound=Origin)


class Claims:
    """What backends and sources claim: each name and each array type belongs to one of them.

    Sources of one plugin may share one name, that of their library. A backend takes over array types from sources.

    Attributes:
        names: the names that users may write for backends, and the backends.
        paths: the dotted paths of array types, and the backends and sources that they belong to.
    """

    def __init__(self) -> None:
        self.names: dict[str, Backend] = {}
        self.paths: dict[str, Origin] = {}
        self._taken: dict[str, Origin] = {}
        self._held: dict[int, tuple[Origin, object]] = {}  # by the id of the part

    def copy(self) -> Claims:
        """Return an object with the same content."""
        new = Claims()
        new.names = dict(self.names)
        new.paths = dict(self.paths)
        new._taken = dict(self._taken)
        new._held = dict(self._held)
        return new

    def conflict(self, part: Origin, who: object = None) -> str:
        """Return what a part claims that belongs to another one, "" if nothing.

        Args:
            part: a backend or a source.
            who: the plugin that it is part of.
        """
        for name in _names_of(part):
            holder = self._taken.get(name)
            if holder is None and isinstance(part, Backend):
                holder = self.names.get(name)  # the package of a backend is one of its names, too
            if holder is None or _replaces(part, holder):
                continue
            sources = not isinstance(part, Backend) and not isinstance(holder, Backend)
            if not sources or self._held[id(holder)][1] is not who:
                return f"the name {name!r} is taken by {self.describe(holder)}"
        for path in part.array_types:
            holder = self.paths.get(path)
            if holder is not None and not (_replaces(part, holder) or _comes_before(part, holder)):
                return f"the array type {path} is taken by {self.describe(holder)}"
        return ""

    def describe(self, part: Origin) -> str:
        """Name a part and its plugin."""
        return f"the {part.role.lower()} {part.name!r} of {self._held[id(part)][1]}"

    def replacement(self, part: Origin) -> Origin | None:
        """Return an earlier part that says that it replaces this one, None if there is none."""
        for holder, _ in self._held.values():
            if holder.name != part.name and _replaces(holder, part) and not _replaces(part, holder):
                return holder
        return None

    def add(self, part: Origin, who: object) -> list[Origin]:
        """Add what a part claims, and what those that it replaces have claimed.

        Returns:
            Those that it replaces.
        """
        replaced = [holder for holder, _ in self._held.values() if _replaces(part, holder)]
        for old in replaced:
            del self._held[id(old)]
            _hand_over(self.paths, old, part)
            _hand_over(self._taken, old, part)
            if isinstance(part, Backend):
                _hand_over(self.names, old, part)
            self.give(old, part)
        self._held[id(part)] = (part, who)
        self.give(part, part)
        if isinstance(part, Backend):
            self.names.update((name, part) for name in _names_of(part))
            self.names.setdefault(part.package, part)
        return replaced

    def give(self, part: Origin, holder: Origin) -> None:
        """Give what a part claims to the one that replaces it, as far as it is free."""
        for name in _names_of(part):
            self._taken.setdefault(name, holder)
            if isinstance(holder, Backend):
                self.names.setdefault(name, holder)
        for path in part.array_types:
            taken = self.paths.get(path)
            if taken is None or _comes_before(holder, taken):
                self.paths[path] = holder


def _hand_over(table: dict[str, _Part], old: Origin, new: _Part) -> None:
    for key, holder in list(table.items()):
        if holder is old:
            table[key] = new


def _names_of(part: Origin) -> list[str]:
    """Return the names that a part claims."""
    if not isinstance(part, Backend):
        return [part.name]
    return [name for name in (part.name, part.namespace, *part.aliases) if name]


def _replaces(part: Origin, other: Origin) -> bool:
    """Tell whether a part says that it replaces another one. A source is not a target, so it replaces sources only."""
    return other.name in part.replaces and (
        isinstance(part, Backend) or not isinstance(other, Backend)
    )


def _comes_before(part: Origin, other: Origin) -> bool:
    """Tell whether a part is a backend and the other a source: an array need not be read from a source."""
    return isinstance(part, Backend) and not isinstance(other, Backend)
