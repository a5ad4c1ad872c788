"""Rollouts in JAX: many steps of many environments in one compiled call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import arrayferry as af
from arrayferry_gym._env_options import UNSET, count_of

from ._arguments import Policy, acted, prepared, united
from ._dynamics import Dynamics
from ._host import HostFunctions
from ._jax import Functions, checked_key

__all__ = ["Carry", "Transition", "rollout"]


class Transition(NamedTuple):
    """The steps of a rollout: trees of arrays (time, environment, ...).

    Attributes:
        observation: what the policy saw.
        action: what it chose, before it was clipped to the action space.
        reward: the rewards.
        terminated: whether the episode has terminated.
        truncated: whether it has reached the limit of steps.
        final_observation: the observation after the step, before any reset: that of the next state of this
            episode, also at its end.
        extras: what else the policy returned, such as log-probabilities and values.
    """

    observation: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    final_observation: Any
    extras: Any


class Carry(NamedTuple):
    """Where a rollout has stopped, to go on from there.

    Attributes:
        running: the environments; of an ordinary one, its state.
        observation: their observations, (n, ...).
    """

    running: Any
    observation: Any


def rollout(
    env: Dynamics | HostFunctions,
    policy: Policy,
    policy_params: Any,
    key: Any,
    num_steps: int,
    num_envs: int | None = None,
    *,
    env_params: Any = None,
    carry: Carry | None = None,
    max_episode_steps: Any = UNSET,
) -> tuple[Carry, Transition]:
    """Take steps in many environments with a policy, by one compiled `lax.scan`.

    Episodes that end are reset in the same step. It may be called inside `jit`, `vmap` and `grad`.

    It compiles once for each environment, policy and shape. Environments of one class with equal attributes
    are the same, and so are functions of the same code that refer to equal values. A policy must not hold arrays
    that compiled code would not see change: in a closure, or in the attributes of an object that is not a pytree.

    Args:
        env: the environment; or the functions of an ordinary vector environment that resets in the same step.
        policy: `policy(policy_params, observation, key) -> (action, extras)`, for a batch of observations.
        policy_params: the first argument of the policy: any pytree. Arrays and floats in it are values, anything
            else, such as the functions in an Equinox module, is static. A warning names a leaf that is why it
            is compiled for the third time.
        key: a key of JAX, another one for each call.
        num_steps: how many steps to take in each environment.
        num_envs: how many environments. An ordinary vector environment has its own number.
        env_params: the parameters of the environment, or a dict of those that differ from the defaults.
        carry: where another rollout has stopped. None starts all environments anew.
        max_episode_steps: after how many steps an episode is truncated, None for never. The default is
            that of the environment.

    Returns:
        Where it has stopped, and the transitions.

    Raises:
        arrayferry.OptionError: an argument is wrong, or the policy holds an array.

    Example:
        >>> import jax
        >>> from arrayferry_gym.functional import CartPole, rollout
        >>> def policy(params, observation, key):
        ...     return jax.random.randint(key, observation.shape[:1], 0, 2), None
        >>> env = CartPole()
        >>> carry, transitions = rollout(env, policy, None, jax.random.key(0), 10, 4)
        >>> transitions.reward.shape
        (10, 4)
        >>> carry, more = rollout(env, policy, None, jax.random.key(1), 10, 4, carry=carry)
    """
    num_steps = count_of("num_steps", num_steps)
    if isinstance(env, HostFunctions):
        num_envs = _check_host(env, num_envs, env_params, max_episode_steps)
    elif num_envs is not None:
        num_envs = count_of("num_envs", num_envs)
    static, values = prepared(
        "rollout", env, policy, policy_params, env_params, num_envs, max_episode_steps
    )
    if carry is not None and not isinstance(carry, Carry):
        raise af.OptionError(
            f"carry={carry!r:.80} is not a Carry", remedy="Pass what rollout returned first."
        )
    elapsed = getattr(getattr(carry, "running", None), "elapsed", None)
    if elapsed is not None and elapsed.shape != (num_envs,):
        raise af.OptionError(
            f"num_envs={num_envs}, but carry has {elapsed.shape[0]} environments",
            remedy="Pass the number of environments with which the first rollout began.",
        )
    return _rollout((*static, num_steps), values, checked_key(key), carry)  # type: ignore[no-any-return]


@functools.partial(jax.jit, static_argnums=0)
def _rollout(static: tuple[Any, ...], values: Any, key: Any, carry: Any) -> Any:
    *parts, limit, num_envs, num_steps = static
    env, policy, policy_params, env_params = united(*parts, *values)
    hosted = isinstance(env, HostFunctions)
    functions: Any = _Hosted(env) if hosted else Functions(env, max_episode_steps=limit)
    start, key = jax.random.split(key)
    if carry is None:
        carry = Carry(*functions.reset(start, num_envs, env_params))
    else:
        _check_carry(carry, lambda: functions.reset(start, num_envs, env_params), env)

    def one(carry: Carry, key: Any) -> tuple[Carry, Transition]:
        acting, stepping = jax.random.split(key)
        action, extras = acted(policy, policy_params, carry.observation, acting)
        running, outcome = functions.step(stepping, carry.running, action, env_params)
        transition = Transition(
            carry.observation, action, outcome.reward, outcome.terminated, outcome.truncated,
            outcome.final_observation, extras,
        )  # fmt: skip
        return Carry(running, outcome.observation), transition

    return jax.lax.scan(one, carry, jax.random.split(key, num_steps))


def _check_carry(carry: Carry, reset: Callable[[], Any], env: Any) -> None:
    """Check that a carry belongs to this environment.

    Raises:
        arrayferry.OptionError: it has other arrays.
    """

    def forms(tree: Any) -> Any:
        return [f"{jnp.result_type(x)}{list(jnp.shape(x))}" for x in jax.tree.leaves(tree)]

    fresh = Carry(*jax.eval_shape(reset))
    if forms(carry) == forms(fresh):
        return
    name = env.name if isinstance(env, HostFunctions) else type(env).__name__
    raise af.OptionError(
        f"carry is of another environment than {name}: it has {', '.join(forms(carry))}, but {name} {', '.join(forms(fresh))}",
        remedy="Pass what rollout returned first for this environment and these options, or leave it out.",
    )


def _check_host(env: HostFunctions, num_envs: Any, env_params: Any, limit: Any) -> int:
    """Check the arguments for an ordinary environment, and return the number of environments."""
    if env.num_envs is None or not env.resets_in_same_step:
        raise af.OptionError(
            f"{env.name} is not a vector environment that resets in the same step",
            remedy="Make one: gymnasium.make_vec(id, num_envs=n, vectorization_mode='sync', "
            "vector_kwargs={'autoreset_mode': 'SameStep'}).",
        )
    if num_envs not in (None, env.num_envs):
        raise af.OptionError(
            f"num_envs={num_envs!r}, but {env.name} has {env.num_envs}", remedy="Leave it out."
        )
    if env_params is not None or limit is not UNSET:
        raise af.OptionError(
            f"{env.name} is an ordinary environment, whose parameters and limit of steps are its own",
            remedy="Leave out env_params and max_episode_steps.",
        )
    return env.num_envs


class _Hosted:
    """The functions of an ordinary environment, with the signatures of `Functions`."""

    def __init__(self, functions: HostFunctions) -> None:
        self._functions = functions

    def reset(self, key: Any, num_envs: int, params: Any) -> tuple[Any, Any]:
        state, observation, _ = self._functions.reset(seed=key)
        return state, observation

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any]:
        return self._functions.step(state, action)
