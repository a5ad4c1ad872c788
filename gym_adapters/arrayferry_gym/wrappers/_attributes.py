"""Attributes that wrappers read from the states of their kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

import arrayferry as af
from arrayferry_gym._adapters.spaces import original_space
from arrayferry_gym._spaces.trees import ARRAYS, leaves

from ._driver import Driver
from ._kernels.kernel import Kernel
from ._kernels.moments import PRIOR, Statistics, checked, numbered


class HasStatistics:
    """Attributes of wrappers with statistics."""

    _driver: Driver

    @property
    def update_running_mean(self) -> bool:
        """Whether any statistics are updated, here or in a wrapper inside. They are used either way. Set False to freeze all, True to go on."""
        return any(each.update_running_mean for each in _updated(self))

    @update_running_mean.setter
    def update_running_mean(self, setting: bool) -> None:
        updated = _updated(self)
        if not updated:
            raise AttributeError(f"neither {self} nor any wrapper inside has statistics")
        for each in updated:
            each.update_running_mean = setting

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics of this wrapper and of all inside, as plain numbers and lists, without loss of precision.

        Before the first reset, these are the statistics that were loaded, or the initial ones. A second wrapper with
        statistics of the same name, counted from the inside, has a number at the end of its name: "obs_rms_2".
        """
        return {name: driver.read() for name, driver in _drivers(self).items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the statistics to a result of `state_dict`, which may include those of other wrappers.

        Raises:
            arrayferry.OptionError: those of this wrapper are missing, or some do not fit.
        """
        drivers, name = _drivers(self), self._driver.name
        is_state = isinstance(state, Mapping)
        if name is not None and not (is_state and [*drivers][-1] in state):
            drivers = {name: self._driver}  # a state of this wrapper alone
        found = [each for each in drivers if is_state and each in state]
        if not is_state or (not found and (state or name is not None)):
            wanted = repr([*drivers][-1]) if drivers else "statistics"
            raise af.OptionError(
                f"the state {state!r:.80} has no {wanted} for {type(self._driver.kernel).__name__}",
                remedy="Pass the result of state_dict() of the same wrapper.",
            )
        for others in state.values():  # those of other wrappers may be among them
            checked(others)
        given = [(drivers[each], drivers[each].given(state[each])) for each in found]
        for driver, statistics in given:
            driver.load(statistics)

    def _statistics(self) -> Statistics:
        values = self._driver.read()
        mean, var = np.asarray(values["mean"]), np.asarray(values["var"])
        return Statistics(mean, var, values["count"] + PRIOR)

    def _set_statistics(self, values: Any) -> None:
        try:
            count = round(float(values.count) - PRIOR)
            given = {"count": count, "mean": values.mean, "var": values.var}
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise af.OptionError(
                f"{self._driver.name}={values!r:.80} has no mean, var and count",
                remedy="Pass Statistics(mean, var, count), or those of another wrapper.",
            ) from error
        self._driver.load(self._driver.given(given))


def _drivers(env: Any) -> dict[str, Driver]:
    """Return the drivers with statistics, of a wrapper and of those inside, by the names of the statistics."""
    found: list[tuple[str, Driver]] = []
    while isinstance(env, (gym.Wrapper, gym.vector.VectorWrapper)):
        driver = getattr(env, "_driver", None)
        if isinstance(driver, Driver) and driver.name is not None:
            found.insert(0, (driver.name, driver))
        env = env.env
    return dict(zip(numbered(name for name, _ in found), (x for _, x in found), strict=True))


def _updated(env: Any) -> list[Any]:
    """Return what has statistics that are updated: the drivers of our wrappers, and wrappers of Gymnasium's."""
    found: list[Any] = [*_drivers(env).values()]
    while isinstance(env, (gym.Wrapper, gym.vector.VectorWrapper)):
        own = issubclass(type(env), HasStatistics)
        if not own and hasattr(type(env), "update_running_mean"):
            found.append(env)
        env = env.env
    return found


class HasObsRms(HasStatistics):
    """Attributes of wrappers with statistics of observations."""

    @property
    def obs_rms(self) -> Statistics:
        """The statistics in NumPy. They can be set."""
        return self._statistics()

    @obs_rms.setter
    def obs_rms(self, values: Any) -> None:
        self._set_statistics(values)


class HasReturnRms(HasStatistics):
    """Attributes of wrappers with statistics of returns."""

    @property
    def return_rms(self) -> Statistics:
        """The statistics in NumPy. They can be set."""
        return self._statistics()

    @return_rms.setter
    def return_rms(self, values: Any) -> None:
        self._set_statistics(values)


class HasDiscountedReward(HasReturnRms):
    """The attribute of `NormalizeReward` around one environment."""

    @property
    def discounted_reward(self) -> Any:
        """The discounted return of the current episode so far, (1,)."""
        state = self._driver.state
        return np.zeros(1) if state is None else state.episode["return"]


class HasAccumulatedReward(HasReturnRms):
    """The attribute of `NormalizeReward` around vector environments."""

    @property
    def accumulated_reward(self) -> Any:
        """The discounted returns of the current episodes so far, (num_envs,)."""
        state = self._driver.state
        return np.zeros(self._driver.n) if state is None else state.episode["return"]


class HasTimesteps:
    """Attributes of `TimeAwareObservation` around one environment."""

    _driver: Driver

    @property
    def max_timesteps(self) -> int | None:
        """The step limit."""
        return self._driver.kernel.limit  # type: ignore[attr-defined,no-any-return]

    @property
    def timesteps(self) -> int:
        """The number of steps in the episode so far."""
        state = self._driver.state
        return 0 if state is None else int(state.episode[0])


class FlattensAll:
    """Where observations hold other values than arrays of one shape, Gymnasium's own wrapper is inside, and flattens them."""

    def __init__(self, env: Any, kernel: Kernel) -> None:
        space = getattr(env, "single_observation_space", None)
        if space is not None and not all(
            isinstance(x, ARRAYS) for x, _ in leaves(original_space(space))
        ):
            env, kernel = gym.wrappers.vector.FlattenObservation(env), Kernel()
        super().__init__(env, kernel)  # type: ignore[call-arg]
