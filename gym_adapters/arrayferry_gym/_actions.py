"""Actions in the form that the action space of an environment asks for.

An environment in NumPy gets what its space samples: a hashable scalar for Discrete, arrays of the
space's dtype for the others. An environment of another library gets its own arrays, 0-d for Discrete.
What cannot be in the space is an error that names the space and the place in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from gymnasium import Space, spaces

import arrayferry as af

from ._dtypes import cast_numbers, culprit, held_dtype, plain_name
from ._space_trees import branches, check_branches

__all__ = ["Fitter", "LibraryFitter", "range_test"]

_SHAPED = (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)


class Fitter:
    """Brings values of NumPy arrays into the form that `space.sample()` has.

    Args:
        noun: what messages call a value, "an action".
        bounds: whether NaN, and what is out of the bounds of any space, are errors too.
    """

    def __init__(self, noun: str = "a value", *, bounds: bool = False) -> None:
        self.noun = noun
        self.bounds = bounds

    def fit(self, value: Any, space: Space[Any], path: str = "") -> Any:
        """Bring a value into the form of its space.

        Args:
            value: of the structure of the space. Numbers, and lists of numbers, are taken as arrays.
            space: the space. A value of a space that is not Gymnasium's own is not changed.
            path: the place in the whole value, for errors.

        Raises:
            arrayferry.ConversionError: its structure, its shape, its kind or its dtype does not fit, or it
                is out of the range of a Discrete or MultiDiscrete.
        """
        if isinstance(space, (spaces.Discrete, *_SHAPED)):
            fitted = self.leaf(value, space, path)
        elif isinstance(space, (spaces.Dict, spaces.Tuple)):
            fitted = self._parts(value, space, path, self.fit)
        elif isinstance(space, spaces.OneOf):
            if not _is_as_long(value, 2):
                raise self.unfit(
                    value, space, path, "it takes a pair: an index, and a value for that space"
                )
            chosen = self._number(value[0], spaces.Discrete(len(space.spaces)), f"{path}[0]")
            fitted = np.int64(chosen), self.fit(value[1], space.spaces[chosen], f"{path}[1]")
        elif isinstance(space, spaces.Sequence):
            fitted = self._sequence(value, space, path)
        elif isinstance(space, spaces.Graph):
            fitted = self._graph(value, space, path)
        else:
            if isinstance(space, spaces.Text) and not isinstance(value, str):
                raise self.unfit(value, space, path, "it takes a text")
            fitted = value
        if self.asks(space):
            self._must_contain(fitted, space, path)
        return fitted

    def asks(self, space: Space[Any]) -> bool:
        """Tell whether a space is asked by its `contains`, which knows rules of its own."""
        own = type(space).__module__.startswith("gymnasium.spaces.")
        return self.bounds and (isinstance(space, spaces.Text) or not own)

    def leaf(self, value: Any, space: Any, path: str, *, batched: bool = False) -> Any:
        """Fit one array, or with `batched` several at once, along a first axis of any length."""
        if isinstance(space, spaces.Discrete) and not batched:
            return space.dtype.type(self._number(value, space, path))
        x = self._array(value, space, path)
        self._check_shape(x.shape, value, space, path, batched)
        x = np.asarray(self._cast(x, space, path))
        if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
            count = space.n if isinstance(space, spaces.Discrete) else space.nvec
            inside = (x >= space.start) & (x - space.start < count)
            if not inside.all():
                raise self.unfit(value, space, path, f"{culprit(x, ~inside)} is out of its range")
        elif self.bounds:
            low, high = (0, 1) if isinstance(space, spaces.MultiBinary) else (space.low, space.high)
            inside = (x >= low) & (x <= high)  # false for NaN
            if not inside.all():
                raise self.unfit(value, space, path, f"{culprit(x, ~inside)} is out of its bounds")
        return x

    def _number(self, value: Any, space: spaces.Discrete, path: str) -> int:
        found = value
        if isinstance(found, (list, tuple)):
            found = self._array(found, space, path)
        if isinstance(found, (np.ndarray, np.generic)) and found.size == 1:
            found = self._cast(self._array(found, space, path), space, path).item()
        elif isinstance(found, float) and found.is_integer():
            found = int(found)
        if not isinstance(found, (int, np.integer)):
            raise self.unfit(value, space, path, "it takes one whole number")
        first, last = int(space.start), int(space.start) + int(space.n) - 1
        if not first <= found <= last:
            raise self.unfit(value, space, path, f"it takes {first} to {last}")
        return int(found)

    def _array(self, value: Any, space: Space[Any], path: str) -> Any:
        x = value
        if isinstance(x, (bool, int, float, list, tuple)):
            try:
                x = np.asarray(x)
            except ValueError:  # parts of different shapes
                raise self.unfit(value, space, path, "its parts have different shapes") from None
        if not isinstance(x, (np.ndarray, np.generic)):
            raise self.unfit(value, space, path, "it takes an array")
        if isinstance(x, np.ndarray) and type(x) is not np.ndarray:
            backend = af.registry.backend("numpy")
            x = backend.to_numpy(x)  # which refuses masks and units
        return x

    def _check_shape(
        self, shape: Iterable[int], value: Any, space: Any, path: str, batched: bool
    ) -> None:
        shape = tuple(shape)
        if batched:
            if not shape or shape[1:] != tuple(space.shape):
                wanted = f"(n, {', '.join(map(str, space.shape))})" if space.shape else "(n,)"
                raise self.unfit(value, space, path, f"it takes a shape {wanted}, not {shape}")
        elif shape != tuple(space.shape):
            raise self.unfit(value, space, path, f"it takes the shape {space.shape}, not {shape}")

    def _cast(self, x: Any, space: Space[Any], path: str) -> Any:
        """Cast an array to the dtype of its space, if no number changes."""
        dtype = space.dtype
        if dtype is None or x.dtype == dtype:
            return x
        try:
            return cast_numbers(np.asarray(x), dtype)
        except ValueError as error:
            raise self.unfit(x, space, path, str(error)) from None

    def _parts(self, value: Any, space: Any, path: str, fit: Callable[..., Any]) -> Any:
        """Fit the parts of a Dict or Tuple, each by the given function."""

        def mismatch(value: Any, path: str, needed: str) -> af.ConversionError:
            return self.unfit(value, space, path, f"it takes {needed}")

        check_branches(space, value, mismatch, path)
        inner = branches(space) or []
        parts = {key: fit(value[key], part, f"{path}[{key!r}]") for key, part in inner}
        return parts if isinstance(space, spaces.Dict) else tuple(parts.values())

    def _sequence(self, value: Any, space: spaces.Sequence, path: str) -> Any:
        if space.stack:
            return self._stacked(value, space.feature_space, path)
        if not isinstance(value, (tuple, list)):
            raise self.unfit(value, space, path, "it takes a tuple")
        inner = space.feature_space
        return tuple(self.fit(part, inner, f"{path}[{index}]") for index, part in enumerate(value))

    def _stacked(self, value: Any, space: Any, path: str) -> Any:
        """Fit several values of a space that are stacked, array by array."""
        if isinstance(space, (spaces.Discrete, *_SHAPED)):
            return self.leaf(value, space, path, batched=True)
        if isinstance(space, (spaces.Dict, spaces.Tuple)):
            return self._parts(value, space, path, self._stacked)
        return value

    def _graph(self, value: Any, space: spaces.Graph, path: str) -> Any:
        if not isinstance(value, spaces.GraphInstance):
            raise self.unfit(value, space, path, "it takes a GraphInstance")
        nodes = self.leaf(value.nodes, space.node_space, f"{path}.nodes", batched=True)
        edges = value.edges
        if edges is not None:
            if space.edge_space is None:
                raise self.unfit(value, space, path, "its graphs have no edges")
            edges = self.leaf(edges, space.edge_space, f"{path}.edges", batched=True)
        return value._replace(nodes=nodes, edges=edges)

    def _must_contain(self, value: Any, space: Space[Any], path: str) -> None:
        try:
            contained = space.contains(value)
        except Exception:  # it was not written for such a value
            contained = False
        if not contained:
            raise self.unfit(value, space, path, "its contains() is false")

    def unfit(self, value: Any, space: Any, path: str, reason: str) -> af.ConversionError:
        """Return the error for a value that cannot be one of the space."""
        try:
            if isinstance(value, (np.ndarray, np.generic)):
                numbers = np.array2string(np.asarray(value).ravel(), threshold=6)
                given = f"of shape {value.shape} and dtype {value.dtype} with the values {numbers}"
            elif hasattr(value, "shape") and hasattr(value, "dtype"):
                given = f"of shape {tuple(value.shape)} and dtype {value.dtype}"
            else:
                given = f"of type {type(value).__name__}: {value!r:.60}"
        except Exception:  # it cannot be printed
            given = f"of type {type(value).__name__}"
        return af.ConversionError(
            f"{self.noun} {given} cannot be one of the space {space}, since {reason}",
            remedy=f"Pass {self.noun} as the space samples it.",
            path=path,
        )


class LibraryFitter(Fitter):
    """Does the same for arrays of another library, which stay its own, with their gradients.

    Their values are read to check them, but for traced values, which have none.

    Args:
        backend: the library.
        noun: as in `Fitter`.
        bounds: as in `Fitter`.
    """

    def __init__(self, backend: af.Backend, noun: str = "a value", *, bounds: bool = False) -> None:
        super().__init__(noun, bounds=bounds)
        self.backend = backend

    def leaf(self, value: Any, space: Any, path: str, *, batched: bool = False) -> Any:
        """Fit one array, or with `batched` several at once, along a first axis of any length."""
        x = value
        if isinstance(x, (list, tuple)) and af.first_array(x)[1] is not None:
            x = self._joined(x, space, path)
        if af.first_array(x)[1] is None or isinstance(x, (np.ndarray, np.generic)):
            return af.convert(
                super().leaf(x, space, path, batched=batched), self.backend, scalars="convert"
            )
        if not hasattr(x, "dtype"):
            raise self.unfit(value, space, path, "it takes an array")
        if self.backend.is_traced(x):
            self._check_traced(x, space, path, batched)
        else:
            super().leaf(af.convert(x, "numpy"), space, path, batched=batched)
        return self._formed(x, space, batched)

    def _number(self, value: Any, space: spaces.Discrete, path: str) -> int:
        if hasattr(value, "dtype"):
            value = af.convert(value, "numpy")
        return super()._number(value, space, path)

    def _must_contain(self, value: Any, space: Space[Any], path: str) -> None:
        try:
            value = af.convert(value, "numpy", unsupported="keep")
        except af.TracedValueError:
            return
        super()._must_contain(value, space, path)

    def _joined(self, parts: Any, space: Space[Any], path: str) -> Any:
        """Make one array of a list of arrays and numbers."""
        arrays = af.convert(list(parts), self.backend, scalars="convert")
        try:
            return af.namespace_of(af.first_array(arrays)[0]).stack(arrays)
        except Exception:
            raise self.unfit(parts, space, path, "its parts cannot be stacked") from None

    def _check_traced(self, x: Any, space: Any, path: str, batched: bool) -> None:
        """Check what is known of a traced value: its shape, and the kind of its dtype."""
        discrete = isinstance(space, spaces.Discrete) and not batched
        if not discrete:
            self._check_shape(x.shape, x, space, path, batched)
        elif any(length != 1 for length in x.shape):
            raise self.unfit(x, space, path, "it takes one whole number")
        name = plain_name(x.dtype)
        if not name.startswith(("bool", "int", "uint", "float", "bfloat")):
            raise self.unfit(x, space, path, "its dtype is of another kind")
        if "float" in name and not isinstance(space, spaces.Box):
            raise self.unfit(x, space, path, "it takes whole numbers")

    def _formed(self, x: Any, space: Any, batched: bool) -> Any:
        """Give an array the shape and the kind of dtype that its space has in the library."""
        name = plain_name(x.dtype)
        wanted = held_dtype(space.dtype, self.backend)
        # bool and uint8 are masks when they index
        number = name.startswith(("int", "uint")) and name != "uint8"
        if name != wanted and (isinstance(space, spaces.Box) or not number):
            xp = af.namespace_of(x)
            x = xp.astype(x, getattr(xp, wanted))
        if isinstance(space, spaces.Discrete) and not batched and tuple(x.shape) != ():
            x = af.namespace_of(x).reshape(x, ())
        return x


def range_test(
    space: spaces.MultiDiscrete, dtype: np.dtype[Any]
) -> Callable[[Any, Any], bool] | None:
    """Return a quick test of NumPy arrays of one dtype of whole numbers, with the shape of the space.

    Its first argument, the action as it was passed, is not used. None if the range does not fit the dtype.
    Of several ways the cheapest is taken, since this is asked at every step.
    """
    if dtype.kind not in "iu":
        return None
    unsigned = np.dtype(f"u{dtype.itemsize}")
    limits, last = np.iinfo(dtype), space.start.astype(object) + space.nvec - 1
    if space.start.min() < limits.min or last.max() > limits.max:
        return None
    if space.nvec.max() > np.iinfo(unsigned).max:
        return None
    start, count = space.start.astype(dtype), space.nvec.astype(unsigned)
    less, shifted = np.less, bool(np.any(space.start))

    def compare(x: Any) -> bool:
        # read as unsigned numbers, those below the range are larger than the count
        x = x - start if shifted else x
        return 0 not in less(x.view(unsigned), count).tobytes()

    if np.log2(space.nvec).sum() <= np.log2(_FEW):
        seen: set[bytes] = set()

        def remember(_: Any, x: Any) -> bool:
            content = x.tobytes()
            if content in seen:
                return True
            valid = compare(x)
            if valid:
                seen.add(content)
            return valid

        return remember
    first = int(space.nvec.flat[0])
    alike = not shifted and bool(np.all(space.nvec == first))
    if alike and first < 0xFF and dtype.itemsize > 1 and count.size <= _SHORT:
        table = np.zeros(first, bool)

        def look_up(_: Any, x: Any) -> bool:
            try:
                table[x]  # an error for those above the range, and for most below
            except IndexError:
                return False
            return 0xFF not in x.tobytes()  # which is in every small negative number

        return look_up
    return lambda _, x: compare(x)


_FEW = 4_096
"""Valid actions of a space that are remembered at most."""
_SHORT = 256
"""Numbers up to which looking each up in a table is faster than comparing all."""


def _is_as_long(value: Any, length: int) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == length
