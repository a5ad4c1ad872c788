"""`Backends`: the mapping that `arrayferry.backends()` returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from arrayferry._plugin.backend import Backend
from arrayferry._repr import never_raises


class Backends(Mapping[str, Backend]):
    """A mapping of backends by name. It cannot be changed."""

    __slots__ = ("_backends",)

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = MappingProxyType(backends)

    def __getitem__(self, name: str) -> Backend:
        return self._backends[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._backends)

    def __len__(self) -> int:
        return len(self._backends)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._backends)

    def copy(self) -> dict[str, Backend]:
        """Return the backends as a dict."""
        return dict(self._backends)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._backends)

    @never_raises
    def __repr__(self) -> str:
        names = [
            name if _installed(each) else f"{name} (not installed)" for name, each in self.items()
        ]
        return f"<Backends: {', '.join(names) or 'none'}>"


def _installed(backend: Backend) -> bool:
    try:
        return backend.installed
    except Exception:
        return False
