"""The kernels of the wrappers, to be put around a `FunctionalEnv` by `arrayferry_gym.functional.wrap`.

Each has the name and the arguments of Gymnasium's wrapper, without the environment. Authors of wrappers subclass `Kernel`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import Space, spaces
from gymnasium.wrappers.utils import create_zero_array

import arrayferry as af
import arrayferry_gym.wrappers._statistics as _statistics
from arrayferry_gym._space_trees import branches, build, leaves, split
from arrayferry_gym._xp import select

from ._kernel import Kernel, Spaces, State, StepResult

__all__ = [
    "ClipAction",
    "ClipReward",
    "DelayObservation",
    "DtypeObservation",
    "FilterObservation",
    "FlattenObservation",
    "FrameStackObservation",
    "GrayscaleObservation",
    "Kernel",
    "NormalizeObservation",
    "NormalizeReward",
    "RecordEpisodeStatistics",
    "RescaleAction",
    "RescaleObservation",
    "ReshapeObservation",
    "Spaces",
    "State",
    "StepResult",
    "StickyAction",
    "TimeAwareObservation",
    "TransformAction",
    "TransformObservation",
    "TransformReward",
]


_OF_SPACES = {"inside", "outside", "places"}
"""The attributes of kernels around an environment."""


class _Shell(gym.Env[Any, Any]):
    """An environment of nothing but spaces, around which Gymnasium's wrappers check them and make their own."""

    def __init__(self, observation: Space[Any], action: Space[Any]) -> None:
        self.observation_space = observation
        self.action_space = action


