"""Running means and variances, of batches whose rows may be masked.

Batches are merged as by Chan, Golub and LeVeque (1979), "Updating Formulae and a Pairwise Algorithm for Computing
Sample Variances". The count is exact up to 2**55: a higher and a lower part, of 31 and 24 bits. Without float64, means
and variances are kept as a value and its rounding error, so that small changes add up (Kahan summation).

Like Gymnasium's, they begin with a mean of 0 and a variance of 1, which weigh as much as 1e-4 values.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

import arrayferry as af

PRIOR = 1e-4
"""The number of values that the first mean and variance count as."""

_BITS = 24


class Moments(NamedTuple):
    """The mean and the variance of values.

    In JAX, counts and `updating` are arrays, as they change in compiled code. Elsewhere they are Python numbers.

    Attributes:
        high: the higher part of the number of values, in units of 2**24.
        low: the lower part.
        mean: the mean, float64 where the library has it, else float32.
        mean_rest: the rounding error of the mean; always 0 in float64.
        var: the variance, about the mean.
        var_rest: the rounding error of the variance; always 0 in float64.
        updating: whether values are counted.
    """

    high: Any
    low: Any
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
        count: the number of values, plus 1e-4.
    """

    def __init__(self, mean: Any, var: Any, count: float) -> None:
        self.mean = mean
        self.var = var
        self.count = count

    def __repr__(self) -> str:
        return f"Statistics(mean={self.mean!r}, var={self.var!r}, count={self.count!r})"


def wide(xp: Any, device: Any) -> Any:
    """Return the widest floating-point dtype of a library on a device: float64 or float32."""
    try:
        return xp.asarray(np.zeros(1), device=device).dtype
    except TypeError:  # a device without float64
        return xp.float32


def fresh(xp: Any, shape: tuple[int, ...], device: Any) -> Moments:
    """Return the moments before the first value."""
    dtype = wide(xp, device)

    def full(value: float) -> Any:
        return xp.full(shape, value, dtype=dtype, device=device)

    zero, yes = _number(xp, 0), _number(xp, True)
    return Moments(zero, zero, full(0.0), full(0.0), full(1.0), full(0.0), yes)


def _number(xp: Any, value: Any) -> Any:
    """Return a number in its stored form: in JAX, which may be compiling, an array, of the same dtype with 64 bits."""
    if not xp.__name__.startswith("jax"):
        return value
    return xp.asarray(value, dtype=xp.bool if isinstance(value, bool) else xp.int32)


def updated(xp: Any, moments: Moments, x: Any, rows: Any = None) -> Moments:
    """Return moments that also count values.

    Args:
        xp: the namespace.
        moments: the moments before.
        x: values (n, ...).
        rows: which rows count, bool (n,); None for all.
    """
    high, low, mean, mean_rest, var, var_rest, updating = moments
    if updating is False:
        return moments
    dtype, k = mean.dtype, x.shape[0]
    x = xp.astype(x, dtype, copy=False)
    # sums of differences from one of the values, which avoids cancellation
    one = x[0, ...] if rows is None else mean
    apart = x - one
    if rows is not None:
        k = xp.sum(xp.astype(rows, xp.int32), dtype=xp.int32)
        mask = xp.reshape(rows, (x.shape[0],) + (1,) * (len(x.shape) - 1))
        apart = xp.where(mask, apart, xp.zeros_like(apart))
    first, second = _sum(xp, apart), _sum(xp, apart * apart)
    divisor: Any = k
    if rows is not None:
        if isinstance(low, int):
            k = int(k)
            divisor = max(k, 1)
        else:
            divisor = xp.astype(xp.clip(k, 1, None), dtype)
    units, more, added = high, low, k
    if not isinstance(low, int):
        k = xp.astype(updating, xp.int32) * k
        units, more, added = (xp.astype(x, dtype) for x in (high, low, k))
    first = first / divisor
    before = units * 2.0**_BITS + more + PRIOR
    low = low + k
    high, low = high + (low >> _BITS), low & (2**_BITS - 1)
    weight, left = added / (before + added), before / (before + added)
    spread = second / divisor - first * first
    delta = one + first - mean
    if dtype == getattr(xp, "float64", None):
        spread = spread + delta * delta * left
        mean, var = mean + delta * weight, var + (spread - var) * weight
    else:
        delta = delta - mean_rest
        spread = spread + delta * delta * left
        # the first values replace the variance of 1: a difference from it would lose digits
        early = weight > 0.5
        start = var * left + spread * weight
        mean, mean_rest = _added(mean, mean_rest, delta * weight)
        var, var_rest = _added(var, var_rest, (spread - var - var_rest) * weight)
        var = xp.where(early, start, var)
        var_rest = xp.where(early, xp.zeros_like(var_rest), var_rest)
    return Moments(high, low, mean, mean_rest, var, var_rest, updating)


