"""`Owners`: assigns each name and each type to one part of a plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from arrayferry._errors import PluginError
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.container import Container
from arrayferry._plugin.converter import Converter
from arrayferry._plugin.origin import Origin, Source
from arrayferry._plugin.types import resolve_types

from .plugins import Contribution, LeftOut


class Owners:
    """Assigns each name and each array type to its owner, which is one part of a plugin.

    Sources of one plugin may share the name of their library. If a backend and a source claim a type, the backend
    owns it. If a backend and a container claim a type, the part that claims it later is left out.

    Args:
        contributions: the parts, in the order in which they claim names and types.
        refuse: the name of a plugin, or "". If a part of this plugin is left out, an error is raised.
        warn: a function to call with the text of a warning.

    Attributes:
        parts: the parts that are used and have names.
        names: the owner of each name.
        packages: the backend that owns each package. A backend can also be found by its package.
        types: the owner of each array type, by the dotted path of the type.
        left_out: the parts that are not used.
        unused: the `id` of the contribution of each part in `left_out`.

    Raises:
        PluginError: the plugin named `refuse` claims a name or type that another plugin owns.
    """

    def __init__(
        self, contributions: Iterable[Contribution], refuse: str, warn: Callable[[str], None]
    ) -> None:
        self.parts: list[Contribution] = []
        self.names: dict[str, Contribution] = {}
        self.packages: dict[str, Contribution] = {}
        self.types: dict[str, Contribution] = {}
        self.left_out: list[LeftOut] = []
        self.unused: set[int] = set()
        self._replacing: list[Contribution] = []
        # the contributions of backends, by the paths and types of their arrays
        self._arrays: dict[Any, Contribution] = {}
        self._containers: dict[Any, Contribution] = {}
        for new in sorted(contributions, key=lambda contribution: contribution.priority):
            if new.kind is Converter:
                continue
            by = self._replacement(new) if self._replacing else None
            conflict = "" if by else self._claim(new)
            if not by and not conflict:
                continue
            if new.plugin == refuse:
                raise PluginError(
                    f"{new} cannot be registered: {conflict or f'it is replaced by {by}'}",
                    remedy="Change its name or types, or list the name of the other part in its `replaces`.",
                )
            why = f"{new} is replaced by {by}" if by else f"arrayferry left out {new}: {conflict}"
            if by:
                types = new.part.array_types if isinstance(new.part, Origin) else ()
                self._assign(_names_of(new.part), types, by)
            else:
                warn(why)
            self.left_out.append(LeftOut(new.name, why, new.plugin, broken=not by))
            self.unused.add(id(new))

    def _claim(self, new: Contribution) -> str:
        """Assign a part its names and types, and remove the parts that it replaces.

        Returns:
            A description of the conflict with another part, after which nothing is assigned, or "" for no conflict.
        """
        part, kind = new.part, new.kind
        paths = part.types if kind is Container else part.array_types if kind is Backend else ()
        entries = [*paths, *resolve_types(paths)]
        other_owners = self._arrays if kind is Container else self._containers
        for entry in entries:
            if entry in other_owners:
                return f"{entry} is a type of {other_owners[entry]}, and a type cannot be both an array and a container"
        if kind is Container:
            self._containers.update(dict.fromkeys(entries, new))
            return ""
        names, types = _names_of(part), part.array_types if isinstance(part, Origin) else ()
        if conflict := self._conflict(new, names, types):
            return conflict
        self._arrays.update(dict.fromkeys(entries, new))
        if replaces := getattr(part, "replaces", ()):
            for old in [each for each in self.parts if each.name in replaces and _may(new, each)]:
                for owners in (self.names, self.packages, self.types):
                    owners.update({key: new for key, owner in owners.items() if owner is old})
                for part_list in (self.parts, self._replacing):
                    part_list[:] = [owner for owner in part_list if owner is not old]
            self._replacing.append(new)
        self.parts.append(new)
        self._assign(names, types, new)
        if isinstance(part, Backend):
            self.packages.setdefault(part.package, new)
        return ""

    def _conflict(self, new: Contribution, names: list[str], types: tuple[str, ...]) -> str:
        """Describe the first name or array type of a part that another part owns. Return "" if there is none."""
        packages = self.packages if isinstance(new.part, Backend) else {}
        for name in names:
            owner = self.names.get(name) or packages.get(name)
            if owner is None or _replaces(new, owner):
                continue
            may_share = owner.plugin == new.plugin and owner.kind is new.kind is Source
            if not may_share:
                return f"the name {name!r} is taken by {owner}"
        for path in types:
            owner = self.types.get(path)
            if owner and not (_replaces(new, owner) or not _may(owner, new)):
                return f"the array type {path} is taken by {owner}"
        return ""

    def _replacement(self, new: Contribution) -> Contribution | None:
        """Return the part that replaces the part `new`, or None."""
        for owner in self._replacing if new.kind is not Container else ():
            if owner.name != new.name and _replaces(owner, new) and not _replaces(new, owner):
                return owner
        return None

    def _assign(self, names: list[str], types: tuple[str, ...], owner: Contribution) -> None:
        """Assign the free names and types of a part to `owner`: the part itself, or the part that replaces it."""
        for name in names:
            self.names.setdefault(name, owner)
        for path in types:
            if path not in self.types or not _may(self.types[path], owner):
                self.types[path] = owner


def _names_of(part: Any) -> list[str]:
    """Return the names that a part claims."""
    if not isinstance(part, Backend):
        return [part.name]
    return [name for name in (part.name, part.namespace, *part.aliases) if name]


def _replaces(new: Contribution, other: Contribution) -> bool:
    """Return whether the part `new` replaces the part `other`."""
    return other.name in getattr(new.part, "replaces", ()) and _may(new, other)


def _may(new: Contribution, other: Contribution) -> bool:
    """Return whether `new` may replace `other`. A source cannot be a target, so it may not replace a backend."""
    return isinstance(new.part, Backend) or not isinstance(other.part, Backend)
