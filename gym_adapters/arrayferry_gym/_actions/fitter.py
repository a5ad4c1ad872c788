"""Actions in the form that the action space of an environment asks for: one rule for all environments.

An environment in NumPy gets values as its space samples them: a hashable scalar for Discrete, arrays of the
space's dtype for the others. An environment of another library gets its own arrays, 0-d for Discrete.

The first of these rules that matches an action applies:

1. It fits, or the difference is unambiguous: casts that keep values, one element for a Discrete, one
   number for a Box of one element, numbers out of the bounds of a Box, NaN, object arrays of numbers.
2. It is refused, before anything is stepped: what would be broadcast silently; in several environments, a
   first axis of another length; Discrete, MultiDiscrete and MultiBinary out of range, fractional or of
   another shape; text, complex numbers, missing keys.
3. Its shape is corrected, with a warning, where it differs in axes of length 1 only.
4. It is passed on with a warning: further keys of a dict; in single environments, a Box of another shape.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

import arrayferry as af
from arrayferry_gym._arrays import cast_numbers, culprit, held_dtype, plain_name
from arrayferry_gym._spaces.trees import ARRAYS

from .warnings import Place, described, likely_mistake


class Fitter:
    """Converts values of NumPy arrays to the form that a space samples.

    Args:
        space: the space; for several environments, that of their batch.
        strict: whether shapes that could be corrected, further keys, NaN, and what is out of the bounds of a
            Box are errors too.
        num_envs: for several environments, how many; the first axis is theirs. None for a single one.
        of_one: whether the space is that of one environment though the values are for several.
        passes_on: whether values that do not fit a Box, and further keys of a Dict, are passed on.
        noun: what messages call a value, "an action".

    Attributes:
        corrected: after `fit`, what was corrected, for a warning; None if nothing was.
        passed_on: what was passed on though it does not fit; None if nothing was.
        regular: after `fit`, whether the result has the shape and dtype that all have.
    """

    def __init__(
        self,
        space: Space[Any],
        *,
        strict: bool = False,
        num_envs: int | None = None,
        of_one: bool = False,
        passes_on: bool = True,
        noun: str = "an action",
    ) -> None:
        self.space = space
        self.strict = strict
        self.noun = noun
        self._num_envs = num_envs
        self._batch = (num_envs,) if of_one and num_envs is not None else ()
        self._passes_on = passes_on
        self.corrected: str | None = None
        self.passed_on: str | None = None
        self.regular = True

    def fit(self, value: Any, given: Any = None) -> Any:
        """Convert a value to the form of the space.

        Args:
            value: a value with the structure of the space. Numbers, and lists of numbers, count as arrays.
            given: the same as the user passed it, for messages; None for `value` itself.

        Raises:
            arrayferry.ConversionError: it is refused.
        """
        __tracebackhide__ = True
        self.corrected = self.passed_on = None
        self.regular = True
        if value is None and self._num_envs is None and self._passes_on:
            return None
        return self._fit(
            value, self.space, Place(value if given is None else given), self._num_envs
        )

    def uses_contains(self, space: Space[Any]) -> bool:
        """Tell whether values are checked by the `contains` of a space, since it has its own rules."""
        own = type(space).__module__.startswith("gymnasium.spaces.")
        return self.strict and (isinstance(space, spaces.Text) or not own)

    def _fit(self, value: Any, space: Any, where: Place, num_envs: int | None) -> Any:
        __tracebackhide__ = True
        if isinstance(space, ARRAYS):
            fitted = self._array_of(value, space, where, num_envs)
        elif isinstance(space, (spaces.Dict, spaces.Tuple)):
            fitted = self._parts(
                value, space, where, functools.partial(self._fit, num_envs=num_envs)
            )
        elif isinstance(space, spaces.OneOf):
            fitted = self._one_of(value, space, where)
        elif isinstance(space, spaces.Sequence):
            fitted = self._sequence(value, space, where)
        elif isinstance(space, spaces.Graph):
            fitted = self._graph(value, space, where)
        elif isinstance(space, spaces.Text) and not isinstance(value, str):
            raise self._unfit(space, where, "it takes a text")
        else:
            fitted = value
        if self.uses_contains(space):
            self._must_contain(fitted, space, where)
        return fitted

    # One array.

    def _array_of(
        self, value: Any, space: Any, where: Place, num_envs: int | None, *, stacked: bool = False
    ) -> Any:
        """Fit one array, or if `stacked` several at once, along a first axis of any length."""
        __tracebackhide__ = True
        x = self._array(value, space, where)
        self._check_kind(x, space, where)
        shape = self._shape(tuple(x.shape), space, where, num_envs, stacked)
        host = self._host(x)
        if host is not None:
            host = host if shape is None or host.shape == shape else host.reshape(shape)
            host = self._checked(host, space, where)
        return self._formed(x, host, shape, space, number=not stacked and not self._batch)

    def _array(self, value: Any, space: Any, where: Place) -> Any:
        """Return a value as an array of numbers."""
        x = value
        try:
            if isinstance(x, (bool, int, float, list, tuple)):
                x = np.asarray(x)
            if isinstance(x, np.ndarray) and x.dtype.kind == "O":
                x = np.asarray(x.tolist())
        except (ValueError, OverflowError, RuntimeError):
            raise self._unfit(space, where, "its parts have different shapes") from None
        if isinstance(x, np.ndarray) and x.dtype.kind == "O":
            raise self._unfit(space, where, "it takes numbers of at most 64 bits")
        if not isinstance(x, (np.ndarray, np.generic)):
            raise self._unfit(space, where, "it takes an array")
        if isinstance(x, np.ndarray) and type(x) is not np.ndarray:
            x = af.registry.backend("numpy").to_numpy(x)  # which refuses masks and units
        return x

    def _host(self, x: Any) -> Any:
        """Return the values of an array as a NumPy array, None if they cannot or should not be read."""
        return x

    def _check_kind(self, x: Any, space: Any, where: Place) -> None:
        """Check the kind of the dtype."""
        name = plain_name(x.dtype)
        numbers = ("bool", "int", "uint", "float", "bfloat")
        if not name.startswith(numbers if space.dtype.kind != "c" else (*numbers, "complex")):
            raise self._unfit(space, where, f"its dtype is {name}, which is of another kind")

    def _shape(
        self,
        shape: tuple[int, ...],
        space: Any,
        where: Place,
        num_envs: int | None,
        stacked: bool,
    ) -> tuple[int, ...] | None:
        """Return the shape that an array is to have, None to leave it as it is."""
        wanted = (*self._batch, *space.shape)
        if stacked:
            if not shape or shape[1:] != wanted:
                of = f"(n, {', '.join(map(str, wanted))})" if wanted else "(n,)"
                raise self._unfit(space, where, f"it takes a shape {of}, not {shape}")
            return shape
        if shape == wanted:
            return wanted
        size, fitting = math.prod(shape), math.prod(wanted)
        if isinstance(space, spaces.Discrete) and not self._batch:
            if size != 1:
                raise self._unfit(space, where, f"it takes one whole number, not the shape {shape}")
            return wanted
        box = isinstance(space, spaces.Box)
        if box and shape == () and fitting == 1 and num_envs is None:
            return wanted
        first = 0 if num_envs is None else 1
        same = shape[:first] == wanted[:first] and _long(shape[first:]) == _long(wanted[first:])
        alone = num_envs is None or (num_envs == 1 and len(shape) < len(wanted))
        if same and not self.strict:
            self.corrected = f"the shape {shape} was changed to {wanted}{where.clause}"
            return wanted
        if box and alone and size >= fitting and not same and self._passes_on and not self.strict:
            self.passed_on = f"it has the shape {shape} instead of {wanted}{where.clause}"
            return None
        raise self._unfit(space, where, f"it takes the shape {wanted}, not {shape}", num_envs)

    def _checked(self, x: Any, space: Any, where: Place) -> Any:
        """Check numbers. Return them in the dtype of the space, or unchanged if it cannot represent all of them."""
        if self.strict and isinstance(space, spaces.Box):
            inside = (x >= space.low) & (x <= space.high)  # false for NaN
            if not inside.all():
                raise self._unfit(space, where, f"{culprit(x, ~inside)} is out of its bounds")
        try:
            cast = np.asarray(x if x.dtype == space.dtype else cast_numbers(x, space.dtype))
        except ValueError as error:
            if self.strict or not isinstance(space, spaces.Box):
                raise self._unfit(space, where, str(error)) from None
            self.regular = False
            broken = np.isfinite(x) & (np.floor(x) != x)
            if space.dtype.kind != "f" and broken.any():
                self.passed_on = f"{culprit(x, broken)} is no {space.dtype}{where.clause}"
            return x
        if isinstance(space, spaces.Box):
            return cast
        start, count = range_of(space)
        inside = (cast >= start) & (cast - start < count)
        if not inside.all():
            reason = f"{culprit(cast, ~inside)} is out of its range"
            if isinstance(space, spaces.Discrete):
                reason = (
                    f"it takes whole numbers from {int(start)} to {int(start) + int(count) - 1}"
                )
            raise self._unfit(space, where, reason)
        return cast

    def _formed(
        self, x: Any, host: Any, shape: tuple[int, ...] | None, space: Any, *, number: bool
    ) -> Any:
        """Return a checked array as the environment expects it.

        Args:
            x: the array.
            host: its numbers as they were checked, None if they were not read.
            shape: the shape that it is to have, None for its own.
            space: its space.
            number: whether a Discrete is one number.
        """
        return (
            space.dtype.type(host.item()) if number and isinstance(space, spaces.Discrete) else host
        )

    # Values of several arrays.

    def _parts(self, value: Any, space: Any, where: Place, fit: Callable[..., Any]) -> Any:
        """Fit the parts of a Dict or Tuple, each by the given function."""
        if isinstance(space, spaces.Dict):
            inner = space.spaces
            wanted = f"it takes a dict with the keys {list(inner)}"
            if not isinstance(value, Mapping):
                raise self._unfit(space, where, wanted)
            missing = [key for key in inner if key not in value]
            if missing:
                raise self._unfit(space, where, f"{wanted}, and {missing[0]!r} is missing")
            further = [key for key in value if key not in inner]
            if further and self.strict:
                raise self._unfit(space, where, f"{wanted}, and {further[0]!r} is none of them")
            parts = {key: fit(value[key], inner[key], where[key]) for key in inner}
            if further and self._passes_on:
                parts.update((key, value[key]) for key in further)
                self.passed_on = (
                    f"it has the key {further[0]!r}{where.clause}, which the space does not have"
                )
            elif further:
                self.corrected = f"the key {further[0]!r}{where.clause} was left out"
            return parts
        if not _is_as_long(value, len(space.spaces)):
            raise self._unfit(space, where, f"it takes a tuple of {len(space.spaces)}")
        pairs = enumerate(zip(value, space.spaces, strict=True))
        return tuple(fit(part, inner, where[index]) for index, (part, inner) in pairs)

    def _one_of(self, value: Any, space: Any, where: Place) -> Any:
        if not _is_as_long(value, 2):
            raise self._unfit(space, where, "it takes a pair: an index, and a value for that space")
        index = spaces.Discrete(len(space.spaces))
        chosen = self._host(self._array_of(value[0], index, where[0], None))
        if chosen is None:
            raise self._unfit(space, where, "the value of its index is not known")
        return np.int64(chosen), self._fit(value[1], space.spaces[int(chosen)], where[1], None)

    def _sequence(self, value: Any, space: spaces.Sequence, where: Place) -> Any:
        if space.stack:
            return self._stacked(value, space.feature_space, where)
        if not isinstance(value, (tuple, list)):
            raise self._unfit(space, where, "it takes a tuple")
        inner = space.feature_space
        return tuple(self._fit(part, inner, where[i], None) for i, part in enumerate(value))

    def _stacked(self, value: Any, space: Any, where: Place) -> Any:
        """Fit several values of a space that are stacked, array by array."""
        if isinstance(space, ARRAYS):
            return self._array_of(value, space, where, None, stacked=True)
        if isinstance(space, (spaces.Dict, spaces.Tuple)):
            return self._parts(value, space, where, self._stacked)
        return value

    def _graph(self, value: Any, space: spaces.Graph, where: Place) -> Any:
        if not isinstance(value, spaces.GraphInstance):
            raise self._unfit(space, where, "it takes a GraphInstance")
        nodes = self._stacked(value.nodes, space.node_space, where.attribute("nodes"))
        edges = value.edges
        if edges is not None:
            if space.edge_space is None:
                raise self._unfit(space, where, "its graphs have no edges")
            edges = self._stacked(edges, space.edge_space, where.attribute("edges"))
        return value._replace(nodes=nodes, edges=edges)

    def _must_contain(self, value: Any, space: Space[Any], where: Place) -> None:
        try:
            contained = space.contains(value)
        except Exception:  # it was not written for such a value
            contained = False
        if not contained:
            raise self._unfit(space, where, "its contains() is false")

    def _unfit(
        self, space: Any, where: Place, reason: str, num_envs: int | None = None
    ) -> af.ConversionError:
        """Return the error for a value that is not valid for the space."""
        value = where.value
        try:
            given = described(value)
        except Exception:  # it cannot be printed
            given = f"of type {type(value).__name__}"
        remedy = (
            likely_mistake(value, space, num_envs) or f"Pass {self.noun} as the space samples it."
        )
        return af.ConversionError(
            f"{self.noun} {given} is not valid for the space {space}, since {reason}",
            remedy=remedy,
            path=where.path,
        )


class LibraryFitter(Fitter):
    """Does the same for arrays of another library, which stay in that library and keep their gradients.

    Their values are read to check them. Traced arrays have no values.

    Args:
        backend: the library.
        space: as in `Fitter`.
        reads: whether the values of its arrays are read. If not, dtypes and shapes decide.
        **options: as in `Fitter`.
    """

    def __init__(
        self, backend: af.Backend, space: Space[Any], *, reads: bool = True, **options: Any
    ) -> None:
        super().__init__(space, **options)
        self.backend = backend
        self._reads = reads

    def _array(self, value: Any, space: Any, where: Place) -> Any:
        x = value
        if isinstance(x, (list, tuple)) and af.first_array(x)[1] is not None:
            x = self._joined(x, space, where)
        if af.first_array(x)[1] is None or isinstance(x, (np.ndarray, np.generic)):
            return super()._array(x, space, where)
        if not hasattr(x, "dtype"):
            raise self._unfit(space, where, "it takes an array")
        return x

    def _is_read(self, x: Any) -> bool:
        if isinstance(x, (np.ndarray, np.generic)):
            return True
        return self._reads and not self.backend.is_traced(x)

    def _host(self, x: Any) -> Any:
        if isinstance(x, (np.ndarray, np.generic)):
            return x
        return af.convert(x, "numpy", sparse="dense") if self._is_read(x) else None

    def _check_kind(self, x: Any, space: Any, where: Place) -> None:
        super()._check_kind(x, space, where)
        whole = not isinstance(space, spaces.Box)
        if whole and "float" in plain_name(x.dtype) and not self._is_read(x):
            raise self._unfit(space, where, "it takes whole numbers", self._num_envs)

    def _formed(
        self, x: Any, host: Any, shape: tuple[int, ...] | None, space: Any, *, number: bool
    ) -> Any:
        if isinstance(x, (np.ndarray, np.generic)):
            x = super()._formed(x, host, shape, space, number=number)
            return af.convert(x, self.backend, scalars="convert")
        name = plain_name(x.dtype)
        wanted = held_dtype(space.dtype, self.backend)
        # bool and uint8 are masks when they index
        index = name.startswith(("int", "uint")) and name != "uint8"
        if name != wanted and self.regular and (isinstance(space, spaces.Box) or not index):
            xp = af.namespace_of(x)
            x = xp.astype(x, getattr(xp, wanted))
        if shape is not None and tuple(x.shape) != shape:
            x = af.namespace_of(x).reshape(x, shape)
        return x

    def _must_contain(self, value: Any, space: Space[Any], where: Place) -> None:
        try:
            value = af.convert(value, "numpy", unsupported="keep", sparse="dense")
        except af.TracedValueError:
            return
        super()._must_contain(value, space, where)

    def _joined(self, parts: Any, space: Space[Any], where: Place) -> Any:
        """Make one array from a list of arrays and numbers."""
        arrays = af.convert(list(parts), self.backend, scalars="convert")
        try:
            return af.namespace_of(af.first_array(arrays)[0]).stack(arrays)
        except Exception:
            raise self._unfit(space, where, "its parts cannot be stacked") from None


def range_of(space: Any) -> tuple[Any, Any]:
    """Return the first number of a space of whole numbers, and how many there are."""
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, np.int8), np.full(space.shape, 2, np.int8)
    return space.start, space.n if isinstance(space, spaces.Discrete) else space.nvec


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without its axes of length 1."""
    return tuple(length for length in shape if length != 1)


def _is_as_long(value: Any, length: int) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == length
