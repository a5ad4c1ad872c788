"""The ids of the reference environments, registered without importing the environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

_LIMITS: dict[str, int | None] = {
    "classic.cart_pole:CartPole": 500,
    "classic.pendulum:Pendulum": 200,
}
REFERENCE = {f"arrayferry_envs.{name}": limit for name, limit in _LIMITS.items()}
"""The step limits of the reference environments by the paths of their classes."""


def register_all() -> None:
    """Register the reference environments, and an id whose option `name` is the id of an environment of a suite."""
    for path, limit in REFERENCE.items():
        register_id(f"arrayferry/{path.partition(':')[2]}-v0", path, limit)
    gym.register(
        "arrayferry/Suite-v0",
        entry_point="arrayferry_envs.registration:_of_suite",
        vector_entry_point="arrayferry_envs.registration:_batch_of_suite",
        order_enforce=False,
        disable_env_checker=True,
    )


def register_id(env_id: str, env: Any, limit: int | None, **options: Any) -> None:
    """Register an environment with Gymnasium.

    Args:
        env_id: the id for `gymnasium.make`.
        env: the class, or its path "package.module:Class".
        limit: the number of steps after which an episode is truncated, or None for no limit.
        **options: default options of the environment, such as `params`.
    """
    creator_name = "_single" if limit is None else "_unlimited"
    gym.register(
        env_id,
        entry_point=f"arrayferry_envs.registration:{creator_name}",
        vector_entry_point="arrayferry_envs.registration:_vector",
        max_episode_steps=limit,
        order_enforce=False,
        disable_env_checker=True,
        kwargs={"functional": env, **options},
    )
