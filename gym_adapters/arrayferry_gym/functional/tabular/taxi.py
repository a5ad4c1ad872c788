"""Taxi: fetch a passenger and drive to the destination."""

from __future__ import annotations

from typing import Any, NamedTuple

import arrayferry as af
from arrayferry_gym.functional._drawing import image_of

from ._grid import Outcome
from .table import TabularEnv, TabularState, Transitions

STANDS = ((0, 0), (0, 4), (4, 0), (4, 3))
WALLS = {(0, 1), (1, 1), (3, 0), (4, 0), (3, 2), (4, 2)}
"""Cells with a wall to their east."""
ABOARD = 4
"""Where the passenger is, if in the taxi."""
SOUTH, NORTH, EAST, WEST = (1, 0), (-1, 0), (0, 1), (0, -1)
MOVES = (SOUTH, NORTH, EAST, WEST)
SIDES = {SOUTH: (EAST, WEST), NORTH: (WEST, EAST), EAST: (NORTH, SOUTH), WEST: (SOUTH, NORTH)}


def _number(row: int, column: int, passenger: int, destination: int) -> int:
    return ((row * 5 + column) * 5 + passenger) * 4 + destination


def _moved(cell: tuple[int, int], move: tuple[int, int]) -> tuple[int, int]:
    """Return the cell that a move leads to, the same one at a wall."""
    row, column = cell[0] + move[0], cell[1] + move[1]
    west = (row, min(column, cell[1]))
    walled = move in (EAST, WEST) and west in WALLS
    return cell if walled or not (0 <= row < 5 and 0 <= column < 5) else (row, column)


def _outcomes(
    cell: tuple[int, int], passenger: int, destination: int, action: int, straight: float
) -> list[Outcome]:
    """Return the outcomes of an action."""

    def at(cell: tuple[int, int], passenger: int = passenger) -> int:
        return _number(*cell, passenger, destination)

    if action < 4:
        move = MOVES[action]
        ahead = _moved(cell, move)
        if ahead == cell or straight == 1:
            return [(1.0, at(ahead), -1.0, False)]
        left, right = (_moved(cell, side) for side in SIDES[move])
        aside = (1 - straight) / 2
        return [
            (straight, at(ahead), -1.0, False), (aside, at(left), -1.0, False), (aside, at(right), -1.0, False)
        ]  # fmt: skip
    if action == 4 and passenger != ABOARD and cell == STANDS[passenger]:
        return [(1.0, at(cell, ABOARD), -1.0, False)]
    if action == 5 and passenger == ABOARD and cell in STANDS:
        stand = STANDS.index(cell)
        arrived = stand == destination
        return [(1.0, at(cell, stand), 20.0 if arrived else -1.0, arrived)]
    return [(1.0, at(cell), -10.0, False)]


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
        >>> from arrayferry_gym.functional import Taxi
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
        straight = rainy_probability if is_rainy else 1.0
        cells = [(row, column) for row in range(5) for column in range(5)]
        states = [(cell, p, d) for cell in cells for p in range(5) for d in range(4)]
        table = {
            _number(*cell, p, d): {a: _outcomes(cell, p, d, a, straight) for a in range(6)}
            for cell, p, d in states
        }
        starts = [_number(*cell, p, d) for cell, p, d in states if p not in (ABOARD, d)]
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
        return image_of("toy_text.TaxiEnv", s=int(state.number[index]))
