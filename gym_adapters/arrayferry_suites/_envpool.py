"""Environments of EnvPool, which steps batches in C++ threads."""

from __future__ import annotations

import secrets
import warnings
from importlib import import_module
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array

import arrayferry as af
from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import known_options, seed_of
from arrayferry.extending import map_arrays
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym.extending import RULES, Episodes, mapped, reset_mask_of

from ._masks import with_masks

LIMIT = 2**31 - 1
"""The largest seed. As `max_episode_steps`, this number means that there is no step limit."""


@uncompiled
class EnvPoolVectorEnv(VectorEnv[Any, Any, Any]):
    """A batch of EnvPool as a vector environment of Gymnasium, in any autoreset mode.

    A step of EnvPool resets the environments whose episodes have ended, and ignores their actions. In SAME_STEP mode,
    such environments are therefore stepped again immediately. In DISABLED mode, such environments are not stepped until
    `reset` resets them: their rewards are 0, and their other results do not change.

    `reset(seed=)` makes a new batch, since EnvPool accepts seeds only for new batches. A batch cannot be pickled.

    Args:
        pool: the batch, made with `env_type="gymnasium"`.
        autoreset_mode: the mode, which determines when environments are reset after an episode.

    Raises:
        arrayferry.OptionError: the batch lacks Gymnasium's interface, is asynchronous, has several players, or combines
            the mode DISABLED with `episodic_life`.
    """

    def __init__(self, pool: Any, autoreset_mode: AutoresetMode) -> None:
        config, mode = pool.config, autoreset_mode
        self.num_envs = num_envs = int(config["num_envs"])
        if not isinstance(pool, VectorEnv):
            _refuse(pool, "lacks Gymnasium's interface", 'Make it with env_type="gymnasium".')
        if config["batch_size"] not in (0, num_envs):
            _refuse(pool, "steps only some of its environments at a time", "Leave batch_size out.")
        if config.get("max_num_players", 1) != 1:
            _refuse(pool, "has several players, with a reward each", "Use the suite pgx for games.")
        self._rule = RULES[mode]
        if config.get("episodic_life") and not self._rule.by_itself:
            _refuse(
                pool,
                "ends episodes with each life (episodic_life=True), but in DISABLED mode, reset() begins a new game",
                'Make it with autoreset_mode="NextStep" or "SameStep", in which the game continues.',
            )
        self.autoreset_mode, self.metadata = mode, {**pool.metadata, "autoreset_mode": mode}
        self.render_mode, self.max_episode_steps = pool.render_mode, config["max_episode_steps"]
        with warnings.catch_warnings(action="ignore"):  # EnvPool's spaces warn about their bounds
            self.single_observation_space = _with_true_bounds(pool.single_observation_space)
            self.single_action_space = pool.single_action_space
            self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._ignored: Any = create_empty_array(self.single_action_space, num_envs)
        self._pool: Any = pool
        self._all = np.arange(num_envs, dtype=np.int32)
        self._last: Any = None
        """None before the first reset, and False after a failed step. Otherwise the last results in DISABLED mode, and
        True in other modes."""

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or in DISABLED mode those in `options["reset_mask"]`.

        Args:
            seed: an integer below 2**31, or a list with an integer for each environment. Both make a new batch. None
                resets the current batch.
            options: a dict with "reset_mask", bool (n,), in DISABLED mode, or None to reset all environments.
        """
        (mask,) = known_options("reset() of EnvPool", options, "reset_mask")
        mask = reset_mask_of(mask, self.num_envs)
        if mask is None or not self._last:
            # after a failed step, the old batch may still return results of that step, so make a new batch
            if self._last is False and seed is None:
                seed = [secrets.randbelow(LIMIT) for _ in range(self.num_envs)]
            self._make_anew(seed_of(seed, self.num_envs))
            observations, *_, infos = results = self._fresh(self._all)
            self._keep(*results)
            return observations, with_masks(infos)
        if self._rule.by_itself or seed is not None:
            _refuse(
                self._pool,
                "resets some of its environments only in DISABLED mode, and only without a seed",
                'Make it with autoreset_mode="Disabled", or reset all environments.',
            )
        rows = np.flatnonzero(mask).astype(np.int32)
        if len(rows):
            self._last = _merged(self._last, rows, self._fresh(rows))
        observations, *_, infos = map_arrays(np.copy, self._last)
        return observations, with_masks(infos)

    def _fresh(self, rows: AnyArray) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Reset some environments. Return what a step would return for them."""
        observations, infos = self._ordered(self._pool.reset(rows))
        no_flags = np.zeros(len(rows), bool)
        return observations, no_flags.astype(np.float32), no_flags, no_flags, infos

    def step(self, actions: AnyTree) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments."""
        if not self._last:
            raise gym.error.ResetNeeded(
                "Call reset() before the first step, and after an error in a step."
            )
        rule, actions = self._rule, np.asarray(actions)
        last_results, self._last = self._last, False
        if not rule.by_itself and (last_results[2] | last_results[3]).any():
            return self._step_rest(last_results, actions)
        results = self._ordered(self._pool.step(actions, self._all))
        observations, rewards, terminated, truncated, infos = results
        done, final_infos = terminated | truncated, {}
        if rule.tells_final and done.any():
            final_infos = Episodes.final_infos(observations, with_masks(infos), done)
        if rule.same_step and done.any():
            rows = np.flatnonzero(done).astype(np.int32)
            first_obs, *_, reset_infos = self._ordered(self._pool.step(self._ignored[rows], rows))
            observations, infos = _merged((observations, infos), rows, (first_obs, reset_infos))
        self._keep(*results)
        return observations, rewards, terminated, truncated, with_masks(infos) | final_infos

    def _step_rest(self, last: Any, actions: AnyTree) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in the environments whose episodes have not ended."""
        is_over = last[2] | last[3]
        last[1][is_over] = 0
        rows = np.flatnonzero(~is_over).astype(np.int32)
        if len(rows):
            last = _merged(last, rows, self._ordered(self._pool.step(actions[rows], rows)))
        self._last = last
        *results, infos = map_arrays(np.copy, self._last)
        return *results, with_masks(infos)

    def _ordered(self, results: AnyTree) -> Any:
        """Return results in the order of the environments, and observations in the dtypes of their space."""
        observations, *other_results, infos = results
        env_ids = infos["env_id"]
        infos = {key: x for key, x in infos.items() if key not in ("env_id", "players")}
        results = _cast(self.single_observation_space, observations), *other_results, infos
        if (env_ids[1:] < env_ids[:-1]).any():
            order = np.argsort(env_ids)
            results = map_arrays(lambda x: x[order], results)
        return results

    def _keep(self, *results: AnyTree) -> None:
        """In DISABLED mode, store the results of the whole batch, since later calls update only some rows."""
        self._last = True if self._rule.by_itself else map_arrays(np.copy, results)

    def _make_anew(self, seed: Any) -> None:
        """Replace the batch by a new batch with this seed, unless the seed is None."""
        if seed is None:
            return
        env_seeds = seed if isinstance(seed, list) else [seed + i for i in range(self.num_envs)]
        if None in env_seeds or max(env_seeds) > LIMIT:
            _refuse(self._pool, f"refuses seed={seed!r:.40}", f"Pass integers from 0 to {LIMIT}.")
        old_pool, spec_type = self._pool, type(self._pool.spec)
        config = {**old_pool.config, "seed": env_seeds[0], "env_seed": env_seeds}
        with warnings.catch_warnings(action="ignore"):
            self._pool = type(old_pool)(spec_type(spec_type.gen_config(**config)))
        render_vars = {name: x for name, x in vars(old_pool).items() if name.startswith("_render")}
        vars(self._pool).update(render_vars)

    def render(self) -> Any:
        """Return an image of each environment, or None without a render mode."""
        return None if self.render_mode is None else tuple(self._pool.render(self._all))

    def close_extras(self, **kwargs: Any) -> None:
        """Close the batch."""
        self._pool.close()
        self._last = None

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self._pool).__name__} cannot be copied or pickled, since EnvPool provides no access to its states. "
            "Make it in the process that uses it, with make_vec."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}({self._pool!r:.80})>"


