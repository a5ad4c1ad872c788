"""Environments of MuJoCo Playground."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ._brax import adapt

__all__ = ["adapt", "ids", "load"]


def _registry() -> Any:
    return import_module("mujoco_playground").registry


def ids() -> list[str]:
    """Return the names that MuJoCo Playground lists."""
    return list(_registry().ALL_ENVS)


def load(name: str, *, randomization_fn: Any = None, **options: Any) -> Any:
    """Make an environment."""
    return adapt(_registry().load(name, **options), randomization_fn)
