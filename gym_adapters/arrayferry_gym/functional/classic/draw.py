"""Images, drawn by Gymnasium's own environments, which need pygame."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["drawn"]


def drawn(name: str, state: Any, index: int, **attributes: Any) -> Any:
    """Return an image of a state of one of Gymnasium's environments.

    Args:
        name: its class.
        state: states of ours, whose numbers in order are its attribute `state`.
        index: which of them.
        **attributes: others.
    """
    from gymnasium.envs import classic_control

    env: Any = getattr(classic_control, name)(render_mode="rgb_array")
    env.reset()
    env.state = np.array([float(x[index]) for x in state])
    for attribute, value in attributes.items():
        setattr(env, attribute, value)
    return env.render()  # close() would end pygame for everybody in this process
