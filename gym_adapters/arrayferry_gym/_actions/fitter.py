"""Check actions and convert them to the types, dtypes and shapes of a space, in the same way for all environments.

An environment in NumPy receives actions like those of `space.sample()`: a NumPy scalar, which is hashable, for a
Discrete, and arrays of the space's dtype otherwise. An environment of another library receives arrays of that library,
which are 0-d for a Discrete. Their dtype is the space's dtype after a conversion to the library.

An action may have more or fewer axes of length 1 than the space, and another dtype if a cast preserves its values. It
may be an object array of numbers. For a Box, it may contain NaN and numbers out of bounds. An action is refused before
the step if

- it has too few elements or, in a vector environment, the length of its first axis is not the number of environments;
- numbers for a Discrete, MultiDiscrete or MultiBinary are fractional or out of range;
- it has text or complex numbers that the space does not allow, or lacks a key;
- the space is a Graph, Sequence or OneOf, and its method `contains` returns False.

A number that the library's dtype cannot represent, such as 2**40 in JAX, raises a NarrowingError, as in conversions.

Like Gymnasium's `ArrayConversion`, adapters pass on some actions that do not fit the space, because the environment may
handle them: dicts with extra keys and, for a Box, numbers that its dtype cannot represent. Single environments also
receive arrays whose shape is not that of their Box.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from gymnasium import Space, spaces

import arrayferry as af
from arrayferry.extending import dtype_name, map_arrays
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym._arrays import cast_numbers, first_wrong, held_dtype
from arrayferry_gym._spaces.trees import ARRAYS

from .mistakes import Place, described, likely_mistake

STRUCTURED = (spaces.Graph, spaces.Sequence, spaces.OneOf)
NUMBERS = ("bool", "int", "uint", "float", "bfloat")
NUMPY = (np.ndarray, np.generic)


def shape_rule(shape: tuple[int, ...], space: Any, num_envs: int | None = None) -> bool:
    """Tell whether the shape of an array matches the shape of a space.

    Axes of length 1 are ignored. If `num_envs` is more than 1, the length of the first axis must match exactly.
    """
    num_exact = 0 if num_envs in (None, 1) else 1
    actual, wanted = (tuple(n for n in x[num_exact:] if n != 1) for x in (shape, space.shape))
    return shape[:num_exact] == space.shape[:num_exact] and actual == wanted


def value_rule(x: AnyArray, space: Any, *, strict: bool = False) -> Any:
    """Cast a NumPy array to the dtype of a space, and check that the space contains its numbers.

    Args:
        x: an array with the shape of the space.
        space: a Box, Discrete, MultiDiscrete or MultiBinary.
        strict: whether NaN and numbers outside the bounds of a Box are refused too.

    Raises:
        ValueError: a number is not in the space. The message contains the first such number, or the range of numbers in
            the space.
    """
    cast = np.asarray(x if x.dtype == space.dtype else cast_numbers(x, space.dtype))
    is_box = isinstance(space, spaces.Box)
    if is_box and not strict:
        return cast
    low, high = bounds_of(space)
    numbers = x if is_box else cast
    inside = (numbers >= low) & (numbers <= high)  # a comparison with NaN is False
    if inside.all():
        return cast
    if isinstance(space, spaces.Discrete):
        raise ValueError(f"the space takes whole numbers from {low} to {high}")
    raise ValueError(f"{first_wrong(x, ~inside)} is out of its {'bounds' if is_box else 'range'}")


@dataclass(eq=False)
class Fitter:
    """Converts values to the types, dtypes and shapes of `space.sample()`, as arrays of the environment's library.

    Arrays that already belong to this library keep their gradients. Values are checked unless their array is traced.

    Args:
        space: the action space. For a vector environment, the space of a batch of actions.
        backend: the library of the environment. By default, it is NumPy.
        strict: whether NaN, numbers outside the bounds of a Box, and values that would be passed on are refused too.
        num_envs: the number of environments, which is the length of the first axis. None for a single environment.
        passes_on: whether extra keys for a Dict, and arrays whose shape is not that of their Box, are passed on to the
            environment. If False, the keys are dropped, and the arrays are refused.
        noun: the noun for a value in messages, such as "an action".

    Attributes:
        passed_on: the reason why the last value does not fit, for messages, if `fit` passed the value on. Otherwise
            None.
    """

    space: Space[Any]
    backend: af.Backend = field(default_factory=lambda: af.registry.backend("numpy"))
    _: KW_ONLY
    strict: bool = False
    num_envs: int | None = None
    passes_on: bool = True
    noun: str = "an action"
    passed_on: str | None = field(default=None, init=False)

    def fit(self, value: AnyTree, given: Any = None) -> Any:
        """Convert a value to the types, dtypes and shapes that the space samples.

        Args:
            value: a value with the structure of the space. Numbers, and lists of numbers, count as arrays.
            given: the value that the user passed, for messages. None if the user passed `value` itself.

        Raises:
            arrayferry.ConversionError: the value does not fit the space, and is not passed on.
        """
        __tracebackhide__ = True
        self.passed_on = None
        if value is None and self.num_envs is None and self.passes_on:
            return None
        return self._fit(value, self.space, Place(value if given is None else given))

    def _fit(self, value: AnyTree, space: Any, place: Place) -> Any:
        __tracebackhide__ = True
        fitted = value
        if isinstance(space, ARRAYS):
            x = self._numbers(value, space, place)
            fitted = self._values(self._shaped(x, space, place), space, place)
        elif isinstance(space, (spaces.Dict, spaces.Tuple)):
            fitted = self._parts(value, space, place)
        elif isinstance(space, spaces.Text) and not isinstance(value, str):
            raise self._unfit(space, place, "the space takes a string")
        is_standard = type(space).__module__.startswith("gymnasium.spaces.")
        if isinstance(space, STRUCTURED):
            return self._contained(value, space, place)
        if self.strict and (isinstance(space, spaces.Text) or not is_standard):
            self._contained(fitted, space, place)
        return fitted

    def _numbers(self, value: AnyTree, space: Any, place: Place) -> Any:
        """Return a value as an array of numbers."""
        x = value
        try:
            if isinstance(x, (bool, int, float, list, tuple)):
                x = self._stacked(x)
            if isinstance(x, np.ndarray) and x.dtype.kind == "O":
                x = np.asarray(x.tolist())
        except Exception:
            raise self._unfit(space, place, "elements have different shapes") from None
        if not hasattr(x, "dtype") or af.first_array(x)[1] is None:
            raise self._unfit(space, place, "the space takes arrays of numbers of at most 64 bits")
        if isinstance(x, np.ndarray) and type(x) is not np.ndarray:
            x = af.registry.backend("numpy").to_numpy(x)  # raises an error if x has a mask or units
        name = dtype_name(x.dtype)
        if not name.startswith(NUMBERS if space.dtype.kind != "c" else (*NUMBERS, "complex")):
            raise self._unfit(space, place, f"the space takes numbers, not the dtype {name}")
        return x

    def _stacked(self, value: AnyTree) -> Any:
        """Convert a number, or a list of numbers and arrays, to one array."""
        array, backend = af.first_array(value)
        if backend is None or isinstance(array, NUMPY):
            return np.asarray(value)
        return af.namespace_of(array).stack(af.convert(list(value), backend, scalars="convert"))

    def _shaped(self, x: AnyArray, space: Any, place: Place) -> Any:
        """Reshape an array to the shape of the space. An array that is to be passed on stays unchanged."""
        shape, wanted, num_envs = tuple(x.shape), space.shape, self.num_envs
        if shape == wanted:
            return x
        if shape_rule(shape, space, num_envs):
            return af.namespace_of(x).reshape(x, wanted)
        is_single = num_envs is None or (num_envs == 1 and len(shape) < len(wanted))
        has_enough = isinstance(space, spaces.Box) and math.prod(shape) >= math.prod(wanted)
        if not (is_single and has_enough and self.passes_on) or self.strict:
            raise self._unfit(space, place, f"the space takes the shape {wanted}, not {shape}")
        self.passed_on = f"it has the shape {shape} instead of {wanted}{place.clause}"
        return x

    def _values(self, x: AnyArray, space: Any, place: Place) -> Any:
        """Check the numbers of an array, and cast it to the dtype that the environment expects."""
        x_backend, fits_space = af.backend_of(x), True
        if not x_backend.is_traced(x):
            host: Any = x if isinstance(x, NUMPY) else af.convert(x, "numpy", sparse="dense")
            try:
                cast = value_rule(host, space, strict=self.strict)
            except ValueError as error:
                if self.strict or not isinstance(space, spaces.Box):
                    raise self._unfit(space, place, str(error)) from None
                self.passed_on, cast, fits_space = f"{error}{place.clause}", host, False
            if self.backend.name == "numpy":
                return cast[()] if isinstance(space, spaces.Discrete) else cast
            if x_backend is not self.backend:
                return af.convert(cast, self.backend)
            if fits_space:
                # raises a NarrowingError for numbers that the library cannot represent
                af.fit_dtype(cast, self.backend, "checked")
        elif not isinstance(space, spaces.Box) and "float" in dtype_name(x.dtype):
            raise self._unfit(space, place, "the space takes whole numbers")
        wanted_dtype = held_dtype(space.dtype, self.backend)
        if fits_space and dtype_name(x.dtype) != wanted_dtype:
            xp = af.namespace_of(x)
            x = xp.astype(x, getattr(xp, wanted_dtype))
        return x

    def _parts(self, value: AnyTree, space: Any, place: Place) -> Any:
        """Fit each part of a value to its space in a Dict or Tuple."""
        if isinstance(space, spaces.Dict):
            subspaces = space.spaces
            reason = f"the space takes a dict with the keys {list(subspaces)}"
            if not isinstance(value, Mapping):
                raise self._unfit(space, place, reason)
            missing = [key for key in subspaces if key not in value]
            if missing:
                raise self._unfit(space, place, f"{reason}, and {missing[0]!r} is missing")
            extras = [key for key in value if key not in subspaces]
            if extras and self.strict:
                raise self._unfit(space, place, f"{reason}, and {extras[0]!r} is none of them")
            parts = {key: self._fit(value[key], subspaces[key], place[key]) for key in subspaces}
            if extras and self.passes_on:
                parts.update((key, value[key]) for key in extras)
                key_text = f"the key {extras[0]!r}{place.clause}"
                self.passed_on = f"it has {key_text}, which the space does not have"
            return parts
        is_array = self.num_envs is None and bool(getattr(value, "ndim", 0))
        if is_array and len(value) == len(space.spaces):
            # like Gymnasium, convert an array to a list of its rows
            value = [value[index, ...] for index in range(len(value))]
        if not isinstance(value, (tuple, list)) or len(value) != len(space.spaces):
            raise self._unfit(space, place, f"the space takes a tuple of {len(space.spaces)} parts")
        pairs = enumerate(zip(value, space.spaces, strict=True))
        return tuple(self._fit(part, subspace, place[index]) for index, (part, subspace) in pairs)

    def _contained(self, value: AnyTree, space: Any, place: Place) -> Any:
        """Check a value with `space.contains`, after a conversion to NumPy.

        Return the value in NumPy if the environment is in NumPy, and otherwise unchanged.
        """
        numpy_value: Any = None
        try:
            numpy_value = af.convert(value, "numpy", unsupported="keep", sparse="dense")
            numpy_value = map_arrays(_as_sampled, numpy_value)
            contained = space.contains(numpy_value)
        except af.TracedValueError:
            return value
        except Exception:  # the value cannot be converted, or `contains` does not support it
            contained = False
        if not contained:
            raise self._unfit(space, place, "contains() of the space returns False")
        return numpy_value if self.backend.name == "numpy" else value

    def _unfit(self, space: Any, place: Place, reason: str) -> af.ConversionError:
        """Return the error for a value that is not valid for the space."""
        value = place.value
        try:
            description = described(value)
        except Exception:  # the value cannot be printed
            description = f"of type {type(value).__name__}"
        mistake = likely_mistake(value, space, self.num_envs)
        return af.ConversionError(
            f"{self.noun} {description} is not valid for the space {space}, since {reason}",
            remedy=mistake or f"Pass {self.noun} as the space samples it.",
            path=place.path,
        )


def _as_sampled(x: AnyArray) -> Any:
    """Convert a 0-d integer array to np.int64, the type that OneOf and Sequence sample."""
    return np.int64(x) if x.ndim == 0 and x.dtype.kind in "iu" else x


def bounds_of(space: Any) -> tuple[Any, Any]:
    """Return the lowest and the highest numbers of a space. For a Box, they have its dtype, otherwise int64."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, np.int64), np.ones(space.shape, np.int64)
    low = np.asarray(space.start, np.int64)
    count = space.n if isinstance(space, spaces.Discrete) else space.nvec
    return low, low + (np.asarray(count, np.int64) - 1)
