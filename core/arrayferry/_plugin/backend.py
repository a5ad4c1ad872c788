"""`Backend`: the description of one array library by its plugin.

Two methods are required, `to_numpy` and `from_numpy`. They suffice for conversions to and from every other
library, since NumPy arrays in host memory are the general path between any two libraries. All other methods
make conversions faster or let them share memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

from arrayferry._dtypes import STANDARD_DTYPES
from arrayferry._types import TargetName

from .autodiff import Autodiff
from .origin import Origin
from .random import HostRandom, Random, Seed
from .types import resolve_types


class Backend(Origin):
    """One array library, as described by its plugin. Subclass it.

    Attributes:
        name: the name that users write, `"torch"`.
        package: the module to import to get its arrays, `"torch"`.
        array_types: dotted paths of its array types as a user would write them, `"torch.Tensor"`.
            They are looked up only after their top-level package has been imported.
        namespace: dotted path of the module with its functions, if that is not `package`.
        aliases: other names that users may write.
        install: the argument of `pip install` that installs it. Without it, no error names a command, since a guessed
            name may be another's on a public index.
        memory: what the library guarantees about its arrays. "writable": they may change in place. "immutable":
            their values never change. "lazy": their values are computed on demand and never change. "unknown":
            nothing is guaranteed, and nothing is shared unless requested.
        to_numpy_shares: whether `to_numpy` returns a view of the array's own memory (True), returns memory that
            nothing else uses (False), or it depends (None, treated as the worse case).
        from_numpy_shares: the same for `from_numpy`: whether its result uses its argument's memory.
        dlpack_devices: kinds of device ("cpu", "cuda") on which arrays can be exchanged by DLPack.
        item_types: dotted paths of the exact array types whose `item()` returns the Python number of a
            one-element array. The adapters use it for discrete actions.
        replaces: names of backends and sources that this one replaces, if both are installed.
        autodiff: how the library differentiates, None if gradients cannot cross to it.

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

    role = "Backend"
    namespace: str = ""
    aliases: tuple[str, ...] = ()
    from_numpy_shares: bool | None = None
    item_types: tuple[str, ...] = ()
    autodiff: Autodiff | None = None

    # Required.

    @abstractmethod
    def from_numpy(self, x: Any, device: Any = None) -> Any:
        """Make an array of this library from a NumPy array, of the same shape and dtype.

        Args:
            x: a plain `numpy.ndarray`: native byte order, aligned, no negative strides, of a dtype
                that `dtypes` names. If it is read-only, its memory must not become writable through the result.
            device: its device: a name from `devices`, or the library's own object. None leaves the choice to the
                library.
        """

    # Optional: lazy arrays.

    def compute(self, xs: Sequence[Any]) -> Sequence[Any]:
        """Compute lazy arrays in one call.

        It is called instead of `to_numpy_many` if a backend with `memory = "lazy"` overrides it.

        Args:
            xs: the arrays.

        Returns:
            For each, an array with its values: a NumPy array in memory that nothing else uses, or an array of
            another library. A `ConversionError` in the place of a failed one is raised with its place in the tree.
        """
        return self.to_numpy_many(xs)

    # Optional: devices.

    def devices(self) -> Sequence[str]:
        """Return the names of the devices that are usable now, the default first: `("cpu", "cuda:0")`."""
        return ("cpu",)

    def default_device(self) -> str:
        """Return the name of the default device of new arrays: the first of `devices`.

        Override it if it is known without querying a driver.
        """
        return self.devices()[0]

    def device_name(self, device: Any) -> str:
        """Return the name of a device object of this library, as `devices` spells it.

        An object that stands for several devices has their names joined by commas: `"cuda:0,cuda:1"`.
        """
        return str(device)

    def is_named(self, device: Any) -> bool:
        """Return whether a device object is fully described by its name. A JAX sharding is not."""
        return True

    def place_of(self, x: Any) -> Any:
        """Return the device to name so that another array is put where `x` is. The option `like` uses it.

        It is the name of its device, unless a name is not enough, as for a sharded array. It is "default" for an
        array that the library placed by itself, if the library distinguishes such arrays from those that were placed
        by name.
        """
        return self.device_of(x)

    def is_on(self, x: Any, device: Any) -> bool:
        """Return whether an array is already where a device object of this library would put it."""
        return self.device_of(x) == self.device_name(device)

    def to_device(self, x: Any, device: Any) -> Any:
        """Move an array to another device of the same library. The default goes through the host."""
        return self.from_numpy(_native(self.to_numpy(x)), device)

    def fence(self, x: Any) -> Callable[[], bool] | None:
        """Return a test of whether the work queued for an array so far is done.

        A library that queues its work on device streams returns one. arrayferry keeps the source of a copy alive
        until the copy is done. Otherwise the memory of a dropped source would be reused too early.

        Args:
            x: an array of this library, the result of a copy or move on the current stream of its device.

        Returns:
            The test. None if nothing is queued, or if the library reuses freed memory only after the queued work.
        """
        return None

    # Optional: dtypes.

    def dtypes(self) -> Collection[str] | None:
        """Return the names of the dtypes that its arrays can have now, as NumPy and `ml_dtypes` spell them.

        None means every dtype that a NumPy array can have.
        """
        return STANDARD_DTYPES

    def dtype_hint(self, dtype: str) -> str:
        """Return a sentence on how to make the library support a dtype that `dtypes` leaves out, or ""."""
        return ""

    # Optional: sharing and copying without the host.

    def copy(self, x: Any) -> Any:
        """Return an array with equal values in memory that nothing else uses, on the same device."""
        import numpy

        return self.from_numpy(_native(numpy.array(self.to_numpy(x))), self.device_of(x))

    def from_dlpack(self, x: Any, device: Any = None) -> Any:
        """Return an array that shares the memory of an object with `__dlpack__`.

        Args:
            x: the object. Its strides are not negative.
            device: the device that it is already on, if the user requested one.

        Raises:
            BufferError, TypeError, ValueError, NotImplementedError: the library cannot take it. It then gets a
                compact copy on the same device. If it cannot take that either, it gets the values from host memory.
        """
        raise NotImplementedError(f"{self.name} has no DLPack")

    # Optional: values.

    def number_dtype(self, kind: str) -> str:
        """Return the name of the dtype that the library's `asarray` chooses for Python numbers.

        Args:
            kind: "bool", "int", "float" or "complex".
        """
        return {"bool": "bool", "int": "int64", "float": "float64"}.get(kind, "complex128")

    def random(self, seed: Seed = None, device: Any = None) -> Random:
        """Return a random number generator for this library. The default draws in host memory and converts.

        Args:
            seed: an integer of at least 0, several of them, or None for a seed from the operating system.
            device: the device of the numbers, None for the library's own choice.
        """
        return HostRandom(self, seed, device)

    def use_device(self, device: Any) -> AbstractContextManager[Any]:
        """Return a context in which new arrays are made on a device unless another one is named.

        Args:
            device: a device, as `devices` names it.
        """
        return nullcontext()

    def has_item(self, cls: type) -> bool:
        """Return whether `item()` of an array of exactly this type returns its number. See `item_types`."""
        return cls in resolve_types(self.item_types)

    def callback(
        self,
        function: Callable[[list[Any]], Sequence[Any]],
        arrays: Sequence[Any],
        results: Sequence[tuple[tuple[int, ...], str]],
        *,
        name: str,
    ) -> list[Any]:
        """Call a Python function from a traced one, with the values at run time.

        Args:
            function: takes NumPy arrays, and returns NumPy arrays as `results` says.
            arrays: arrays of this library, some of them traced.
            results: the shape and the dtype of each result.
            name: the name of the function in errors.

        Returns:
            Arrays of this library.

        Raises:
            NotImplementedError: the library has no such callbacks.
        """
        raise NotImplementedError(f"{self.name} has no calls from traced functions")

    def uncompiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that the library's compiler calls without tracing it."""
        return function


def _native(x: Any) -> Any:
    """Return a NumPy array in native byte order, as `from_numpy` takes it."""
    import numpy

    x = numpy.asarray(x)
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


Target = TargetName | ModuleType | Backend
"""How users name a library: by the name of one with a built-in plugin, a namespace module, or a backend."""

AnyTarget = str | ModuleType | Backend
"""The same with the names of all plugins, which type checkers cannot know."""
