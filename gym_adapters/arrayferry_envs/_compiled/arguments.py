"""The arguments of rollouts and evaluations: checked, and partitioned into values and a static part."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any, NamedTuple

import jax

import arrayferry as af
from arrayferry._utilities.options import UNSET, count_of, limit_of
from arrayferry_envs._around.wrapped import lasting_state, warn_if_fresh
from arrayferry_envs._contract.functional_env import FunctionalEnv, checked_env
from arrayferry_envs._contract.params import Params, prepare
from arrayferry_envs._contract.policies import check_policy
from arrayferry_envs._simulators.random_keys import checked_key
from arrayferry_envs._simulators.shardings import batch_sharding
from arrayferry_gym.extending import Key, memo_of

from .policies import first_policy_state
from .program import in_trace, partition


class Values(NamedTuple):
    """The arguments that may change without a new compilation, as compiled code takes them.

    Attributes:
        leaves: the arrays and floats in the environment, the policy and its parameters.
        env_params: those in the parameters of the environment.
        key: the key.
        policy_state: the state of the policy where an episode begins.
        wrapper_state: the states of the kernels.
    """

    leaves: list[Any]
    env_params: tuple[Any, ...]
    key: Any
    policy_state: Any
    wrapper_state: Any


@dataclasses.dataclass(eq=False)
class Call:
    """The arguments that `rollout` and `evaluate` have in common. They are checked when it is made.

    Attributes:
        what: the name of the function that is called.
        frame: the static part of the environment, the policy and its parameters.
        values: the arguments that are values.
    """

    what: str
    env: Any
    policy: Any
    policy_params: Any
    key: Any
    num_envs: Any
    env_params: Any = None
    max_episode_steps: Any = UNSET
    policy_state: Any = None
    wrapper_state: Any = None
    sharding: Any = None

    @jax.transfer_guard("allow")  # type: ignore[untyped-decorator]  # the user asks for what is transferred
    def __post_init__(self) -> None:
        self.env = env = checked_env(self.env)
        self.max_episode_steps = limit_of(self.max_episode_steps, env.max_episode_steps)
        self.num_envs = n = count_of("num_envs", self.num_envs)
        self.env_params = _prepared(env, self.env_params, n)
        check_policy(self.policy)
        leaves, self.frame = partition(env, self.policy, self.policy_params)
        self.sharding = batch_sharding(self.sharding, n)
        if self.what != "rollout":
            warn_if_fresh(env, self.wrapper_state)
        self.values = Values(
            leaves,
            self.env_params.values,
            checked_key(self.key),
            first_policy_state(self.policy_state, n),
            lasting_state(self.env, self.wrapper_state),
        )

    def program(self, *options: Any) -> Program:
        """Return the program of this call. `options` are those that only the called function has."""
        params = self.env_params
        rest = (
            params.frame, params.batched, params.fixed, self.max_episode_steps, self.sharding, self.num_envs
        )  # fmt: skip
        return Program(self, rest, options)


def _prepared(env: FunctionalEnv, given: Any, n: int) -> Params:
    """Return parameters in JAX. The defaults are arrays, which cost less to pass than numbers, and are made once."""
    backend, defaults = af.registry.backend("jax"), env.default_params
    if given is not None:
        return prepare(given, defaults, n, backend, None, draws=env._draws_params)
    if not jax.sharding.get_abstract_mesh().empty or in_trace():
        return prepare(None, defaults, 1, backend, None)
    memo = memo_of(env)
    how = jax.config.jax_enable_x64, jax.config.jax_default_device
    known = memo.get(how)
    if known is not None and known[0] is defaults:
        return known[1]  # type: ignore[no-any-return]
    made = prepare(None, defaults, 1, backend, None)
    params = Params(made.frame, map(jax.numpy.asarray, made.values), made.batched)
    if not any(map(_may_change, af.flatten(defaults)[0])):
        memo[how] = defaults, params
    return params


def _may_change(x: Any) -> Any:
    return not isinstance(x, jax.Array) and getattr(getattr(x, "flags", None), "writeable", True)


class Program(Key):
    """The static part of a call. Calls with equal static parts share compiled code, which keeps no call alive.

    Args:
        call: the call, whose static parts are read while code is compiled.
        rest: the static values besides the frame of the call.
        options: the options that only the called function has.
    """

    __slots__ = ("_call", "options")

    def __init__(self, call: Call, rest: tuple[Any, ...], options: tuple[Any, ...]) -> None:
        super().__init__((call.frame.key, rest, options))
        self._call = weakref.ref(call)
        self.options = options

    @property
    def call(self) -> Call:
        """The call, which is in progress."""
        call = self._call()
        assert call is not None
        return call
