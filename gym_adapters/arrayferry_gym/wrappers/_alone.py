"""Methods of wrappers that apply a kernel to one value, as in Gymnasium. The state of the kernel does not change."""

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
        """Return actions of the agent in the form that the environments receive."""
        return self._driver.act(actions)


class HasAction(_Around):
    """Changes actions."""

    def action(self, action: AnyTree) -> Any:
        """Return an action of the agent in the form that the environment receives."""
        driver, kernel = self._driver, self._driver.kernel
        batch = driver.batched(kernel.outside.action, action)
        return driver.single(kernel.inside.action, driver.act(batch))


class HasObservations(_Around):
    """Changes observations."""

    def observations(self, observations: AnyTree) -> Any:
        """Return observations of the environments in the form that the agent receives."""
        return _observed(self._driver, observations)


class HasObservation(_Around):
    """Changes observations."""

    def observation(self, observation: AnyTree) -> Any:
        """Return an observation of the environment in the form that the agent receives."""
        driver, kernel = self._driver, self._driver.kernel
        batch = driver.batched(kernel.inside.observation, observation)
        return driver.single(kernel.outside.observation, _observed(driver, batch))


class HasRewards(_Around):
    """Changes rewards."""

    def rewards(self, rewards: AnyArray) -> Any:
        """Return rewards of the environments in the form that the agent receives."""
        return _rewarded(self._driver, as_rewards(rewards))


class HasReward(_Around):
    """Changes rewards."""

    def reward(self, reward: AnyArray) -> Any:
        """Return a reward of the environment in the form that the agent receives."""
        return _rewarded(self._driver, as_rewards(reward)[None, ...])[0]


def _observed(driver: Any, observations: AnyTree) -> Any:
    driver.follow(observations)
    return driver.kernel.reset(driver.xp, driver.state, None, driver.own(observations))[1]


def _rewarded(driver: Any, rewards: AnyArray) -> Any:
    driver.follow(rewards)
    result = Step(None, driver.own(rewards), None, None, {}, None)
    return driver.kernel.step(driver.xp, driver.state, result)[1].reward
