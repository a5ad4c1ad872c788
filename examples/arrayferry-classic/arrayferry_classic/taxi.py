"""Taxi: fetch a passenger and drive to the destination."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.envs.toy_text import TaxiEnv

import arrayferry as af

from .drawing import image_of
from .table import TabularEnv, TabularState, Transitions

ABOARD = 4
"""Where the passenger is, if in the taxi."""
SIDES = {0: (2, 3), 1: (3, 2), 2: (1, 0), 3: (0, 1)}
"""The moves to the left and to the right of south, north, east and west."""


def _rainy(table: Any, straight: float) -> Any:
    """Return a table in which moves to another cell may drift sideways."""
    aside = (1 - straight) / 2
    rainy = {}
    for state, outcomes in table.items():
        rainy[state] = dict(outcomes)
        for move, (left, right) in SIDES.items():
            if outcomes[move][0][1] != state:
                rainy[state][move] = [
                    (chance, *outcomes[each][0][1:])
                    for each, chance in ((move, straight), (left, aside), (right, aside))
                ]
    return rainy


class TaxiState(NamedTuple):
    """The state of a `Taxi` with fickle passengers: that of `TabularState`, and a bool array of shape (n,).

    Attributes:
        number: the state, int32.
        probability: the probability of the outcome that led there, float32.
        fickle: whether the passenger will change the destination.
    """

    number: Any
    probability: Any
    fickle: Any


class Taxi(TabularEnv):
    """Pick up a passenger and drive to the destination, as in Gymnasium's `Taxi-v4`.

    Observations are ((row * 5 + column) * 5 + passenger) * 4 + destination, where the passenger is at one of four
    stands or in the taxi (4). Actions 0 to 5 are south, north, east, west, pick up and drop off. The reward is -1, -10
    for an illegal pick-up or drop-off, and 20 for a drop-off at the destination, where an episode terminates. It is
    truncated after 200 steps.

    Source: Dietterich, Hierarchical reinforcement learning with the MAXQ value function decomposition, 2000.

    Args:
        is_rainy: whether the taxi may drift sideways.
        fickle_passenger: whether a passenger may change the destination, in the first move after being picked up.
        rainy_probability: the probability of the chosen move, if it rains.
        fickle_probability: the probability that the passenger is fickle.
        masks: as for `TabularEnv`.

    Raises:
        arrayferry.OptionError: an option is invalid.

    Examples:
        >>> from arrayferry_classic import Taxi
        >>> env = Taxi().make()
        >>> observation, info = env.reset(seed=1)
        >>> info["action_mask"].shape
        (6,)
    """

    max_episode_steps: int | None = 200
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(
        self,
        is_rainy: bool = False,
        fickle_passenger: bool = False,
        rainy_probability: float = 0.8,
        fickle_probability: float = 0.3,
        *,
        masks: bool = False,
    ) -> None:
        for name, value in (("rainy", rainy_probability), ("fickle", fickle_probability)):
            if not 0 <= value <= 1:
                raise af.OptionError(f"{name}_probability={value!r}", remedy="Pass a probability.")
        env = TaxiEnv()
        is_wet = is_rainy and rainy_probability < 1
        table = _rainy(env.P, rainy_probability) if is_wet else env.P
        starts = np.flatnonzero(env.initial_state_distrib)
        self.fickle_probability: float | None = (
            float(fickle_probability) if fickle_passenger else None
        )
        super().__init__(Transitions.of(table, starts), max_episode_steps=200, masks=masks)

    def reset(self, xp: Any, rng: Any, n: int, params: Transitions) -> Any:
        """Return initial states."""
        state = super().reset(xp, rng, n, params)
        if self.fickle_probability is None:
            return state
        return TaxiState(*state, fickle=rng.uniform((n,)) < self.fickle_probability)

    def step(
        self, xp: Any, rng: Any, state: Any, action: Any, params: Transitions
    ) -> tuple[Any, Any, Any]:
        """Draw an outcome, and another destination for fickle passengers."""
        after, reward, terminated = super().step(xp, rng, state, action, params)
        if self.fickle_probability is None:
            return after, reward, terminated
        before, number = state.number, after.number
        aboard = (before // 4) % 5 == ABOARD
        changes = state.fickle & aboard & (before // 20 != number // 20)
        others = rng.integers(number.shape, 1, 4)
        number = xp.where(changes, number // 4 * 4 + (number % 4 + others) % 4, number)
        return TaxiState(number, after.probability, state.fickle & ~changes), reward, terminated

    def render(self, state: TabularState, index: int) -> Any:
        """Draw it as Gymnasium does. This needs pygame."""
        return image_of(TaxiEnv(render_mode="rgb_array"), s=int(state.number[index]))
