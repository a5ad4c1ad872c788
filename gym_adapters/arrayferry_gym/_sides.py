"""The two sides of an adapter: what the environment speaks, and what the agent speaks.

Both are either stated, or seen at run time: the environment's in what it returns, and in its
metadata before it has returned anything; the agent's in the action that it passes.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import arrayferry as af
from arrayferry import Backend, Conversion, NotAnArrayError

__all__ = ["Sides", "Target"]

Target = str | ModuleType | Backend


class Sides:
    """Converts between an environment and its agent.

    Args:
        metadata: the environment's, looked at before it has returned anything.
        env_xp: what the environment speaks, None to see it at run time.
        target_xp: what the agent speaks, None to see it in its actions.
        env_device: where the environment's arrays shall lie.
        target_device: where the agent's arrays shall lie.
        options: the options `copy`, `narrowing` and `scalars` of `arrayferry.convert`.

    Raises:
        arrayferry.ArrayFerryError: a side or a device is unknown or not usable here.
    """

    def __init__(
        self,
        metadata: dict[str, Any],
        env_xp: Target | None,
        target_xp: Target | None,
        env_device: Any,
        target_device: Any,
        **options: Any,
    ) -> None:
        self._options = options
        self._env_device = env_device
        self._target_device = target_device
        self._env_stated = env_xp is not None
        self._target_stated = target_xp is not None
        if env_xp is None:
            env_xp = "jax" if metadata.get("jax", False) else "numpy"
        self._env = self._conversion(env_xp, env_device)
        self._target = None if target_xp is None else self._conversion(target_xp, target_device)

    def _conversion(self, to: Target, device: Any) -> Conversion:
        return af.converter(to, device=device, **self._options)

    @property
    def env_backend(self) -> Backend:
        """What the environment speaks, as far as is known now."""
        return self._env.target

    @property
    def target_backend(self) -> Backend | None:
        """What the agent speaks, None before it has been seen."""
        return None if self._target is None else self._target.target

    def to_env(self, value: Any) -> Any:
        """Convert what the agent passes; what it speaks is seen in it, if that was not stated."""
        if not self._target_stated:
            spoken = _first_backend(value)
            if spoken is not None and (
                self._target is None or spoken.name != self._target.target.name
            ):
                self._target = self._conversion(spoken, self._target_device)
        return self._env(value)

    def to_agent(self, value: Any) -> Any:
        """Convert what the environment returns; what it speaks is seen in it, if that was not stated."""
        if not self._env_stated:
            spoken = _first_backend(value)
            if spoken is not None and spoken.name != self._env.target.name:
                self._env = self._conversion(spoken, self._env_device)
        return value if self._target is None else self._target(value)


def _first_backend(value: Any) -> Backend | None:
    try:
        return af.backend_of(value)
    except NotAnArrayError:
        pass
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            found = _first_backend(item)
            if found is not None:
                return found
    return None
