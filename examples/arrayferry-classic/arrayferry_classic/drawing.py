"""Images, drawn by Gymnasium's own environments, which need pygame."""

from __future__ import annotations

from typing import Any


def image_of(env: Any, **attributes: Any) -> Any:
    """Return an image of one of Gymnasium's environments.

    Args:
        env: the environment, made with `render_mode="rgb_array"`.
        **attributes: its state.
    """
    env.reset(seed=0)
    for attribute, value in attributes.items():
        setattr(env, attribute, value)
    return env.render()  # close() would shut down pygame for the whole process
