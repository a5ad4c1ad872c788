"""Running means and variances, of batches whose rows may be masked.

Batches are merged as by Chan, Golub and LeVeque (1979), "Updating Formulae and a Pairwise Algorithm for Computing
Sample Variances". The count is exact up to 2**55: two int32 of 24 and 31 bits. Means and variances are kept as a
value and a rest, so that small changes add up where there is no float64 (Kahan's summation).

Like Gymnasium's, they begin with a mean of 0 and a variance of 1, which count as much as 1e-4 values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

import arrayferry as af

__all__ = ["PRIOR", "Moments", "Statistics", "fresh", "given", "merge", "read", "updated", "wide"]

PRIOR = 1e-4
"""The number of values that the first mean and variance count as."""

_BITS = 24


class Moments(NamedTuple):
    """The mean and the variance of values.

    Attributes:
        count: how many values there were, int32 (2,): the higher and the lower part.
        mean: the mean, float64 where the library has it, else float32.
        mean_rest: what rounding has left of it.
        var: the variance, about the mean.
        var_rest: what rounding has left of it.
        updating: whether values are counted, bool ().
    """

    count: Any
    mean: Any
    mean_rest: Any
    var: Any
    var_rest: Any
    updating: Any


class Statistics:
    """A mean and a variance in NumPy, with the names of Gymnasium's `RunningMeanStd`.

    Attributes:
        mean: the mean, float64.
        var: the variance, float64.
        count: how many values there were, and 1e-4.
    """

    def __init__(self, mean: Any, var: Any, count: float) -> None:
        self.mean = mean
        self.var = var
        self.count = count

    def __repr__(self) -> str:
        return f"Statistics(mean={self.mean!r}, var={self.var!r}, count={self.count!r})"


def wide(xp: Any, device: Any) -> Any:
    """Return the widest dtype of floats that a library has on a device: float64 or float32."""
    try:
        return xp.asarray(np.zeros(1), device=device).dtype
    except TypeError:  # a device without float64
        return xp.float32


def fresh(xp: Any, shape: tuple[int, ...], device: Any) -> Moments:
    """Return the moments before the first value."""
    dtype = wide(xp, device)

    def full(value: float) -> Any:
        return xp.full(shape, value, dtype=dtype, device=device)

    count = xp.zeros((2,), dtype=xp.int32, device=device)
    updating = xp.ones((), dtype=xp.bool, device=device)
    return Moments(count, full(0.0), full(0.0), full(1.0), full(0.0), updating)


def updated(xp: Any, moments: Moments, x: Any, rows: Any = None) -> Moments:
    """Return moments that also count values.

    Args:
        xp: the namespace.
        moments: the moments before.
        x: values (n, ...).
        rows: which rows count, bool (n,); None for all.
    """
    dtype = moments.mean.dtype
    x = xp.astype(x, dtype)
    if rows is None:
        k: Any = x.shape[0]
        mean = xp.mean(x, axis=0)
        apart = x - mean
        var = xp.mean(apart * apart, axis=0)
    else:
        rows = xp.reshape(rows, (x.shape[0],) + (1,) * (len(x.shape) - 1))
        zero = xp.zeros_like(x)
        k = xp.sum(xp.astype(xp.reshape(rows, (-1,)), xp.int32))
        divisor = xp.astype(xp.clip(k, 1, None), dtype)
        mean = xp.sum(xp.where(rows, x, zero), axis=0) / divisor
        apart = xp.where(rows, x - mean, zero)
        var = xp.sum(apart * apart, axis=0) / divisor
    k = xp.astype(moments.updating, xp.int32) * k
    counts, low = xp.astype(moments.count, dtype), moments.count[1] + k
    before = counts[0] * 2.0**_BITS + counts[1] + PRIOR
    more = xp.astype(xp.asarray(k), dtype)
    high = moments.count[0] + (low >> _BITS)
    count = xp.astype(xp.stack([xp.asarray(high), xp.asarray(low & (2**_BITS - 1))]), xp.int32)
    weight, left = more / (before + more), before / (before + more)
    delta = (mean - moments.mean) - moments.mean_rest
    spread = var + delta * delta * left
    change = weight * ((spread - moments.var) - moments.var_rest)
    if dtype == getattr(xp, "float64", None):
        means: Any = moments.mean + weight * delta, moments.mean_rest
        vars_: Any = moments.var + change, moments.var_rest
    else:
        means = _added(moments.mean, moments.mean_rest, weight * delta)
        # the first values replace the variance of 1, whose digits would be lost by a difference
        value, rest = _added(moments.var, moments.var_rest, change)
        early = weight > 0.5
        vars_ = (
            xp.where(early, moments.var * left + spread * weight, value),
            xp.where(early, xp.zeros_like(rest), rest),
        )
    return Moments(count, *means, *vars_, moments.updating)


def _added(value: Any, rest: Any, change: Any) -> tuple[Any, Any]:
    change = change + rest
    total = value + change
    return total, change - (total - value)


def read(moments: Moments) -> dict[str, Any]:
    """Return moments as plain numbers: "count", "mean" and "var", the last two in nested lists."""
    high, low = _numpy(moments.count).tolist()
    return {
        "count": high * 2**_BITS + low,
        "mean": (_numpy(moments.mean) + _numpy(moments.mean_rest)).tolist(),
        "var": (_numpy(moments.var) + _numpy(moments.var_rest)).tolist(),
    }


def given(xp: Any, moments: Moments, values: Any, device: Any) -> Moments:
    """Return moments of the form of others with values of `read`.

    Raises:
        arrayferry.OptionError: they are of another shape, or there is no count, mean and variance.
    """
    try:
        count = int(values["count"])
        mean, var = (np.asarray(values[name], np.float64) for name in ("mean", "var"))
    except (KeyError, TypeError, ValueError) as error:
        raise af.OptionError(
            f"statistics are needed, but got {values!r:.80}",
            remedy='Pass what state_dict() has returned: a dict with "count", "mean" and "var".',
        ) from error
    shape = tuple(moments.mean.shape)
    if mean.shape != shape or var.shape != shape or count < 0:
        raise af.OptionError(
            f"the statistics have a count of {count} and the shapes {mean.shape} and {var.shape}, but {shape} is needed",
            remedy="Pass those of an environment with the same observations.",
        )
    words = np.asarray([count >> _BITS, count & (2**_BITS - 1)], np.int32)

    def pair(x: Any) -> tuple[Any, Any]:
        value = xp.astype(xp.asarray(x, device=device), moments.mean.dtype)
        rest = x - _numpy(value)
        return value, xp.astype(xp.asarray(rest, device=device), moments.mean.dtype)

    return Moments(xp.asarray(words, device=device), *pair(mean), *pair(var), moments.updating)


def merge(parts: Iterable[Any], base: Any = None) -> dict[str, Any]:
    """Merge statistics of several runs, as `read` gives them, in float64.

    Args:
        parts: the statistics.
        base: those with which all of them began. Its values are counted once.
    """
    total, first, second = 0, 0.0, 0.0
    parts = list(parts)
    signs = [(part, 1) for part in parts]
    if base is not None:
        signs.append((base, 1 - len(parts)))
    center = np.asarray(parts[0]["mean"], np.float64)
    for part, sign in signs:
        count, mean, var = part["count"], np.asarray(part["mean"]), np.asarray(part["var"])
        apart, prior = mean - center, 0.0 - center
        total += sign * count
        first = first + sign * ((count + PRIOR) * apart - PRIOR * prior)
        sums = (count + PRIOR) * (var + apart * apart) - PRIOR * (1 + prior * prior)
        second = second + sign * sums
    prior = 0.0 - center
    first, second = first + PRIOR * prior, second + PRIOR * (1 + prior * prior)
    weight = total + PRIOR
    mean = first / weight
    var = np.maximum(second / weight - mean * mean, 0)
    return {"count": total, "mean": (mean + center).tolist(), "var": var.tolist()}


def _numpy(x: Any) -> Any:
    array = af.convert(x, "numpy")
    return np.asarray(array, np.float64 if array.dtype.kind == "f" else None)
