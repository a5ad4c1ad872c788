"""`Devices`: the devices that arrays of a library can be on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from arrayferry._types import AnyArray


class Devices:
    """The devices of a library. The attribute `devices` of a backend is an object of this class.

    Subclass it for a library with arrays outside host memory. The methods of this class support only host memory.

    Examples:
        >>> import arrayferry as af
        >>> class MylibDevices(af.Devices):
        ...     def names(self):
        ...         return ("cpu", "cuda:0")
        ...     def move(self, x, device):
        ...         return x.to(device)
        >>> MylibDevices().default()
        'cpu'
    """

    def names(self) -> Sequence[str]:
        """Return the names of the devices that are usable now, the default first: `("cpu", "cuda:0")`."""
        return ("cpu",)

    def default(self) -> str:
        """Return the name of the default device of new arrays: the first of `names`.

        Override this method if the default device is known without querying a driver.
        """
        return self.names()[0]

    def name_of(self, device: Any) -> str:
        """Return the name of a device object of the library, as `names` spells it.

        If the object represents several devices, the name is their names, joined by commas: `"cuda:0,cuda:1"`.
        """
        return str(device)

    def is_named(self, device: Any) -> bool:
        """Return whether a device object is fully described by its name. A JAX sharding is not."""
        return True

    def place_of(self, x: AnyArray) -> Any:
        """Return a value of the option `device` that moves arrays to the device of `x`. The option `like` uses the value.

        Return None if the name of the device, as `Backend.device_of` returns it, is enough. It is not enough for a
        sharded array.
        Return "default" if `x` is on the default device because no device was chosen, and the library treats such arrays
        differently from arrays on a chosen device, as JAX does.
        """
        return None

    def is_on(self, x: AnyArray, device: Any) -> bool:
        """Return whether a move of an array to `device`, a device object of the library, would change nothing.

        arrayferry calls this method only for a device that is not fully described by its name.
        """
        return False

    def move(self, x: AnyArray, device: Any) -> Any:
        """Move an array to another device of the same library.

        If the result is `NotImplemented`, as by default, arrayferry moves the array through host memory.
        """
        return NotImplemented

    def use(self, device: Any) -> AbstractContextManager[Any]:
        """Return a context manager in which the library creates new arrays on a device by default.

        Args:
            device: the name of a device, as `names` returns it.
        """
        return nullcontext()

    def fence(self, x: AnyArray) -> Callable[[], bool] | None:
        """Return a function without arguments that returns whether the work now queued for an array is done.

        Override this method if the library queues its work on device streams. arrayferry then stores the source of a
        copy until the copy is done. Otherwise the library could reuse the memory of the source before it is copied.

        Args:
            x: an array of the library: the result of a copy or move queued on the current stream of its device.

        Returns:
            The function. None if nothing is queued, or if the library reuses freed memory only after queued work.
        """
        return None

    def protect(self, x: AnyArray) -> bool:
        """Delay the reuse of an array's memory until the work queued on the current stream of its device is done.

        arrayferry calls this method right after a copy or move of `x` was queued. If the result is False, arrayferry
        stores `x` until the copy is done.
        """
        return False

    def is_out_of_memory(self, error: Exception) -> bool:
        """Return whether an error of the library means that memory ran out. Such an error is raised unchanged."""
        return isinstance(error, MemoryError)
