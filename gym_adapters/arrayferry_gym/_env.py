"""Adapters for `gymnasium.Env`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

import arrayferry as af

from ._actions import as_space_means
from ._sides import Sides, Target

__all__ = ["ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch"]


class ArrayConversion(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Lets an environment written for one array library serve an agent written for another.

    Observations and infos are converted to the agent's library, actions to the environment's. The
    reward is a `float`, terminated and truncated are `bool`, and what `render` gives stays as it is.

    Args:
        env: the environment.
        env_xp: what the environment speaks, as a name ("jax") or namespace. None: seen in what it
            returns.
        target_xp: what the agent speaks. None: seen in the actions that it passes.
        env_device: where actions shall lie, None for the environment's default.
        target_device: where observations and infos shall lie, None to keep their device.
        copy: as in `arrayferry.convert`.
        narrowing: as in `arrayferry.convert`.
        scalars: as in `arrayferry.convert`; "keep" leaves numbers in infos alone.

    Raises:
        arrayferry.ArrayFerryError: a library or a device is unknown or not usable here.

    Example:
        >>> import gymnasium as gym
        >>> from arrayferry_gym import ArrayConversion
        >>> env = ArrayConversion(gym.make("CartPole-v1"), target_xp="torch")
        >>> observation, info = env.reset(seed=1)
        >>> observation.dtype
        torch.float32
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        env_xp: Target | None = None,
        target_xp: Target | None = None,
        env_device: Any = None,
        target_device: Any = None,
        *,
        copy: bool | None = None,
        narrowing: str = "checked",
        scalars: str = "keep",
    ) -> None:
        given = {
            "env_xp": None if env_xp is None else af.registry.backend(env_xp).name,
            "target_xp": None if target_xp is None else af.registry.backend(target_xp).name,
            "env_device": _spelled(env_device),
            "target_device": _spelled(target_device),
            "copy": copy,
            "narrowing": narrowing,
            "scalars": scalars,
        }
        RecordConstructorArgs.__init__(self, **given)
        gym.Wrapper.__init__(self, env)
        options = {"copy": copy, "narrowing": narrowing, "scalars": scalars}
        self._sides = Sides(env.metadata, env_xp, target_xp, env_device, target_device, **options)

    @property
    def env_backend(self) -> af.Backend:
        """What the environment speaks, as far as is known now."""
        return self._sides.env_backend

    @property
    def target_backend(self) -> af.Backend | None:
        """What the agent speaks, None before it has been seen."""
        return self._sides.target_backend

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; `options` are converted to what it speaks."""
        if options:
            options = self._sides.to_env(options)
        observation, info = self.env.reset(seed=seed, options=options)
        return self._sides.to_agent((observation, info))  # type: ignore[no-any-return]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step with an action of any library."""
        action = self._sides.to_env(action)
        if self._sides.env_backend.name == "numpy":
            action = as_space_means(action, self.env.action_space)
        observation, reward, terminated, truncated, info = self.env.step(action)
        observation, info = self._sides.to_agent((observation, info))
        return observation, float(reward), bool(terminated), bool(truncated), info


def _spelled(device: Any) -> Any:
    return device if device is None or isinstance(device, str) else str(device)


class JaxToNumpy(ArrayConversion):
    """Lets an environment written for JAX serve an agent written for NumPy.

    Args:
        env: the environment.
        **options: `copy`, `narrowing` and `scalars`, as in `ArrayConversion`.
    """

    def __init__(self, env: gym.Env[Any, Any], **options: Any) -> None:
        super().__init__(env, "jax", "numpy", **options)
        self._saved_kwargs = options


class JaxToTorch(ArrayConversion):
    """Lets an environment written for JAX serve an agent written for PyTorch.

    Args:
        env: the environment.
        device: where observations and infos shall lie.
        **options: `copy`, `narrowing` and `scalars`, as in `ArrayConversion`.
    """

    def __init__(self, env: gym.Env[Any, Any], device: Any = None, **options: Any) -> None:
        super().__init__(env, "jax", "torch", target_device=device, **options)
        self._saved_kwargs = {"device": _spelled(device), **options}


class NumpyToTorch(ArrayConversion):
    """Lets an environment written for NumPy serve an agent written for PyTorch.

    Args:
        env: the environment.
        device: where observations and infos shall lie.
        **options: `copy`, `narrowing` and `scalars`, as in `ArrayConversion`.
    """

    def __init__(self, env: gym.Env[Any, Any], device: Any = None, **options: Any) -> None:
        super().__init__(env, "numpy", "torch", target_device=device, **options)
        self._saved_kwargs = {"device": _spelled(device), **options}
