"""SciPy: sparse arrays and matrices, which `sparse="dense"` converts to dense arrays."""

from __future__ import annotations

from typing import Any

from arrayferry import Source
from arrayferry.typing import AnyArray


class ScipySource(Source):
    """`scipy.sparse` arrays and matrices of every format."""

    name = "scipy"
    package = "scipy.sparse"
    array_types: tuple[str, ...] = ("scipy.sparse.sparray", "scipy.sparse.spmatrix")
    install = "scipy"
    to_numpy_shares: bool | None = False

    def to_numpy(self, x: AnyArray) -> Any:
        return x.toarray()

    def is_sparse(self, x: AnyArray) -> bool:
        return True


def arrayferry_sources() -> list[Source]:
    """Return the source of this module."""
    return [ScipySource()]