def _refuse(pool: Any, why: str, remedy: str) -> NoReturn:
    raise af.OptionError(f"{type(pool).__name__} of EnvPool {why}", remedy=remedy)


def _cast(space: Space[Any], x: AnyArray) -> Any:
    """Cast a batch of observations to the dtypes of their space. For Discrete, EnvPool returns int32."""
    if isinstance(space, spaces.Dict):
        return {key: _cast(member, x[key]) for key, member in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(_cast, space, x))
    return x if x.dtype == space.dtype else x.astype(space.dtype)


def _with_true_bounds(space: Space[Any]) -> Space[Any]:
    """Return a space with the bounds -inf and inf where EnvPool states the smallest and the largest positive float."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _with_true_bounds(member) for key, member in space.items()})
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return space
    float_limits = np.finfo(space.dtype)
    low = np.where(space.low == float_limits.tiny, -np.inf, space.low)
    high = np.where(space.high == float_limits.max, np.inf, space.high)
    return spaces.Box(low, high, dtype=space.dtype.type)


def _merged(before: Any, rows: AnyArray, part: Any) -> Any:
    """Return a copy of the trees in `before`, in which the values in some rows are those of `part`."""

    def write(x: AnyArray, old: AnyArray) -> Any:
        merged = old.copy()
        merged[rows] = x
        return merged

    return mapped(write, part, before)


def ids() -> list[str]:
    """Return the names that EnvPool lists."""
    return list(import_module("envpool").list_all_envs())


def load(
    name: str,
    num_envs: int,
    *,
    autoreset_mode: AutoresetMode,
    max_episode_steps: Any = 0,
    **options: Any,
) -> EnvPoolVectorEnv:
    """Make a batch. If `options` has no "seed", the seed is random."""
    if max_episode_steps != 0:
        options["max_episode_steps"] = max_episode_steps or LIMIT
    options.setdefault("seed", secrets.randbelow(LIMIT - num_envs))
    with warnings.catch_warnings(action="ignore"):  # EnvPool's spaces warn about their bounds
        make = import_module("envpool").make
        pool = make(name, env_type="gymnasium", num_envs=num_envs, **options)
    return EnvPoolVectorEnv(pool, autoreset_mode)


def adapt(pool: Any, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> EnvPoolVectorEnv:
    """Convert a batch of EnvPool to a vector environment of Gymnasium."""
    return EnvPoolVectorEnv(pool, autoreset_mode)
