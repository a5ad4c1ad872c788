"""Attributes that wrappers read from the states of their kernels."""

from __future__ import annotations

import functools
import time
import warnings
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers.utils import RunningMeanStd

import arrayferry as af
from arrayferry._utilities.caller import caller_level
from arrayferry._utilities.text import numbered
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym._adapters.spaces import original_space
from arrayferry_gym._arrays import namespace
from arrayferry_gym._copies import Copied, layers
from arrayferry_gym._episodes import RULES, EpisodeMasks, StepMasks, nowhere
from arrayferry_gym._spaces.trees import ARRAYS, leaves

from ._driver import HeldKernel
from ._kernels import observations, statistics
from ._kernels.kernel import Kernel, arguments_of
from ._kernels.moments import PRIOR, Moments, Statistics

TO_NUMPY = af.converter("numpy")


class HasStatistics(Copied):
    """The attributes of wrappers with statistics, as a mixin."""

    _driver: Any  # a HeldKernel

    def _has_begun(self) -> bool:
        return "env" in vars(self) and self._driver.state is not None

    @property
    def update_running_mean(self) -> bool:
        """Whether new values update statistics, of this wrapper or of any wrapper inside it.

        Set it to False to stop all updates: wrappers then use the current statistics. Set it to True to resume updates.
        """
        return any(holder.update_running_mean for holder in _updated(self))

    @update_running_mean.setter
    def update_running_mean(self, setting: bool) -> None:
        holders = _updated(self)
        if not holders:
            raise AttributeError(
                f"update_running_mean cannot be set, since neither {self} nor any wrapper inside has statistics. "
                "Add a wrapper with statistics, such as NormalizeObservation"
            )
        for holder in holders:
            holder.update_running_mean = setting

    def state_dict(self) -> dict[str, Any]:
        """Return a dict with the statistics of this wrapper and all wrappers inside it, as unrounded Python numbers.

        Before the first reset, these are the statistics that were loaded, or else the initial statistics. If several
        wrappers have statistics with the name "obs_rms", the second wrapper from the inside has the key "obs_rms_2",
        and so on. The keys of Gymnasium's own wrappers begin with "gymnasium_", as in "gymnasium_obs_rms". The keys of
        wrappers around the single environments of a batch begin with an index, as in "envs[0].obs_rms".
        """
        return {name: driver.read() for name, driver in _drivers(self).items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the statistics of this wrapper and all wrappers inside it to those in `state`, a result of `state_dict`.

        `state` may also have statistics of other wrappers, which are ignored.

        Raises:
            arrayferry.OptionError: `state` lacks the statistics of this wrapper, or has statistics of another shape.
            arrayferry.NarrowingError: a number does not fit the dtype of the statistics.

        Warns:
            UserWarning: `state` and the environment differ in wrappers of Gymnasium, or in wrappers inside a batch, so
                the statistics of some wrappers are not loaded.
        """
        all_drivers, name = _drivers(self), self._driver.name
        drivers = all_drivers
        is_state = isinstance(state, Mapping)
        if name is not None and not (is_state and [*drivers][-1] in state):
            drivers = {name: self._driver}  # `state` may have the statistics of this wrapper alone
        names = [key for key in drivers if is_state and key in state]
        if not is_state or (not names and (state or name is not None)):
            wanted_text = repr([*drivers][-1]) if drivers else "statistics"
            cls_name, found = type(self._driver.kernel).__name__, list(state) if is_state else state
            raise af.OptionError(
                f"{cls_name} needs {wanted_text}, but the state has {found!r:.80}",
                remedy=f"Pass the result of state_dict() of the same wrappers, or leave out {cls_name}.",
            )
        for values_dict in state.values():  # refuse invalid statistics before any are loaded
            Moments.checked(values_dict)
        loads = [(drivers[key], drivers[key].given(state[key])) for key in names]
        for driver, values in loads:
            driver.load(values)
        unmatched = {*all_drivers} ^ {*map(str, state)}
        if lost := sorted(name for name in unmatched if "gymnasium_" in name or "envs[" in name):
            message = f"{', '.join(lost):.200} were not loaded, since the state or the wrappers lack them. Load a state of equal wrappers"
            warnings.warn(message, stacklevel=caller_level())

    def _statistics(self) -> Statistics:
        values = self._driver.read()
        mean, var = np.asarray(values["mean"]), np.asarray(values["var"])
        return Statistics(mean, var, values["count"] + PRIOR)

    def _set_statistics(self, values: AnyTree) -> None:
        try:
            count = round(float(values.count) - PRIOR)
            numbers = {"count": count, "mean": values.mean, "var": values.var}
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise af.OptionError(
                f"{self._driver.name}={values!r:.80} has no mean, var and count",
                remedy="Assign Statistics(mean, var, count), or the statistics of another wrapper.",
            ) from error
        self._driver.load(self._driver.given(numbers))


def kernels_in(env: Any) -> int:
    """Return the number of kernels in an environment. A kernel around the environment adds it to its seed.

    A batch of single environments counts as 2**16, so that a kernel around the batch has another seed than the kernels
    inside.
    """
    chain = [layer for prefix, layer in layers(env) if not prefix]
    batch_types = gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv
    num_batches = sum(isinstance(layer, batch_types) for layer in chain)
    return 2**16 * num_batches + sum(len(HasKernels.held_by(layer)) for layer in chain)


class _OfGymnasium(NamedTuple):
    """The statistics of a wrapper of Gymnasium, with the methods `read`, `given` and `load` of a `HeldKernel`."""

    rms: RunningMeanStd

    def _moments(self) -> Moments:
        return Moments(round(self.rms.count - PRIOR), self.rms.mean, self.rms.var, True)

    def read(self) -> dict[str, Any]:
        return self._moments().read()

    def given(self, values: AnyTree) -> Moments:
        return self._moments().given(namespace(af.registry.backend("numpy")), values, None)

    def load(self, moments: Moments) -> None:
        vars(self.rms).update(count=moments.count + PRIOR, mean=moments.mean, var=moments.var)


def _drivers(env: Any) -> dict[str, Any]:
    """Return a dict: for each key of `state_dict`, the `HeldKernel` or `_OfGymnasium` that has the statistics."""
    pairs: list[tuple[str, Any]] = []
    for prefix, layer in layers(env):
        pairs += [(f"{prefix}{x.name}", x) for x in HasKernels.held_by(layer) if x.name is not None]
        for name, value in getattr(layer, "__dict__", {}).items():
            if isinstance(value, RunningMeanStd):
                pairs.append((f"{prefix}gymnasium_{name}", _OfGymnasium(value)))
    return dict(zip(numbered(name for name, _ in pairs), (held for _, held in pairs), strict=True))


def _updated(env: Any) -> list[Any]:
    """Return the objects that have `update_running_mean`: kernels with statistics, and Gymnasium's wrappers."""
    kernels = [held for held in _drivers(env).values() if isinstance(held, HeldKernel)]
    others = (layer for _, layer in layers(env) if not isinstance(layer, HasStatistics))
    return [*kernels, *(layer for layer in others if hasattr(type(layer), "update_running_mean"))]


class HasObsRms(HasStatistics):
    """The attributes of wrappers with statistics of observations, as a mixin."""

    @property
    def obs_rms(self) -> Statistics:
        """The mean and variance of observations, as a `Statistics`. A new `Statistics` can be assigned."""
        return self._statistics()

    @obs_rms.setter
    def obs_rms(self, values: AnyTree) -> None:
        self._set_statistics(values)


class HasReturnRms(HasStatistics):
    """The attributes of wrappers with statistics of returns, as a mixin."""

    @property
    def return_rms(self) -> Statistics:
        """The mean and variance of discounted returns, as a `Statistics`. A new `Statistics` can be assigned."""
        return self._statistics()

    @return_rms.setter
    def return_rms(self, values: AnyTree) -> None:
        self._set_statistics(values)


class HasDiscountedReward(HasReturnRms):
    """The attribute `discounted_reward` of `NormalizeReward` around one environment, as a mixin."""

    @property
    def discounted_reward(self) -> Any:
        """The discounted return of the current episode so far, an array of shape (1, ...)."""
        return self._driver.shown("return")


class HasAccumulatedReward(HasReturnRms):
    """The attribute `accumulated_reward` of `NormalizeReward` around vector environments, as a mixin."""

    @property
    def accumulated_reward(self) -> Any:
        """The discounted returns of the current episodes so far, an array of shape (num_envs, ...)."""
        return self._driver.shown("return")


class HasTimesteps:
    """The attributes of `TimeAwareObservation` around one environment, as a mixin."""

    _driver: Any

    @property
    def max_timesteps(self) -> int | None:
        """The step limit: `max_episode_steps`, or if that is None, the limit of the environment."""
        return self._driver.kernel.limit  # type: ignore[no-any-return]

    @property
    def timesteps(self) -> int:
        """The number of steps in the episode so far."""
        state = self._driver.state
        return 0 if state is None else int(state.episode[0])


class HasEpisodes:
    """The attributes of wrappers that record the returns, lengths and durations of episodes, as a mixin."""

    _driver: Any

    def _set_up(self) -> None:
        length = self._driver.kernel.buffer_length
        self.episode_count: int = 0
        self.return_queue: deque[float] = deque(maxlen=length)
        self.length_queue: deque[int] = deque(maxlen=length)
        self.time_queue: deque[float] = deque(maxlen=length)
        self.episode_start_times: Any = np.zeros(self._driver.n)

    @property
    def episode_returns(self) -> Any:
        """The returns of the current episodes so far, an array of shape (num_envs, ...)."""
        return self._driver.shown("r")

    @property
    def episode_lengths(self) -> Any:
        """The number of steps of the current episodes so far, an array of shape (num_envs,)."""
        return self._driver.shown("l", int)

    def _begin(self, rows: AnyArray) -> None:
        """Record the start time of episodes in the rows of a NumPy mask (n,), or in all rows if the mask is None."""
        self.episode_start_times[slice(None) if rows is None else rows] = time.perf_counter()

    def _note_step(self, masks: StepMasks, infos: dict[str, Any]) -> None:
        """Record a step. If episodes end, add their durations to the infos, and their statistics to the queues.

        Args:
            masks: the NumPy masks of the step.
            infos: the infos of the step, which are changed in place.
        """
        if not nowhere(masks.done):
            self._end(infos[self._driver.kernel.stats_key], masks.done)
        if masks.reset is not None:
            self._begin(masks.reset)

    def _end(self, values: dict[str, Any], done: Any) -> None:
        ended_rows = done.nonzero()[0]
        durations = (time.perf_counter() - self.episode_start_times[ended_rows]).round(6)
        values["t"] = seconds = np.zeros(len(done))
        seconds[ended_rows] = durations
        returns, lengths = TO_NUMPY((values["r"], values["l"]))
        self.episode_count += len(ended_rows)
        self.time_queue.extend(durations)
        self.return_queue.extend(returns[ended_rows])
        self.length_queue.extend(lengths[ended_rows])


_SHOWN: dict[type[Kernel], tuple[Any, Any]] = {
    statistics.NormalizeObservation: (HasObsRms, HasObsRms),
    statistics.NormalizeReward: (HasDiscountedReward, HasAccumulatedReward),
    statistics.RecordEpisodeStatistics: (HasEpisodes, HasEpisodes),
    observations.TimeAwareObservation: (HasTimesteps, HasStatistics),
}
"""For each class of kernels, two mixins: for a wrapper around one environment, and around a vector environment."""


def attributes_of(driver: HeldKernel, *, vector: bool) -> Any:
    """Return an object with the attributes of a kernel's wrapper: the kernel's arguments, and values from its state.

    Args:
        driver: the kernel and its state.
        vector: whether the wrapper is around a vector environment.
    """
    mro = type(driver.kernel).__mro__
    attributes = next((_SHOWN[cls] for cls in mro if cls in _SHOWN), (HasStatistics,) * 2)[vector]()
    vars(attributes).update({**arguments_of(driver.kernel), "_driver": driver})
    if isinstance(attributes, HasEpisodes):
        attributes._set_up()
    return attributes


def masks_of(added: dict[str, Any]) -> dict[str, Any]:
    """Return the masks in the infos that kernels have added, as NumPy arrays, by their keys without the underscore."""
    return {key: TO_NUMPY(added[f"_{key}"]) for key in added if f"_{key}" in added}


def add_infos(infos: dict[str, Any], added: dict[str, Any], masks: dict[str, Any]) -> None:
    """Add the infos of kernels to the infos of an environment. Infos whose mask is false everywhere are left out.

    Args:
        infos: the infos of the environment, which are changed in place.
        added: the infos of the kernels, with masks under keys such as "_episode".
        masks: the result of `masks_of`.

    Raises:
        ValueError: `infos` already has a key of `added`.
    """
    for key, value in added.items():
        mask = masks.get(key if key in masks or key[:1] != "_" else key[1:])
        if mask is not None and 1 not in mask.tobytes():
            continue
        if key in infos:
            raise ValueError(
                f"Attempted to add episode stats with key '{key}' but this key already exists in info: {list(infos)}. "
                "Choose another key, for example with stats_key"
            )
        infos[key] = value


class HasKernels(HasStatistics):
    """A mixin for environments with kernels inside. For each kernel, it adds the attributes of the kernel's wrapper.

    If several kernels have an attribute of the same name, the attribute is that of the outermost kernel.
    """

    _shown: tuple[Any, ...]
    """The results of `attributes_of` for all kernels, innermost first."""
    _mode: Any

    @functools.cached_property
    def _recording(self) -> tuple[EpisodeMasks, list[HasEpisodes]]:
        """The `EpisodeMasks` of the environment, and the objects in `_shown` that record statistics of episodes."""
        recorders = [holder for holder in self._shown if isinstance(holder, HasEpisodes)]
        return EpisodeMasks(RULES[self._mode]), recorders

    @staticmethod
    def held_by(env: Any) -> list[HeldKernel]:
        """Return the kernels of an environment, innermost first, without the kernels of environments inside it."""
        if isinstance(env, HasKernels):
            return [holder._driver for holder in env._shown]
        return [env._driver] if isinstance(env, HasStatistics) else []

    def _show(self, kernels: Iterable[HeldKernel], *, vector: bool) -> None:
        """Add the attributes of these kernels to this environment."""
        self._shown = tuple(attributes_of(held, vector=vector) for held in kernels)
        self._driver = self._shown[-1]._driver

    def _note_reset(self, rows: AnyArray) -> None:
        """Record that episodes begin in the rows of a mask (n,), or in all rows if the mask is None."""
        episodes, recorders = self._recording
        episodes.begin(rows)
        for recorder in recorders:
            recorder._begin(rows)

    def _tell(self, infos: dict[str, Any], added: dict[str, Any]) -> None:
        """Record a step, and add the infos of kernels to the infos of the environment, as `add_infos` does.

        Raises:
            ValueError: `infos` already has a key of `added`.
        """
        masks, step_masks = masks_of(added), None
        episodes, recorders = self._recording
        for recorder in recorders:
            key = recorder._driver.kernel.stats_key
            # `take` also records the step, so it is called only for the first recorder
            step_masks = step_masks or episodes.take(masks[key], masks[key])
            recorder._note_step(step_masks, added)
        add_infos(infos, added, masks)

    if not TYPE_CHECKING:  # type checkers that see `__getattr__` would accept any name

        def __getattr__(self, name: str) -> Any:
            if name[:1] != "_":
                for holder in reversed(self._shown):
                    if hasattr(holder, name):
                        return getattr(holder, name)
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            )

        def __setattr__(self, name: str, value: AnyTree) -> None:
            for holder in reversed(self.__dict__.get("_shown", ())):
                attribute = getattr(type(holder), name, None)
                if isinstance(attribute, property) and not hasattr(HasStatistics, name):
                    setattr(holder, name, value)
                    return
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        names = {name for holder in self._shown for name in dir(holder) if name[:1] != "_"}
        return sorted({*super().__dir__(), *names})


class FlattensAll:
    """A mixin for `FlattenObservation`. Gymnasium's wrapper flattens values without a fixed shape, such as texts."""

    def __init__(self, env: Any, kernel: Kernel) -> None:
        space = getattr(env, "single_observation_space", None)
        parts = () if space is None else leaves(original_space(space))
        if not all(isinstance(leaf, ARRAYS) for leaf, _ in parts):
            env, kernel = gym.wrappers.vector.FlattenObservation(env), Kernel()
        super().__init__(env, kernel)  # type: ignore[call-arg]
