"""Checks the arguments of rollouts and evaluations, and separates the static part, whose changes compile new code."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

import arrayferry as af
from arrayferry._utilities.options import count_of, limit_of
from arrayferry.typing import AnyArray
from arrayferry_envs._around.wrapped import lasting_state, warn_if_fresh
from arrayferry_envs._contract.functional_env import FunctionalEnv, checked_env
from arrayferry_envs._contract.params import Params, prepare
from arrayferry_envs._contract.policies import Run, check_policy
from arrayferry_envs._engine.random_keys import key_of
from arrayferry_envs._engine.shardings import batch_sharding
from arrayferry_gym.extending import Key, memo_of

from .policies import first_policy_state
from .program import in_trace, partition


class Values(NamedTuple):
    """The arguments of compiled code that may change without a new compilation.

    Attributes:
        leaves: the arrays in the environment and the policy, and the arrays and floats in the policy's parameters.
        env_params: the arrays and floats in the parameters of the environment.
        key: the JAX key of the run.
        policy_state: the state of the policy at the start of each episode, or None.
        wrapper_state: kernel states with the initial statistics of wrappers, or None for no statistics.
    """

    leaves: list[Any]
    env_params: tuple[Any, ...]
    key: Any
    policy_state: Any
    wrapper_state: Any


class Call:
    """The checked arguments of a rollout or evaluation in JAX, partitioned into values and a static part.

    Args:
        run: the arguments as the user passed them.
        *options: further static arguments of the compiled function, such as the number of steps.

    Attributes:
        static_part: the static part of the environment, the policy and the policy's parameters.
        values: the arguments that may change without a new compilation.
    """

    @jax.transfer_guard("allow")  # type: ignore[untyped-decorator]  # users expect these transfers
    def __init__(self, run: Run, *options: Any) -> None:
        env = checked_env(run.env)
        self.run, self.options = run, options
        self.max_episode_steps = limit_of(run.max_episode_steps, env.max_episode_steps)
        self.num_envs = n = count_of("num_envs", run.num_envs)
        self.env_params = _prepared(env, run.env_params, n)
        check_policy(run.policy)
        leaves, self.static_part = partition(env, run.policy, run.policy_params)
        self.sharding = batch_sharding(run.sharding, n)
        if run.what != "rollout":
            warn_if_fresh(env, run.wrapper_state)
        key, policy_state = key_of(run.key), first_policy_state(run.policy_state, n)
        lasting = lasting_state(env, run.wrapper_state)
        self.values = Values(leaves, self.env_params.values, key, policy_state, lasting)

    def __call__(self, compiled: Any, *args: Any) -> Any:
        """Call a compiled function with a `Program`, the values and `args`. Return the results of the function."""
        program = Program(self)
        try:
            return compiled(program, self.values, *args)
        finally:
            del program.call  # JAX caches the program, whose `call` would keep the values in memory


def _prepared(env: FunctionalEnv, env_params: Any, n: int) -> Params:
    """Convert parameters to JAX. Defaults are cached as arrays, which compiled code accepts faster than numbers."""
    backend, defaults = af.registry.backend("jax"), env.default_params
    if env_params is not None:
        return prepare(env_params, defaults, n, backend, None, draws=env._draws_params)
    if not jax.sharding.get_abstract_mesh().empty or in_trace():
        return prepare(None, defaults, 1, backend, None)
    memo = memo_of(env)
    jax_config = jax.config.jax_enable_x64, jax.config.jax_default_device
    cached = memo.get(jax_config)
    if cached is not None and cached[0] is defaults:
        return cached[1]  # type: ignore[no-any-return]
    prepared = prepare(None, defaults, 1, backend, None)
    params = Params(prepared.static_part, map(jax.numpy.asarray, prepared.values), prepared.batched)
    if not any(map(_may_change, af.flatten(defaults)[0])):
        memo[jax_config] = defaults, params
    return params


def _may_change(x: AnyArray) -> Any:
    return not isinstance(x, jax.Array) and getattr(getattr(x, "flags", None), "writeable", True)


class Program(Key):
    """The static part of a call. Calls with equal static parts share compiled code.

    Attributes:
        call: the `Call`, which is needed only while JAX compiles. It is deleted when the compiled function returns.
    """

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        params = call.env_params
        super().__init__((
            call.static_part.key, params.static_part, params.batched, params.pinned, call.max_episode_steps,
            call.sharding, call.num_envs, call.options,
        ))  # fmt: skip
        self.call = call
