"""MLX for arrayferry: its arrays are shared with NumPy, read-only, and values from NumPy are copied."""

from __future__ import annotations

from typing import Any

import arrayferry as af


class MlxBackend(af.Backend):
    """`mlx.core.array`, in memory that the CPU and the GPU share.

    MLX never writes to memory that it has handed out by DLPack: an assignment to an element moves the array. So what was converted
    has the values of before, as if it had been copied.
    """

    name = install = "mlx"
    package = "mlx.core"
    install = "'mlx[cpu]' (or mlx, on Apple silicon)"
    array_types = ("mlx.core.array",)
    to_numpy_shares = None
    from_numpy_shares = False

    def to_numpy(self, x: Any) -> Any:
        """Return a read-only view, of the bits if NumPy lacks the dtype."""
        import mlx.core as mx
        import numpy as np

        if x.dtype == mx.bfloat16:
            import ml_dtypes

            return np.from_dlpack(x.view(mx.uint16)).view(ml_dtypes.bfloat16)
        return np.from_dlpack(x)

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        """Copy the values, as bits if NumPy lacks the dtype."""
        import mlx.core as mx

        if x.dtype.name == "bfloat16":
            return mx.array(x.view("uint16")).view(mx.bfloat16)
        return mx.array(x)

    def copy(self, x: Any) -> Any:
        """Copy the values."""
        import mlx.core as mx

        return mx.array(x)

    def dtypes(self) -> frozenset[str]:
        """Name the dtypes of MLX, which silently narrows float64 and complex128."""
        wide = {"float64", "complex128"}
        return (af.STANDARD_DTYPES - wide) | {"bfloat16"}


@af.hookimpl
def arrayferry_backends() -> list[af.Backend]:
    """Return the backend of this plugin."""
    return [MlxBackend()]
