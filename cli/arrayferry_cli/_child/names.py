"""Task: whether the names of a new plugin are free. Its library is not imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arrayferry import Backend, registry
from arrayferry_cli._reports import Unanswerable


def answer(name: str, package: str) -> Iterator[Unanswerable]:
    """Yield a conflict, if there is one.

    Args:
        name: the name of the new backend.
        package: the module of its library.
    """
    conflict = registry.catalog.conflict(_Named(name))
    for backend in registry.backends().values():
        if package in (backend.package, backend.namespace):
            conflict = conflict or f"{package} has a backend already, {backend.name!r}"
    if conflict:
        yield Unanswerable(conflict, True)


class _Named(Backend):
    """A backend that claims nothing but a name."""

    array_types = ()

    def __init__(self, name: str) -> None:
        self.name = self.package = name

    def to_numpy(self, x: Any) -> Any:
        """Refuse: it has no arrays."""
        raise NotImplementedError

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        """Refuse: it has no arrays."""
        raise NotImplementedError
