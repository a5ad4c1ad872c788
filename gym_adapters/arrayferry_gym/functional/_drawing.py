"""Images, drawn by Gymnasium's own environments, which need pygame."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np


def image_of(place: str, *, options: dict[str, Any] | None = None, **attributes: Any) -> Any:
    """Return an image of one of Gymnasium's environments.

    Args:
        place: its module and class, in `gymnasium.envs`, such as "toy_text.TaxiEnv".
        options: the arguments of its constructor.
        **attributes: its state.
    """
    module, _, name = place.partition(".")
    made = getattr(importlib.import_module(f"gymnasium.envs.{module}"), name)
    env: Any = made(render_mode="rgb_array", **(options or {}))
    env.reset(seed=0)
    for attribute, value in attributes.items():
        setattr(env, attribute, value)
    return env.render()  # close() would end pygame for everybody in this process


def numbers_of(state: Any, index: int) -> Any:
    """Return the numbers of one of several states, in order."""
    return np.array([float(x[index]) for x in state])
