"""Adapters for `gymnasium.vector.VectorEnv`, under the same names as those for single environments."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import create_empty_array

import arrayferry as af

from ._adapter import Adapter, truthful_space
from ._sides import Target

__all__ = ["ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch"]


class ArrayConversion(VectorWrapper, Adapter):
    """Lets a vector environment written for one array library serve an agent written for another.

    Observations, rewards, terminations, truncations and infos become the agent's arrays, actions
    what the environment's action space means. The spaces sample, and hold, the agent's arrays.

    Args:
        env: the vector environment.
        env_xp: what it speaks, as a name ("jax") or namespace. None: seen in what it returns.
        target_xp: what the agent speaks. None: seen in the actions that it passes.
        env_device: where actions shall lie. None: where the environment's own arrays are seen to lie.
        target_device: where results shall lie, None to keep their device.
        like: in place of `target_xp` and `target_device`: an array, a module with parameters, an
            Equinox model, or any tree with an array.
        info_xp: what infos are converted to, None for what the agent speaks.
        convert_info: False to leave infos as they are.
        stack_final: in SAME_STEP mode, whether `final_obs` in infos is one batch of the structure of
            observations, with zeros where its mask `_final_obs` is False, in place of an object array.
        reward_dtype: name of the dtype that rewards are cast to, "float32" say, None to leave it.
        copy: as in `arrayferry.convert`.
        narrowing: as in `arrayferry.convert`.
        scalars: as in `arrayferry.convert`, for infos; "keep" leaves numbers in them alone.

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
        like: Any = None,
        info_xp: Target | None = None,
        convert_info: bool = True,
        stack_final: bool = False,
        reward_dtype: str | None = None,
        copy: bool | None = None,
        narrowing: str = "checked",
        scalars: str = "keep",
    ) -> None:
        VectorWrapper.__init__(self, env)
        self._stack_final = stack_final
        self._reward_dtype = reward_dtype
        self._meet(
            env,
            env_xp,
            target_xp,
            env_device,
            target_device,
            like=like,
            info_xp=info_xp,
            convert_info=convert_info,
            recorded={"stack_final": stack_final or None, "reward_dtype": reward_dtype},
            copy=copy,
            narrowing=narrowing,
            scalars=scalars,
        )

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments; `options` are converted to what they speak."""
        options = self._reset_options(options)
        observations, infos = self.env.reset(seed=seed, options=options)
        self._see(observations)
        return self._sides.to_agent(observations), self._inform(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments, with actions of any library."""
        observations, rewards, ended, cut, infos = self.env.step(self._act(actions))
        sides = self._sides
        if type(observations) is not sides.seen:
            self._see(observations)
        if sides.target is not None:  # all in one call, which some libraries take cheaper
            observations, rewards, ended, cut = sides.target((observations, rewards, ended, cut))
        if self._reward_dtype is not None:
            xp = af.namespace_of(rewards)
            rewards = xp.astype(rewards, getattr(xp, self._reward_dtype))
        return observations, rewards, ended, cut, self._inform(infos) if infos else infos

    def _inform(self, infos: dict[str, Any]) -> dict[str, Any]:
        if self._stack_final:
            infos = _stacked(infos, self.env.single_observation_space)
        informed: dict[str, Any] = self._sides.inform(infos)
        return informed

    @property
    def autoreset_mode(self) -> Any:
        """How the environment resets what has ended, None if it does not say."""
        mode = getattr(self.env, "autoreset_mode", None)
        return (self.env.metadata or {}).get("autoreset_mode") if mode is None else mode

    def __getattr__(self, name: str) -> Any:
        """Look up what is not here in the environment, such as `call` and `get_attr`."""
        if name.startswith("_") or "env" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self.env, name)

    action_space: Any = truthful_space("action_space")
    observation_space: Any = truthful_space("observation_space")
    single_action_space: Any = truthful_space("single_action_space")
    single_observation_space: Any = truthful_space("single_observation_space")


def _stacked(infos: dict[str, Any], space: Space[Any]) -> dict[str, Any]:
    """Give infos whose `final_obs` is one batch, where it was an object array."""
    final = infos.get("final_obs")
    if not isinstance(final, np.ndarray) or final.dtype != object:
        return infos
    batch: Any = create_empty_array(space, len(final), fn=np.zeros)
    for index, observation in enumerate(final):
        if observation is not None:
            batch = _placed(batch, af.convert(observation, "numpy"), index, space)
    return {**infos, "final_obs": batch}


def _placed(batch: Any, observation: Any, index: int, space: Space[Any]) -> Any:
    """Put an observation in its place in a batch, part by part."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            batch[key] = _placed(batch[key], observation[key], index, part)
        return batch
    if isinstance(space, spaces.Tuple):
        return tuple(
            _placed(part, inside, index, inner)
            for part, inside, inner in zip(batch, observation, space.spaces, strict=True)
        )
    if isinstance(batch, tuple):  # spaces that cannot be stacked, such as Text and Graph
        return (*batch[:index], observation, *batch[index + 1 :])
    batch[index] = observation
    return batch


class JaxToNumpy(ArrayConversion):
    """Lets a vector environment written for JAX serve an agent written for NumPy.

    Args:
        env: the vector environment.
        **options: the keyword options of `ArrayConversion`.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], **options: Any) -> None:
        super().__init__(env, "jax", "numpy", **options)
        self._record(**options)


class JaxToTorch(ArrayConversion):
    """Lets a vector environment written for JAX serve an agent written for PyTorch.

    Args:
        env: the vector environment.
        device: where results shall lie.
        **options: the keyword options of `ArrayConversion`.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], device: Any = None, **options: Any) -> None:
        super().__init__(env, "jax", "torch", target_device=device, **options)
        self._record(device=device, **options)


class NumpyToTorch(ArrayConversion):
    """Lets a vector environment written for NumPy serve an agent written for PyTorch.

    Args:
        env: the vector environment.
        device: where results shall lie.
        **options: the keyword options of `ArrayConversion`.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], device: Any = None, **options: Any) -> None:
        super().__init__(env, "numpy", "torch", target_device=device, **options)
        self._record(device=device, **options)
