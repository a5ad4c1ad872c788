"""The results of evaluations."""

from __future__ import annotations

from typing import Generic, NamedTuple

from arrayferry_gym.typing import ArrT


class Evaluation(NamedTuple, Generic[ArrT]):
    """The episodes of an evaluation: `episodes` in each of `n` environments.

    Compiled code returns arrays of JAX, whose sums are in float32, or in the dtype of the rewards if that is wider. Otherwise
    they are arrays of NumPy, whose sums are in float64.

    Attributes:
        returns: the sums of the rewards, (n, episodes).
        discounted_returns: the same, each reward multiplied by the discount to the power of the number of steps
            before it.
        lengths: the numbers of steps, int32 (n, episodes).
        terminated: whether each has terminated, bool (n, episodes).
        truncated: whether each has been truncated, bool (n, episodes).
    """

    returns: ArrT
    discounted_returns: ArrT
    lengths: ArrT
    terminated: ArrT
    truncated: ArrT
