"""`ClassicEnv`: environments whose images are drawn by environments of Gymnasium, with pygame."""

from __future__ import annotations

from typing import Any

import numpy as np

from arrayferry.typing import AnyTree, Namespace

from ._contract.functional_env import FunctionalEnv


class ClassicEnv(FunctionalEnv):
    """An environment of classic control. Its states are named tuples of arrays (n,).

    Attributes:
        drawn_by: the class name of the environment of Gymnasium that has the same states, and draws the images.
    """

    drawn_by: str
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}

    def observe(self, xp: Namespace, state: AnyTree, params: AnyTree) -> Any:
        """Return the fields of the states as columns of one array."""
        return xp.stack(list(state), axis=1)

    def render(self, state: AnyTree, index: int) -> Any:
        """Draw environment `index` as Gymnasium does, but without the last action. Drawing needs pygame."""
        from gymnasium.envs import classic_control

        gymnasium_env: Any = getattr(classic_control, self.drawn_by)(render_mode="rgb_array")
        gymnasium_env.reset(seed=0)
        gymnasium_env.state = np.array([float(x[index]) for x in state])
        return gymnasium_env.render()  # env.close() would shut down pygame for the whole process
