"""Converts actions of any library to the arrays that an environment needs, and clips them to the action space."""

from __future__ import annotations

import functools
import numbers
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space, spaces

import arrayferry as af
from arrayferry._utilities.options import check_actions_of
from arrayferry.extending import dtype_info, dtype_name, dtype_named, observers
from arrayferry.typing import AnyArray, AnyTree, Device
from arrayferry_gym.extending import (
    ARRAYS,
    Fitter,
    Judge,
    batch_of_actions,
    bounds_of,
    build,
    cast_clipped,
    first_wrong,
    held_dtype,
    leaves,
    namespace,
    split,
)


class Actions(Judge):
    """Converts the actions of a batch of environments to arrays of one library, with the dtypes of the action space.

    Args:
        name: the name of the environment in messages.
        space: the space of the actions of one environment.
        n: the number of environments, or None for a single environment, whose actions have no axis of environments.
        backend: the library of the arrays.
        device: the device of the arrays.
        check: "strict" refuses actions outside the space. "fit" converts them, and the engine clips them later. "off"
            converts without checks.

    Raises:
        arrayferry.OptionError: `check` is unknown, or the library computes arrays on demand.
    """

    def __init__(
        self,
        name: str,
        space: Space[Any],
        n: int | None,
        backend: af.Backend,
        device: Device,
        *,
        check: Any = "fit",
    ) -> None:
        if backend.memory == "lazy":
            raise af.OptionError(
                f"xp={backend.name!r} cannot be used: its arrays are computed on demand, so the states of environments would never be computed",
                remedy='Use another library, such as "numpy".',
            )
        self._noun = f"an action for {name}"
        self._space = space if n is None else batch_of_actions(space, n)
        self._n = n
        self._check = check_actions_of(check)
        self._convert = af.converter(backend, device=device)
        # passing NumPy arrays to compiled code is faster than converting them to JAX first
        self._compiled = backend.name == "jax" and device is None
        self._forget_ways()
        self._first, self._last = 0, -1  # the range of numbers for `discrete_row`, here empty
        if n is None and isinstance(space, spaces.Discrete) and backend.name == "numpy":
            self._first, self._last = map(int, bounds_of(space))

    __call__ = Judge._act

    def discrete_row(self, action: AnyTree) -> Any:
        """Return a valid integer action of a Discrete space as a NumPy array (1,), or None for any other action."""
        if type(action) in _WHOLE and self._first <= action <= self._last:
            return np.array([action], self._space.dtype)
        return None

    def _fit(self, action: AnyTree) -> Any:
        """Fit an action with all checks. Store a function that fits later actions of the same type with fewer checks.

        Raises:
            arrayferry.ConversionError: the action does not fit the space.
        """
        space, is_strict = self._space, self._check == "strict"
        if self._check == "off":
            is_number = isinstance(action, numbers.Number) and not hasattr(action, "dtype")
            fitted = self._convert(np.asarray(action) if is_number else action)
        else:
            options: Any = {"num_envs": self._n, "passes_on": False, "noun": self._noun}
            if is_strict:
                fitter = Fitter(space, self._convert.target, strict=True, **options)
                fitted = self._convert(fitter.fit(action))
            else:
                fitted = _ClippingFitter(space, self._convert, **options).fit(action)
        if self._n is None:
            fitted = build(space, (part[None, ...] for part in split(space, fitted)))
        if self._check == "fit" and hasattr(fitted, "dtype"):
            self._quick.learn(action, fitted, self._way(action, fitted))
        return fitted

    def _way(self, action: AnyTree, fitted: Any) -> Callable[[Any], Any] | None:
        """Return a function that fits actions like `action` with fewer checks, or None if they need all checks."""
        if fitted is action:
            return lambda x: x
        is_number = isinstance(action, (int, np.generic))
        x = np.asarray(action) if is_number else action
        if not hasattr(x, "dtype") or (isinstance(x, np.ndarray) and type(x) is not np.ndarray):
            return None  # a masked array, for example, needs all checks
        space, dtype = self._space, x.dtype
        cast: Callable[[Any], Any] = self._convert
        if isinstance(space, ARRAYS):
            if "float" in dtype_name(dtype) and space.dtype.kind != "f":
                return None  # for an integer space, floats need a check that they are whole numbers
            passes_numpy = self._compiled and fitted.size * fitted.dtype.itemsize <= SMALL
            cast = caster(x, space, self._convert, in_numpy=passes_numpy)
        is_single = self._n is None

        def fit_quickly(next_action: Any) -> Any:
            x = np.asarray(next_action) if is_number else next_action
            if x.dtype != dtype:
                return None
            return cast(x)[None, ...] if is_single else cast(x)

        return fit_quickly


