"""Mixins with the methods that convert actions, observations or rewards outside of a step, as in Gymnasium's wrappers.

The methods for observations and rewards do not change the state of the kernel.
"""

from __future__ import annotations

from typing import Any

from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym._arrays import as_rewards

from ._kernels.kernel import Step


class _Around:
    _driver: Any


class HasActions(_Around):
    """A mixin for vector wrappers that change actions."""

    def actions(self, actions: AnyTree) -> Any:
        """Convert a batch of the agent's actions to the actions for the environments."""
        return self._driver.act(actions)


class HasAction(_Around):
    """A mixin for wrappers of one environment that change actions."""

    def action(self, action: AnyTree) -> Any:
        """Convert an action of the agent to the action for the environment."""
        driver, kernel = self._driver, self._driver.kernel
        batch = driver.batched(kernel.outside.action, action)
        return driver.single(kernel.inside.action, driver.act(batch))


class HasObservations(_Around):
    """A mixin for vector wrappers that change observations."""

    def observations(self, observations: AnyTree) -> Any:
        """Convert a batch of the environments' observations to the observations for the agent."""
        return _observed(self._driver, observations)


class HasObservation(_Around):
    """A mixin for wrappers of one environment that change observations."""

    def observation(self, observation: AnyTree) -> Any:
        """Convert an observation of the environment to the observation for the agent."""
        driver, kernel = self._driver, self._driver.kernel
        batch = driver.batched(kernel.inside.observation, observation)
        return driver.single(kernel.outside.observation, _observed(driver, batch))


class HasRewards(_Around):
    """A mixin for vector wrappers that change rewards."""

    def rewards(self, rewards: AnyArray) -> Any:
        """Convert a batch of the environments' rewards to the rewards for the agent."""
        return _rewarded(self._driver, as_rewards(rewards))


class HasReward(_Around):
    """A mixin for wrappers of one environment that change rewards."""

    def reward(self, reward: AnyArray) -> Any:
        """Convert a reward of the environment to the reward for the agent."""
        return _rewarded(self._driver, as_rewards(reward)[None, ...])[0]


def _observed(driver: Any, observations: AnyTree) -> Any:
    driver.follow(observations)
    return driver.kernel.reset(driver.xp, driver.state, None, driver.own(observations))[1]


def _rewarded(driver: Any, rewards: AnyArray) -> Any:
    driver.follow(rewards)
    result = Step(None, driver.own(rewards), None, None, {}, None)
    return driver.kernel.step(driver.xp, driver.state, result)[1].reward
