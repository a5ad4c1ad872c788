"""FrozenLake: cross a lake from the start to the goal, without falling into a hole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymnasium.envs.toy_text.frozen_lake import MAPS, FrozenLakeEnv

import arrayferry as af

from .drawing import image_of
from .table import TabularEnv, TabularState, Transitions


class FrozenLake(TabularEnv):
    """Cross a lake without falling into a hole, as in Gymnasium's `FrozenLake-v1`.

    Observations are cell indices, row by row. Actions 0, 1, 2 and 3 are left, down, right and up. The reward is 1 at
    the goal, 0 elsewhere. An episode terminates at the goal and in a hole, and is truncated after 100 steps (200 on
    the map "8x8").

    Args:
        desc: the map: rows of "S" (start), "F" (frozen), "H" (hole) and "G" (goal). None for the map named by
            `map_name`.
        map_name: "4x4" or "8x8".
        is_slippery: whether moves at right angles happen too.
        success_rate: the probability of the chosen move, if it is slippery.
        reward_schedule: the rewards at the goal, in a hole, and elsewhere.
        masks: as for `TabularEnv`.

    Raises:
        arrayferry.OptionError: an option is invalid.

    Examples:
        >>> from arrayferry_classic import FrozenLake
        >>> envs = FrozenLake(["SF", "HG"], is_slippery=False).make_vec(2, xp="jax")
        >>> envs.reset(seed=1)[0].tolist(), envs.step([2, 1])[0].tolist()
        ([0, 0], [1, 2])
    """

    max_episode_steps: int | None = 100
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(
        self,
        desc: Iterable[str] | None = None,
        map_name: str = "4x4",
        is_slippery: bool = True,
        success_rate: float = 1.0 / 3.0,
        reward_schedule: tuple[float, float, float] = (1.0, 0.0, 0.0),
        *,
        masks: bool = False,
    ) -> None:
        if desc is None and map_name not in MAPS:
            raise af.OptionError(
                f"map_name={map_name!r}", remedy='Pass "4x4" or "8x8", or a map as desc.'
            )
        cells = tuple(map(str, MAPS[map_name] if desc is None else desc))
        self.desc: tuple[str, ...] = cells
        letters = "".join(cells)
        if len(set(map(len, cells))) != 1 or set(letters) - set("SFHG") or "S" not in letters:
            raise af.OptionError(
                f"desc={cells!r:.80} is not a map",
                remedy='Pass rows of one length, of the letters "SFHG", with an "S".',
            )
        if not 0 <= success_rate <= 1:
            raise af.OptionError(f"success_rate={success_rate!r}", remedy="Pass a probability.")
        goal, hole, elsewhere = map(float, reward_schedule)
        rewards = {"G": goal, "H": hole}
        rows: list[Any] = [*map(list, cells)]
        moves = FrozenLakeEnv(desc=rows, is_slippery=False).P
        slips = (1 - success_rate) / 2
        turns = {-1: slips, 0: 1 - 2 * slips, 1: slips} if is_slippery else {0: 1.0}

        def outcome(state: int, action: int, chance: float) -> tuple[float, int, float, bool]:
            _, after, _, terminated = moves[state][action % 4][0]
            return chance, after, rewards.get(letters[after], elsewhere), terminated

        table = dict(moves)  # of the cells where an episode ends
        for state, letter in enumerate(letters):
            if letter not in rewards:
                table[state] = {
                    action: [outcome(state, action + turn, p) for turn, p in turns.items()]
                    for action in range(4)
                }
        starts = [index for index, letter in enumerate(letters) if letter == "S"]
        limit = 200 if desc is None and map_name == "8x8" else 100
        super().__init__(Transitions.of(table, starts), max_episode_steps=limit, masks=masks)

    def render(self, state: TabularState, index: int) -> Any:
        """Draw it as Gymnasium does. This needs pygame."""
        return image_of(
            FrozenLakeEnv(render_mode="rgb_array", desc=list(self.desc)),
            s=int(state.number[index]),
        )


class FrozenLake8x8(FrozenLake):
    """`FrozenLake` on the map "8x8", for an id without options."""

    max_episode_steps: int | None = 200

    def __init__(self) -> None:
        super().__init__(map_name="8x8")
