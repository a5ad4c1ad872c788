"""The arguments of a rollout: divided into values and static parts, and put together again in compiled code."""

from __future__ import annotations

import weakref
from typing import Any

import arrayferry as af
from arrayferry_gym._env_options import count_of, limit_of

from ._dynamics import checked_dynamics
from ._host import HostFunctions
from ._params import Params, prepare
from ._program import divided, noted

__all__ = ["prepared", "united"]


def prepared(
    what: str,
    env: Any,
    policy: Any,
    policy_params: Any,
    env_params: Any,
    num_envs: Any,
    limit: Any,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Check arguments, and divide them into static parts and values."""
    held: Any
    if isinstance(env, HostFunctions):
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
    static = frame, params.frame, params.batched, limit, num_envs
    noted(what, (held, policy, policy_params), frame, static[1:])
    return static, (values, params.values)


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
