"""Texts for errors about actions that do not fit their space: a description of the value, its path, and a hint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from arrayferry.typing import AnyTree


@dataclass(slots=True)
class Place:
    """A path into a value that the user passed, and the part of the value at this path.

    Args:
        value: the part at this path or, if the path does not exist, the innermost part that exists.
        path: the path as text, such as `"['a'][0]"`, or `""` for the whole value.
    """

    value: AnyTree
    path: str = ""

    def __getitem__(self, key: Any) -> Place:
        try:
            part = self.value[key]
        except Exception:
            part = self.value
        return Place(part, f"{self.path}[{key!r}]")

    @property
    def clause(self) -> str:
        """The path as the end of a sentence, such as `", at ['a'][0]"`, or `""` for the whole value."""
        return f", at {self.path}" if self.path else ""


def described(value: AnyTree) -> str:
    """Describe a value in a few words for an error message, such as `"of shape (2,) and dtype float32"`."""
    if isinstance(value, (np.ndarray, np.generic)):
        numbers_text = np.array2string(np.asarray(value).ravel(), threshold=6)
        return f"of shape {value.shape} and dtype {value.dtype} with the values {numbers_text}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"of shape {tuple(value.shape)} and dtype {value.dtype}"
    return f"of type {type(value).__name__}: {value!r:.60}"


def likely_mistake(value: AnyTree, space: Any, num_envs: int | None) -> str | None:
    """Return a hint about a mistake that the user probably made, with a remedy. Return None if there is no hint."""
    if isinstance(value, tuple) and len(value) == 2 and not isinstance(space, spaces.Tuple):
        action, extra = value
        if (hasattr(action, "dtype") and getattr(action, "ndim", 0) != 0) or extra is None:
            return (
                "It looks like a pair of an action and something else, such as its log-probability or a "
                "state: pass its first part."
            )
    if isinstance(value, (bool, int, float, list, tuple)):
        try:
            value = np.asarray(value)
        except Exception:  # the value cannot be read as an array
            return None
    shape = getattr(value, "shape", None)
    if shape is None or not hasattr(value, "dtype") or space.shape is None:
        return None
    shape = tuple(shape)
    count = getattr(space, "n", None) if isinstance(space, spaces.Discrete) else None
    batch: tuple[int, ...] = ()
    if isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1 and num_envs is not None:
        batch, count = (num_envs,), int(space.nvec.flat[0])
    if count is not None and shape == (*batch, int(count)) and shape != tuple(space.shape):
        guess = "logits or probabilities" if "float" in str(value.dtype) else "a one-hot code"
        return (
            f"It looks like {guess} of {count} actions: pass the index of one, such as argmax(-1)."
        )
    if num_envs is not None and shape[:1] != (num_envs,):
        return f"Pass one action for each of the {num_envs} environments, along the first axis."
    if num_envs is not None:
        is_int = isinstance(space, (spaces.Discrete, spaces.MultiDiscrete))
        return "Cast it to an integer dtype." if is_int and "float" in str(value.dtype) else None
    if len(shape) == len(space.shape) + 1 and shape[1:] == tuple(space.shape):
        return "It has one axis too many, like a batch of actions: pass one action, such as x[0]."
    return None
