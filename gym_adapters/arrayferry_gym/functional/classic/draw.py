"""Images, drawn by Gymnasium's own environments, which need pygame."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

__all__ = ["drawn"]


def drawn(name: str, state: Any, **attributes: Any) -> Any:
    """Return an image of a state of one of Gymnasium's environments.

    Args:
        name: its id.
        state: its attribute `state`.
        **attributes: others.
    """
    env: Any = gym.make(name, render_mode="rgb_array").unwrapped
    env.reset()
    env.state = state
    for attribute, value in attributes.items():
        setattr(env, attribute, value)
    try:
        return env.render()
    finally:
        env.close()
