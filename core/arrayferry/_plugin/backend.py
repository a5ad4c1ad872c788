"""`Backend`: the description of one array library by its plugin.

Two methods are required, `to_numpy` and `from_numpy`. They suffice for conversions to and from every other
library, since NumPy arrays in host memory are the general path between any two libraries. All other methods
make conversions faster or let them share memory.
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
    """One array library, as described by its plugin. Subclass it.

    Attributes:
        name: the name that users write, such as `"torch"`.
        package: the module to import to get its arrays, such as `"torch"`.
        array_types: dotted paths of its array types as a user would write them, such as `"torch.Tensor"`.
            They are looked up only after their top-level package has been imported.
        namespace: dotted path of the module with its functions, if that is not `package`.
        aliases: other names that users may write.
        install: the argument of `pip install` for the library. Without it, errors suggest no command, since a
            guessed name may belong to another project.
        memory: what the library guarantees about its arrays. "writable": they may change in place. "immutable":
            their values never change. "lazy": their values are computed on demand and never change. "unknown":
            nothing is guaranteed, and nothing is shared unless requested.
        to_numpy_shares: True if the result of `to_numpy` is a view of the memory of its argument, False if nothing else
            uses the memory of the result, or None if that depends on the argument (treated as the worse case).
        from_numpy_shares: the same for `from_numpy`: whether its result uses the memory of its argument.
        devices: the devices of its arrays, by default the host alone.
        dlpack: how arrays are exchanged by DLPack, or None if the library does not exchange them.
        item_types: dotted paths of the exact array types whose `item()` returns the Python number of a
            one-element array. The adapters for gymnasium call `item()` for discrete actions.
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
        """Make an array of this library from a NumPy array, of the same shape and dtype.

        Args:
            x: a plain, aligned `numpy.ndarray` in native byte order, without negative strides, whose dtype `dtypes`
                names. If it is read-only, its memory must not become writable through the result.
            device: the device of the new array: a name from `devices.names`, or the library's own object. None leaves
                the choice to the library.
        """

    # Optional: lazy arrays.

    def compute(self, xs: Sequence[Any]) -> Sequence[Any]:
        """Compute lazy arrays in one call.

        A backend with `memory = "lazy"` may override `compute`. arrayferry then calls it instead of `to_numpy_many`.

        Args:
            xs: the arrays.

        Returns:
            For each array, its values: a NumPy array in memory that nothing else uses, or an array of another
            library. For an array that cannot be computed, a `ConversionError`. arrayferry raises this error, with the
            path of the array in the tree.
        """
        return self.to_numpy_many(xs)

    # Optional: dtypes.

    def dtypes(self) -> Collection[str] | None:
        """Return the names of the dtypes that arrays of the library can have now, as NumPy and `ml_dtypes` spell them.

        None means every dtype that a NumPy array can have.
        """
        return STANDARD_DTYPES

    def dtype_hint(self, dtype: str) -> str:
        """Return a sentence on how to make the library support a dtype that `dtypes` leaves out, or ""."""
        return ""

    # Optional: sharing and copying without the host.

    def copy(self, x: AnyArray) -> Any:
        """Return an array with equal values in memory that nothing else uses, on the same device."""
        import numpy

        return self.from_numpy(native(numpy.array(self.to_numpy(x))), self.device_of(x))

    # Optional: values.

    def number_dtype(self, kind: str) -> str:
        """Return the name of the dtype that the library's `asarray` chooses for Python numbers.

        Args:
            kind: "bool", "int", "float" or "complex".
        """
        return {"bool": "bool", "int": "int64", "float": "float64"}.get(kind, "complex128")


def same_library(source: Origin, target: Backend) -> bool:
    """Return whether `source` is the backend `target`. This is False for a `Source` of the same name."""
    return isinstance(source, Backend) and source.name == target.name


def native(x: AnyArray) -> Any:
    """Return a NumPy array in native byte order, as `from_numpy` requires it."""
    import numpy

    x = numpy.asarray(x)
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


Target = TargetName | ModuleType | Backend
"""A target as users pass it: the name of a library with a built-in plugin, a namespace module, or a backend."""

AnyTarget = str | ModuleType | Backend
"""A target of any plugin. Type checkers do not know the names of other plugins, so they accept any string."""