_WHOLE = (int, np.int64, np.int32)
_NUMPY = (np.ndarray, np.generic)


class _ClippingFitter(Fitter):
    """A `Fitter` that clips numbers outside the space instead of refusing them. It does not read values from a GPU.

    Args:
        space: as in `Fitter`.
        convert: the conversion to the library of the results.
        **options: as in `Fitter`.
    """

    def __init__(self, space: Space[Any], convert: af.Conversion, **options: Any) -> None:
        super().__init__(space, convert.target, **options)
        self._convert = convert

    def _values(self, x: AnyArray, space: Any, place: Any) -> Any:
        if "float" in dtype_name(x.dtype) and space.dtype.kind != "f":
            if not isinstance(x, _NUMPY) and not isinstance(space, spaces.Box):
                raise self._unfit(space, place, "the space takes whole numbers")
            if _is_hosted(x):
                numpy_x = x if isinstance(x, _NUMPY) else af.convert(x, "numpy", sparse="dense")
                # NaN is refused too, since NaN != NaN
                if (not_whole := np.floor(numpy_x) != numpy_x).any():
                    what = f"{first_wrong(numpy_x, not_whole)} is not a whole number"
                    raise self._unfit(space, place, what)
        return caster(x, space, self._convert)(x)


SMALL = 64 * 1024
"""The largest size in bytes at which passing NumPy arrays to compiled code is faster than converting them first."""


def _is_hosted(x: AnyArray) -> bool:
    """Return whether the values of an array can be read from host memory."""
    backend = af.backend_of(x)
    return not backend.is_traced(x) and backend.device_of(x) == "cpu"


def caster(
    x: AnyArray, space: Any, convert: af.Conversion, *, in_numpy: bool = False
) -> Callable[[Any], Any]:
    """Return a function that casts arrays to the dtype of a space, in the library of the environments.

    If numbers could overflow the dtype, they are first clipped to the space. Finite numbers remain finite. Infinite
    numbers remain infinite if the space has an infinite bound. Arrays in host memory are cast by NumPy, which is fast
    and can clip every dtype, if they are not of the environments' library, or if the bounds of the space exceed the
    dtype that this library has for it. A clipped number that this dtype cannot represent, such as 2**40 in JAX, raises
    a NarrowingError.

    Args:
        x: an example of the arrays. All of them must have its type, dtype and device.
        space: the action space to whose dtype arrays are cast.
        convert: the conversion to the library of the environments.
        in_numpy: whether the function may return NumPy arrays, in memory that nothing else uses.
    """
    backend, x_backend = convert.target, af.backend_of(x)
    kind, name = dtype_name(x.dtype), held_dtype(space.dtype, backend)
    source_dtype: Any = dtype_named(kind)
    can_fit = np.can_cast(source_dtype, name)
    too_wide = not can_fit and name != space.dtype.name and _exceeds(space, name)
    is_hosted = isinstance(x, np.ndarray) or (
        (too_wide or x_backend is not backend) and _is_hosted(x)
    )
    in_numpy = in_numpy and is_hosted
    if kind == name and getattr(x.dtype, "isnative", True) and not in_numpy:
        return convert
    too_wide = too_wide and is_hosted
    if too_wide:
        name = space.dtype.name
    bounds = None if can_fit else _safe_bounds(space, kind, name)
    keeps_inf = "float" in kind and bounds is not None and bool(np.isinf(bounds_of(space)).any())
    if is_hosted:
        to_numpy, np_dtype = af.converter("numpy", sparse="dense"), np.dtype(name)
        is_plain = not (too_wide or keeps_inf or ("float" in kind and np_dtype.kind in "iu"))
        low: Any = None
        high: Any = None
        with np.errstate(over="ignore"):
            if bounds is not None:
                low, high = (bound.astype(source_dtype) for bound in bounds)

        def cast_in_numpy(x: AnyArray) -> Any:
            x = to_numpy(x)
            # on small arrays, np.minimum and np.maximum are much faster than np.clip
            clipped = x if low is None else np.minimum(np.maximum(x, low), high)
            if is_plain:
                x = clipped.astype(np_dtype)
            else:
                x = np.where(np.isinf(x), x, clipped) if keeps_inf else clipped
                x = af.fit_dtype(cast_clipped(x, np_dtype), backend, "checked")
            stays_numpy = in_numpy and not observers and not _is_guarded()
            return x if stays_numpy or backend.name == "numpy" else convert(x)

        return cast_in_numpy
    if bounds is not None and x_backend.name == "torch" and kind in ("uint16", "uint32", "uint64"):
        bounds = None  # PyTorch cannot clip these dtypes, so `cast_clipped` clips to the new dtype
    elif bounds is not None and bounds[0].ndim:
        # give the bounds leading axes of length 1, up to as many axes as x: JAX can be configured
        # to refuse operands with different numbers of axes
        index = (None,) * (x.ndim - bounds[0].ndim)
        bounds = tuple(af.convert(bound.astype(source_dtype)[index], like=x) for bound in bounds)
    elif bounds is not None:
        bounds = tuple(bound.item() for bound in bounds)
    cast = _compiled_cast() if x_backend.name == "jax" else _cast
    return lambda x: convert(cast(x, bounds, name, keeps_inf))


