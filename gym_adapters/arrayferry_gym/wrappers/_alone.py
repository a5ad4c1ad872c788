"""Methods of wrappers that apply a kernel to one value, as Gymnasium's do. The state of the kernel stays as it is."""

from __future__ import annotations

from typing import Any

from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym._arrays import as_rewards

from ._kernels.kernel import Step


class _Around:
    _driver: Any


class HasActions(_Around):
    """Changes actions."""

    def actions(self, actions: AnyTree) -> Any:
        """Return what the environments get for actions of the agent."""
        return self._driver.act(actions)


class HasAction(_Around):
    """Changes actions."""

    def action(self, action: AnyTree) -> Any:
        """Return what the environment gets for an action of the agent."""
        driver, kernel = self._driver, self._driver.kernel
        batch = driver.batched(kernel.outside.action, action)
        return driver.single(kernel.inside.action, driver.act(batch))


class HasObservations(_Around):
    """Changes observations."""

    def observations(self, observations: AnyTree) -> Any:
        """Return what the agent gets for observations of the environments."""
        return _observed(self._driver, observations)


class HasObservation(_Around):
    """Changes observations."""

    def observation(self, observation: AnyTree) -> Any:
        """Return what the agent gets for an observation of the environment."""
        driver, kernel = self._driver, self._driver.kernel
        batch = driver.batched(kernel.inside.observation, observation)
        return driver.single(kernel.outside.observation, _observed(driver, batch))


class HasRewards(_Around):
    """Changes rewards."""

    def rewards(self, rewards: AnyArray) -> Any:
        """Return what the agent gets for rewards of the environments."""
        return _rewarded(self._driver, as_rewards(rewards))


class HasReward(_Around):
    """Changes rewards."""

    def reward(self, reward: AnyArray) -> Any:
        """Return what the agent gets for a reward of the environment."""
        return _rewarded(self._driver, as_rewards(reward)[None, ...])[0]


def _observed(driver: Any, observations: AnyTree) -> Any:
    driver.follow(observations)
    return driver.kernel.reset(driver.xp, driver.state, None, driver.own(observations))[1]


def _rewarded(driver: Any, rewards: AnyArray) -> Any:
    driver.follow(rewards)
    result = Step(None, driver.own(rewards), None, None, {}, None)
    return driver.kernel.step(driver.xp, driver.state, result)[1].reward
