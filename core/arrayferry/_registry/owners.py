"""`Owners`: which name and which array type belongs to which backend or source."""

from __future__ import annotations

from arrayferry._plugin.backend import Backend
from arrayferry._plugin.origin import Origin

from .contributions import Contribution, Plugin

__all__ = ["Owners"]


class Owners:
    """Backends and sources: each name and each array type belongs to one of them.

    Sources of one plugin may share one name, that of their library. A backend takes over array types from sources.

    Attributes:
        parts: the backends and sources that are used.
        names: the names, and which part each belongs to.
        packages: the packages of backends, which are further names of theirs.
        types: the dotted paths of array types, and which part each belongs to.
    """

    def __init__(self) -> None:
        self.parts: list[Contribution] = []
        self.names: dict[str, Contribution] = {}
        self.packages: dict[str, Contribution] = {}
        self.types: dict[str, Contribution] = {}

    def conflict(self, part: Origin, plugin: Plugin | None = None) -> str:
        """Return which name or type of a part belongs to another one, as text, "" if none does.

        Args:
            part: a backend or a source.
            plugin: the plugin that it is part of.
        """
        packages = self.packages if isinstance(part, Backend) else {}
        for name in _names_of(part):
            owner = self.names.get(name) or packages.get(name)
            if owner is None or _replaces(part, owner.part):
                continue
            backends = isinstance(part, Backend) or isinstance(owner.part, Backend)
            if backends or owner.plugin is not plugin:
                return f"the name {name!r} is taken by {owner}"
        for path in part.array_types:
            owner = self.types.get(path)
            if owner and not (_replaces(part, owner.part) or _comes_before(part, owner.part)):
                return f"the array type {path} is taken by {owner}"
        return ""

    def replacement(self, part: Origin) -> Contribution | None:
        """Return the part that says that it replaces a later one, None if there is none."""
        for owner in self.parts:
            by = owner.part
            if (
                by.replaces
                and by.name != part.name
                and _replaces(by, part)
                and not _replaces(part, by)
            ):
                return owner
        return None

    def add(self, new: Contribution) -> None:
        """Add a part with its names and types, in the place of those that it replaces."""
        part = new.part
        for old in [each for each in self.parts if part.replaces and _replaces(part, each.part)]:
            for table in (self.names, self.packages, self.types):
                table.update({key: new for key, owner in table.items() if owner is old})
            self.parts = [each for each in self.parts if each is not old]
        self.parts.append(new)
        self.give(part, new)
        if isinstance(part, Backend):
            self.packages.setdefault(part.package, new)

    def give(self, part: Origin, owner: Contribution) -> None:
        """Give the names and types of a part to itself, or to the part that replaces it, as far as they are free."""
        for name in _names_of(part):
            self.names.setdefault(name, owner)
        for path in part.array_types:
            if path not in self.types or _comes_before(owner.part, self.types[path].part):
                self.types[path] = owner


def _names_of(part: Origin) -> list[str]:
    """Return the names that a part claims."""
    if not isinstance(part, Backend):
        return [part.name]
    return [name for name in (part.name, part.namespace, *part.aliases) if name]


def _replaces(part: Origin, other: Origin) -> bool:
    """Return whether a part says that it replaces another one. A source is not a target, so it replaces sources only."""
    return other.name in part.replaces and (
        isinstance(part, Backend) or not isinstance(other, Backend)
    )


def _comes_before(part: Origin, other: Origin) -> bool:
    """Return whether a part is a backend and the other a source: an array need not be read from a source."""
    return isinstance(part, Backend) and not isinstance(other, Backend)
