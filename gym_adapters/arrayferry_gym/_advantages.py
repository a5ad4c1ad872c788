"""Generalised advantage estimation, for arrays of any library."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import arrayferry as af
from arrayferry._utilities.options import factor_of
from arrayferry.extending import dtype_name
from arrayferry.typing import AnyArray, AnyTree, Namespace

from ._arrays import as_flags, to_shape


def advantages(
    rewards: AnyArray,
    values: AnyTree,
    next_values: Any,
    terminated: AnyArray = None,
    truncated: AnyArray = None,
    *,
    gamma: Any,
    lam: Any,
    counts: Any = None,
) -> Any:
    """Return generalised advantage estimates.

    The error of a step is `reward + gamma * next_value - value`, without `next_value` where the episode terminated. The
    advantage of a step is the sum of its error and the later errors of its episode, where the error `k` steps later is
    multiplied by `(gamma * lam) ** k`. If an episode is truncated, or continues after the last step of the arrays, the
    value of its last observation replaces later rewards. See formulas (11), (12) and (16) of Schulman et al.,
    "High-Dimensional Continuous Control Using Generalized Advantage Estimation" (2016).

    The arrays may be of different libraries, and are converted to the library of `values`. In JAX, the sum is computed
    by `scan`, and the function works inside `jit`. Gradients pass through rewards and values. To prevent this, detach
    rewards and values.

    With `lam=1.0`, the advantages plus `values` are the discounted returns.

    Args:
        rewards: the rewards, of shape (time, environment, ...), with further axes for several rewards per step. They
            are cast to the dtype of the values. Instead of rewards and flags, you can pass the steps of a `rollout` or
            a `Collector`.
        values: the values of the observations before the steps, as floats in the shape of the rewards.
        next_values: the values of the observations after the steps and before any reset, in the shape of the rewards.
        terminated: whether the episode terminated, of shape (time, environment).
        truncated: whether the episode was truncated, of shape (time, environment).
        gamma: the discount factor, as a number, or as an array with a factor for each of several rewards.
        lam: the weight of later errors (lambda), as a number, or as an array with a weight for each of several rewards.
        counts: True for each step that counts, of shape (time, environment), or None if all steps count. A step that
            does not count, such as a step that only resets in NEXT_STEP mode, has the advantage 0. Leave it out of a
            loss.

    Returns:
        The advantages, in the shape, dtype and library of `values`.

    Raises:
        arrayferry.OptionError: shapes do not match, values are not floating-point, flags are missing or not 0 and 1, or
            `gamma` or `lam` is not between 0 and 1.

    Examples:
        >>> import numpy as np
        >>> from arrayferry_gym import advantages
        >>> rewards, values, after = np.ones((3, 1)), np.zeros((3, 1)), np.full((3, 1), 10.0)
        >>> never, at_the_end = np.zeros((3, 1), bool), np.array([[False], [False], [True]])
        >>> advantages(rewards, values, after, at_the_end, never, gamma=0.5, lam=0.0)[:, 0].tolist()
        [6.0, 6.0, 1.0]
        >>> advantages(rewards, values, after, never, at_the_end, gamma=0.5, lam=0.0)[:, 0].tolist()
        [6.0, 6.0, 6.0]
    """
    if hasattr(rewards, "reward") and hasattr(rewards, "terminated"):
        if terminated is not None or truncated is not None:
            raise af.OptionError(
                "advantages was given flags together with steps, which have flags",
                remedy="Leave out terminated and truncated, or pass an array of rewards instead of the steps.",
            )
        rewards, terminated, truncated = rewards.reward, rewards.terminated, rewards.truncated
    if terminated is None or truncated is None:
        raise af.OptionError(
            "advantages needs terminated and truncated", remedy="Pass both flags of each step."
        )
    gamma, lam = factor_of("gamma", gamma), factor_of("lam", lam)
    shape = tuple(getattr(values, "shape", ()))
    if not shape or "float" not in dtype_name(values.dtype):
        raise af.OptionError(
            f"values={values!r:.80} is not an array of floats with a time axis",
            remedy="Pass the values of the observations, of shape (time, environment).",
        )
    arguments = [rewards, next_values, terminated, truncated, gamma, lam, counts]
    for x in (values, *arguments):
        array, backend = af.first_array(x)
        is_sparse = backend is not None and backend.is_sparse(array)
        is_real = "complex" not in dtype_name(getattr(x, "dtype", ""))
        if is_sparse or not is_real or isinstance(x, np.ma.MaskedArray):
            raise af.OptionError(
                f"advantages takes no masked, sparse or complex arrays, but got {x!r:.80}",
                remedy="Fill masked entries, and convert sparse arrays to dense and complex arrays to real ones.",
            )
    rewards, next_values, terminated, truncated, gamma, lam, counts = (
        x if x is None or isinstance(x, float) else af.convert(x, like=values) for x in arguments
    )
    xp = af.namespace_of(values)
    _check_shape("rewards", rewards, shape)
    _check_shape("next_values", next_values, shape)
    for name, x in (("terminated", terminated), ("truncated", truncated), ("counts", counts)):
        if x is not None:
            _check_shape(name, x, shape[: max(len(getattr(x, "shape", ())), min(len(shape), 2))])
            if as_flags(x) is not x and _is_read(x != 0) and bool(xp.any((x != 0) & (x != 1))):
                raise af.OptionError(
                    f"{name} has numbers other than 0 and 1: {x!r:.80}", remedy="Pass booleans."
                )
    for name, x in (("gamma", gamma), ("lam", lam)):
        if getattr(x, "shape", ()):
            _check_shape(name, x, shape[2:])
    terminated, truncated = as_flags(terminated), as_flags(truncated)
    rewards, next_values, gamma, lam = (
        x if isinstance(x, float) else _cast(xp, x, values.dtype)
        for x in (rewards, next_values, gamma, lam)
    )
    # `where`, not a product, since the value after an episode may be NaN, and 0 * NaN is NaN
    values_after = xp.where(to_shape(xp, terminated, shape), xp.zeros_like(values), next_values)
    errors, goes_on = rewards + gamma * values_after - values, ~(terminated | truncated)
    if counts is not None:
        counts = as_flags(counts)
        errors = xp.where(to_shape(xp, counts, shape), errors, xp.zeros_like(errors))
        goes_on = goes_on & counts
    return _sums(xp, errors, to_shape(xp, goes_on, shape), gamma * lam)


def _is_read(x: AnyArray) -> bool:
    """Tell whether the numbers of an array can be read. Lazy and traced arrays have no numbers yet."""
    backend: Any = af.first_array(x)[1]
    return backend.memory != "lazy" and not backend.is_traced(x)


def _cast(xp: Namespace, x: AnyArray, dtype: Any) -> Any:
    """Cast an array to another dtype.

    Raises:
        arrayferry.OptionError: a finite number is out of range. Lazy and traced arrays are not checked.
    """
    with np.errstate(over="ignore", under="ignore"):
        cast = xp.astype(x, dtype)
    finite = xp.isfinite(x) if "float" in dtype_name(x.dtype) else True
    if x.dtype != dtype and _is_read(cast) and bool(xp.any(xp.isinf(cast) & finite)):
        raise af.OptionError(
            f"a number of {x!r:.80} does not fit {dtype}, the dtype of the values",
            remedy="Scale the rewards down, or cast the values to a wider dtype.",
        )
    return cast


def _check_shape(name: str, x: AnyArray, needed: tuple[int, ...]) -> None:
    """Check the shape of an array.

    Raises:
        arrayferry.OptionError: the shape is not `needed`.
    """
    if tuple(getattr(x, "shape", ())) != needed:
        raise af.OptionError(
            f"{name} has the shape {tuple(getattr(x, 'shape', ()))}, but for these values {needed} is needed",
            remedy="Pass all arrays as (time, environment). Pass next_values separately, one for each observation after a step. "
            "Rewards and values need the same further axes: [..., 0] removes the last axis of (time, environment, 1).",
        )


def _sums(xp: Namespace, errors: Any, goes_on: Any, factor: Any) -> Any:
    """Return the advantages: for each step, the weighted sum of its error and the later errors of its episode."""
    if not errors.shape[0]:
        return errors
    step_back, state = _back(xp), (xp.zeros_like(errors[0, ...]), factor)
    if xp.__name__.startswith("jax"):
        import jax

        return jax.lax.scan(step_back, state, (errors, goes_on), reverse=True)[1]
    totals = []
    for t in reversed(range(errors.shape[0])):
        state, total = step_back(state, (errors[t, ...], goes_on[t, ...]))
        totals.append(total)
    return xp.stack(totals[::-1])


@functools.cache
def _back(xp: Namespace) -> Any:
    """Return a function that computes the advantage of a step from its error and the advantage of the next step.

    The function is cached, since JAX would compile the loop again for a new function.
    """

    def back(state: tuple[Any, Any], now: tuple[Any, Any]) -> tuple[tuple[Any, Any], Any]:
        (later_adv, factor), (error, goes_on) = state, now
        advantage = error + xp.where(goes_on, factor * later_adv, xp.zeros_like(later_adv))
        return (advantage, factor), advantage

    return back