def _is_guarded() -> bool:
    """Return whether a user's transfer guard forbids JAX to transfer arrays implicitly."""
    return sys.modules["jax"].config.jax_transfer_guard_host_to_device not in (None, "allow")


def _cast(x: AnyArray, edges: Any, name: str, infinite: bool) -> Any:
    """Clip an array to `edges`, unless they are None, and cast it. If `infinite`, infinities are not clipped."""
    xp = af.namespace_of(x)
    if edges is not None:
        clipped = xp.clip(x, *edges)
        x = xp.where(xp.isinf(x), x, clipped) if infinite else clipped
    return cast_clipped(x, getattr(xp, name))


@functools.cache
def _compiled_cast() -> Any:
    import jax

    return jax.jit(_cast, static_argnums=(2, 3))


def _exceeds(space: Any, name: str) -> bool:
    """Return whether a space has numbers beyond the limits of a dtype."""
    limits = dtype_info(np.dtype(name)).limits
    low, high = bounds_of(space)
    return bool(np.any(low < limits.min) or np.any(high > limits.max))


def _safe_bounds(space: Any, kind: str, name: str) -> Any:
    """Return finite bounds of a space as NumPy arrays, for a cast from dtype `kind` to dtype `name`."""
    low, high = lowest_and_highest(space, name)
    # the bounds become finite and are rounded outwards. Later, the engine clips to the exact bounds
    if high.dtype.kind == "f":
        largest = np.finfo(high.dtype).max
        low, high = np.floor(np.maximum(low, -largest)), np.ceil(np.minimum(high, largest))
    return (_edge(low, kind), _edge(high, kind)) if "int" in kind else (low, high)


def clipper(space: Any, backend: af.Backend, device: Device) -> Callable[[Any], Any]:
    """Return a function that clips actions to a space, and returns them in new arrays.

    Args:
        space: the space of one environment.
        backend: the library of the actions.
        device: the device of the actions.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        clips = [clipper(leaf, backend, device) for leaf, _ in leaves(space)]

        def clip_parts(action: AnyTree) -> Any:
            pairs = zip(clips, split(space, action), strict=True)
            return build(space, (clip(part) for clip, part in pairs))

        return clip_parts
    dtype = held_dtype(space.dtype, backend)
    low, high = lowest_and_highest(space, dtype)
    if low.dtype.kind == "f" and np.all(np.isinf(low)) and np.all(np.isinf(high)):
        return lambda x: x + 0
    if backend.name == "numpy":
        maximum, minimum = np.maximum, np.minimum  # on small arrays, much faster than np.clip
        return lambda x: minimum(maximum(x, low), high)
    if low.ndim:
        low, high = (backend.from_numpy(bound[None], device) for bound in (low, high))
    elif backend.name != "jax":
        low, high = low.item(), high.item()
    xp = namespace(backend)
    if backend.name != "jax":
        return lambda x: xp.clip(x, low, high)
    from jax import numpy_dtype_promotion

    def clip(x: AnyArray) -> Any:
        with numpy_dtype_promotion("standard"):  # actions may differ in dtype from the bounds
            return xp.clip(x, low, high)

    return clip


def lowest_and_highest(space: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the bounds of a space as two NumPy arrays of a dtype, with shape () if all elements have equal bounds."""
    bounds = []
    for bound in map(np.asarray, bounds_of(space)):
        if bound.size and np.all(bound == bound.flat[0]):
            bound = bound.flat[0]
        bounds.append(_edge(bound, dtype))
    low, high = np.broadcast_arrays(*bounds)
    return low.copy(), high.copy()


def _edge(edge: Any, dtype: Any) -> Any:
    """Return a bound in a dtype. For an integer dtype, it is clipped to the dtype's range."""
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        edge = np.clip(np.asarray(edge, object), limits.min, limits.max)
    return np.asarray(edge, dtype)
