"""Every form in which agents pass an action, and what the rule for actions says of it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

import arrayferry as af

RIGHT, WRONG, PASSED_ON = "right", "wrong", "passed on"
ARRAYS = (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)


def forms(
    space: Any, action: Any, *, num_envs: int | None = None
) -> Iterator[tuple[str, str, Any]]:
    """Yield the name of a form, what the rule says, and the action in it.

    Args:
        space: the space, of one environment or of the batch.
        action: one of it, as NumPy has it.
        num_envs: how many environments, None for a single one.
    """
    import jax.numpy as jnp
    import torch

    if isinstance(space, spaces.Dict):
        yield "canonical", RIGHT, action
        yield "a further key", PASSED_ON, {**action, "further": np.ones(2)}
        if len(action) > 1:
            yield "a missing key", WRONG, dict(list(action.items())[1:])
        yield "text", WRONG, "left"
        for key, part in space.spaces.items():
            if isinstance(part, (*ARRAYS, spaces.Discrete)):
                for name, what, value in forms(part, action[key], num_envs=num_envs):
                    if name != "none":
                        yield f"{key}: {name}", what, {**action, key: value}
        return
    if isinstance(space, spaces.Tuple):
        yield "canonical", RIGHT, action
        yield "a list", RIGHT, list(action)
        yield "a part too few", WRONG, tuple(action)[1:]
        return
    if not isinstance(space, (*ARRAYS, spaces.Discrete)):
        yield "canonical", RIGHT, action
        return
    x = np.asarray(action)
    yield "canonical", RIGHT, action
    yield "a list", RIGHT, x.tolist()
    yield "a tensor", RIGHT, torch.as_tensor(x)
    if x.dtype != np.float64 or np.array_equal(x, x.astype(np.float32)):  # else JAX rounds it
        yield "an array of JAX", RIGHT, jnp.asarray(x)
    yield "objects", RIGHT, x.astype(object)
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        yield "float64", RIGHT, x.astype(np.float64)
        yield "float32", RIGHT, x.astype(np.float32)
    else:
        yield "floats", RIGHT, x.astype(np.float64)
        yield "int64", RIGHT, x.astype(np.int64)
        yield "int32", RIGHT, x.astype(np.int32)
    yield "text", WRONG, "left"
    yield "complex", WRONG, x.astype(np.complex64)
    if num_envs is None:
        yield "none", RIGHT, None
    yield from shapes(space, x, num_envs)
    if isinstance(space, spaces.Box):
        yield from beyond(space, x)
    else:
        yield from out_of_range(space, x)


def shapes(space: Any, x: np.ndarray, num_envs: int | None) -> Iterator[tuple[str, str, Any]]:
    """Yield forms that differ in shape."""
    box, discrete = isinstance(space, spaces.Box), isinstance(space, spaces.Discrete)
    if num_envs is not None:
        yield "an axis at the end", RIGHT, x[..., None]
        yield "an axis in front", WRONG if num_envs > 1 else RIGHT, x[None]
        yield "one environment too few", WRONG, x[1:]
        yield "one environment too many", WRONG, np.concatenate([x, x[:1]])
        yield "for one environment", WRONG, x[0]
        if isinstance(space, spaces.MultiDiscrete) and x.ndim == 1:
            count = int(space.nvec[0])
            yield "logits", WRONG, np.zeros((num_envs, max(count, 2)), np.float32)
        return
    if discrete:
        yield "one element", RIGHT, np.asarray([x.item()])
        yield "a column", RIGHT, np.asarray([[x.item()]])
        yield "logits", WRONG, np.linspace(0, 1, max(int(space.n), 2), dtype=np.float32)
        yield "one-hot", WRONG, np.eye(max(int(space.n), 2), dtype=np.int64)[0]
        return
    if x.shape:
        yield "a row", RIGHT, x[None]
        yield "a column", RIGHT, x[..., None]
    if x.size > 1:
        yield "a number", WRONG, x.flat[0]
        yield "one element too few", WRONG, x.ravel()[:-1]
        further = np.concatenate([x.ravel(), x.ravel()[:1]])
        yield "one element too many", PASSED_ON if box else WRONG, further
        yield "twice", PASSED_ON if box else WRONG, np.stack([x, x])
    elif box and x.shape:
        yield "a number", RIGHT, x.item()


def beyond(space: Any, x: np.ndarray) -> Iterator[tuple[str, str, Any]]:
    """Yield numbers beyond a Box. An environment may do with them what it likes, so none is compared."""
    wide = x.astype(np.float64 if space.dtype.kind == "f" else np.int64)
    yield "out of bounds", RIGHT, wide * 0 + 1_000
    if space.dtype.kind == "f":
        yield "nan", RIGHT, x * np.nan


def out_of_range(space: Any, x: np.ndarray) -> Iterator[tuple[str, str, Any]]:
    """Yield numbers that a space of whole numbers does not have."""
    if isinstance(space, spaces.MultiBinary):
        first, last = 0, 1
    elif isinstance(space, spaces.Discrete):
        first, last = int(space.start), int(space.start + space.n) - 1
    else:
        first, last = int(space.start.flat[0]), int((space.start + space.nvec).flat[0]) - 1
    whole = x.astype(np.int64)
    for name, number in (("above the range", last + 1), ("below the range", first - 1)):
        wrong = whole.copy()
        wrong[(0,) * wrong.ndim] = number
        yield name, WRONG, wrong
    yield "fractional", WRONG, x.astype(np.float64) + 0.5


UNCOMPARED = ("out of bounds", "nan", "none")
"""Forms whose results depend on the environment alone."""


def numbers(*results: Any) -> list[np.ndarray]:
    """Return the arrays and numbers of what a step has returned, as NumPy arrays."""
    found = af.convert(results, "numpy", scalars="convert")
    return [np.asarray(x) for x in af.flatten(found, everything=True)[0]]


def alike(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    """Tell whether the numbers of two steps are the same."""
    return len(found) == len(expected) and all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f" == b.dtype.kind)
        for a, b in zip(found, expected, strict=True)
    )
