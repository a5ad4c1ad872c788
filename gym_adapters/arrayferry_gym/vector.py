"""Adapters for `gymnasium.vector.VectorEnv`, under the same names as those for single environments."""

from __future__ import annotations

from typing import Any

from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper

import arrayferry as af

from ._env import _spelled
from ._sides import Sides, Target

__all__ = ["ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch"]


class ArrayConversion(VectorWrapper, RecordConstructorArgs):
    """Lets a vector environment written for one array library serve an agent written for another.

    Observations, rewards, terminations, truncations and infos become the agent's arrays, actions
    the environment's.

    Args:
        env: the vector environment.
        env_xp: what it speaks, as a name ("jax") or namespace. None: seen in what it returns.
        target_xp: what the agent speaks. None: seen in the actions that it passes.
        env_device: where actions shall lie, None for the environment's default.
        target_device: where results shall lie, None to keep their device.
        copy: as in `arrayferry.convert`.
        narrowing: as in `arrayferry.convert`.
        scalars: as in `arrayferry.convert`; "keep" leaves numbers in infos alone.

    Raises:
        arrayferry.ArrayFerryError: a library or a device is unknown or not usable here.

    Example:
        >>> import gymnasium as gym
        >>> from arrayferry_gym.vector import ArrayConversion
        >>> envs = ArrayConversion(gym.make_vec("CartPole-v1", num_envs=2), target_xp="torch")
        >>> observations, infos = envs.reset(seed=1)
        >>> observations.shape
        torch.Size([2, 4])
        >>> envs.close()
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        env_xp: Target | None = None,
        target_xp: Target | None = None,
        env_device: Any = None,
        target_device: Any = None,
        *,
        copy: bool | None = None,
        narrowing: str = "checked",
        scalars: str = "keep",
    ) -> None:
        RecordConstructorArgs.__init__(
            self,
            env_xp=None if env_xp is None else af.registry.backend(env_xp).name,
            target_xp=None if target_xp is None else af.registry.backend(target_xp).name,
            env_device=_spelled(env_device),
            target_device=_spelled(target_device),
            copy=copy,
            narrowing=narrowing,
            scalars=scalars,
        )
        VectorWrapper.__init__(self, env)
        options = {"copy": copy, "narrowing": narrowing, "scalars": scalars}
        metadata = env.metadata or {}
        self._sides = Sides(metadata, env_xp, target_xp, env_device, target_device, **options)

    @property
    def env_backend(self) -> af.Backend:
        """What the environment speaks, as far as is known now."""
        return self._sides.env_backend

    @property
    def target_backend(self) -> af.Backend | None:
        """What the agent speaks, None before it has been seen."""
        return self._sides.target_backend

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments; `options` are converted to what they speak."""
        if options:
            options = self._sides.to_env(options)
        return self._sides.to_agent(self.env.reset(seed=seed, options=options))  # type: ignore[no-any-return]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments, with actions of any library."""
        return self._sides.to_agent(self.env.step(self._sides.to_env(actions)))  # type: ignore[no-any-return]


class JaxToNumpy(ArrayConversion):
    """Lets a vector environment written for JAX serve an agent written for NumPy.

    Args:
        env: the vector environment.
        **options: `copy`, `narrowing` and `scalars`, as in `ArrayConversion`.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], **options: Any) -> None:
        super().__init__(env, "jax", "numpy", **options)
        self._saved_kwargs = options


class JaxToTorch(ArrayConversion):
    """Lets a vector environment written for JAX serve an agent written for PyTorch.

    Args:
        env: the vector environment.
        device: where results shall lie.
        **options: `copy`, `narrowing` and `scalars`, as in `ArrayConversion`.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], device: Any = None, **options: Any) -> None:
        super().__init__(env, "jax", "torch", target_device=device, **options)
        self._saved_kwargs = {"device": _spelled(device), **options}


class NumpyToTorch(ArrayConversion):
    """Lets a vector environment written for NumPy serve an agent written for PyTorch.

    Args:
        env: the vector environment.
        device: where results shall lie.
        **options: `copy`, `narrowing` and `scalars`, as in `ArrayConversion`.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], device: Any = None, **options: Any) -> None:
        super().__init__(env, "numpy", "torch", target_device=device, **options)
        self._saved_kwargs = {"device": _spelled(device), **options}
