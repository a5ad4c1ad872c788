"""Kernels with statistics of observations, of returns, and of episodes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

import arrayferry as af
import arrayferry_gym.wrappers._kernels.moments as moments_of
from arrayferry._utilities.options import factor_of
from arrayferry.typing import AnyArray, AnyTree, Device, Namespace
from arrayferry_gym._arrays import as_rewards, dtype_in, rows_of, select, to_shape
from arrayferry_gym._episodes import Step

from .kernel import Kernel, Spaces, State
from .of_gymnasium import Observations, OfGymnasium


class NormalizeObservation(Observations):
    """Normalises observations by the running mean and variance of all observations so far. The results are float32.

    Each observation of an episode counts once, also the first and the last observation.

    Args:
        epsilon: a number that is added to the variance, so that the divisor is not 0.

    Raises:
        gymnasium.error.InvalidBound: `epsilon` is not positive.
        ValueError: the observation space, such as a Dict, has no shape.

    Examples:
        >>> from arrayferry_envs import CartPole, wrap
        >>> from arrayferry_gym.wrappers.kernels import NormalizeObservation
        >>> envs = wrap(CartPole(), NormalizeObservation()).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> envs.obs_rms.mean.shape
        (4,)
    """

    statistics: ClassVar[str | None] = "obs_rms"

    def __init__(self, epsilon: float = 1e-8) -> None:
        self.epsilon = epsilon

    def init(self, xp: Namespace, n: int, spaces: Spaces, device: Device) -> State:
        shape = tuple(spaces.observation.shape or ())
        return State(lasting={"obs_rms": moments_of.fresh(xp, shape, device)})

    def seen(
        self, xp: Namespace, state: State, rows: AnyArray, observation: AnyTree
    ) -> tuple[State, Any]:
        x: Any = observation
        moments = moments_of.updated(xp, state.lasting["obs_rms"], x, rows)
        mean, deviation = moments.mean, xp.sqrt(moments.var + self.epsilon)
        if x.dtype == xp.float32:  # casting the statistics is faster than casting the batch
            mean, deviation = (xp.astype(part, x.dtype, copy=False) for part in (mean, deviation))
        else:  # the Array API standard does not define integers minus floats
            x = xp.astype(x, mean.dtype, copy=False)
        x = (x - mean[None, ...]) / deviation[None, ...]
        return State((), {"obs_rms": moments}), xp.astype(x, xp.float32, copy=False)


class NormalizeReward(OfGymnasium):
    """Divides rewards by the running standard deviation of the discounted returns so far.

    Unlike in Gymnasium's wrapper, the return of a truncated episode never carries over into the next episode.

    Args:
        gamma: the discount factor, from 0 to 1.
        epsilon: a number that is added to the variance, so that the divisor is not 0.

    Raises:
        gymnasium.error.InvalidBound: `gamma` is not between 0 and 1, or `epsilon` is not positive.

    Examples:
        >>> from arrayferry_envs import CartPole, wrap
        >>> from arrayferry_gym.wrappers.kernels import NormalizeReward
        >>> envs = wrap(CartPole(), NormalizeReward(gamma=0.9)).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations, rewards, *_ = envs.step(envs.action_space.sample())
        >>> [*envs.state_dict()["return_rms"]]
        ['count', 'mean', 'var']
    """

    parts: ClassVar[tuple[str, ...]] = ("reward", "ended")
    statistics: ClassVar[str | None] = "return_rms"

    def __init__(self, gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        self.gamma: Any = gamma
        self.epsilon = epsilon

    def init(self, xp: Namespace, n: int, spaces: Spaces, device: Device) -> State:
        moments = moments_of.fresh(xp, (), device)
        returns = xp.zeros((n,), dtype=moments.mean.dtype, device=device)
        return State({"return": returns}, {"return_rms": moments})

    def rewards(self, shape: Any, dtype: Any) -> tuple[tuple[int, ...], str | None]:
        return shape, dtype

    def step(self, xp: Namespace, state: State, result: Step) -> tuple[State, Step]:
        old_returns, moments = state.episode["return"], state.lasting["return_rms"]
        reward = xp.astype(as_rewards(result.reward, old_returns.shape[0]), old_returns.dtype)
        if len(moments.mean.shape) and tuple(moments.mean.shape) != tuple(reward.shape[1:]):
            raise af.OptionError(
                f"the statistics are of returns of the shape {tuple(moments.mean.shape)}, but rewards have the shape "
                f"{tuple(reward.shape[1:])}",
                remedy="Load statistics of an environment with the same rewards.",
            )
        going_on = xp.astype(~result.terminated, old_returns.dtype)
        if len(reward.shape) > 1:
            old_returns, going_on = (to_shape(xp, x, reward.shape) for x in (old_returns, going_on))
        returns = old_returns * self.gamma * going_on + reward
        if result.valid is not None:
            returns = select(xp, result.valid, returns, old_returns)
        moments = moments_of.updated(xp, moments, returns, result.valid)
        reward = reward / xp.sqrt(moments.var + self.epsilon)[None, ...]
        if xp.isdtype(result.reward.dtype, "real floating"):
            reward = xp.astype(reward, result.reward.dtype)
        state = state._replace(episode={"return": returns}, lasting={"return_rms": moments})
        return state, result._replace(reward=reward)


class RecordEpisodeStatistics(Kernel):
    """Adds the returns "r", lengths "l" and discounted returns "dr" of finished episodes to infos.

    Returns have the shape of rewards: with several objectives or agents, there is a return for each.

    Args:
        buffer_length: the maximum number of episodes in the queues of a wrapper, such as `return_queue`.
        stats_key: the key of the statistics in infos.
        gamma: the discount factor of "dr", from 0 to 1. None leaves out "dr".

    Raises:
        arrayferry.OptionError: `gamma` is not between 0 and 1.

    Examples:
        >>> import jax
        >>> from arrayferry_envs import CartPole, Functions, wrap
        >>> from arrayferry_gym.wrappers.kernels import RecordEpisodeStatistics
        >>> functions = Functions(wrap(CartPole(), RecordEpisodeStatistics()))
        >>> env_state, observations = functions.reset(jax.random.key(0), 2)
        >>> env_state, outcome = functions.step(jax.random.key(1), env_state, [0, 1])
        >>> sorted(outcome.info["episode"])
        ['l', 'r']
    """

    parts: ClassVar[tuple[str, ...]] = ("reward", "ended")

    def __init__(
        self, buffer_length: int = 100, stats_key: str = "episode", *, gamma: float | None = None
    ) -> None:
        self.buffer_length = buffer_length
        self.stats_key = stats_key
        self.gamma: Any = None if gamma is None else factor_of("gamma", gamma, scalar=True)

    def init(self, xp: Namespace, n: int, spaces: Spaces, device: Device) -> State:
        dtype = moments_of.wide(xp, device)
        integer_dtype = dtype_in(xp, np.dtype(np.int64))
        names = ("r",) if self.gamma is None else ("r", "dr")
        returns = {name: xp.zeros((n,), dtype=dtype, device=device) for name in names}
        return State({**returns, "l": xp.zeros((n,), dtype=integer_dtype, device=device)})

    def rewards(self, shape: Any, dtype: Any) -> tuple[tuple[int, ...], str | None]:
        return shape, dtype

    def step(self, xp: Namespace, state: State, result: Step) -> tuple[State, Step]:
        lengths, ended = state.episode["l"], result.terminated | result.truncated
        reward = xp.astype(as_rewards(result.reward, lengths.shape[0]), state.episode["r"].dtype)
        if result.valid is not None:
            reward = xp.where(rows_of(xp, result.valid, reward), reward, 0.0)
            ended = ended & result.valid
        episode = {"r": to_shape(xp, state.episode["r"], reward.shape) + reward}
        if self.gamma is not None:
            factor = to_shape(xp, self.gamma ** xp.astype(lengths, reward.dtype), reward.shape)
            episode["dr"] = to_shape(xp, state.episode["dr"], reward.shape) + factor * reward
        episode["l"] = lengths + (
            1 if result.valid is None else xp.astype(result.valid, lengths.dtype)
        )
        ended_values = {name: xp.where(rows_of(xp, ended, x), x, 0) for name, x in episode.items()}
        key = self.stats_key
        result = result._replace(info={**result.info, key: ended_values, f"_{key}": ended})
        return state._replace(episode=episode), result
