"""Adapters for `gymnasium.Env`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic

import gymnasium as gym

from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import forwarded_seed
from arrayferry.typing import AnyTree
from arrayferry_gym._episodes import checked_reset
from arrayferry_gym._options.refusals import (
    check_env,
    check_flags,
    check_observation,
    num_envs_inside,
)
from arrayferry_gym.typing import ActT, ObsT

from .adapter import (
    Adapter,
    NamedPair,
    NamedPairOnDevice,
    arguments_of,
    converted_space_property,
    gymnasium_class,
    takes,
)
from .overloads import ArrayConversionInit, JaxToNumpyInit, JaxToTorchInit, NumpyToTorchInit

if TYPE_CHECKING:
    _Wrapper = gym.Wrapper[ObsT, ActT, Any, Any]
else:
    _Wrapper = gymnasium_class("gymnasium.wrappers.array_conversion", gym.Wrapper)


@uncompiled
class ArrayConversion(ArrayConversionInit, Adapter, _Wrapper, Generic[ObsT, ActT]):
    """Use an environment written for one array library with an agent written for another.

    Observations and infos are converted to the agent's library. Actions are converted to the environment's library, and
    to the dtypes and shapes of its action space. The reward is a `float`, and terminated and truncated are of type
    `bool`. A reward or flag that has axes, such as one reward per objective, is an array of the agent's library. The
    result of `render` is unchanged, unless `convert_render` is True. The spaces sample and contain arrays of the
    agent's library.

    Args:
        env: the environment to convert. It must be a `gymnasium.Env`, not a vector environment.
        env_xp: the library of the environment, as a name ("jax") or namespace. None detects it from the observations.
        target_xp: the library of the agent. None detects it from the agent's actions.
        env_device: the device of converted actions. None detects it from the observations.
        target_device: the device of converted observations and infos. None leaves them on their device.
        like: an array, a module with parameters, an Equinox model, or any tree with an array. Pass `like` instead of
            `target_xp` and `target_device`, to use the library and the device of this array.
        info_xp: the library that infos are converted to, or None for the agent's library.
        convert_info: False to leave infos unchanged.
        copy: as in `arrayferry.convert`.
        narrowing: as in `arrayferry.convert`.
        scalars: for infos, as in `arrayferry.convert`. "keep" leaves Python numbers in infos unchanged. Python numbers
            in observations are converted to arrays.
        unknown: as in `arrayferry.convert`. "convert" also converts table columns and similar objects in trees.
        sparse: as in `arrayferry.convert`. The default is "dense", so that the agent always gets arrays of its library.
        check_actions: "fit" refuses actions from which the environment would compute wrong results without an error.
            Other actions that do not fit are passed on to the environment, with a warning. "strict" refuses all actions
            that do not fit, and also NaN and numbers outside the bounds of a Box. "off" checks nothing.
        convert_render: whether the result of `render` is converted too.

    Raises:
        arrayferry.ArrayFerryError: a library or a device is unknown or unavailable, or an option is unknown or invalid.
        TypeError: `env` is not a Gymnasium environment, or is a batch of environments, such as a simulator.

    Examples:
        >>> import gymnasium as gym
        >>> from arrayferry_gym import ArrayConversion
        >>> env = ArrayConversion(gym.make("CartPole-v1"), target_xp="torch")
        >>> observation, info = env.reset(seed=1)
        >>> observation.dtype
        torch.float32
        >>> env.action_space.contains(env.action_space.sample())
        True
    """

    if not TYPE_CHECKING:  # type checkers use the signature in ArrayConversionInit

        @takes("stack_final", "reward_dtype")
        def __init__(self, env: gym.Env[Any, Any], *args: Any, **options: Any) -> None:
            arguments = arguments_of(ArrayConversion, self, *args, **options)
            check_env(type(self), env)
            gym.Wrapper.__init__(self, env)
            self._setup(env, **arguments)
            self._has_several = (num_envs_inside(env) or 1) > 1
            if self._has_several:
                self._libraries.check_flags = partial(check_flags, type(self).__name__, env)

    env: gym.Env[Any, Any]
    _has_several: bool

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsT, dict[str, Any]]:
        """Reset the environment. Arrays in `options` are converted to the environment's library."""
        seed, options = forwarded_seed(seed, 1), self._reset_options(options)
        observation, info = checked_reset(self.env, self.env.reset(seed=seed, options=options))
        if self._has_several:
            check_observation(type(self).__name__, self.env, observation)
        self._check_space()
        self._observe(observation)
        return self._libraries.to_agent(observation), self._libraries.convert_infos(info)

    def step(self, action: AnyTree) -> tuple[ObsT, float, bool, bool, dict[str, Any]]:
        """Take a step with an action of any library."""
        self._note = None
        try:
            observation, reward, terminated, truncated, info = self.env.step(self._act(action))
        except Exception as error:
            self._explain(error)
            raise
        libraries = self._libraries
        if type(observation) is not libraries.observed:
            self._observe(observation)
        return (
            libraries.to_agent(observation),
            reward if type(reward) is float else libraries.to_number(reward, float),
            terminated if type(terminated) is bool else libraries.to_number(terminated, bool),
            truncated if type(truncated) is bool else libraries.to_number(truncated, bool),
            libraries.convert_infos(info) if info else info,
        )

    action_space: gym.Space[ActT] = converted_space_property("action_space")  # type: ignore[assignment]
    observation_space: gym.Space[ObsT] = converted_space_property("observation_space")  # type: ignore[assignment]


class JaxToNumpy(JaxToNumpyInit, NamedPair, ArrayConversion[ObsT, ActT]):
    """Use an environment written for JAX with an agent written for NumPy.

    Args:
        env: the environment written for JAX.
        **options: the keyword options of `ArrayConversion`.
    """

    _pair = ("jax", "numpy")


class JaxToTorch(JaxToTorchInit, NamedPairOnDevice, ArrayConversion[ObsT, ActT]):
    """Use an environment written for JAX with an agent written for PyTorch.

    Args:
        env: the environment written for JAX.
        device: the device of observations and infos.
        **options: the keyword options of `ArrayConversion`.
    """

    _pair = ("jax", "torch")


class NumpyToTorch(NumpyToTorchInit, NamedPairOnDevice, ArrayConversion[ObsT, ActT]):
    """Use an environment written for NumPy with an agent written for PyTorch.

    Args:
        env: the environment written for NumPy.
        device: the device of observations and infos.
        **options: the keyword options of `ArrayConversion`.
    """

    _pair = ("numpy", "torch")


for _adapter in (ArrayConversion, JaxToNumpy, JaxToTorch, NumpyToTorch):
    # specs and pickles must contain the public module, since private modules may be renamed
    _adapter.__module__ = "arrayferry_gym"
