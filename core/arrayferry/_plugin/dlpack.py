"""`DLPack`: how a library exchanges arrays with other libraries without copies."""

from __future__ import annotations

from typing import Any

from arrayferry._dtypes import dtype_name
from arrayferry._types import AnyArray


class DLPack:
    """How arrays are exchanged by DLPack. The attribute `dlpack` of a backend is an object of this class, or None.

    Attributes:
        kinds: the kinds of device ("cpu", "cuda") on which arrays are exchanged.

    Examples:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> class NumpyDLPack(af.DLPack):
        ...     kinds = ("cpu",)
        ...     def load(self, x, device=None):
        ...         return np.from_dlpack(x)
        >>> dlpack = NumpyDLPack()
        >>> dlpack.load(dlpack.export(np.arange(3)))
        array([0, 1, 2])
    """

    kinds: tuple[str, ...] = ("cuda",)

    def export(self, x: AnyArray) -> Any:
        """Return an object with `__dlpack__` and `__dlpack_device__` that exports the array."""
        return x

    def load(self, x: AnyArray, device: Any = None) -> Any:
        """Return an array that shares the memory of an object with `__dlpack__`.

        The object may have `__cuda_array_interface__` instead of `__dlpack__`.

        Args:
            x: the object. Its strides are not negative.
            device: the device that the object is on, if the user requested a device. Otherwise None.

        Raises:
            BufferError, TypeError, ValueError, NotImplementedError: the library cannot accept the object. arrayferry
                then calls `load` with a copy on the same device, made by `compact`. If that call fails too, the values
                are copied through host memory, with a `PluginWarning` unless the error is a NotImplementedError.
        """
        raise NotImplementedError(f"{type(self).__qualname__} accepts no arrays by DLPack")

    def compact(self, x: AnyArray) -> Any:
        """Return a compact copy of an array, on the same device, that other libraries accept.

        If the result is `NotImplemented`, as by default, arrayferry calls `Backend.copy`. Override this method if other
        libraries may refuse the result of `Backend.copy`.
        """
        return NotImplemented

    def wait(self, x: AnyArray) -> bool:
        """Make later work of this library wait for the work that another library has queued for an array.

        Args:
            x: what `export` of the other library returned, for an array on a device that both libraries use.

        Returns:
            True if all later work of this library on that device waits, including work that reuses memory freed now.
            False if this is not certain.
        """
        self.load(x)
        return False

    def dtype_of(self, x: AnyArray) -> str:
        """Return the name of the dtype of an array's numbers, as `Backend.dtypes` spells it.

        Override this method if `x.dtype` is not the dtype of the numbers, for example if elements are vectors.
        """
        return dtype_name(x.dtype)
