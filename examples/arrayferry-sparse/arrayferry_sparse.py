"""pydata/sparse for arrayferry: dense in NumPy, coordinates in sparse."""

from __future__ import annotations

from typing import Any

import arrayferry as af


class SparseBackend(af.Backend):
    """`sparse.COO`, `sparse.GCXS` and `sparse.DOK`."""

    name = install = "sparse"
    package = "sparse"
    array_types = ("sparse.SparseArray",)
    to_numpy_shares = False
    from_numpy_shares = False

    def to_numpy(self, x: Any) -> Any:
        """Return all values, including those not stored."""
        return x.todense()

    def is_sparse(self, x: Any) -> bool:
        """Every array of this library is sparse."""
        return True

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        """Store all nonzero values; a negative zero counts as nonzero."""
        import numpy as np
        import sparse

        stored = x != 0
        if x.dtype.kind == "f":
            stored |= np.signbit(x)
        elif x.dtype.kind == "c":
            stored |= np.signbit(x.real) | np.signbit(x.imag)
        where = np.nonzero(np.atleast_1d(stored))
        coords = np.empty((0, where[0].size), int) if x.ndim == 0 else np.array(where)
        return sparse.COO(coords, x[stored], shape=x.shape, fill_value=x.dtype.type(0))

    def copy(self, x: Any) -> Any:
        """Copy the coordinates and the values, in the same format."""
        return x.copy()


@af.hookimpl
def arrayferry_backends() -> list[af.Backend]:
    """Return the backend of this plugin."""
    return [SparseBackend()]
