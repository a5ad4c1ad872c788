"""Adapters for `gymnasium.Env`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ._adapter import Adapter, truthful_space
from ._sides import Target

__all__ = ["ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch"]


class ArrayConversion(gym.Wrapper[Any, Any, Any, Any], Adapter):
    """Lets an environment written for one array library serve an agent written for another.

    Observations and infos are converted to the agent's library, actions to what the environment's
    action space means. The reward is a `float`, terminated and truncated are `bool`, and what `render`
    gives stays as it is. The spaces sample, and hold, the agent's arrays.

    Args:
        env: the environment.
        env_xp: what the environment speaks, as a name ("jax") or namespace. None: seen in what it
            returns.
        target_xp: what the agent speaks. None: seen in the actions that it passes.
        env_device: where actions shall lie. None: where the environment's own arrays are seen to lie.
        target_device: where observations and infos shall lie, None to keep their device.
        like: in place of `target_xp` and `target_device`: an array, a module with parameters, an
            Equinox model, or any tree with an array.
        info_xp: what infos are converted to, None for what the agent speaks.
        convert_info: False to leave infos as they are.
        copy: as in `arrayferry.convert`.
        narrowing: as in `arrayferry.convert`.
        scalars: as in `arrayferry.convert`, for infos; "keep" leaves numbers in them alone. In
            observations, numbers become arrays.

    Raises:
        arrayferry.ArrayFerryError: a library or a device is unknown or not usable here.

    Example:
        >>> import gymnasium as gym
        >>> from arrayferry_gym import ArrayConversion
        >>> env = ArrayConversion(gym.make("CartPole-v1"), target_xp="torch")
        >>> observation, info = env.reset(seed=1)
        >>> observation.dtype
        torch.float32
        >>> env.action_space.contains(env.action_space.sample())
        True
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        env_xp: Target | None = None,
        target_xp: Target | None = None,
        env_device: Any = None,
        target_device: Any = None,
        *,
        like: Any = None,
        info_xp: Target | None = None,
        convert_info: bool = True,
        copy: bool | None = None,
        narrowing: str = "checked",
        scalars: str = "keep",
    ) -> None:
        gym.Wrapper.__init__(self, env)
        self._meet(
            env,
            env_xp,
            target_xp,
            env_device,
            target_device,
            like=like,
            info_xp=info_xp,
            convert_info=convert_info,
            copy=copy,
            narrowing=narrowing,
            scalars=scalars,
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; `options` are converted to what it speaks."""
        options = self._reset_options(options)
        observation, info = self.env.reset(seed=seed, options=options)
        self._see(observation)
        return self._sides.to_agent(observation), self._sides.inform(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step with an action of any library."""
        observation, reward, terminated, truncated, info = self.env.step(self._act(action))
        sides = self._sides
        if type(observation) is not sides.seen:
            self._see(observation)
        return (
            sides.to_agent(observation),
            float(reward),
            bool(terminated),
            bool(truncated),
            sides.inform(info) if info else info,
        )

    action_space: Any = truthful_space("action_space")
    observation_space: Any = truthful_space("observation_space")


class JaxToNumpy(ArrayConversion):
    """Lets an environment written for JAX serve an agent written for NumPy.

    Args:
        env: the environment.
        **options: the keyword options of `ArrayConversion`.
    """

    def __init__(self, env: gym.Env[Any, Any], **options: Any) -> None:
        super().__init__(env, "jax", "numpy", **options)
        self._record(**options)


class JaxToTorch(ArrayConversion):
    """Lets an environment written for JAX serve an agent written for PyTorch.

    Args:
        env: the environment.
        device: where observations and infos shall lie.
        **options: the keyword options of `ArrayConversion`.
    """

    def __init__(self, env: gym.Env[Any, Any], device: Any = None, **options: Any) -> None:
        super().__init__(env, "jax", "torch", target_device=device, **options)
        self._record(device=device, **options)


class NumpyToTorch(ArrayConversion):
    """Lets an environment written for NumPy serve an agent written for PyTorch.

    Args:
        env: the environment.
        device: where observations and infos shall lie.
        **options: the keyword options of `ArrayConversion`.
    """

    def __init__(self, env: gym.Env[Any, Any], device: Any = None, **options: Any) -> None:
        super().__init__(env, "numpy", "torch", target_device=device, **options)
        self._record(device=device, **options)
