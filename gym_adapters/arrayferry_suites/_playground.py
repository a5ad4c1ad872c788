"""Environments of MuJoCo Playground."""

from __future__ import annotations

from typing import Any

from mujoco_playground import registry

from ._brax import adapt

__all__ = ["adapt", "ids", "load"]


def ids() -> list[str]:
    """Return what MuJoCo Playground lists."""
    return list(registry.ALL_ENVS)


def load(name: str, *, randomization_fn: Any = None, **options: Any) -> Any:
    """Make one."""
    return adapt(registry.load(name, **options), randomization_fn)