class _OfGymnasium(Kernel):
    """A kernel whose arguments and spaces are those of Gymnasium's wrapper of the same name."""

    _original: type[Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(gym.wrappers, cls.__name__):
            cls._original = getattr(gym.wrappers, cls.__name__)

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        arguments = {name: x for name, x in vars(self).items() if name not in _OF_SPACES}
        made = self._original(_Shell(observation, action), **arguments)
        return made.observation_space, made.action_space


class _Observations(_OfGymnasium):
    """A kernel that changes observations, each by itself."""

    parts = ("observation",)

    def of(self, xp: Any, state: State, observation: Any) -> Any:
        """Return what the agent sees of observations (n, ...)."""
        raise NotImplementedError

    def reset(self, xp: Any, state: State, rows: Any, observation: Any) -> tuple[State, Any]:
        return state, self.of(xp, state, observation)

    def step(self, xp: Any, state: State, result: StepResult) -> tuple[State, StepResult]:
        return state, StepResult(self.of(xp, state, result.observation), *result[1:])


class NormalizeObservation(_OfGymnasium):
    """Shifts and scales observations by the running mean and variance of all observations so far, in float32.

    Each observation of an episode counts once: the first, those after steps, and the final one.

    Args:
        epsilon: what is added to the variance under the root.
    """

    parts = ("observation",)
    statistics = "obs_rms"

    def __init__(self, epsilon: float = 1e-8) -> None:
        self.epsilon = epsilon

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        shape = tuple(spaces.observation.shape or ())
        return State(lasting={"obs_rms": _statistics.fresh(xp, shape, device)})

    def reset(self, xp: Any, state: State, rows: Any, observation: Any) -> tuple[State, Any]:
        return self._counted(xp, state, observation, rows)

    def step(self, xp: Any, state: State, result: StepResult) -> tuple[State, StepResult]:
        state, observation = self._counted(xp, state, result.observation, result.rows)
        return state, StepResult(observation, *result[1:])

    def _counted(self, xp: Any, state: State, x: Any, rows: Any) -> tuple[State, Any]:
        moments = _statistics.updated(xp, state.lasting["obs_rms"], x, rows)
        mean, deviation = moments.mean, xp.sqrt(moments.var + self.epsilon)
        if x.dtype == xp.float32:  # which needs no casts of the batch
            mean, deviation = (xp.astype(part, x.dtype, copy=False) for part in (mean, deviation))
        x = (x - mean) / deviation
        return State((), {"obs_rms": moments}), xp.astype(x, xp.float32, copy=False)


class NormalizeReward(_OfGymnasium):
    """Divides rewards by the root of the running variance of the discounted returns so far.

    Unlike Gymnasium's, the return of an episode never goes on in the next one.

    Args:
        gamma: the discount.
        epsilon: what is added to the variance under the root.
    """

    parts = ("reward", "ended")
    statistics = "return_rms"

    def __init__(self, gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        self.gamma = gamma
        self.epsilon = epsilon

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        moments = _statistics.fresh(xp, (), device)
        returns = xp.zeros((n,), dtype=moments.mean.dtype, device=device)
        return State({"return": returns}, {"return_rms": moments})

    def step(self, xp: Any, state: State, result: StepResult) -> tuple[State, StepResult]:
        before, moments = state.episode["return"], state.lasting["return_rms"]
        reward = xp.astype(result.reward, before.dtype)
        going_on = xp.astype(~result.terminated, before.dtype)
        returns = before * self.gamma * going_on + reward
        if result.rows is not None:
            returns = xp.where(result.rows, returns, before)
        moments = _statistics.updated(xp, moments, returns, result.rows)
        reward = reward / xp.sqrt(moments.var + self.epsilon)
        if xp.isdtype(result.reward.dtype, "real floating"):
            reward = xp.astype(reward, result.reward.dtype)
        state = state._replace(episode={"return": returns}, lasting={"return_rms": moments})
        return state, result._replace(reward=reward)


class RecordEpisodeStatistics(Kernel):
    """Adds the returns and lengths of episodes that have ended to infos: "r" and "l".

    Args:
        buffer_length: how many episodes the queues of the wrappers around ordinary environments hold.
        stats_key: the key in infos.
    """

    parts = ("reward", "ended")

    def __init__(self, buffer_length: int = 100, stats_key: str = "episode") -> None:
        self.buffer_length = buffer_length
        self.stats_key = stats_key

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        dtype = _statistics.wide(xp, device)
        returns = xp.zeros((n,), dtype=dtype, device=device)
        whole = _held(xp, np.dtype(np.int64))
        return State({"r": returns, "l": xp.zeros((n,), dtype=whole, device=device)})

    def step(self, xp: Any, state: State, result: StepResult) -> tuple[State, StepResult]:
        returns, lengths = state.episode["r"], state.episode["l"]
        reward = xp.astype(result.reward, returns.dtype)
        if result.rows is None:
            returns, lengths = returns + reward, lengths + 1
        else:
            returns = xp.where(result.rows, returns + reward, returns)
            lengths = lengths + xp.astype(result.rows, lengths.dtype)
        ended = result.terminated | result.truncated
        key = self.stats_key
        values = {"r": xp.where(ended, returns, 0.0), "l": xp.where(ended, lengths, 0)}
        result = result._replace(info={**result.info, key: values, f"_{key}": ended})
        return state._replace(episode={"r": returns, "l": lengths}), result


class TransformObservation(Kernel):
    """Changes observations by a function.

    Args:
        func: takes and returns observations of a batch, (n, ...).
        observation_space: the space of one observation after that, None if it is the same.
    """

    parts = ("observation",)

    def __init__(
        self, func: Callable[[Any], Any], observation_space: Space[Any] | None = None
    ) -> None:
        self.func = func
        self.observation_space = observation_space

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        return self.observation_space or observation, action

    def reset(self, xp: Any, state: State, rows: Any, observation: Any) -> tuple[State, Any]:
        return state, self.func(observation)

    def step(self, xp: Any, state: State, result: StepResult) -> tuple[State, StepResult]:
        return state, result._replace(observation=self.func(result.observation))


class TransformAction(Kernel):
    """Changes actions by a function.

    Args:
        func: takes actions of the agent, (n, ...), and returns those for the environment.
        action_space: the space of one action of the agent, None if it is the same.
    """

    parts = ()

    def __init__(self, func: Callable[[Any], Any], action_space: Space[Any] | None = None) -> None:
        self.func = func
        self.action_space = action_space

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        return observation, self.action_space or action

    def action(self, xp: Any, rng: af.Random, state: State, action: Any) -> tuple[State, Any]:
        return state, self.func(action)


class TransformReward(Kernel):
    """Changes rewards by a function.

    Args:
        func: takes and returns rewards of a batch, (n,).
    """

    parts = ("reward",)

    def __init__(self, func: Callable[[Any], Any]) -> None:
        self.func = func

    def step(self, xp: Any, state: State, result: StepResult) -> tuple[State, StepResult]:
        return state, result._replace(reward=self.func(result.reward))


class ClipReward(_OfGymnasium):
    """Clips rewards.

    Args:
        min_reward: the lower bound, None for none.
        max_reward: the upper bound, None for none.
    """

    parts = ("reward",)

    def __init__(self, min_reward: Any = None, max_reward: Any = None) -> None:
        self.min_reward = min_reward
        self.max_reward = max_reward

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        bounds = (self.min_reward, self.max_reward)
        return State(fixed=tuple(_bound(xp, x, device) for x in bounds))

    def step(self, xp: Any, state: State, result: StepResult) -> tuple[State, StepResult]:
        reward, (low, high) = result.reward, state.fixed
        if low is not None:
            reward = xp.where(reward < low, low, reward)
        if high is not None:
            reward = xp.where(reward > high, high, reward)
        return state, result._replace(reward=reward)


class ClipAction(_OfGymnasium):
    """Clips actions to the bounds of their Box."""

    parts = ()

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        low, high = spaces.action.low, spaces.action.high  # type: ignore[attr-defined]
        return State(fixed=(xp.asarray(low, device=device), xp.asarray(high, device=device)))

    def action(self, xp: Any, rng: af.Random, state: State, action: Any) -> tuple[State, Any]:
        low, high = state.fixed
        return state, xp.where(action < low, low, xp.where(action > high, high, action))


class RescaleAction(_OfGymnasium):
    """Maps actions between two bounds to those of the environment.

    Args:
        min_action: the lower bound of the agent's actions.
        max_action: the upper bound.
    """

    parts = ()

    def __init__(self, min_action: Any, max_action: Any) -> None:
        self.min_action = min_action
        self.max_action = max_action

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        factors = _factors(spaces.action, self.min_action, self.max_action)
        return State(fixed=tuple(xp.asarray(x[None], device=device) for x in factors))

    def action(self, xp: Any, rng: af.Random, state: State, action: Any) -> tuple[State, Any]:
        gradient, intercept = state.fixed
        return state, (action - intercept) / gradient


class RescaleObservation(_Observations):
    """Maps observations from the bounds of their Box to others.

    Args:
        min_obs: the lower bound after that.
        max_obs: the upper bound.
    """

    def __init__(self, min_obs: Any, max_obs: Any) -> None:
        self.min_obs = min_obs
        self.max_obs = max_obs

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        factors = _factors(spaces.observation, self.min_obs, self.max_obs)
        return State(fixed=tuple(xp.asarray(x[None], device=device) for x in factors))

    def of(self, xp: Any, state: State, observation: Any) -> Any:
        _, _, (gradient, intercept) = state
        return gradient * observation + intercept


class ReshapeObservation(_Observations):
    """Gives observations another shape.

    Args:
        shape: the shape of one.
    """

    def __init__(self, shape: int | tuple[int, ...]) -> None:
        self.shape = shape

    def of(self, xp: Any, state: State, observation: Any) -> Any:
        return xp.reshape(observation, (observation.shape[0], *_shape(self.outside)))


class DtypeObservation(_Observations):
    """Casts observations to another dtype.

    Args:
        dtype: the dtype, as NumPy names it.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    def of(self, xp: Any, state: State, observation: Any) -> Any:
        return xp.astype(observation, _held(xp, self.outside.observation.dtype))


class GrayscaleObservation(_Observations):
    """Makes images of red, green and blue grey.

    Args:
        keep_dim: whether an axis of length 1 is left for the colours.
    """

    def __init__(self, keep_dim: bool = False) -> None:
        self.keep_dim = keep_dim

    def of(self, xp: Any, state: State, observation: Any) -> Any:
        image = xp.astype(observation, _held(xp, np.dtype(np.float64)))
        grey = 0.2125 * image[..., 0] + 0.7154 * image[..., 1] + 0.0721 * image[..., 2]
        grey = xp.astype(grey, xp.uint8)
        return grey[..., None] if self.keep_dim else grey


class FlattenObservation(_Observations):
    """Makes observations arrays of one axis; those of Discrete are 1 in one place, and else 0."""

    places: list[tuple[Any, tuple[Any, ...]]]

    def of(self, xp: Any, state: State, observation: Any) -> Any:
        return _flat(xp, self.places, self.outside.observation, observation)

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        vars(self)["places"] = _places(observation)
        return super().spaces(observation, action)


class FilterObservation(_Observations):
    """Leaves out parts of the observations of a Dict or Tuple.

    Args:
        filter_keys: the keys to keep, or the numbers of the places in a Tuple.
    """

    def __init__(self, filter_keys: Sequence[str | int]) -> None:
        self.filter_keys = filter_keys

    def of(self, xp: Any, state: State, observation: Any) -> Any:
        kept: Any = {key: observation[key] for key in self.filter_keys}
        return kept if isinstance(self.inside.observation, spaces.Dict) else tuple(kept.values())


class _Frames(_OfGymnasium):
    """A kernel that keeps the latest observations, the newest last."""

    parts = ("observation",)

    def _queues(self, xp: Any, n: int, values: Any, length: int, device: Any) -> State:
        """Return the state with a queue (n, length, ...) for each leaf, full of the values of one observation."""
        parts = split(self.inside.observation, values)
        arrays = [
            xp.asarray(np.asarray(x, space.dtype), device=device)
            for (space, _), x in zip(leaves(self.inside.observation), parts, strict=True)
        ]
        queues = tuple(xp.broadcast_to(x, (n, length, *x.shape)) for x in arrays)
        return State(queues)

    def _pushed(self, xp: Any, queues: Any, observation: Any) -> tuple[Any, ...]:
        parts = split(self.inside.observation, observation)
        return tuple(
            xp.concat([queue[:, 1:], xp.astype(x[:, None], queue.dtype)], axis=1)
            for queue, x in zip(queues, parts, strict=True)
        )

    def _chosen(self, xp: Any, rows: Any, new: Any, old: Any) -> tuple[Any, ...]:
        if rows is None:
            return new  # type: ignore[no-any-return]
        return tuple(select(xp, rows, x, y) for x, y in zip(new, old, strict=True))

    def _built(self, xp: Any, queues: Any, index: Any = slice(None)) -> Any:
        """Return an observation of parts of the queues, in memory of its own."""
        space = self.inside.observation
        return build(space, (xp.asarray(queue[:, index], copy=True) for queue in queues))


class FrameStackObservation(_Frames):
    """Shows the agent the latest observations, the newest last.

    Args:
        stack_size: how many.
        padding_type: what comes before the first observation: "reset" for copies of it, "zero", or an observation.
    """

    def __init__(self, stack_size: int, *, padding_type: Any = "reset") -> None:
        self.stack_size = stack_size
        self.padding_type = padding_type

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        padding = self.padding_type
        if isinstance(padding, str):
            padding = create_zero_array(spaces.observation)
        return self._queues(xp, n, padding, self.stack_size, device)

    def reset(self, xp: Any, state: State, rows: Any, observation: Any) -> tuple[State, Any]:
        new = self._pushed(xp, state.episode, observation)
        if isinstance(self.padding_type, str) and self.padding_type == "reset":
            new = tuple(xp.broadcast_to(queue[:, -1:], queue.shape) for queue in new)
        queues = self._chosen(xp, rows, new, state.episode)
        return state._replace(episode=queues), self._built(xp, queues)

    def step(self, xp: Any, state: State, result: StepResult) -> tuple[State, StepResult]:
        new = self._pushed(xp, state.episode, result.observation)
        queues = self._chosen(xp, result.rows, new, state.episode)
        shown = result._replace(observation=self._built(xp, queues))
        return state._replace(episode=queues), shown


class DelayObservation(_Frames):
    """Shows the agent the observations of some steps ago, and zeros before.

    Args:
        delay: how many steps.
    """

    def __init__(self, delay: int) -> None:
        self.delay = delay

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        zeros = create_zero_array(spaces.observation)
        return self._queues(xp, n, zeros, self.delay + 1, device)

    def reset(self, xp: Any, state: State, rows: Any, observation: Any) -> tuple[State, Any]:
        new = self._pushed(xp, state.episode, observation)
        queues = self._chosen(xp, rows, new, state.episode)
        return state._replace(episode=queues), self._built(xp, queues, 0)

    def step(self, xp: Any, state: State, result: StepResult) -> tuple[State, StepResult]:
        new = self._pushed(xp, state.episode, result.observation)
        queues = self._chosen(xp, result.rows, new, state.episode)
        shown = result._replace(observation=self._built(xp, queues, 0))
        return state._replace(episode=queues), shown


class TimeAwareObservation(Kernel):
    """Adds the number of steps of the episode to observations.

    Args:
        flatten: whether the result is an array of one axis, rather than a dict or tuple.
        normalize_time: whether the number is divided by the limit of steps, in float32.
        dict_time_key: its key in a Dict.
    """

    parts = ("observation",)
    places: list[tuple[Any, tuple[Any, ...]]]

    def __init__(
        self, flatten: bool = True, normalize_time: bool = False, *, dict_time_key: str = "time"
    ) -> None:
        self.flatten = flatten
        self.normalize_time = normalize_time
        self.dict_time_key = dict_time_key

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        limit = self.inside.max_episode_steps
        if limit is None:
            raise ValueError(
                "The environment must be wrapped by a TimeLimit wrapper or the spec specify a `max_episode_steps`."
            )
        timed = self._with_time(observation, limit)
        vars(self)["places"] = _places(timed)
        return (spaces.flatten_space(timed) if self.flatten else timed), action

    def _with_time(self, observation: Space[Any], limit: int) -> Space[Any]:
        time: Space[Any] = spaces.Box(0, limit, dtype=np.int32)
        if self.normalize_time:
            time = spaces.Box(0.0, 1.0)
        if isinstance(observation, spaces.Dict):
            if self.dict_time_key in observation.spaces:
                raise ValueError(
                    f"The `dict_time_key` ({self.dict_time_key!r}) already exists in the observation space."
                )
            return spaces.Dict({self.dict_time_key: time, **observation.spaces}, sort_keys=False)
        if isinstance(observation, spaces.Tuple):
            return spaces.Tuple((*observation.spaces, time))
        return spaces.Dict(obs=observation, time=time)

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        return State(xp.zeros((n,), dtype=xp.int32, device=device))

    def reset(self, xp: Any, state: State, rows: Any, observation: Any) -> tuple[State, Any]:
        return state, self._of(xp, state.episode, observation)

    def step(self, xp: Any, state: State, result: StepResult) -> tuple[State, StepResult]:
        time = state.episode + (1 if result.rows is None else xp.astype(result.rows, xp.int32))
        shown = StepResult(self._of(xp, time, result.observation), *result[1:])
        return State(time), shown

    def _of(self, xp: Any, time: Any, observation: Any) -> Any:
        time = time[:, None]
        if self.normalize_time:
            limit = self.inside.max_episode_steps
            time = xp.astype(xp.astype(time, _held(xp, np.dtype(float))) / limit, xp.float32)
        space = self.inside.observation
        if isinstance(space, spaces.Dict):
            observation = {self.dict_time_key: time, **observation}
        elif isinstance(space, spaces.Tuple):
            observation = (*observation, time)
        else:
            observation = {"obs": observation, "time": time}
        if not self.flatten:
            return observation
        return _flat(xp, self.places, self.outside.observation, observation)


class StickyAction(_OfGymnasium):
    """Repeats the last action by chance, instead of what the agent chose.

    Args:
        repeat_action_probability: how likely that is at each step.
        repeat_action_duration: how often it is repeated then, or the lowest and the highest number.
    """

    parts = ()

    def __init__(
        self,
        repeat_action_probability: float,
        repeat_action_duration: int | tuple[int, int] = 1,
    ) -> None:
        self.repeat_action_probability = repeat_action_probability
        self.repeat_action_duration = repeat_action_duration

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        last = tuple(
            xp.zeros((n, *(space.shape or ())), dtype=_held(xp, space.dtype), device=device)
            for space, _ in leaves(spaces.action)
        )
        known = xp.zeros((n,), dtype=xp.bool, device=device)
        return State({
            "last": last, "known": known, "left": xp.zeros((n,), dtype=xp.int32, device=device)
        })  # fmt: skip

    def action(self, xp: Any, rng: af.Random, state: State, action: Any) -> tuple[State, Any]:
        last, known, left = (state.episode[name] for name in ("last", "known", "left"))
        n, duration = known.shape[0], self.repeat_action_duration
        low, high = (duration, duration) if isinstance(duration, int) else duration
        chance = rng.uniform((n,), 0.0, 1.0) < self.repeat_action_probability
        begins = known & chance & (left == 0)
        count = xp.astype(rng.integers((n,), low, high + 1), left.dtype)
        left = xp.where(begins, count, left)
        repeats = left > 0
        taken = tuple(
            select(xp, repeats, old, xp.astype(new, old.dtype))
            for old, new in zip(last, split(self.inside.action, action), strict=True)
        )
        episode = {
            "last": taken, "known": xp.ones_like(known), "left": left - xp.astype(repeats, left.dtype)
        }  # fmt: skip
        return state._replace(episode=episode), build(self.inside.action, taken)


def _bound(xp: Any, x: Any, device: Any) -> Any:
    """Return a bound as a number of Python, which takes the dtype of what it bounds, or an array of the library."""
    return x if x is None else float(x) if np.ndim(x) == 0 else xp.asarray(x, device=device)


def _shape(around: Spaces) -> tuple[int, ...]:
    return tuple(around.observation.shape or ())


def _held(xp: Any, dtype: Any) -> Any:
    """Return the dtype that a library has for one of NumPy."""
    if xp.__name__ == "array_api_compat.numpy":
        return dtype
    return xp.asarray(np.zeros((), dtype)).dtype


def _factors(box: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Return the gradient and the intercept of the map from a Box to other bounds, in the dtype of the Box."""
    low, high = (np.broadcast_to(np.asarray(x, np.float64), box.shape) for x in (low, high))
    own_low, own_high = box.low.astype(np.float64), box.high.astype(np.float64)
    gradient, intercept = np.ones(box.shape), np.zeros(box.shape)
    both = np.isfinite(low) & np.isfinite(high)
    gradient[both] = (high[both] - low[both]) / (own_high[both] - own_low[both])
    above, below = np.isfinite(high), np.isfinite(low)
    intercept[above] = high[above] - own_high[above]
    intercept[below] = low[below] - gradient[below] * own_low[below]
    return gradient.astype(box.dtype), intercept.astype(box.dtype)


def _places(space: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return the leaves of a space, and the keys that lead to each."""
    inner = branches(space)
    if inner is None:
        return [(space, path)]
    return [place for key, part in inner for place in _places(part, (*path, key))]


def _flat(xp: Any, places: Any, flat: Any, batch: Any) -> Any:
    """Return a batch with one axis for each environment, in the dtype of the flattened space."""
    parts = []
    for leaf, path in places:
        x = batch
        for key in path:
            x = x[key]
        if not hasattr(x, "shape"):  # what is no array, of a single environment
            parts.append(xp.asarray(spaces.flatten(leaf, x[0]))[None])
        elif isinstance(leaf, spaces.Discrete):
            parts.append(_one_hot(xp, x - int(leaf.start), int(leaf.n)))
        elif isinstance(leaf, spaces.MultiDiscrete):
            x = xp.reshape(x, (x.shape[0], -1))
            counts, starts = leaf.nvec.ravel().tolist(), leaf.start.ravel().tolist()
            parts += [
                _one_hot(xp, x[:, i] - start, count)
                for i, (start, count) in enumerate(zip(starts, counts, strict=True))
            ]
        else:
            parts.append(x if x.ndim == 2 else xp.reshape(x, (x.shape[0], -1)))
    dtype = _held(xp, flat.dtype)
    parts = [part if part.dtype == dtype else xp.astype(part, dtype) for part in parts]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)


def _one_hot(xp: Any, x: Any, count: int) -> Any:
    places = xp.astype(xp.arange(count, device=getattr(x, "device", None)), x.dtype)
    return x[:, None] == places[None, :]
