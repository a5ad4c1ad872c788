"""Images, drawn by Gymnasium's own environments, which need pygame."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ._served.base import FunctionalEnv


def image_of(path: str, *, options: dict[str, Any] | None = None, **attributes: Any) -> Any:
    """Return an image of one of Gymnasium's environments.

    Args:
        path: its module and class, in `gymnasium.envs`, such as "toy_text.TaxiEnv".
        options: the arguments of its constructor.
        **attributes: its state.
    """
    module, _, name = path.partition(".")
    made = getattr(importlib.import_module(f"gymnasium.envs.{module}"), name)
    env: Any = made(render_mode="rgb_array", **(options or {}))
    env.reset(seed=0)
    for attribute, value in attributes.items():
        setattr(env, attribute, value)
    return env.render()  # close() would shut down pygame for the whole process


class ClassicEnv(FunctionalEnv):
    """An environment of classic control. Its states are named tuples of numbers.

    Attributes:
        drawn_by: the path of the environment of Gymnasium that has the same states.
    """

    drawn_by: str
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}

    def observe(self, xp: Any, state: Any, params: Any) -> Any:
        """Return the numbers of the state."""
        return xp.stack(list(state), axis=1)

    def render(self, state: Any, index: int) -> Any:
        """Draw it as Gymnasium does, without what depends on the last action. This needs pygame."""
        return image_of(self.drawn_by, state=np.array([float(x[index]) for x in state]))
