"""The arguments of a rollout: divided into values and static parts, and put together again in compiled code."""

from __future__ import annotations

import weakref
from typing import Any

import arrayferry as af
from arrayferry_gym._options.env_options import UNSET, count_of, limit_of
from arrayferry_gym.functional._contract.dynamics import checked_dynamics
from arrayferry_gym.functional._contract.params import Params, prepare
from arrayferry_gym.functional._host.functions import HostFunctions
from arrayferry_gym.functional._simulators.shardings import batch_sharding

from .program import divided, noted


def prepared(
    what: str,
    env: Any,
    policy: Any,
    policy_params: Any,
    env_params: Any,
    num_envs: Any,
    limit: Any,
    sharding: Any,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Check arguments, and divide them into static parts, of which the last is the number of environments, and values."""
    held: Any
    if isinstance(env, HostFunctions):
        num_envs = _check_host(env, num_envs, env_params, limit, sharding)
        held, defaults, limit = _Weak(env), {}, None
    else:
        held = env = checked_dynamics(env)
        defaults, limit = env.default_params, limit_of(limit, env.max_episode_steps)
        num_envs = count_of("num_envs", num_envs)
    if not callable(policy):
        raise af.OptionError(
            f"policy={policy!r:.80} cannot be called",
            remedy="Pass policy(policy_params, observation, key) -> (action, extras).",
        )
    values, frame = divided(held, policy, policy_params)
    params = prepare(env_params, defaults, num_envs, af.registry.backend("jax"), None)
    static = (
        frame,
        params.frame,
        params.batched,
        limit,
        batch_sharding(sharding, num_envs),
        num_envs,
    )
    noted(what, (held, policy, policy_params), frame, static[1:])
    return static, (values, params.values)


def _check_host(
    env: HostFunctions, num_envs: Any, env_params: Any, limit: Any, sharding: Any
) -> int:
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
    if sharding is not None:
        raise af.OptionError(
            f"{env.name} is an ordinary environment, which runs on the host",
            remedy="Leave out sharding.",
        )
    return env.num_envs


class _Weak:
    """A weak reference to the functions of an ordinary environment, so that compiled code does not keep it alive."""

    def __init__(self, functions: HostFunctions) -> None:
        self._hash = hash(functions)
        self._functions = weakref.ref(functions)

    @property
    def env(self) -> HostFunctions | None:
        return self._functions()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Weak) and self._functions == other._functions

    def __hash__(self) -> int:
        return self._hash


def united(
    frame: Any, env_frame: Any, batched: Any, values: Any, env_values: Any
) -> tuple[Any, Any, Any, Any]:
    """Return the environment, the policy, and the parameters of the policy and of the environment."""
    env, policy, policy_params = frame.join(values)
    if isinstance(env, _Weak):
        env = env.env
    return env, policy, policy_params, Params(env_frame, env_values, batched)
