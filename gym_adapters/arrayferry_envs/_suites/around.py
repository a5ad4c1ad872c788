"""Wrappers and adapters for suites whose environments are not functional."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from arrayferry._utilities.options import stream_seed
from arrayferry._utilities.text import never_raises
from arrayferry.extending import map_arrays
from arrayferry.typing import AnyTree
from arrayferry_envs._served.serving import described
from arrayferry_gym import ArrayConversion
from arrayferry_gym.extending import RULES
from arrayferry_gym.vector import ArrayConversion as VectorArrayConversion


class Named:
    """A base class of adapters. The repr of an adapter then contains the id of the environment."""

    suite_id: str = ""

    @never_raises
    def __repr__(self: Any) -> str:
        inner_envs = self.env.envs if isinstance(self.env, OneEnv) else self.env
        single_envs = getattr(inner_envs, "envs", inner_envs)  # `envs` of a SyncVectorEnv is a list
        env = single_envs[0] if isinstance(single_envs, list) else single_envs
        limit = getattr(env, "max_episode_steps", getattr(env.spec, "max_episode_steps", None))
        attr = "_max_episode_steps"  # an attribute of TimeLimit, which may be an inner wrapper
        if limit is None and isinstance(env, gym.Env) and env.has_wrapper_attr(attr):
            limit = env.get_wrapper_attr(attr)
        return described(
            self, self.suite_id or str(self.env), self.target_backend.name, self.device, limit
        )

    def __str__(self) -> str:
        return repr(self)


class SuiteEnv(Named, ArrayConversion):
    """An environment of a suite that has no functional environments, for agents of any library."""


class SuiteVectorEnv(Named, VectorArrayConversion):
    """A batch of environments of a suite that has no functional environments, for agents of any library."""


def around(envs: Any, **options: Any) -> SuiteEnv | SuiteVectorEnv:
    """Put an adapter around environments, for agents of any library. `options` are options of the adapter."""
    if not isinstance(envs, VectorEnv):
        return SuiteEnv(envs, **options)
    stacks_final = RULES[envs.metadata["autoreset_mode"]].tells_final
    return SuiteVectorEnv(envs, stack_final=stacks_final, **options)


class Levels(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An environment whose episodes are levels, each with a seed.

    Each `reset` passes one of the seeds to the environment, and returns the seed in infos as "seed".

    Args:
        env: the environment, whose `reset` is called with the seed of a level.
        seeds: the seeds of the levels.
    """

    def __init__(self, env: gym.Env[Any, Any], seeds: Sequence[int]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, seeds=seeds)
        gym.Wrapper.__init__(self, env)
        self._seeds, self._choice, self._seed = seeds, np.random.default_rng(), 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start a level. `seed` determines the choice of this level and of the next levels."""
        if seed is not None:
            self._choice = np.random.default_rng(stream_seed("choice of levels", seed))
        self._seed = self._seeds[int(self._choice.integers(len(self._seeds)))]
        observation, info = self.env.reset(seed=self._seed, options=options)
        return observation, {**info, "seed": self._seed}

    def step(self, action: AnyTree) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        *results, info = self.env.step(action)
        return *results, {**info, "seed": self._seed}


def with_levels(make: Callable[[], Any], seeds: Sequence[int] | None) -> Any:
    """Make an environment. Its episodes are levels, unless `seeds` is None."""
    return make() if seeds is None else Levels(make(), seeds)


class OneEnv(gym.Env[Any, Any]):
    """A batch of one environment, as a single environment.

    Args:
        envs: the batch, in NEXT_STEP mode.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self.envs = envs
        self.observation_space = envs.single_observation_space
        self.action_space = envs.single_action_space
        self.render_mode, self.spec = envs.render_mode, envs.spec
        self.metadata = {name: x for name, x in envs.metadata.items() if name != "autoreset_mode"}
        self._over: bool | None = None  # None if a reset is required: at first, and after an error

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode. If the last episode is over, and no seed or options are passed, a step resets the batch."""
        super().reset(seed=seed)
        was_over, self._over = self._over, None
        if was_over and seed is None and not options:
            observation, *_, infos = self.envs.step(self.envs.action_space.sample())
        else:
            observation, infos = self.envs.reset(seed=seed, options=options)
        self._over = False
        return _first((observation, infos))

    def step(self, action: AnyTree) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        if self._over is not False:
            raise gym.error.ResetNeeded("Call reset() before the first step of an episode.")
        self._over = None  # remains None if the step raises an error
        empty_batch: Any = create_empty_array(self.action_space, n=1)
        results = _first(self.envs.step(concatenate(self.action_space, [action], empty_batch)))
        observation, reward, terminated, truncated, info = results
        self._over = bool(terminated | truncated)
        return observation, float(reward), bool(terminated), bool(truncated), info

    def render(self) -> Any:
        """Return an image, or None if the batch has no images."""
        images = self.envs.render()
        return None if images is None else images[0]

    def close(self) -> None:
        """Close the batch."""
        self.envs.close()

    def __str__(self) -> str:
        return f"<{type(self).__name__}({self.envs})>"


def _first(results: AnyTree) -> tuple[Any, ...]:
    """Return the results of the first environment of a batch, without the masks in infos."""
    *array_results, infos = results
    return *map_arrays(lambda x: x[0], array_results), _first_info(infos)


def _first_info(infos: AnyTree) -> Any:
    if isinstance(infos, dict):
        kept_names = (x for x in infos if f"_{x}" in infos or not str(x).startswith("_"))
        return {name: _first_info(infos[name]) for name in kept_names}
    if isinstance(infos, np.ndarray):  # map_arrays would map over an array of objects
        return infos[0]
    return map_arrays(lambda x: x[0] if x.ndim else x, infos)
