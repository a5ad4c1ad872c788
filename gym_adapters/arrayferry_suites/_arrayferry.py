"""The environments of `arrayferry_envs`."""

from __future__ import annotations

from typing import Any

from arrayferry_envs import CartPole, Pendulum

_ENVS: dict[str, Any] = {"CartPole-v0": CartPole, "Pendulum-v0": Pendulum}


def ids() -> list[str]:
    """Return the names of the environments."""
    return list(_ENVS)


def load(name: str) -> Any:
    """Return the class of an environment."""
    return _ENVS[name]
