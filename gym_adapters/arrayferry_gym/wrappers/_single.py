"""Kernels around single environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from ._driver import Driver, HasStatistics, plain, shown_space
from ._kernel import Kernel, Spaces, StepResult

__all__ = ["KernelWrapper"]


class KernelWrapper(
    HasStatistics, gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs
):
    """A kernel around an environment, in the library of its arrays.

    Args:
        env: the environment, or an adapter of this package around one.
        kernel: the kernel.
    """

    _driver: Driver
    _ended = False
    """Whether the episode has ended. A step after that begins another one, as in Gymnasium's `Autoreset`."""

    def __init__(self, env: gym.Env[Any, Any], kernel: Kernel) -> None:
        if not hasattr(self, "_saved_kwargs"):
            gym.utils.RecordConstructorArgs.__init__(self, kernel=kernel)
        gym.Wrapper.__init__(self, env)
        inside = Spaces(plain(env.observation_space), plain(env.action_space), _limit(env))
        self._driver = Driver(kernel, inside, 1)
        self._kernel = kernel = self._driver.kernel
        outside = kernel.outside
        self._observes = kernel.observes and "observation" in kernel.parts
        self._rewarded = "reward" in kernel.parts
        if outside.observation is not inside.observation:
            space = shown_space(outside.observation, env.observation_space, observed=True)
            self.observation_space = space
        if outside.action is not inside.action:
            self.action_space = shown_space(outside.action, env.action_space, observed=False)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment, and begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        driver = self._driver
        driver.seed(seed)
        driver.use(observation)
        self._ended = False
        if not self._observes:
            driver.begin(None)
            return observation, info
        inside, outside = self._kernel.inside, self._kernel.outside
        observation = driver.begin(driver.batched(inside.observation, observation))
        return driver.single(outside.observation, observation), info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step."""
        driver, kernel = self._driver, self._kernel
        if kernel.acts:
            if driver.state is None:
                driver.use(action)
            batch = driver.act(driver.batched(kernel.outside.action, action))
            action = driver.single(kernel.inside.action, batch)
        observation, reward, terminated, truncated, info = self.env.step(action)
        if driver.state is None:
            driver.use(observation)
        began, self._ended = self._ended, bool(terminated) or bool(truncated)
        if not kernel.steps and not began:
            return observation, reward, terminated, truncated, info
        seen = rewards = ended = cut = None
        if self._observes:
            seen = driver.batched(kernel.inside.observation, observation)
        if self._rewarded:
            is_array = hasattr(reward, "dtype") and hasattr(reward, "shape")
            rewards = driver.own(reward[None] if is_array else np.asarray([reward], float))
            ended, cut = driver.own((np.asarray([terminated]), np.asarray([truncated])))
        rows = driver.own(np.asarray([False])) if began else None  # it resets itself
        result = driver.step(StepResult(seen, rewards, ended, cut, {}, rows))
        if began:
            result = result._replace(observation=driver.begin(seen))
        if self._observes:
            observation = driver.single(kernel.outside.observation, result.observation)
        if self._rewarded:
            reward = result.reward[0] if is_array else float(result.reward[0])
        if result.info:
            info = {**info, **_of_one(result.info)}
        return observation, reward, terminated, truncated, info


def _of_one(infos: dict[str, Any]) -> dict[str, Any]:
    """Return the infos of a batch of one as those of one environment, without what its mask leaves out."""
    info = {}
    for key, value in infos.items():
        if key[:1] == "_" or (f"_{key}" in infos and not bool(infos[f"_{key}"][0])):
            continue
        many = isinstance(value, dict)
        info[key] = {name: x[0] for name, x in value.items()} if many else value[0]
    return info


def _limit(env: gym.Env[Any, Any]) -> int | None:
    """Return after how many steps the episodes of an environment are truncated."""
    spec = env.spec
    if spec is not None and spec.max_episode_steps is not None:
        return spec.max_episode_steps
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            return int(env._max_episode_steps)
        env = env.env
    limit = getattr(env, "_limit", None)  # of a FunctionalEnv that is served
    return limit if isinstance(limit, int) else None