def _sum(xp: Any, x: Any) -> Any:
    """Return the sum over the first axis."""
    if isinstance(x, np.ndarray) and x.ndim == 2:
        return np.ones(x.shape[0]) @ x  # five times as fast
    return x.sum(axis=0) if hasattr(x, "sum") else xp.sum(x, axis=0)


def _added(value: Any, rest: Any, change: Any) -> tuple[Any, Any]:
    change = change + rest
    total = value + change
    return total, change - (total - value)


def switched(xp: Any, moments: Moments, updating: bool) -> Moments:
    """Return moments whose updates are switched on or off."""
    return moments._replace(updating=_number(xp, updating))


def read(moments: Moments) -> dict[str, Any]:
    """Return moments as plain numbers: "count", "mean" and "var", the last two in nested lists."""
    return {
        "count": int(moments.high) * 2**_BITS + int(moments.low),
        "mean": (_numpy(moments.mean) + _numpy(moments.mean_rest)).tolist(),
        "var": (_numpy(moments.var) + _numpy(moments.var_rest)).tolist(),
    }


def checked(values: Any) -> tuple[int, Any, Any]:
    """Return the count, the mean and the variance in a result of `read`.

    Raises:
        arrayferry.OptionError: the values have another form.
    """
    try:
        count = operator.index(values["count"])
        mean, var = (np.asarray(values[name], np.float64) for name in ("mean", "var"))
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise _no_statistics(values) from error
    if not 0 <= count < 2**55 or mean.shape != var.shape or not (var >= 0).all():
        raise _no_statistics(values)
    return count, mean, var


def _no_statistics(values: Any) -> af.OptionError:
    return af.OptionError(
        f"statistics are needed, but got {values!r:.80}",
        remedy='Pass the result of state_dict(): a dict with "count", "mean" and "var".',
    )


def given(xp: Any, moments: Moments, values: Any, device: Any) -> Moments:
    """Return moments in the form of others, with the values of a result of `read`.

    Raises:
        arrayferry.OptionError: their shape differs, or the count, mean or variance is missing.
    """
    count, mean, var = checked(values)
    shape = tuple(moments.mean.shape)
    if mean.shape != shape:
        raise af.OptionError(
            f"the statistics have a count of {count} and the shapes {mean.shape} and {var.shape}, but {shape} is needed",
            remedy="Pass those of an environment with the same observations.",
        )
    high, low = _number(xp, count >> _BITS), _number(xp, count & (2**_BITS - 1))

    def pair(x: Any) -> tuple[Any, Any]:
        value = xp.astype(xp.asarray(x, device=device), moments.mean.dtype)
        rest = x - _numpy(value)
        return value, xp.astype(xp.asarray(rest, device=device), moments.mean.dtype)

    return Moments(high, low, *pair(mean), *pair(var), moments.updating)


def merge(parts: Iterable[Any], base: Any = None) -> dict[str, Any]:
    """Merge the statistics of several runs, in float64.

    Args:
        parts: the statistics of each run, such as `env.state_dict()["obs_rms"]`.
        base: the statistics with which all runs began. Its values are counted once.

    Raises:
        arrayferry.OptionError: they are not statistics of the same observations or returns.
    """
    total = 0
    first: Any = 0.0
    second: Any = 0.0
    runs = [checked(part) for part in parts]
    signs = [(run, 1) for run in runs]
    if base is not None:
        signs.append((checked(base), 1 - len(runs)))
    center = runs[0][1]
    for (count, mean, var), sign in signs:
        if mean.shape != center.shape:
            raise af.OptionError(
                f"statistics of the shapes {center.shape} and {mean.shape} cannot be merged",
                remedy="Pass those of environments with the same observations.",
            )
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
