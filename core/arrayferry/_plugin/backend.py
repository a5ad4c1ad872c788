"""`Backend`: the description of one array library by its plugin.

Two methods are required, `to_numpy` and `from_numpy`. They suffice for conversions to and from every other
library, since arrayferry can convert between any two libraries through a NumPy array in host memory. The other methods
have defaults. A plugin overrides them to make conversions faster, to share memory, or to describe special arrays.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from types import ModuleType
from typing import Any

from arrayferry._dtypes import STANDARD_DTYPES
from arrayferry._types import AnyArray, TargetName

from .origin import Origin


class Backend(Origin):
    """Describes one array library. A plugin subclasses this class.

    Attributes:
        name: the name that users write, such as `"torch"`.
        package: the module to import to use the library, such as `"torch"`.
        array_types: dotted paths of the library's array types, as a user would write them, such as `"torch.Tensor"`.
            They are looked up only after their top-level package has been imported.
        namespace: dotted path of the module with the library's functions, if it is not `package`.
        aliases: other names that users may write.
        install: the argument of `pip install` for the library. If empty, errors suggest no command, since a
            guessed name may belong to another project.
        memory: what the library guarantees about its arrays. "writable": they may change in place. "immutable":
            their values never change. "lazy": their values are computed on demand and never change. "unknown":
            nothing is guaranteed, and memory is shared only with `copy=False`.
        to_numpy_shares: whether the result of `to_numpy` uses the memory of its argument. True: the result is a view.
            False: nothing else uses the memory of the result. None: this depends on the argument.
        from_numpy_shares: whether the result of `from_numpy` uses the memory of its argument, as True, False or None.
        devices: an object that describes the devices of the library. The default describes host memory only.
        dlpack: an object that exchanges arrays by DLPack, or None if the library does not support DLPack.
        item_types: dotted paths of the array types, not including subclasses, whose `item()` returns the number in a
            one-element array as a Python number. The adapters for gymnasium call `item()` for discrete actions.
        replaces: names of backends and sources that this backend replaces if both are installed.

    Examples:
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

    _role = "Backend"
    namespace: str = ""
    aliases: tuple[str, ...] = ()
    from_numpy_shares: bool | None = None
    item_types: tuple[str, ...] = ()

    # Required members.

    @abstractmethod
    def from_numpy(self, x: AnyArray, device: Any = None) -> Any:
        """Return an array of this library with the values, shape and dtype of a NumPy array.

        Args:
            x: a plain, aligned `numpy.ndarray` in native byte order, without negative strides. Its dtype is
                one that `dtypes` returns. If `x` is read-only, its memory must not become writable through the result.
            device: the device of the new array: a name from `devices.names`, or a device object of the library. If
                None, the library chooses the device.
        """

    # Optional: lazy arrays.

    def compute(self, xs: Sequence[Any]) -> Sequence[Any]:
        """Compute lazy arrays in one call.

        A backend with `memory = "lazy"` may override `compute`. arrayferry then calls it instead of `to_numpy_many`.

        Args:
            xs: the lazy arrays.

        Returns:
            One item for each array: its values, as a NumPy array in memory that nothing else uses, or as an array of
            another library. If an array cannot be computed, its item is a `ConversionError`. arrayferry raises this
            error with the path of the array in the tree.
        """
        return self.to_numpy_many(xs)

    # Optional: dtypes.

    def dtypes(self) -> Collection[str] | None:
        """Return the names of the dtypes that arrays of the library can have now, as NumPy and `ml_dtypes` spell them.

        None means every dtype that a NumPy array can have.
        """
        return STANDARD_DTYPES

    def dtype_hint(self, dtype: str) -> str:
        """Return a sentence on how to make the library support a dtype that `dtypes` leaves out, or "" for no hint."""
        return ""

    # Optional: copies on a device.

    def copy(self, x: AnyArray) -> Any:
        """Return an array with equal values in memory that nothing else uses, on the same device."""
        import numpy

        return self.from_numpy(native(numpy.array(self.to_numpy(x))), self.device_of(x))

    # Optional: Python numbers.

    def number_dtype(self, kind: str) -> str:
        """Return the name of the dtype that the library's `asarray` chooses for Python numbers.

        Args:
            kind: "bool", "int", "float" or "complex".
        """
        return {"bool": "bool", "int": "int64", "float": "float64"}.get(kind, "complex128")


def same_library(source: Origin, target: Backend) -> bool:
    """Return whether `source` is the backend `target`. The result is False for a `Source` of the same name."""
    return isinstance(source, Backend) and source.name == target.name


def native(x: AnyArray) -> Any:
    """Return a NumPy array with the values of `x` in native byte order, which `from_numpy` requires."""
    import numpy

    x = numpy.asarray(x)
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


Target = TargetName | ModuleType | Backend
"""A target as users pass it: the name of a library with a built-in plugin, a namespace module, or a backend."""

AnyTarget = str | ModuleType | Backend
"""A target of any plugin. Type checkers do not know the names of other plugins, so they accept any string."""
