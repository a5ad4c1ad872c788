"""`KernelWrapper`, which applies a kernel to a single environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv

from arrayferry._utilities.compilers import uncompiled
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym._adapters.spaces import original_space
from arrayferry_gym._arrays import as_rewards
from arrayferry_gym._episodes import checked_reset
from arrayferry_gym._options.refusals import refuse_batch, refuse_other

from ._attributes import HasStatistics, kernels_in
from ._driver import Driver, space_like, step_limit
from ._kernels.kernel import Kernel, Spaces


@uncompiled
class KernelWrapper(
    HasStatistics, gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs
):
    """A wrapper that applies a kernel to a single environment, in the library of the environment's arrays.

    Args:
        env: the environment to wrap. It may be an adapter of this package.
        kernel: the kernel to apply.

    Raises:
        TypeError: `env` is a vector environment, or another batch of environments, such as that of a simulator.
    """

    _driver: Driver
    _over = False
    """Whether the episode has ended. If it has, a step begins the next episode, as in Gymnasium's `Autoreset`."""

    def __init__(self, env: gym.Env[Any, Any], kernel: Kernel) -> None:
        refuse_batch(type(self).__name__, env)
        refuse_other(type(self).__name__, env, VectorEnv, "arrayferry_gym.wrappers.vector")
        if not hasattr(self, "_saved_kwargs"):
            gym.utils.RecordConstructorArgs.__init__(self, kernel=kernel)
        gym.Wrapper.__init__(self, env)
        inside_spaces = Spaces(
            original_space(env.observation_space), original_space(env.action_space), step_limit(env)
        )
        self._driver = Driver(kernel, inside_spaces, 1, kernels_in(env))
        self._kernel = kernel = self._driver.kernel
        outside = kernel.outside
        self._inside, self._outside = inside_spaces.observation, outside.observation
        self._in_arrays = all(isinstance(space, Box) for space in (self._inside, self._outside))
        if self._outside is not self._inside:
            self.observation_space = space_like(self._outside, env.observation_space)
        if outside.action is not inside_spaces.action:
            self.action_space = space_like(outside.action, env.action_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment, and begin an episode."""
        observation, info = checked_reset(self.env, self.env.reset(seed=seed, options=options))
        driver = self._driver
        driver.seed(seed)
        driver.use(observation)
        self._over = False
        if not driver.observes:
            driver.begin(None)
            return observation, info
        first_obs = driver.begin(driver.batched(self._inside, observation))
        return driver.single(self._outside, first_obs), info

    def step(self, action: AnyTree) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in the environment, and pass its results through the kernel."""
        driver, kernel = self._driver, self._kernel
        if driver.acts:
            batch = driver.act(driver.batched(kernel.outside.action, action))
            action = driver.single(kernel.inside.action, batch)
        reward: Any
        observation, reward, terminated, truncated, info = self.env.step(action)
        terminated, truncated = bool(terminated), bool(truncated)
        if driver.observes or driver.state is None:
            driver.follow(observation)
        begins_episode, self._over = self._over, not self._over and (terminated or truncated)
        if not driver.steps and not begins_episode:
            return observation, reward, terminated, truncated, info
        seen = None
        if driver.observes:
            is_quick = self._in_arrays and hasattr(observation, "ndim")
            seen = observation[None, ...] if is_quick else driver.batched(self._inside, observation)
        rewards = flags = valid = begin_mask = None
        if driver.rewarded:
            is_float = type(reward) is float
            rewards = np.array([reward]) if is_float else as_rewards(reward)[None, ...]
        if driver.flagged:
            flags = np.array([terminated]), np.array([truncated])
        if begins_episode:
            valid, begin_mask = driver.own((np.array([False]), np.array([True])))
        result, shown = driver.take(seen, rewards, flags, valid, begin_mask, seen)
        if driver.observes:
            observation = shown[0, ...] if self._in_arrays else driver.single(self._outside, shown)
        if driver.rewarded:
            is_array = hasattr(reward, "dtype") or isinstance(reward, (list, tuple))
            # a reward without axes becomes a NumPy scalar, as in Gymnasium
            reward_index: Any = 0 if result.reward.ndim == 1 else (0, ...)
            reward = result.reward[reward_index] if is_array else _number(result.reward)
        if result.info:
            info = {**info, **_of_one(result.info)}
        return observation, reward, terminated, truncated, info


class TransformObservation(gym.wrappers.TransformObservation):
    """Applies a function to observations.

    Args:
        env: the environment whose observations change.
        func: maps an observation to a new observation.
        observation_space: the space of new observations, or None if the space does not change. Samples of the
            wrapper's space are arrays of the agent's library.

    Examples:
        >>> from arrayferry_envs import CartPole
        >>> from arrayferry_gym.wrappers import TransformObservation
        >>> env = TransformObservation(CartPole().make(), lambda observation: abs(observation))
        >>> observation, info = env.reset(seed=1)
        >>> bool((observation >= 0).all())
        True
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        func: Callable[[Any], Any],
        observation_space: Space[Any] | None = None,
    ) -> None:
        super().__init__(env, func, observation_space)
        if observation_space is not None:
            self.observation_space = space_like(observation_space, env.observation_space)


def _number(x: AnyArray) -> Any:
    """Return the only number of an array as a Python number."""
    return x.item() if hasattr(x, "item") else float(x[0])


def _of_one(infos: dict[str, Any]) -> dict[str, Any]:
    """Return the infos of the only environment in a batch, without masks and without infos whose mask is false."""
    info = {}
    for key, value in infos.items():
        if key[:1] == "_" or (f"_{key}" in infos and not bool(infos[f"_{key}"][0])):
            continue
        is_dict = isinstance(value, dict)
        info[key] = {name: x[0] for name, x in value.items()} if is_dict else value[0]
    return info
