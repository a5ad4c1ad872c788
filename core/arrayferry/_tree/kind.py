"""`Kind`: how a conversion treats a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from arrayferry._plugin.backend import Backend
from arrayferry._plugin.container import Container
from arrayferry._plugin.origin import Origin, Source
from arrayferry._types import AnyTree


@dataclass(eq=False, repr=False, slots=True)
class Kind:
    """How a conversion treats values of one type, and which backend, source or container handles them.

    Attributes:
        category: "array"; "objects" for a NumPy array, whose elements may be objects; "scalar" for a number of NumPy;
            "number" for a number of Python; "container"; "source" for an object that arrays are read from; or "other".
        backend: the backend of an array, or the backend of NumPy for a NumPy scalar.
        source: the source that reads arrays from objects of this type.
        container: the container that reads and rebuilds a structure or an array of objects.
        cacheable: whether this kind is final. The kind "other" is not final while a library is being imported.
        origin: `backend` or `source`, whichever is not None.
        is_array: whether values of this type are arrays or NumPy scalars.
    """

    category: Literal["array", "objects", "scalar", "number", "container", "source", "other"]
    backend: Backend | None = None
    container: Container | None = None
    source: Source | None = None
    cacheable: bool = True
    origin: Origin | None = field(init=False)
    is_array: bool = field(init=False)

    def __post_init__(self) -> None:
        self.origin = self.backend or self.source
        self.is_array = self.category in ("array", "objects", "scalar")

    def searches(self, value: AnyTree) -> bool:
        """Return whether a value may contain arrays: a container, or an array of objects without masked elements."""
        if self.category != "objects":
            return self.category == "container"
        import numpy

        if type(value) is numpy.ndarray:  # it has no mask, so numpy.ma is not needed
            return bool(value.dtype.kind == "O")
        if numpy.ndarray.dtype.__get__(value).kind != "O":  # a subclass may override `dtype`
            return False
        return not (isinstance(value, numpy.ma.MaskedArray) and bool(numpy.ma.is_masked(value)))

    def is_array_of(self, backend: Backend) -> bool:
        """Return whether a value of this kind is an array of a backend. NumPy scalars are arrays of NumPy."""
        return self.backend is not None and self.backend.name == backend.name
