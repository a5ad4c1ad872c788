"""The results of evaluations."""

from __future__ import annotations

from typing import Generic, NamedTuple

from arrayferry_gym.typing import ArrT


class Evaluation(NamedTuple, Generic[ArrT]):
    """The results of `episodes` episodes in each of `n` environments.

    Compiled code returns JAX arrays, with sums in float32, or in the dtype of the rewards if that dtype is wider. All
    other results are NumPy arrays, with sums in float64.

    Attributes:
        returns: the sums of the rewards, (n, episodes).
        discounted_returns: the sums of the discounted rewards, (n, episodes). The reward of step t, counted from 0, is
            multiplied by gamma ** t.
        lengths: the numbers of steps, int32 (n, episodes).
        terminated: whether each episode has terminated, bool (n, episodes).
        truncated: whether each episode was truncated, bool (n, episodes).
    """

    returns: ArrT
    discounted_returns: ArrT
    lengths: ArrT
    terminated: ArrT
    truncated: ArrT
