"""`Owners`: the part that each name and each type belongs to."""

from __future__ import annotations

from typing import Any

from arrayferry._plugin.backend import Backend
from arrayferry._plugin.container import Container
from arrayferry._plugin.hookspecs import HOOKS
from arrayferry._plugin.origin import Origin
from arrayferry._plugin.types import resolve_types

from .plugins import Contribution


class Owners:
    """Each name and each array type belongs to one backend or source. No type is both an array and a container.

    Sources of one plugin may share one name, that of their library. A backend takes over array types from sources.
    Converters own nothing, and containers only types that no backend has.

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
        self._arrays: dict[Any, Contribution] = {}  # of backends, by paths and by types
        self._containers: dict[Any, Contribution] = {}

    def conflict(self, new: Contribution) -> str:
        """Describe the first name or type of a part that belongs to another one; "" if none does."""
        part, kind = new.part, HOOKS[new.hook]
        others = self._containers if kind is Backend else self._arrays
        for entry in _types_of(new):
            if entry in others:
                return f"{entry} is a type of {others[entry]}, and cannot be both an array and a container"
        if kind is Container:
            return ""
        packages = self.packages if isinstance(part, Backend) else {}
        for name in _names_of(part):
            owner = self.names.get(name) or packages.get(name)
            if owner is None or _replaces(part, owner.part):
                continue
            backends = isinstance(part, Backend) or isinstance(owner.part, Backend)
            if backends or owner.plugin != new.plugin:
                return f"the name {name!r} is taken by {owner}"
        for path in part.array_types:
            owner = self.types.get(path)
            if owner and not (_replaces(part, owner.part) or _comes_before(part, owner.part)):
                return f"the array type {path} is taken by {owner}"
        return ""

    def replacement(self, new: Contribution) -> Contribution | None:
        """Return the part that replaces a new one, as its `replaces` says; None if no part does."""
        part = new.part
        for owner in self.parts if HOOKS[new.hook] is not Container else ():
            by = owner.part
            if by.name != part.name and _replaces(by, part) and not _replaces(part, by):
                return owner
        return None

    def add(self, new: Contribution) -> None:
        """Add a part with its names and types, and remove those that it replaces."""
        part, kind = new.part, HOOKS[new.hook]
        known = self._arrays if kind is Backend else self._containers
        known.update(dict.fromkeys(_types_of(new), new))
        if kind is Container:
            return
        for old in [each for each in self.parts if _replaces(part, each.part)]:
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
    """Return whether a part replaces another one. A source is not a target, so it replaces only sources."""
    return other.name in part.replaces and not _comes_before(other, part)


def _comes_before(part: Origin, other: Origin) -> bool:
    """Return whether a part is a backend and the other a source. The type then belongs to the backend."""
    return isinstance(part, Backend) and not isinstance(other, Backend)


def _types_of(new: Contribution) -> list[Any]:
    """Return the types of a backend or container, as it names them and as they have been imported."""
    attribute = {Backend: "array_types", Container: "types"}.get(HOOKS[new.hook])
    types = getattr(new.part, attribute) if attribute else ()
    return [*types, *resolve_types(types)]
