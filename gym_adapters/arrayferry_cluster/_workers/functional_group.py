"""`segment` collects a segment of a `FunctionalEnv` by a compiled rollout.

It is a pure function, so any worker may call it, also several times.
"""

from __future__ import annotations

import functools
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import arrayferry as af
from arrayferry._utilities.options import stream_seed
from arrayferry.typing import AnyTree
from arrayferry_cluster._trajectories import Trajectory
from arrayferry_envs import rollout
from arrayferry_envs.extending import first_carry, jax_weights
from arrayferry_gym import make_rng

from .failure import Activity, Failure
from .plan import GroupSetup, Plan, Segment, Settings, applied, loaded, setting_up


def segment(
    plan: bytes, setup: bytes, number: int, state: AnyTree, weights: bytes, version: int
) -> Segment | Failure:
    """Collect a segment.

    Args:
        plan: the `Plan`, pickled.
        setup: the `GroupSetup`, pickled.
        number: the number of the segment, on which the random numbers depend.
        state: the carry of `rollout` with which the segment begins, or the previous `Segment`, which contains this
            carry. None if the segment begins with resets.
        weights: the parameters of the policy, pickled.
        version: the version of the weights.
    """
    if isinstance(state, Failure):
        return state
    if isinstance(state, Segment):
        state = state.state
    group_setup: GroupSetup = pickle.loads(setup)
    activity = Activity(group_setup.index, group_setup.indices)
    with applied(group_setup.settings):
        return activity(number, _segment, plan, group_setup, number, state, weights, version)  # type: ignore[no-any-return]


def _segment(
    data: bytes, group: GroupSetup, number: int, state: AnyTree, weights: bytes, version: int
) -> Segment:
    plan: Plan = loaded(data, group.settings)
    key = make_rng("jax", stream_seed("segment", plan.seed, group.index, number)).key()
    rollout_args = plan.env, plan.policy, _weights(weights, group.settings), key
    options: Any = {"env_params": plan.env_params, "max_episode_steps": plan.max_episode_steps}
    if state is None:  # a rollout without a carry would be compiled separately
        state = first_carry(
            *rollout_args, group.num_envs, policy_state=group.policy_state,
            wrapper_state=plan.wrapper_state, **options,
        )  # fmt: skip
    collected_fields = ("info",) if plan.infos else ()
    carry, trajectory = rollout(
        *rollout_args, plan.num_steps, group.num_envs, carry=state, collect=collected_fields,
        final_observation=plan.final_observation, **options,
    )  # fmt: skip
    info = trajectory.info
    if info is not None:
        missing_names = [name for name in plan.infos if name not in info]
        if missing_names:
            raise af.OptionError(
                f"infos names {missing_names[0]!r}, but the infos of the environment are {[*info]}",
                remedy="Leave that name out of infos.",
            )
        info = {name: info[name] for name in plan.infos}
    # `[:-1]` removes `state`, the last attribute of the rollout's trajectory
    numpy_steps = jax.tree.map(np.asarray, trajectory._replace(info=info)[:-1])
    state = jax.tree.map(lambda x: x if _is_key(x) else np.asarray(x), carry)
    return Segment(Trajectory._make([*numpy_steps, None, None, None]), version, state)


@functools.lru_cache(maxsize=2)
def _weights(data: bytes, settings: Settings) -> Any:  # JAX has `settings` already
    with setting_up():
        return jax_weights(pickle.loads(data))


def _is_key(x: AnyTree) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))
