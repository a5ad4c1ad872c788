"""Evaluation in JAX: whole episodes of many environments in one compiled call."""

from __future__ import annotations

import functools
import numbers
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import arrayferry as af
from arrayferry_gym._options.env_options import UNSET, count_of
from arrayferry_gym.functional._around.wrapped import checked_wrapper_state, freeze
from arrayferry_gym.functional._contract.dynamics import Dynamics
from arrayferry_gym.functional._host.functions import HostFunctions
from arrayferry_gym.functional._simulators.random_keys import checked_key

from .arguments import prepared, united
from .policies import Policy, first_policy_state
from .rollout import Steps

_REAL = (jnp.floating, jnp.integer, jnp.bool_)


class Evaluation(NamedTuple):
    """The episodes of an evaluation: `episodes` in each of `n` environments.

    Attributes:
        returns: the sums of the rewards, (n, episodes), in float32, or in the dtype of the rewards if that is wider.
        discounted_returns: the same, each reward multiplied by the discount to the power of the number of steps
            before it.
        lengths: the numbers of steps, int32 (n, episodes).
        terminated: whether each has terminated, bool (n, episodes).
        truncated: whether each has been truncated, bool (n, episodes).
    """

    returns: Any
    discounted_returns: Any
    lengths: Any
    terminated: Any
    truncated: Any


def evaluate(
    env: Dynamics | HostFunctions,
    policy: Policy,
    policy_params: Any,
    key: Any,
    num_envs: int | None = None,
    *,
    episodes: int = 1,
    discount: Any = 0.99,
    env_params: Any = None,
    max_episode_steps: Any = UNSET,
    policy_state: Any = None,
    wrapper_state: Any = None,
    sharding: Any = None,
) -> Evaluation:
    """Run several episodes in each of many environments, in one compiled `lax.while_loop`.

    The first episodes of each environment count, so short ones are not counted more often than long ones. All wait
    for the slowest environment.

    Args:
        env: the environment; or the functions of an ordinary vector environment that resets in the same step.
        policy: as in `rollout`. Its results other than the action and its state are not used.
        policy_params: as in `rollout`.
        key: a JAX key.
        num_envs: the number of environments. An ordinary vector environment has its own number.
        episodes: the number of episodes in each environment.
        discount: the discount factor for each further step, a float.
        env_params: as in `rollout`.
        max_episode_steps: as in `rollout`. If it is None, episodes must terminate by themselves.
        policy_state: as in `rollout`.
        wrapper_state: for an environment made by `wrap`: `carry.running.wrappers` of another rollout, or the result
            of the environment's `state_dict` for it. The statistics are used but not updated.
        sharding: as in `rollout`.

    Returns:
        The results of each episode.

    Raises:
        arrayferry.OptionError: an argument is invalid.

    Examples:
        >>> import jax
        >>> from arrayferry_gym.functional import CartPole, evaluate
        >>> def policy(params, observation, key):
        ...     return (observation[:, 2] > 0).astype(int), None
        >>> results = evaluate(CartPole(), policy, None, jax.random.key(0), 4, episodes=3)
        >>> results.returns.shape
        (4, 3)
        >>> bool((results.returns == results.lengths).all())
        True
    """
    episodes = count_of("episodes", episodes)
    static, values = prepared(
        "evaluate", env, policy, policy_params, env_params, num_envs, max_episode_steps, sharding
    )
    array = isinstance(discount, (np.ndarray, jax.Array)) and discount.shape == ()
    real = any(jnp.issubdtype(discount.dtype, x) for x in _REAL) if array else False
    if not real and not isinstance(discount, numbers.Real):
        raise af.OptionError(
            f"discount={discount!r:.80} is not a number", remedy="Pass a float such as 0.99."
        )
    state, discount = first_policy_state(policy_state, static[-1]), jnp.asarray(discount, float)
    static = *static, episodes
    given = freeze(checked_wrapper_state(env, wrapper_state))
    return _evaluate(static, values, checked_key(key), discount, state, given)  # type: ignore[no-any-return]


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(
    static: tuple[Any, ...],
    values: Any,
    key: Any,
    discount: Any,
    policy_state: Any,
    wrapper_state: Any,
) -> Any:
    *parts, limit, sharding, num_envs, episodes = static
    env, policy, policy_params, env_params = united(*parts, *values)
    steps = Steps(env, policy, policy_params, env_params, limit, sharding)
    start, key = jax.random.split(key)
    carry = steps.start(start, num_envs, policy_state, wrapper_state)
    total = carry.episode_return

    def more(loop: Any) -> Any:
        _, _, _, _, count, _ = loop
        return (count < episodes).any()

    def one(loop: Any) -> Any:
        carry, factor, discounted, key, count, results = loop
        key, own = jax.random.split(key)
        fresh = carry.began.reshape(-1, *[1] * (total.ndim - 1))
        carry, transition, _ = steps.take(carry, own)
        factor = jnp.where(fresh, 1, factor * discount.astype(total.dtype))
        discounted = jnp.where(fresh, 0, discounted) + factor * transition.reward.astype(
            total.dtype
        )
        ended = transition.terminated | transition.truncated
        at = jnp.where(ended, count, episodes)  # rows beyond the last one are dropped
        latest = Evaluation(
            transition.episode_return,
            discounted,
            transition.episode_length,
            transition.terminated,
            transition.truncated,
        )
        rows = jnp.arange(num_envs)
        results = jax.tree.map(lambda x, y: x.at[rows, at].set(y, mode="drop"), results, latest)
        return carry, factor, discounted, key, count + ended.astype(count.dtype), results

    def empty(x: Any) -> Any:
        return jnp.zeros((num_envs, episodes, *x.shape[1:]), x.dtype)

    flags = jnp.zeros(num_envs, bool)
    results = Evaluation(*map(empty, (total, total, carry.episode_length, flags, flags)))
    count = jnp.zeros(num_envs, jnp.int32)
    loop = carry, jnp.ones_like(total), total, key, count, results
    return jax.lax.while_loop(more, one, loop)[-1]
