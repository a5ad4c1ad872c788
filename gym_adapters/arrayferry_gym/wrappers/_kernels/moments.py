"""Running means and variances of values that arrive in batches. A mask may exclude rows of a batch.

Batches are merged as by Chan, Golub and LeVeque (1979), "Updating Formulae and a Pairwise Algorithm for Computing
Sample Variances". In JAX, the count stops at 2**31 - 1, so later values weigh slightly too much.

As in Gymnasium, the initial mean is 0 and the initial variance is 1. Together they weigh as much as 1e-4 values.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

import arrayferry as af
from arrayferry.extending import dtype_name
from arrayferry.typing import AnyArray, AnyTree, Device, Namespace
from arrayferry_gym._arrays import cast_fitting, select

PRIOR = 1e-4
"""The initial mean and variance count as this number of values."""

MOST = 2**31 - 1
"""The largest count in JAX, where counts are int32."""


class Moments(NamedTuple):
    """The mean and the variance of values.

    In JAX, `count` and `updating` are arrays, so that their changes need no new compilation. Elsewhere they are Python
    numbers.

    Attributes:
        count: the number of values.
        mean: the mean, float64 if the library supports it on the device, else float32.
        var: the variance.
        updating: whether new values are counted.
    """

    count: Any
    mean: Any
    var: Any
    updating: Any

    def switched(self, xp: Namespace, updating: bool) -> Moments:
        """Return these moments with another value of `updating`."""
        return self._replace(updating=_number(xp, updating))

    def read(self) -> dict[str, Any]:
        """Return a dict: "count" is a Python integer, and "mean" and "var" are floats or nested lists of floats.

        Raises:
            arrayferry.OptionError: the moments are traced, or have an axis of several runs that `jax.vmap` added.
        """
        count, backend = af.first_array(self.count)
        if backend is not None and backend.is_traced(count):
            raise af.OptionError(
                "statistics were read in a traced function, where arrays have no values",
                remedy="Return the state, such as carry.env_state, and call state_dict outside the traced function.",
            )
        if getattr(self.count, "shape", ()):
            raise af.OptionError(
                "these are the statistics of several runs, with an axis that jax.vmap has added",
                remedy="Pass the state of one run: jax.tree.map(lambda x: x[0], carry.env_state).",
            )
        mean, var = (af.convert(x, "numpy").tolist() for x in (self.mean, self.var))
        return {"count": int(self.count), "mean": mean, "var": var}

    @staticmethod
    def checked(values: AnyTree) -> tuple[int, Any, Any]:
        """Check a result of `read`. Return the count, and the mean and the variance as float64 arrays in NumPy.

        Raises:
            arrayferry.OptionError: the values are not a result of `read`.
        """
        try:
            count = operator.index(values["count"])
            mean, var = (np.asarray(values[name], np.float64) for name in ("mean", "var"))
            # a variance may be NaN only if the mean is not finite, as after a value of NaN or inf
            if count < 0 or mean.shape != var.shape or not ((var >= 0) | ~np.isfinite(mean)).all():
                raise ValueError("count or var is negative or NaN, or mean and var differ in shape")
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise af.OptionError(
                f"statistics are needed, but got {values!r:.80}",
                remedy='Pass a value from the dict state_dict(): a dict with "mean", "var", and a whole number as "count".',
            ) from error
        return count, mean, var

    def given(
        self, xp: Namespace, values: AnyTree, device: Device, *, any_shape: bool = False
    ) -> Moments:
        """Return moments with the values that `read` returned, in the shape and dtype of `self`.

        Args:
            xp: the namespace.
            values: the dict of count, mean and variance that `read` returned.
            device: the device of arrays, or None for the library's default device.
            any_shape: whether the values may have any shape if these moments have the shape ().

        Raises:
            arrayferry.OptionError: the shape differs, or the count, mean or variance is missing.
            arrayferry.NarrowingError: a number does not fit the dtype of these moments.
        """
        count, mean, var = Moments.checked(values)
        shape = tuple(self.mean.shape)
        if mean.shape != shape and not (any_shape and shape == ()):
            raise af.OptionError(
                f"the statistics have a count of {count}, a mean of shape {mean.shape} and a variance of shape {var.shape}, "
                f"but the shape {shape} is needed",
                remedy="Pass statistics of an environment with the same observations.",
            )
        dtype = np.dtype(dtype_name(self.mean.dtype))
        mean, var = (cast_fitting(x, dtype, "an array of the statistics") for x in (mean, var))
        mean, var = (xp.asarray(x, device=device) for x in (mean, var))
        return Moments(_number(xp, count), mean, var, self.updating)


@dataclasses.dataclass(eq=False)
class Statistics:
    """A mean and a variance in NumPy, with the attributes of Gymnasium's `RunningMeanStd`.

    Attributes:
        mean: the mean, float64.
        var: the variance, float64.
        count: the number of values, plus 1e-4.
    """

    mean: Any
    var: Any
    count: float


def wide(xp: Namespace, device: Device) -> Any:
    """Return the widest floating-point dtype of a library on a device: float64 or float32."""
    try:
        return xp.asarray(np.zeros(1), device=device).dtype
    except TypeError:  # the device has no float64
        return xp.float32


def fresh(xp: Namespace, shape: tuple[int, ...], device: Device) -> Moments:
    """Return the initial moments for values of a shape."""
    dtype = wide(xp, device)
    mean = xp.zeros(shape, dtype=dtype, device=device)
    var = xp.ones(shape, dtype=dtype, device=device)
    return Moments(_number(xp, 0), mean, var, _number(xp, True))


def _number(xp: Namespace, value: AnyTree) -> Any:
    """Return a count or a bool as `Moments` store it. In JAX, a count is an int32 array, even if int64 is enabled."""
    if not xp.__name__.startswith("jax"):
        return value
    if isinstance(value, bool):
        return xp.asarray(value, dtype=xp.bool)
    return xp.asarray(min(value, MOST), dtype=xp.int32)


def updated(xp: Namespace, moments: Moments, x: AnyArray, rows: AnyArray = None) -> Moments:
    """Return moments after a batch of new values.

    Args:
        xp: the namespace.
        moments: the moments before these values.
        x: the values, (n, ...).
        rows: a mask of the rows to count, bool (n,), or None for all.
    """
    count, mean, var, updating = moments
    if updating is False:
        return moments
    dtype, k = mean.dtype, x.shape[0]
    x = xp.astype(x, dtype, copy=False)
    # sums of differences from one value, or from the mean, are more precise than sums of large values
    reference = x[0, ...] if rows is None else mean
    # [None, ...], since JAX can be configured to require operands of equal rank
    diffs = x - reference[None, ...]
    divisor: Any = k
    if rows is not None:
        diffs = select(xp, rows, diffs, xp.zeros_like(diffs))
        k = xp.sum(xp.astype(rows, xp.int32), dtype=xp.int32)
        if isinstance(count, int):
            k = int(k)
        divisor = max(k, 1) if isinstance(count, int) else xp.astype(xp.clip(k, 1, None), dtype)
    mean_diff, mean_square = _sum(xp, diffs) / divisor, _sum(xp, diffs * diffs) / divisor
    old_count, num_added = count, k
    if isinstance(count, int):
        count = count + k
    else:
        k = xp.astype(updating, xp.int32) * k
        old_count, num_added = xp.astype(count, dtype), xp.astype(k, dtype)
        count = count + xp.minimum(k, MOST - count)
    old_count = old_count + PRIOR
    weight, old_weight = num_added / (old_count + num_added), old_count / (old_count + num_added)
    delta = reference + mean_diff - mean
    spread = mean_square - mean_diff * mean_diff + delta * delta * old_weight
    mean = mean + delta * weight
    # if the batch outweighs earlier values, as the first batch does, `spread - var` could lose digits
    outweighs = weight > 0.5
    if isinstance(outweighs, bool):
        var = var * old_weight + spread * weight if outweighs else var + (spread - var) * weight
    else:
        var = xp.where(outweighs, var * old_weight + spread * weight, var + (spread - var) * weight)
    return Moments(count, mean, var, updating)


def _sum(xp: Namespace, x: AnyArray) -> Any:
    """Return the sum over the first axis."""
    if isinstance(x, np.ndarray) and x.ndim == 2:
        return np.ones(x.shape[0]) @ x  # five times as fast as x.sum(axis=0)
    return x.sum(axis=0) if hasattr(x, "sum") else xp.sum(x, axis=0)


def merge(parts: Iterable[Any]) -> dict[str, Any]:
    """Merge the statistics of several runs, in float64, and return a dict like each of `parts`.

    Args:
        parts: the statistics of each run, such as `env.state_dict()["obs_rms"]`.

    Raises:
        arrayferry.OptionError: `parts` is empty, or has statistics of different shapes.
    """
    runs = [Moments.checked(part) for part in parts]
    if not runs:
        raise af.OptionError(
            "merge was given no statistics", remedy="Pass the statistics of at least one run."
        )
    center = runs[0][1]
    prior_mean = 0.0 - center
    total = 0
    # each run includes the initial mean and variance, but the result must include them only once
    weighted_sum, weighted_squares = PRIOR * prior_mean, PRIOR * (1 + prior_mean * prior_mean)
    for count, mean, var in runs:
        if mean.shape != center.shape:
            raise af.OptionError(
                f"statistics of the shapes {center.shape} and {mean.shape} cannot be merged",
                remedy="Pass statistics of environments whose observations or rewards have the same shape.",
            )
        diff = mean - center
        total += count
        weighted_sum = weighted_sum + (count + PRIOR) * diff - PRIOR * prior_mean
        squares = (count + PRIOR) * (var + diff * diff) - PRIOR * (1 + prior_mean * prior_mean)
        weighted_squares = weighted_squares + squares
    weight = total + PRIOR
    mean = weighted_sum / weight
    var = np.maximum(weighted_squares / weight - mean * mean, 0)
    return {"count": total, "mean": (mean + center).tolist(), "var": var.tolist()}
