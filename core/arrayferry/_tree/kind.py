"""`Kind`: what a value is to a conversion."""

from __future__ import annotations

from typing import Literal

from arrayferry._plugin.backend import Backend
from arrayferry._plugin.container import Container

__all__ = ["Kind"]


class Kind:
    """What a type of value is to a conversion, and which backend or container handles it.

    Attributes:
        what: "array"; "objects" for a NumPy array, which may hold objects; "scalar" for NumPy's
            numbers; "number" for Python's; "container"; or "other".
        backend: the backend of an array.
        container: the container of a structure, or of an array of objects.
        settled: whether the answer stays the same. It does not for "other" while a library of a
            backend is being imported.
    """

    __slots__ = ("backend", "container", "settled", "what")

    def __init__(
        self,
        what: Literal["array", "objects", "scalar", "number", "container", "other"],
        backend: Backend | None = None,
        container: Container | None = None,
        *,
        settled: bool = True,
    ) -> None:
        self.what = what
        self.backend = backend
        self.container = container
        self.settled = settled
