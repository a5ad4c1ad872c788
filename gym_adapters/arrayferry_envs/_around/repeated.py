"""`repeat_action`: a `FunctionalEnv` that repeats each action for several steps."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import arrayferry as af
from arrayferry._utilities.options import check_flag, count_of
from arrayferry.typing import AnyTree, Namespace
from arrayferry_envs._contract.checked import select_leaves
from arrayferry_envs._contract.functional_env import FunctionalEnv, checked_env
from arrayferry_envs._contract.step_results import StepResults
from arrayferry_gym import Random
from arrayferry_gym.extending import mapped, select

from .around import AroundEnv


class _State(NamedTuple):
    state: Any
    elapsed: Any  # the number of inner steps in the current episode, int32 (n,)
    last: Any  # the observation before the last inner step, or None if `maximum` is false


@dataclasses.dataclass(eq=False, repr=False)
class RepeatedEnv(AroundEnv):
    """A `FunctionalEnv` in which each action is repeated for several steps, as returned by `repeat_action`.

    Attributes:
        env: the inner environment.
        num_repeats: the number of inner steps in one step.
        maximum: whether observations are elementwise maxima of the last two inner observations.
    """

    num_repeats: int
    maximum: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        self.max_episode_steps: int | None = None  # step() applies the inner environment's limit

    @property
    def _informs(self) -> bool:
        return self.env._informs

    def _limited(self, limit: int | None) -> int | None:
        inner_limit = self.env._limited(self.env.max_episode_steps)
        limits = [] if inner_limit is None else [-(-inner_limit // self.num_repeats)]
        return min(limits if limit is None else [*limits, limit], default=None)

    def reset(self, xp: Namespace, rng: Random, n: int, params: AnyTree) -> Any:
        """Begin episodes of the inner environment."""
        inner_state = self.env.reset(xp, rng, n, params)
        last_seen = self.env.observe(xp, inner_state, params) if self.maximum else None
        return _State(inner_state, xp.zeros((n,), dtype=xp.int32), last_seen)

    def step(
        self, xp: Namespace, rng: Random, state: AnyTree, action: AnyTree, params: AnyTree
    ) -> Any:
        """Take `num_repeats` inner steps, or fewer if an episode ends. Rewards are sums of the inner rewards."""
        inner_state, elapsed, last_seen = state
        terminated = truncated = is_over = elapsed < 0  # all false, since elapsed >= 0
        check_results = StepResults(self.env, xp, elapsed.shape[0])
        total_reward: Any = None
        for _ in range(self.num_repeats):
            result = self.env.step(xp, rng, inner_state, action, params)
            next_state, reward, ended, is_truncated = check_results(result)
            if self.maximum:
                observation = self.env.observe(xp, inner_state, params)
                last_seen = mapped(functools.partial(select, xp, is_over), last_seen, observation)
            leaves_before, layout = af.flatten(inner_state)
            leaves_after = af.flatten(next_state)[0]
            inner_state = layout.unflatten(
                select_leaves(xp, is_over, leaves_before, leaves_after, self._shared)
            )
            reward = select(xp, is_over, xp.zeros_like(reward), reward)
            total_reward = reward if total_reward is None else total_reward + reward
            elapsed = elapsed + xp.astype(~is_over, xp.int32)
            terminated = terminated | (~is_over & ended)
            if is_truncated is not None:
                truncated = truncated | (~is_over & is_truncated)
            if self.env.max_episode_steps is not None:
                truncated = truncated | (~is_over & (elapsed >= self.env.max_episode_steps))
            is_over = terminated | truncated
        return _State(inner_state, elapsed, last_seen), total_reward, terminated, truncated

    def observe(self, xp: Namespace, state: AnyTree, params: AnyTree) -> Any:
        """Return the inner observations or, with `maximum`, elementwise maxima of the last two inner observations."""
        observation = self.env.observe(xp, state.state, params)
        if not self.maximum:
            return observation
        return mapped(xp.maximum, observation, state.last)

    def sample_params(self, xp: Namespace, rng: Random, n: int, params: AnyTree) -> Any:
        """Return the parameters that the inner environment draws."""
        return self.env.sample_params(xp, rng, n, params)

    def info(self, xp: Namespace, state: AnyTree, params: AnyTree) -> dict[str, Any]:
        """Return the infos of the inner environment."""
        return self.env.info(xp, state.state, params)

    def __repr__(self) -> str:
        return f"<repeat_action({self.env!r}, {self.num_repeats}{', maximum=True' * self.maximum})>"


def repeat_action(
    env: FunctionalEnv | type[FunctionalEnv], num_repeats: int, *, maximum: bool = False
) -> RepeatedEnv:
    """Make an environment in which each action is repeated for several steps, like Gymnasium's `RepeatAction`.

    A step takes `num_repeats` steps of the inner environment, or fewer if an episode ends. The reward of a step is the
    sum of the inner rewards, in float32 or a wider float dtype. `max_episode_steps` of the inner environment counts
    inner steps; a limit passed to `rollout`, `make` or `make_vec` counts the agent's steps.

    Args:
        env: the environment, or its class.
        num_repeats: the number of inner steps in one step, 1 or more.
        maximum: whether an observation is the elementwise maximum of the last two inner observations, as in Gymnasium's
            `MaxAndSkipObservation`. The first observation of an episode is unchanged.

    Raises:
        arrayferry.OptionError: an argument is invalid, or the environment has wrapper kernels (see `wrap`).

    Examples:
        >>> from arrayferry_envs import CartPole, repeat_action
        >>> envs = repeat_action(CartPole(), 4).make_vec(2)
        >>> _ = envs.reset(seed=1)
        >>> envs.step(envs.action_space.sample())[1]
        array([4., 4.], dtype=float32)
    """
    env = checked_env(env)
    if env.kernels:
        raise af.OptionError(
            f"{env!r} has wrapper kernels, but repeat_action() needs an environment without kernels",
            remedy="Call repeat_action() first, and then wrap() on the result.",
        )
    check_flag("maximum", maximum)
    return RepeatedEnv(env, count_of("num_repeats", num_repeats), maximum)
