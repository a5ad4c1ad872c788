"""`Kind`: what a value is to a conversion."""

from __future__ import annotations

from typing import Any, Literal

from arrayferry._plugin.backend import Backend
from arrayferry._plugin.container import Container
from arrayferry._plugin.origin import Origin, Source

__all__ = ["Kind", "holds_objects"]


class Kind:
    """What a type of value is to a conversion, and which backend or container handles it.

    Attributes:
        category: "array"; "objects" for a NumPy array, which may hold objects; "scalar" for NumPy's
            numbers; "number" for Python's; "deferred" for a value that is yet to be computed;
            "container"; "source" for an object that an array is read from; or "other".
        backend: the backend of an array, or of what computes a deferred value.
        source: what such an object is read by.
        container: the container of a structure, or of an array of objects.
        cacheable: whether the answer stays the same. It does not for "other" while a library of a
            backend is being imported.
    """

    __slots__ = ("backend", "cacheable", "category", "container", "source")

    def __init__(
        self,
        category: Literal[
            "array", "objects", "scalar", "number", "deferred", "container", "source", "other"
        ],
        backend: Backend | None = None,
        container: Container | None = None,
        *,
        source: Source | None = None,
        cacheable: bool = True,
    ) -> None:
        self.category = category
        self.backend: Backend | None = backend
        self.container: Container | None = container
        self.source: Source | None = source
        self.cacheable: bool = cacheable

    @property
    def origin(self) -> Origin | None:
        """What arrays are read by: the backend or the source."""
        return self.backend or self.source

    def searches(self, value: Any) -> bool:
        """Whether a value of this kind is searched for arrays: a container, or an array that holds objects."""
        return self.category == "container" or (self.category == "objects" and holds_objects(value))

    @property
    def is_array(self) -> bool:
        """Whether it is an array, or a number of NumPy's."""
        return self.category in ("array", "objects", "scalar")

    def is_array_of(self, backend: Backend) -> bool:
        """Whether it is an array of a backend, or a number of NumPy's where that is NumPy."""
        own = "numpy" if self.backend is None else self.backend.name
        return self.is_array and own == backend.name


def holds_objects(value: Any) -> bool:
    """Return whether a NumPy array is one of Python objects, to be searched. A masked one is not."""
    import numpy

    if type(value) is numpy.ndarray:
        return bool(value.dtype.kind == "O")
    if numpy.ndarray.dtype.__get__(value).kind != "O":  # a subclass may have another `dtype`
        return False
    return not (isinstance(value, numpy.ma.MaskedArray) and bool(numpy.ma.is_masked(value)))
