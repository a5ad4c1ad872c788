"""`Pair`: converts arrays of one backend to another under fixed options.

It knows the direct way, if there is one, and falls back to executing a route.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from arrayferry._errors import (
    ArrayFerryError,
    ContractError,
    ConversionError,
    CopyRequiredError,
    UnsupportedDtypeError,
    describe_error,
)
from arrayferry._observers import note, observers, open_conversion
from arrayferry._options import Options
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import ask_backend, call_backend, describe_array, overrides
from arrayferry._plugin.converter import Inline
from arrayferry._plugin.origin import Origin
from arrayferry._registry.catalog import Catalog
from arrayferry._registry.discovery import is_built_in
from arrayferry._route.devices import DEFAULT, device_kind, resolve_device
from arrayferry._route.direct import Direct
from arrayferry._route.route import describe_route
from arrayferry._route.sparse import check_sparse
from arrayferry._route.via_numpy import PASS_COPY
from arrayferry._tree.kind import Kind

if TYPE_CHECKING:
    from arrayferry._route.execute import Executor

__all__ = ["Pair", "Ways"]

_KEPT: Any = object()
"""Stands for the values of an array that is kept as it is."""


class Ways:
    """How code converts arrays of one type: `many` for all in one call if there is one, else `one` for each.

    Attributes:
        one: as given.
        many: as given.
        test: a condition over `{x}` for each array that `many` is called with, "" if there is none.
    """

    __slots__ = ("many", "one", "test")

    def __init__(
        self,
        one: Inline,
        many: Callable[[list[Any]], list[Any]] | None = None,
        test: str = "",
    ) -> None:
        self.one = one
        self.many = many
        self.test = test


class Pair:
    """Converts arrays of one backend to another under fixed options.

    Args:
        catalog: where routes are found.
        source: the backend or the source of the arrays.
        target: the backend of the results.
        options: the options.
        kind_of: tells what a value is.
        convert_computed: converts what something was computed to, given its place in the tree, and whether nobody
            else holds it.
        forget: called when code that was written with this pair must not be used any more.
    """

    def __init__(
        self,
        catalog: Catalog,
        source: Origin,
        target: Backend,
        options: Options,
        kind_of: Callable[[Any], Kind],
        convert_computed: Callable[[Any, str, bool], Any],
        forget: Callable[[], None],
    ) -> None:
        self.catalog = catalog
        self._kind_of = kind_of
        self._convert_computed = convert_computed
        self._forget = forget
        self.source = source
        self.target = target
        self.options = options
        self._same = source.name == target.name and isinstance(source, Backend)
        self._has_sparse = not self._same and overrides(source, Origin.is_sparse)
        self.lazy = source.memory == "lazy" and not self._same
        self._computes = isinstance(source, Backend) and overrides(source, Backend.compute)
        self._direct = self._find_direct()
        self._together = self._all  # one object, so that code calls it once for all arrays
        self._without = frozenset((self._direct.converter,)) if self._direct else frozenset()

    @functools.cached_property
    def _executor(self) -> Executor:
        """What executes routes. It is imported at the first use, since direct converters do without it."""
        from arrayferry._route.execute import Executor

        return Executor(self.catalog, self.source, self.target, self.options)

    def _find_direct(self) -> Direct | None:
        """Find the direct converter from the host, if it is the whole route under these options."""
        if self._same:
            return None
        there, device = resolve_device(self.target, self.options.device, "cpu")
        if device_kind(there) == "cpu" and device not in (None, "cpu"):
            return None
        route = describe_route(self.catalog, self.source, self.target, device, "cpu")
        converter = route.steps[0].converter if len(route.steps) == 1 else None
        if converter is None:
            return None
        elsewhere = device_kind(there) != "cpu" and device is not None
        return Direct(
            converter,
            self.source,
            self.target,
            self.options._replace(device=device),
            there if elsewhere else None,
            self._is_of_target,
            self._forget,
        )

    def one(self, x: Any) -> Any:
        """Convert one array, directly if possible."""
        direct = self._direct
        if direct is not None:
            y = direct.convert(x)
            if y is not NotImplemented:
                return y
        return self.fallback(x)

    def many(self, xs: list[Any], path_of: Callable[[int], str]) -> list[Any]:
        """Convert several arrays, in one call if possible.

        Args:
            xs: the arrays.
            path_of: tells the place of an array in the tree, for errors, by its index in `xs`.
        """
        if self.lazy:
            return self._computed(xs, path_of)
        found = None if self._direct is None else self._direct.convert_many(xs)
        if found is None:
            return [self._located(self.one, x, index, path_of) for index, x in enumerate(xs)]
        for index, y in enumerate(found):
            if y is NotImplemented:
                found[index] = self._located(self.fallback, xs[index], index, path_of)
        return found

    def _computed(self, xs: list[Any], path_of: Callable[[int], str]) -> list[Any]:
        """Convert lazy arrays and deferred values. All are checked first, then all are computed in one call."""
        results = list(xs)
        together, others = self.check(xs, path_of)
        converted: dict[int, Any] = {}  # what is deferred and in two places stays one
        seen: set[int] = set()  # and what is an array has memory of its own in each
        for index, value in zip(together, self._values(xs, together, path_of), strict=True):
            if value is _KEPT:
                continue
            x = xs[index]
            if self._is_deferred(x):
                if id(x) not in converted:
                    converted[id(x)] = self._convert_computed(value, path_of(index), False)
                results[index] = converted[id(x)]
            elif self._computes and _is_no_numpy_array(value) and self._kind_of(value).is_array:
                fresh = id(value) not in seen and self._is_fresh(value)
                seen.add(id(value))
                results[index] = self._convert_computed(value, path_of(index), fresh)
            else:
                convert = functools.partial(self.fallback, values=value)
                results[index] = self._located(convert, x, index, path_of)
        for index in others:
            results[index] = self._located(self.one, xs[index], index, path_of)
        return results

    def check(self, xs: list[Any], path_of: Callable[[int], str]) -> tuple[list[int], list[int]]:
        """Check lazy arrays and deferred values before any is computed.

        Returns:
            The indices of those that are computed together, and of those that are converted one by one. What is
            kept as it is, is in neither.
        """
        together: list[int] = []
        others: list[int] = []
        for index, x in enumerate(xs):
            try:
                joined = self._located(self._check, x, index, path_of)
            except UnsupportedDtypeError:
                if self.options.unsupported != "keep":
                    raise
            else:
                (together if joined else others).append(index)
        return together, others

    def _check(self, x: Any) -> bool:
        """Check what is known of a lazy array or a deferred value before it is computed.

        Returns:
            Whether it is computed together with others.
        """
        if self._is_deferred(x):
            if self.options.copy is False:
                raise CopyRequiredError(
                    f"memory cannot be shared: a {type(x).__name__} is computed when it is converted",
                    remedy=PASS_COPY,
                )
            return True
        if self._is_sparse(x):
            return False
        return self._executor.check(x) or self._computes

    def _is_fresh(self, value: Any) -> bool:
        """Tell whether an array of another library that `compute` returned may be shared. Plugins may have kept it."""
        backend = self._kind_of(value).backend
        return is_built_in(self.source) and backend is not None and backend.memory == "writable"

    def _is_deferred(self, x: Any) -> bool:
        return self._kind_of(x).what == "deferred"

    def _values(
        self, xs: list[Any], indices: list[int], path_of: Callable[[int], str]
    ) -> Sequence[Any]:
        """Compute the values of some of the arrays in one call, each array once."""
        if not indices:
            return []
        import numpy

        first = {id(xs[index]): index for index in reversed(indices)}
        once = [index for index in indices if first[id(xs[index])] == index]
        found: Sequence[Any]
        if (
            self.options.unsupported == "keep"
            and not self._computes
            and not overrides(self.source, Origin.to_numpy_many)
        ):  # one that is refused must not stop the others
            found = [self._read([xs[index]], [index], path_of)[0] for index in once]
        else:
            found = self._read([xs[index] for index in once], once, path_of)
        values = dict(zip(once, found, strict=True))
        for index in indices:
            if index not in values:
                known = values[first[id(xs[index])]]
                shared = isinstance(known, numpy.ndarray) and not self._is_deferred(xs[index])
                values[index] = numpy.array(known, subok=True) if shared else known
        return [values[index] for index in indices]

    def _read(
        self, xs: list[Any], indices: list[int], path_of: Callable[[int], str]
    ) -> Sequence[Any]:
        """Compute the values of arrays in one call; `_KEPT` for those that are kept as they are."""
        method = "compute" if self._computes else "to_numpy_many"
        try:
            values: Sequence[Any] = call_backend(self.source, method, xs)
        except ConversionError as error:
            if isinstance(error, UnsupportedDtypeError) and self.options.unsupported == "keep":
                if len(indices) == 1:
                    return [_KEPT]
                return [self._read([x], [i], path_of)[0] for x, i in zip(xs, indices, strict=True)]
            paths = ", ".join(filter(None, map(path_of, indices[:4])))
            error.locate(path=paths + (" ..." if len(indices) > 4 else ""))
            error.locate(source=self.source.name, target=self.target.name)
            raise
        count: Any = type(values).__name__
        if isinstance(values, Sequence):
            count = len(values) if self._computes else sum(n is not None for n in values)
        if count != len(indices) or len(values) != count:
            what = "value" if self._computes else "NumPy array"
            raise ContractError(
                f"{method}() of the {self.source.role.lower()} {self.source.name!r} returned {count} for "
                f"{len(indices)} arrays",
                duty=f"It must return a list with one {what} for each.",
                method=method,
                source=self.source.name,
                target=self.target.name,
            )
        for value, index in zip(values, indices, strict=True):
            if isinstance(value, ConversionError):
                value.locate(path=path_of(index), source=self.source.name, target=self.target.name)
                raise value
        return values

    def _located(
        self, convert: Callable[[Any], Any], x: Any, index: int, path_of: Callable[[int], str]
    ) -> Any:
        """Call a function with an array, and complete the errors that it raises."""
        try:
            return convert(x)
        except ConversionError as error:
            error.locate(path=path_of(index), source=self.source.name, target=self.target.name)
            raise

    def fallback(self, x: Any, values: Any = None) -> Any:
        """Convert one array by its route, without the direct converter.

        Args:
            x: the array.
            values: the result of `to_numpy(x)`, if that was called already.
        """
        if observers and values is None:
            self._note_declined(x)
        try:
            if values is None and self._is_sparse(x):
                return self._from_dense(x)
            y = self._executor.run(x, without=self._without, values=values)
            return y if self._same and y is x else self._recognised(y)
        except UnsupportedDtypeError:
            if self.options.unsupported == "keep":
                return x
            raise
        except (ArrayFerryError, DeprecationWarning):  # a warning that the user has made an error
            raise
        except Exception as error:
            if self.source.is_out_of_memory(error) or self.target.is_out_of_memory(error):
                raise
            raise ConversionError(
                f"{describe_array(x)} could not be converted ({describe_error(error)})"
            ) from error

    def _is_sparse(self, x: Any) -> bool:
        return self._has_sparse and ask_backend(self.source, "is_sparse", x)

    def _from_dense(self, x: Any) -> Any:
        """Convert a sparse array by its dense values, if that is allowed."""
        check_sparse(x, self.source, self.options)
        dense = call_backend(self.source, "to_dense", x)
        import numpy

        if isinstance(dense, numpy.ndarray):
            return self.fallback(x, dense)
        if self._kind_of(dense).backend is self.source and not self.source.is_sparse(dense):
            return self.one(dense)
        raise ContractError(
            f"to_dense() of the {self.source.role.lower()} {self.source.name!r} returned a {type(dense).__name__}",
            duty="It must return a dense array of the same library, or a numpy.ndarray.",
            method="to_dense",
        )

    def _is_of_target(self, y: Any) -> bool:
        return self._kind_of(y).is_array_of(self.target)

    def _recognised(self, y: Any) -> Any:
        """Check that a result is an array of the target."""
        if self._is_of_target(y):
            return y
        target, method = self.target, self._last_method()
        backend = self._kind_of(y).backend
        if backend is not None:
            raise ContractError(
                f"{method} of the backend {target.name!r} returned {describe_array(y)}, which is an array of "
                f"{backend.name}",
                duty=f"{method} is wrong.",
                method=method,
            )
        raise ContractError(
            f"{method} of the backend {target.name!r} returned {describe_array(y)}, which is not one of its "
            f"array_types {target.array_types}",
            duty=f"{method} is wrong, or they are misspelt.",
            method=method,
        )

    def _last_method(self) -> str:
        """Name the method that makes results, as far as it is known."""
        if self._same:
            return "copy()" if self.options.device is None else "copy() or to_device()"
        route = describe_route(self.catalog, self.source, self.target, self.options.device, "")
        return "from_dlpack()" if route.steps[-1].via == "dlpack" else "from_numpy()"

    def _note_declined(self, x: Any) -> None:
        """Note that the direct converter does not handle an array, for those who watch."""
        direct, call = self._direct, open_conversion.call
        if direct is None or call is None or direct.converter.target_device != "cpu":
            return
        raised, call.raised = call.raised, None
        try:
            if raised is direct or self.source.device_of(x) != "cpu" or self.source.is_traced(x):
                return  # it is noted already, or was not meant for it
            what = f"a {type(x).__name__} of dtype {getattr(x, 'dtype', None)}"
            note(self.source.name, self.target.name, direct.converter, "does not take", what)
        except Exception:  # it is only a note
            pass

    def ways(self, cls: type, *, sturdy: bool) -> Ways | None:
        """Return how code converts arrays of exactly this type, None if it should not.

        Args:
            cls: the type.
            sturdy: whether the code must also convert arrays that a direct converter does not, at the
                price of a call for each array.
        """
        import numpy

        no_objects = "{x}.dtype.kind != 'O'" if issubclass(cls, numpy.ndarray) else ""
        if self._same and not self.options.copy:
            if self.options.device is None:
                return Ways(Inline(no_objects, "{x}", {}))
            if self.options.device == DEFAULT:  # which may change
                return Ways(Inline(no_objects, "{convert}({x})", {"convert": self.one}))
            return Ways(self._already_there(no_objects))
        if self.lazy:  # computing takes longer than anything that code could save
            return None
        direct = self._direct
        if direct is not None and direct.is_checked:
            sturdy = True
        if direct is None or not direct.takes(cls):
            return Ways(Inline(no_objects, "{convert}({x})", {"convert": self.one}))
        if sturdy or direct.converter.target_device != "cpu":
            many = self._together if direct.many is not None else None
            convert = Inline(no_objects, "{convert}({x})", {"convert": self._sturdy()})
            return Ways(convert, many, no_objects)
        return Ways(direct.inline or _inline_call(direct.one), direct.many)

    def _sturdy(self) -> Callable[[Any], Any]:
        """Return `one` for arrays of a type that the direct converter takes."""
        direct: Any = self._direct
        if direct.is_checked:
            return self.one
        convert, fallback = direct.one, self.fallback

        def sturdy(x: Any) -> Any:
            try:
                y = convert(x)
            except Exception as error:
                y = direct.set_aside(error)
            return fallback(x) if y is NotImplemented else y

        return sturdy

    def _all(self, xs: list[Any]) -> list[Any]:
        """Convert several arrays without their places in a tree."""
        found = None if self._direct is None else self._direct.convert_many(xs)
        if found is None:
            return list(map(self.one, xs))
        return [
            self.fallback(x) if y is NotImplemented else y for x, y in zip(xs, found, strict=True)
        ]

    def _already_there(self, test: str) -> Inline:
        """Within one library: the array itself if it is on the device that was asked for."""
        there, device = resolve_device(self.target, self.options.device, "cpu")
        names: dict[str, Any] = {"convert": self.one, "there": there}
        if isinstance(device, str):
            names["device_of"] = self.source.device_of
            return Inline(test, "{x} if {device_of}({x}) == {there} else {convert}({x})", names)
        names |= {"is_on": self.target.is_on, "there": device}
        return Inline(test, "{x} if {is_on}({x}, {there}) else {convert}({x})", names)


def _is_no_numpy_array(value: Any) -> bool:
    import numpy

    return not isinstance(value, numpy.ndarray)


def _inline_call(convert: Any) -> Inline:
    """Return expressions for a function that returns `NotImplemented` for what it does not handle."""
    test = "({y} := {convert}({x})) is not NotImplemented"
    return Inline(test, "{y}", {"convert": convert})
