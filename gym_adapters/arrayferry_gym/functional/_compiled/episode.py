"""Episodes in JAX: each of many environments runs to its end, in one compiled call."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import arrayferry as af
from arrayferry_gym._arrays import select
from arrayferry_gym._options.env_options import UNSET
from arrayferry_gym.functional._around.wrapped import checked_wrapper_state, freeze
from arrayferry_gym.functional._contract.dynamics import Dynamics
from arrayferry_gym.functional._host.functions import HostFunctions
from arrayferry_gym.functional._simulators.random_keys import checked_key

from .arguments import prepared, united
from .functions import Functions
from .policies import Policy, acted, first_policy_state


class Episode(NamedTuple):
    """One episode in each of `n` environments.

    Attributes:
        total: the sum of the rewards of each, (n,), computed in float32, or in the dtype of the rewards if that is
            wider.
        length: the number of steps of each, int32 (n,).
        terminated: whether it has terminated, rather than reached a step limit, bool (n,).
        final_observation: its last observation, (n, ...).
    """

    total: Any
    length: Any
    terminated: Any
    final_observation: Any


def episode(
    env: Dynamics,
    policy: Policy,
    policy_params: Any,
    key: Any,
    num_envs: int = 1,
    *,
    env_params: Any = None,
    max_episode_steps: Any = UNSET,
    policy_state: Any = None,
    wrapper_state: Any = None,
    sharding: Any = None,
) -> Episode:
    """Run one episode in each of many environments to its end, in one compiled `lax.while_loop`.

    The number of steps is not known in advance, so reverse-mode gradients are not available, and all environments,
    including those of a `vmap`, wait for the longest episode. For gradients, and for equal amounts of work, use
    `rollout`.

    Args:
        env: the environment.
        policy: as in `rollout`. Its results other than the action are not used.
        policy_params: as in `rollout`.
        key: a JAX key.
        num_envs: the number of environments.
        env_params: as in `rollout`.
        max_episode_steps: as in `rollout`. If it is None, episodes must terminate by themselves.
        policy_state: as in `rollout`.
        wrapper_state: for an environment made by `wrap`: `carry.running.wrappers` of another rollout, or the result
            of the environment's `state_dict` for it. The statistics are used but not updated.
        sharding: as in `rollout`.

    Returns:
        The sums of rewards, and how the episodes ended.

    Raises:
        arrayferry.OptionError: an argument is invalid.

    Examples:
        >>> import jax
        >>> from arrayferry_gym.functional import CartPole, episode
        >>> def policy(params, observation, key):
        ...     return (observation[:, 2] > 0).astype(int), None
        >>> episodes = episode(CartPole(), policy, None, jax.random.key(0), 4)
        >>> bool((episodes.total == episodes.length).all())
        True
    """
    if isinstance(env, HostFunctions):
        raise af.OptionError(
            f"{env.name} is an ordinary environment, which episode() cannot run",
            remedy="Use rollout(), or a jax.lax.while_loop with its reset and step.",
        )
    static, values = prepared(
        "episode", env, policy, policy_params, env_params, num_envs, max_episode_steps, sharding
    )
    policy_state = first_policy_state(policy_state, static[-1])
    given = freeze(checked_wrapper_state(env, wrapper_state))
    return _episode(static, values, checked_key(key), policy_state, given)  # type: ignore[no-any-return]


@functools.partial(jax.jit, static_argnums=0)
def _episode(
    static: tuple[Any, ...], values: Any, key: Any, policy_state: Any, wrapper_state: Any
) -> Any:
    *parts, limit, sharding, num_envs = static
    env, policy, policy_params, env_params = united(*parts, *values)
    functions = Functions(
        env, autoreset_mode="Disabled", max_episode_steps=limit, sharding=sharding
    )
    start, key = jax.random.split(key)
    running, observation = functions.reset(start, num_envs, env_params, wrapper_state=wrapper_state)

    def step(loop: Any) -> Any:
        running, episodes, key, remembered = loop
        key, acting, stepping = jax.random.split(key, 3)
        action, _, remembered = acted(
            policy, policy_params, episodes.final_observation, acting, remembered
        )
        over = running.ended
        running, outcome = functions.step(stepping, running, action, env_params)

        def kept(old: Any, new: Any) -> Any:
            return select(jnp, over, old, new)

        episodes = Episode(
            kept(episodes.total, episodes.total + outcome.reward.astype(episodes.total.dtype)),
            kept(episodes.length, episodes.length + 1),
            kept(episodes.terminated, outcome.terminated),
            jax.tree.map(kept, episodes.final_observation, outcome.observation),
        )
        return running, episodes, key, remembered

    shapes = jax.eval_shape(
        lambda: functions.step(
            key, running, acted(policy, policy_params, observation, key, policy_state)[0],
            env_params,
        )[1].reward
    )  # fmt: skip
    initial = Episode(
        jnp.zeros(shapes.shape, jnp.promote_types(shapes.dtype, jnp.float32)),
        jnp.zeros(num_envs, jnp.int32),
        jnp.zeros(num_envs, bool),
        observation,
    )
    loop = (running, initial, key, policy_state)
    return jax.lax.while_loop(lambda loop: ~loop[0].ended.all(), step, loop)[1]
