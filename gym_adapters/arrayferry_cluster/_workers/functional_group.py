"""`segment`: a segment of a `FunctionalEnv` as a compiled rollout. It is pure, so that any worker may run it, and again."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector.utils import batch_space

import arrayferry as af
from arrayferry_cluster._trajectories import Trajectories
from arrayferry_envs import Carry, Functions, rollout
from arrayferry_envs._compiled.policies import first_policy_state
from arrayferry_envs._contract.params import Params, prepare
from arrayferry_envs._policies.jax_policy import jax_weights, segment_key

from .failure import Activity, Failure
from .plan import GroupSetup, Plan, Segment, loaded, setting_up


def segment(
    plan: bytes, setup: bytes, number: int, state: Any, weights: bytes, version: int
) -> Segment | Failure:
    """Collect a segment.

    Args:
        plan: the `Plan`, pickled.
        setup: the `GroupSetup`, pickled.
        number: the number of the segment, on which the random numbers depend.
        state: the carry with which it begins, or the segment before it; None to begin with resets.
        weights: the parameters of the policy, pickled.
        version: their version.
    """
    if isinstance(state, Failure):
        return state
    if isinstance(state, Segment):
        state = state.state
    group: GroupSetup = pickle.loads(setup)
    activity = Activity(group.index, group.indices)
    return activity(number, _segment, plan, group, number, state, weights, version)  # type: ignore[no-any-return]


def _segment(
    plan: bytes, group: GroupSetup, number: int, state: Any, weights: bytes, version: int
) -> Segment:
    loaded_plan: Plan = loaded(plan)
    key = segment_key(loaded_plan.seed, group.index, number)
    carry, transitions = rollout(
        loaded_plan.env,
        loaded_plan.policy,
        _weights(weights),
        key,
        loaded_plan.num_steps,
        group.num_envs,
        env_params=loaded_plan.env_params,
        carry=_first_carry(plan, group, key) if state is None else state,
        max_episode_steps=loaded_plan.max_episode_steps,
        collect=("info",) if loaded_plan.infos else (),
        final_observation=loaded_plan.final_observation,
    )
    info = transitions.info
    if info is not None:
        missing = [name for name in loaded_plan.infos if name not in info]
        if missing:
            raise af.OptionError(
                f"infos names {missing[0]!r}, but the environment has {[*info]}",
                remedy="Leave it out.",
            )
        info = {name: info[name] for name in loaded_plan.infos}
    steps = jax.tree.map(np.asarray, transitions._replace(info=info)[:-1])  # without the state
    state = jax.tree.map(lambda x: x if _is_key(x) else np.asarray(x), carry)
    return Segment(Trajectories._make([*steps, None, None, None]), version, state)


@functools.lru_cache(maxsize=2)
def _weights(data: bytes) -> Any:
    with setting_up():
        return jax_weights(pickle.loads(data))


def _first_carry(plan: bytes, group: GroupSetup, key: Any) -> Carry:
    """Return the carry with which a rollout with this key begins. With a carry each time, it is compiled only once."""
    n = group.num_envs
    state = first_policy_state(group.policy_state, n)
    return Carry._make([*_compiled_reset(plan, n)(jax.random.split(key)[0]), state, state])


@functools.lru_cache(maxsize=8)
def _compiled_reset(plan: bytes, n: int) -> Callable[[Any], Any]:
    """Compile a function that resets `n` environments, once in each process. It returns all but two fields of `Carry`."""
    loaded_plan: Plan = loaded(plan)
    functions = Functions(loaded_plan.env, max_episode_steps=loaded_plan.max_episode_steps)
    default, jax_backend = loaded_plan.env.default_params, af.registry.backend("jax")
    draws = loaded_plan.env._draws_params
    params = prepare(loaded_plan.env_params, default, n, jax_backend, None, draws=draws)
    action = batch_space(loaded_plan.env.action_space, n).sample()

    @jax.jit  # type: ignore[untyped-decorator]
    def reset(key: Any, values: Any) -> Any:
        given = Params(params.frame, values, params.batched, params.fixed)
        running, observation = functions.reset(key, n, given)
        total = functions.first_returns(n, lambda: functions.step(key, running, action, given)[1])
        return running, observation, jnp.ones(n, bool), total, jnp.zeros(n, jnp.int32)

    return lambda key: reset(key, params.values)


def _is_key(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))
