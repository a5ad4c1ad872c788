"""`FunctionalGroup`: a `FunctionalEnv` and a policy on a worker, as compiled rollouts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arrayferry_gym.functional import rollout
from arrayferry_gym.functional._policies.jax_policy import jax_weights, segment_key

from .hosted_group import HostedGroup
from .messages import Description, GroupSetup, Plan, SegmentSetup
from .progress import Progress


class FunctionalGroup(HostedGroup):
    """A batch of environments of a `FunctionalEnv`, whose steps are compiled rollouts."""

    def __init__(self, setup: GroupSetup, plan: Plan, progress: Progress) -> None:
        super().__init__(setup, plan, progress)
        self._carries: dict[int, Any] = {}  # where segments begin
        self._saved = setup.state

    def describe(self) -> list[Description]:
        env = self.plan.env
        spaces = env.observation_space, env.action_space
        return [Description(*spaces, dict(env.metadata), None)] * self._setup.num_envs

    def _forget(self) -> None:
        self._carries.clear()
        self._saved = None

    def close(self) -> None:
        self._carries.clear()

    def _rollout(self, number: int, weights: Any, carry: Any) -> Any:
        plan, setup = self.plan, self._setup
        return rollout(
            plan.env,
            plan.policy,
            weights,
            segment_key(plan.seed, setup.index, number),
            plan.num_steps,
            setup.num_envs,
            env_params=plan.env_params,
            carry=carry,
            max_episode_steps=plan.max_episode_steps,
            policy_state=None if carry is not None else setup.policy_state,
            collect=("info",) if plan.infos else (),
            final_observation=plan.final_observation,
        )

    def collect(self, setup: SegmentSetup, weights: Any) -> tuple[Any, ...]:
        number, weights = setup.number, jax_weights(weights)
        if self._saved is not None:
            first = self._saved["number"]
            self._carries[first] = self._restored(first, weights, self._saved)
            self._saved = None
        for old in [old for old in self._carries if old < setup.needed]:
            del self._carries[old]
        carry, transitions = self._rollout(number, weights, self._carries.get(number))
        self._carries[number + 1] = carry
        info = transitions.info
        if info is not None:
            info = {name: info[name] for name in self.plan.infos}
        parts = transitions._replace(info=info)[:-1]  # without the state
        self._progress.steps += self.plan.num_steps
        return jax.tree.map(np.asarray, parts)  # type: ignore[no-any-return]

    def save(self, number: int) -> Any:
        carry = self._carries.get(number)
        if carry is None:
            return self._saved
        leaves = jax.tree.leaves(carry)
        generators = [str(jax.random.key_impl(x)) if _is_key(x) else "" for x in leaves]
        return {"number": number, "arrays": list(map(_plain, leaves)), "generators": generators}

    def _restored(self, number: int, weights: Any, saved: Any) -> Any:
        """Return a state that was saved."""
        made = jax.eval_shape(lambda: self._rollout(number, weights, None)[0])
        leaves = [
            jax.random.wrap_key_data(jnp.asarray(x), impl=name) if name else jnp.asarray(x)
            for x, name in zip(saved["arrays"], saved["generators"], strict=True)
        ]
        return jax.tree.structure(made).unflatten(leaves)


def _is_key(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


def _plain(x: Any) -> Any:
    return np.asarray(jax.random.key_data(x) if _is_key(x) else x)
