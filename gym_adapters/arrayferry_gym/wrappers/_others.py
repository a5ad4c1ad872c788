"""Kernels with statistics, and those that change rewards or actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from gymnasium import Space

import arrayferry as af
import arrayferry_gym.wrappers._statistics as _statistics
from arrayferry_gym._arrays import select
from arrayferry_gym._spaces.trees import build, leaves, split

from ._kernel import Kernel, Spaces, State, StepResult
from ._of_gymnasium import OfGymnasium, factors, held


class NormalizeObservation(OfGymnasium):
    """Shifts and scales observations by the running mean and variance of all observations so far, in float32.

    Each observation of an episode counts once: the first, those after steps, and the final one.

    Args:
        epsilon: the number added to the variance under the square root.
    """

    parts: ClassVar[tuple[str, ...]] = ("observation",)
    statistics: ClassVar[str] = "obs_rms"

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
        else:  # integers and floats are not mixed in the standard
            x = xp.astype(x, mean.dtype, copy=False)
        x = (x - mean) / deviation
        return State((), {"obs_rms": moments}), xp.astype(x, xp.float32, copy=False)


class NormalizeReward(OfGymnasium):
    """Divides rewards by the square root of the running variance of the discounted returns so far.

    Unlike in Gymnasium's wrapper, the return of an episode never carries over into the next one.

    Args:
        gamma: the discount factor.
        epsilon: the number added to the variance under the square root.
    """

    parts: ClassVar[tuple[str, ...]] = ("reward", "ended")
    statistics: ClassVar[str] = "return_rms"

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
    """Adds the returns and lengths of finished episodes to infos: "r" and "l".

    Args:
        buffer_length: the number of episodes that the queues of the wrappers around ordinary environments hold.
        stats_key: the key in infos.
    """

    parts: ClassVar[tuple[str, ...]] = ("reward", "ended")

    def __init__(self, buffer_length: int = 100, stats_key: str = "episode") -> None:
        self.buffer_length = buffer_length
        self.stats_key = stats_key

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        dtype = _statistics.wide(xp, device)
        returns = xp.zeros((n,), dtype=dtype, device=device)
        whole = held(xp, np.dtype(np.int64))
        return State({"r": returns, "l": xp.zeros((n,), dtype=whole, device=device)})

    def step(self, xp: Any, state: State, result: StepResult) -> tuple[State, StepResult]:
        returns, lengths = state.episode["r"], state.episode["l"]
        reward = xp.astype(result.reward, returns.dtype)
        ended = result.terminated | result.truncated
        if result.rows is None:
            returns, lengths = returns + reward, lengths + 1
        else:
            returns = xp.where(result.rows, returns + reward, returns)
            lengths = lengths + xp.astype(result.rows, lengths.dtype)
            ended = ended & result.rows
        key = self.stats_key
        values = {"r": xp.where(ended, returns, 0.0), "l": xp.where(ended, lengths, 0)}
        result = result._replace(info={**result.info, key: values, f"_{key}": ended})
        return state._replace(episode={"r": returns, "l": lengths}), result


class TransformAction(Kernel):
    """Applies a function to actions.

    Args:
        func: takes actions of the agent, (n, ...), and returns those for the environment.
        action_space: the space of one of the agent's actions, None if it is the same.
    """

    parts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, func: Callable[[Any], Any], action_space: Space[Any] | None = None) -> None:
        self.func = func
        self.action_space = action_space

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        return observation, self.action_space or action

    def action(self, xp: Any, rng: af.Random, state: State, action: Any) -> tuple[State, Any]:
        return state, self.func(action)


class TransformReward(Kernel):
    """Applies a function to rewards.

    Args:
        func: takes and returns rewards of a batch, (n,).
    """

    parts: ClassVar[tuple[str, ...]] = ("reward",)

    def __init__(self, func: Callable[[Any], Any]) -> None:
        self.func = func

    def step(self, xp: Any, state: State, result: StepResult) -> tuple[State, StepResult]:
        return state, result._replace(reward=self.func(result.reward))


class ClipReward(OfGymnasium):
    """Clips rewards.

    Args:
        min_reward: the lower bound, None for none.
        max_reward: the upper bound, None for none.
    """

    parts: ClassVar[tuple[str, ...]] = ("reward",)

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


class ClipAction(OfGymnasium):
    """Clips actions to the bounds of their Box."""

    parts: ClassVar[tuple[str, ...]] = ()

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        low, high = spaces.action.low, spaces.action.high  # type: ignore[attr-defined]
        return State(fixed=(xp.asarray(low, device=device), xp.asarray(high, device=device)))

    def action(self, xp: Any, rng: af.Random, state: State, action: Any) -> tuple[State, Any]:
        low, high = state.fixed
        return state, xp.where(action < low, low, xp.where(action > high, high, action))


class RescaleAction(OfGymnasium):
    """Maps actions from a given range to the bounds of the environment.

    Args:
        min_action: the lower bound of the agent's actions.
        max_action: the upper bound.
    """

    parts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, min_action: Any, max_action: Any) -> None:
        self.min_action = min_action
        self.max_action = max_action

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        both = factors(spaces.action, self.min_action, self.max_action)
        return State(fixed=tuple(xp.asarray(x[None], device=device) for x in both))

    def action(self, xp: Any, rng: af.Random, state: State, action: Any) -> tuple[State, Any]:
        gradient, intercept = state.fixed
        return state, (action - intercept) / gradient


class StickyAction(OfGymnasium):
    """Randomly repeats the last action in place of the agent's.

    Args:
        repeat_action_probability: the probability at each step.
        repeat_action_duration: the number of repetitions, or the lowest and the highest number.
    """

    parts: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        repeat_action_probability: float,
        repeat_action_duration: int | tuple[int, int] = 1,
    ) -> None:
        self.repeat_action_probability = repeat_action_probability
        self.repeat_action_duration = repeat_action_duration

    def init(self, xp: Any, n: int, spaces: Spaces, device: Any) -> State:
        last = tuple(
            xp.zeros((n, *(space.shape or ())), dtype=held(xp, space.dtype), device=device)
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
