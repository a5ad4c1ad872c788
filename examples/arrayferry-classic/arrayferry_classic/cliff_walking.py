"""CliffWalking: walk along a cliff to the goal."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.toy_text import CliffWalkingEnv

from .drawing import image_of
from .table import TabularEnv, TabularState, Transitions


class CliffWalking(TabularEnv):
    """Walk along a cliff to the goal, as in Gymnasium's `CliffWalking-v1`.

    Observations are cell indices in the 4 rows of 12, row by row. Actions 0, 1, 2 and 3 are up, right, down and
    left. The reward is -1, and -100 for a step off the cliff, which leads back to the start. An episode terminates
    at the goal.

    Source: Sutton and Barto, Reinforcement Learning: An Introduction, 2nd edition, 2018, example 6.6.

    Args:
        is_slippery: whether each of the two moves at right angles is as likely as the chosen one.
        masks: as for `TabularEnv`.

    Examples:
        >>> from arrayferry_classic import CliffWalking
        >>> envs = CliffWalking().make_vec(2)
        >>> envs.reset()[0], envs.step([0, 1])[1]
        (array([36, 36]), array([  -1., -100.], dtype=float32))
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, is_slippery: bool = False, *, masks: bool = False) -> None:
        env = CliffWalkingEnv(is_slippery=is_slippery)
        starts = np.flatnonzero(env.initial_state_distrib)
        super().__init__(Transitions.of(env.P, starts), masks=masks)

    def render(self, state: TabularState, index: int) -> Any:
        """Draw it as Gymnasium does. This needs pygame."""
        return image_of(CliffWalkingEnv(render_mode="rgb_array"), s=int(state.number[index]))


class CliffWalkingSlippery(CliffWalking):
    """`CliffWalking` on slippery ground, for an id without options."""

    def __init__(self) -> None:
        super().__init__(is_slippery=True)
