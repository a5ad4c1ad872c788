"""`Backend`: what a plugin says about one array library.

Two methods are required, `to_numpy` and `from_numpy`. With these alone every pair with the library
works, in both directions: NumPy arrays in host memory are the general way between any two. All
else that a backend can say makes crossings faster, or lets them share memory.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, Literal

from ._errors import BackendUnavailableError

__all__ = ["STANDARD_DTYPES", "Backend", "Memory"]

Memory = Literal["writable", "immutable", "lazy", "unknown"]

STANDARD_DTYPES = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]
)
"""The dtypes of the Array API standard, and float16: what a backend holds unless it says otherwise."""


class Backend(ABC):
    """One array library, seen through its plugin. Subclass it.

    Attributes:
        name: what users call it, `"torch"`.
        package: the module to import to have its arrays, `"torch"`.
        array_types: dotted paths of its array types as a user would write them, `"torch.Tensor"`.
            They are looked up only once their top-level package has been imported by somebody.
        namespace: dotted path of the module with its functions, if that is not `package`.
        aliases: other names that users may write.
        install: what to hand to `pip install`, if that is not `name`.
        memory: what the library promises about its arrays. "writable": they may change in place.
            "immutable": their values never change. "lazy": their values are computed when asked
            for, and never change. "unknown": nobody said; nothing is shared unless told to.
        to_numpy_shares: whether `to_numpy` gives a view of the array's own memory (True), memory
            that nobody else holds (False), or cannot say (None; the safe assumption is made).
        from_numpy_shares: likewise, whether the result of `from_numpy` looks at its argument's memory.
        dlpack_devices: kinds of device ("cpu", "cuda") on which arrays can be handed over by DLPack.
        replaces: names of backends that this one stands in for, if both are installed.

    Example:
        >>> import arrayferry as af
        >>> class Lists(af.Backend):
        ...     name = "lists"
        ...     package = "builtins"
        ...     array_types = ("mylists.Array",)
        ...     def to_numpy(self, x):
        ...         import numpy
        ...         return numpy.asarray(x.rows)
        ...     def from_numpy(self, x, device=None):
        ...         import mylists
        ...         return mylists.Array(x.tolist())
        >>> Lists()
        <Backend lists>
    """

    name: str
    package: str
    array_types: tuple[str, ...]
    namespace: str = ""
    aliases: tuple[str, ...] = ()
    install: str = ""
    memory: Memory = "writable"
    to_numpy_shares: bool | None = None
    from_numpy_shares: bool | None = None
    dlpack_devices: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()

    # Required.

    @abstractmethod
    def to_numpy(self, x: Any) -> Any:
        """Give the values of an array as a `numpy.ndarray` of the same shape and dtype.

        The result may be a view of the array's memory. If the library promises that its arrays
        never change, a view must be read-only. The array itself is left as it is.

        Args:
            x: an array of this library, of any shape, dtype and device.

        Raises:
            ConversionError: the array holds more than values, and that would be lost. Say what
                it is as the reason, and what the user can call first as the remedy.
            TracedValueError: the values are not there yet.
        """

    @abstractmethod
    def from_numpy(self, x: Any, device: Any = None) -> Any:
        """Make an array of this library from a NumPy array, of the same shape and dtype.

        Args:
            x: a plain `numpy.ndarray`: native byte order, aligned, no negative strides, of a dtype
                that `dtypes` names. It may be read-only; then it must not be written through the result.
            device: where to put it, as `devices` names it or as the library's own object. None
                leaves the choice to the library.
        """

    # Optional: devices.

    def devices(self) -> Sequence[str]:
        """Name the devices that can be used now, the default one first: `("cpu", "cuda:0")`."""
        return ("cpu",)

    def device_of(self, x: Any) -> str:
        """Name the device that an array lies on, as `devices` does."""
        return "cpu"

    def device_name(self, device: Any) -> str:
        """Name a device object of this library, as `devices` does."""
        return str(device)

    def to_device(self, x: Any, device: Any) -> Any:
        """Move an array to another device of the same library. The default goes through the host."""
        return self.from_numpy(self.to_numpy(x), device)

    # Optional: what it can hold.

    def dtypes(self) -> Collection[str] | None:
        """Name the dtypes that its arrays can have now, as NumPy and `ml_dtypes` spell them.

        None means every dtype that a NumPy array can have.
        """
        return STANDARD_DTYPES

    def dtype_hint(self, dtype: str) -> str:
        """Say, as a sentence, how the library can be made to hold a dtype that `dtypes` leaves out."""
        return ""

    # Optional: sharing and copying without the host.

    def copy(self, x: Any) -> Any:
        """Give an array of equal values in memory that nobody else holds, on the same device."""
        import numpy

        return self.from_numpy(numpy.array(self.to_numpy(x)), self.device_of(x))

    def to_dlpack(self, x: Any) -> Any:
        """Give an object with `__dlpack__` and `__dlpack_device__` that exports the array."""
        return x

    def from_dlpack(self, x: Any, device: Any = None) -> Any:
        """Take in an object with `__dlpack__`, sharing its memory."""
        raise NotImplementedError(f"{self.name} has no DLPack")

    # Optional: many arrays in one call.

    def to_numpy_many(self, xs: Sequence[Any]) -> Sequence[Any]:
        """Do as `to_numpy` for several arrays, where one call for all is better than one each."""
        return [self.to_numpy(x) for x in xs]

    def is_traced(self, x: Any) -> bool:
        """Tell whether an array stands for numbers that are not there yet, as inside `jit`."""
        return False

    # Whether it can be used here.

    @property
    def installed(self) -> bool:
        """Whether the library's package can be found, without importing it."""
        top = self.package.partition(".")[0]
        if top in sys.modules:
            return sys.modules[top] is not None
        try:
            return importlib.util.find_spec(top) is not None
        except (ImportError, ValueError):
            return False

    @property
    def usable(self) -> bool:
        """Whether arrays of the library can be made here. This imports it."""
        return self.problem() is None

    def problem(self) -> BackendUnavailableError | None:
        """Say why the library cannot be used here, as an error to raise; None if it can be.

        This imports the library. Override `check` to test for more than that.
        """
        if not self.installed:
            return BackendUnavailableError(
                f"{self.name} is not installed",
                remedy=f"Run: pip install {self.install or self.name}",
                backend=self.name,
            )
        try:
            importlib.import_module(self.package)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            failure = BackendUnavailableError(
                f"{self.name} is installed, but importing {self.package} failed with "
                f"{type(error).__name__}: {error}",
                remedy=f"Mend its installation, for instance: pip install --force-reinstall "
                f"{self.install or self.name}",
                backend=self.name,
            )
            failure.__cause__ = error
            return failure
        reason = self.check()
        if reason is None:
            return None
        return BackendUnavailableError(
            f"{self.name} is installed, but cannot be used here: {reason}", backend=self.name
        )

    def check(self) -> str | None:
        """Say why no array can be made here although the package imports, or None."""
        return None

    def __repr__(self) -> str:
        return f"<Backend {self.name}>"
