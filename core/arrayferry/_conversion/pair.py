"""`Pair`: converts arrays of one backend to another under fixed options.

If a plugin has a direct converter for the two libraries, a `Pair` tries it first. Arrays that the direct converter does
not accept are converted in the steps of a route.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arrayferry._errors import (
    ArrayFerryError,
    ContractError,
    ConversionError,
    UnsupportedDtypeError,
    describe_error,
)
from arrayferry._observers import note, observers, open_conversion
from arrayferry._options import Options
from arrayferry._plugin.backend import Backend, same_library
from arrayferry._plugin.call import (
    ask_backend,
    call_backend,
    describe_array,
    is_out_of_memory,
    overrides,
    wrong_result,
)
from arrayferry._plugin.origin import Origin
from arrayferry._registry.catalog import Catalog
from arrayferry._route.devices import on_host, resolve_device
from arrayferry._route.direct import Direct
from arrayferry._route.memory import copy_required, runs_backwards
from arrayferry._route.queued import let_go
from arrayferry._route.route import describe_route
from arrayferry._tree.kind import Kind
from arrayferry._tree.values import UNKNOWN, is_on_gpu, refuse_more_than_values
from arrayferry._types import AnyArray, AnyTree
from arrayferry._utilities.cache import once

if TYPE_CHECKING:
    from arrayferry._route.execute import Executor, Way


@dataclass(eq=False, repr=False)
class Pair:
    """Converts arrays of one backend to another under fixed options.

    Args:
        catalog: the backends and converters from which routes are built.
        source: the backend or the source of the arrays.
        target: the backend of the results.
        options: the options.
        forget: a function without arguments. It is called when code that was generated for this pair becomes invalid.

    Attributes:
        catalog, source, target, options, forget: the arguments.
        kind_of: a function that returns the `Kind` of a value.
        same: whether source and target are one library.
        direct: the direct converter, if it is the only step of the route under these options. Otherwise None.
    """

    catalog: Catalog
    source: Origin
    target: Backend
    options: Options
    forget: Callable[[], None]

    def __post_init__(self) -> None:
        self.kind_of: Callable[[Any], Kind] = self.catalog.kind
        self.same: bool = same_library(self.source, self.target)
        self._has_sparse = not self.same and overrides(self.source, Origin.is_sparse)
        self.direct: Direct | None = self._find_direct()
        self._without = frozenset((self.direct.converter,)) if self.direct else frozenset()

    @once
    def executor(self) -> Executor:
        """The executor of routes. It is imported at first use, since direct converters do not need it."""
        from arrayferry._route.execute import Executor

        return Executor(self.catalog, self.source, self.target, self.options)

    def _find_direct(self) -> Direct | None:
        """Return the direct converter if it is the only step of the route for arrays in host memory, else None."""
        if self.same:
            return None
        device_name, device = resolve_device(self.target, self.options.device, "cpu")
        if on_host(device_name) and device not in (None, "cpu"):
            return None
        route = describe_route(self.catalog, self.source, self.target, device, "cpu")
        converter = route.steps[0].converter if len(route.steps) == 1 else None
        if converter is None:
            return None
        options = self.options._replace(device=device)
        return Direct(converter, self.source, self.target, options, self.kind_of, self.forget)

    def one(self, x: AnyArray) -> Any:
        """Convert one array, by the direct converter if it accepts the array, or else by a route."""
        direct = self.direct
        if direct is not None:
            y = direct.convert(x)
            if y is not NotImplemented:
                return y
        return self.by_route(x)

    def many(self, xs: list[Any], path_of: Callable[[int], str] = lambda index: "") -> list[Any]:
        """Convert several arrays, in one call if possible.

        Args:
            xs: the arrays.
            path_of: a function that returns, for an index in `xs`, the path of this array in the tree. Errors have this
                path.
        """
        results = None if self.direct is None else self.direct.convert_many(xs)
        convert: Callable[[Any], Any] = self.by_route
        if results is None:
            results, convert = [NotImplemented] * len(xs), self.one
        for index, y in enumerate(results):
            if y is NotImplemented:
                results[index] = self.located(convert, xs[index], index, path_of)
        return results

    def located(
        self, convert: Callable[[Any], Any], x: AnyArray, index: int, path_of: Callable[[int], str]
    ) -> Any:
        """Return `convert(x)`. If it raises a `ConversionError`, add the path, the source and the target."""
        try:
            return convert(x)
        except ConversionError as error:
            raise self.locate(error, path_of(index)) from error.__cause__

    def locate(self, error: ConversionError, path: str) -> ConversionError:
        """Return a copy of an error with the path in the tree, the source and the target."""
        return error.locate(path=path, source=self.source.name, target=self.target.name)

    def by_route(self, x: AnyArray, values: AnyTree = None, way: Way | None = None) -> Any:
        """Convert one array by its route, without the direct converter.

        Args:
            x: the array.
            values: the result of `to_numpy(x)`, or None if it was not called yet.
            way: the result of `Executor.check(x)`, or None if it was not called yet.
        """
        if observers and values is None:
            self._note_declined(x)
        try:
            if values is None and self.is_sparse(x):
                return self._from_dense(x)
            if values is None and self.source is UNKNOWN.source and is_on_gpu(x):
                return self._from_gpu(x)
            y = self._run(x, values, way)
            return y if self.same and y is x else self._recognised(y)
        except UnsupportedDtypeError:
            if self.options.unsupported == "keep":
                return x
            raise
        except (ArrayFerryError, DeprecationWarning):
            # users must see a DeprecationWarning unchanged if a warnings filter makes it an error
            raise
        except Exception as error:
            if is_out_of_memory(error, self.source, self.target):
                raise
            raise ConversionError(
                f"{describe_array(x)} could not be converted ({describe_error(error)})"
            ) from error

    def is_sparse(self, x: AnyArray) -> bool:
        return self._has_sparse and ask_backend(self.source, "is_sparse", x)

    def _from_dense(self, x: AnyArray) -> Any:
        """Make a sparse array dense and convert the result, if the option `sparse` allows it."""
        if self.options.sparse != "dense":
            method = next((m for m in ("to_dense", "todense", "toarray") if hasattr(x, m)), "")
            call_hint = f", or call x.{method}() first" if method else ""
            raise ConversionError(
                f"{describe_array(x)} is sparse",
                remedy=f'Pass sparse="dense" to make it dense{call_hint}.',
            )
        if self.options.copy is False:
            raise copy_required("the array is sparse")
        dense_array = call_backend(self.source, "to_dense", x)
        import numpy

        if isinstance(dense_array, numpy.ndarray):
            return self.by_route(x, dense_array)
        if self.kind_of(dense_array).backend is self.source and not self.is_sparse(dense_array):
            return self.one(dense_array)
        duty = "It must return a dense array of the same library, or a numpy.ndarray."
        raise wrong_result(self.source, "to_dense", f"a {type(dense_array).__name__}", duty)

    def _from_gpu(self, x: AnyArray) -> Any:
        """Convert an object of an unknown library that is on a GPU. If possible, another library reads it there."""
        refuse_more_than_values(x)
        for library in () if runs_backwards(x) else (self.target.name, "cupy", "torch"):
            backend: Any = self.catalog.backends.get(library)
            with suppress(Exception):
                # an error means that this library is not installed or refuses the object: try the next library
                y = backend.dlpack.load(x)
                break
        else:
            return self._run(x)
        # `y` may use the memory of `x`, so copy unless copy=False
        options = self.options._replace(copy=self.options.copy is not False)
        return Pair(self.catalog, backend, self.target, options, self.forget).one(y)

    def _run(self, x: AnyArray, values: AnyTree = None, way: Way | None = None) -> Any:
        """Execute the route of one array. If memory runs out, release arrays that are already copied, and try again."""
        try:
            return self.executor.run(x, without=self._without, values=values, way=way)
        except Exception as error:
            if not is_out_of_memory(error, self.source, self.target) or not let_go():
                raise
        return self.executor.run(x, without=self._without, values=values, way=way)

    def _recognised(self, y: AnyArray) -> Any:
        """Return a result if it is an array of the target, else raise an error."""
        kind = self.kind_of(y)
        if kind.backend is self.target or kind.is_array_of(self.target):
            return y
        target, method = self.target, self._last_method()
        if kind.backend is not None:
            description, duty = f"an array of {kind.backend.name}", f"{method} is wrong."
        elif target.array_types and target.name not in self.catalog.backends:
            description = "unknown, since that backend is not registered"
            duty = "Register the backend with register() first."
        else:
            description = f"not one of its array_types {target.array_types}"
            duty = f"Either {method} is wrong, or array_types is misspelt."
        raise ContractError(
            f"{method} of the backend {target.name!r} returned {describe_array(y)}, which is {description}",
            duty=duty,
            method=method,
            part=target,
        )

    def _last_method(self) -> str:
        """Return the name of the method of the target's backend that most likely returned the result."""
        if self.same:
            return "copy()" if self.options.device is None else "copy() or devices.move()"
        route = describe_route(self.catalog, self.source, self.target, self.options.device, "")
        return "dlpack.load()" if route.steps[-1].via == "dlpack" else "from_numpy()"

    def _note_declined(self, x: AnyArray) -> None:
        """Note for the observers that the direct converter does not handle an array."""
        direct, conversion = self.direct, open_conversion.call
        if direct is None or conversion is None or direct.converter.target_device != "cpu":
            return
        raised_by, conversion.raised = conversion.raised, None
        with suppress(Exception):  # an error while making the note must not stop the conversion
            if (
                raised_by is direct
                or not on_host(self.source.device_of(x))
                or self.source.is_traced(x)
            ):
                return  # already noted, or the converter is not for traced arrays or GPUs
            x_text = f"a {type(x).__name__} of dtype {getattr(x, 'dtype', None)}"
            note(self.source.name, self.target.name, direct.converter, "does not accept", x_text)
