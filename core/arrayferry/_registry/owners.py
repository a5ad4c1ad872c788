"""`Owners`: the backend or source that each name and each array type belongs to."""

from __future__ import annotations

from arrayferry._plugin.backend import Backend
from arrayferry._plugin.origin import Origin

from .contributions import Contribution, Plugin


class Owners:
    """Backends and sources: each name and each array type belongs to one of them.

    Sources of one plugin may share one name, that of their library. A backend takes over array types from sources.

    Attributes:
        parts: the backends and sources that are used.
        names: the owner of each name.
        packages: the owner of each package. Packages of backends are further names of theirs.
        types: the owner of each array type, by its dotted path.
    """

    def __init__(self) -> None:
        self.parts: list[Contribution] = []
        self.names: dict[str, Contribution] = {}
        self.packages: dict[str, Contribution] = {}
        self.types: dict[str, Contribution] = {}

    def conflict(self, part: Origin, plugin: Plugin | None = None) -> str:
        """Describe the first name or type of a part that belongs to another one; "" if none does.

        Args:
            part: a backend or a source.
            plugin: the plugin of the part.
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
        """Return the part that declares to replace a later one, None if no part does."""
        for owner in self.parts:
            by = owner.part
            replaces = by.replaces and by.name != part.name and _replaces(by, part)
            if replaces and not _replaces(part, by):
                return owner
        return None

    def add(self, new: Contribution) -> None:
        """Add a part with its names and types, and remove those that it replaces."""
        part = new.part
        for old in [each for each in self.parts if part.replaces and _replaces(part, each.part)]:
            for table in (self.names, self.packages, self.types):
                table.update({key: new for key, owner in table.items() if owner is old})
            self.parts = [each for each in self.parts if each is not old]
        self.parts.append(new)
        self.assign(part, new)
        if isinstance(part, Backend):
            self.packages.setdefault(part.package, new)

    def assign(self, part: Origin, owner: Contribution) -> None:
        """Assign the free names and types of a part to an owner: the part itself, or the one that replaces it."""
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
    """Return whether a part declares to replace another one. A source is not a target, so it replaces only sources."""
    return other.name in part.replaces and (
        isinstance(part, Backend) or not isinstance(other, Backend)
    )


def _comes_before(part: Origin, other: Origin) -> bool:
    """Return whether a part is a backend and the other a source. The type then belongs to the backend."""
    return isinstance(part, Backend) and not isinstance(other, Backend)
