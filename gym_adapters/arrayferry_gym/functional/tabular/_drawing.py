"""Images, drawn by Gymnasium's own environments, which need pygame."""

from __future__ import annotations

from typing import Any

__all__ = ["drawn"]


def drawn(name: str, options: dict[str, Any], **attributes: Any) -> Any:
    """Return an image of one of Gymnasium's environments.

    Args:
        name: its class.
        options: of its constructor.
        **attributes: its state.
    """
    from gymnasium.envs import toy_text

    env: Any = getattr(toy_text, name)(render_mode="rgb_array", **options)
    env.reset(seed=0)
    for attribute, value in attributes.items():
        setattr(env, attribute, value)
    return env.render()  # close() would end pygame for everybody in this process
