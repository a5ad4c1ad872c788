"""`SB3VecEnv`: vector environments of any library for Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.vec_env import VecEnv

import arrayferry as af

from . import vector
from ._env_options import declared_mode
from ._space_trees import build, split

__all__ = ["SB3VecEnv"]


class SB3VecEnv(VecEnv):
    """A vector environment of any library as a `VecEnv` of Stable-Baselines3, which knows NumPy only.

    Stable-Baselines3 learns from each step, so that an environment must reset in the same step (SAME_STEP) or leave resets
    to others (DISABLED). With the latter, this resets those that have ended.

    Infos of an episode's last step have "terminal_observation", the observation before the reset, and
    "TimeLimit.truncated", true where it was truncated and has not terminated. What `RecordEpisodeStatistics`
    around the environments adds ("episode") is what Stable-Baselines3 logs.

    Args:
        envs: the environments.

    Attributes:
        envs: the environments in NumPy.

    Raises:
        TypeError: these are no vector environments.
        arrayferry.OptionError: they reset in the next step.

    Example:
        >>> from arrayferry_gym.functional import CartPole
        >>> from arrayferry_gym.sb3 import SB3VecEnv
        >>> envs = SB3VecEnv(CartPole().make_vec(4, xp="jax", autoreset_mode="SameStep"))
        >>> envs.reset().shape
        (4, 4)
    """

    envs: Any
    reset_infos: list[dict[str, Any]]

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        if not isinstance(envs, VectorEnv):
            raise TypeError(
                f"SB3VecEnv was given {envs!r:.80}, which is no vector environment. Pass what gymnasium.make_vec or "
                "make_vec of a FunctionalEnv returns; for a single environment, Stable-Baselines3 makes its own"
            )
        self._mode = declared_mode(envs)
        if self._mode is AutoresetMode.NEXT_STEP:
            raise af.OptionError(
                f"{envs!r:.80} resets in the step after the last, whose action does not count, but "
                "Stable-Baselines3 learns from every step",
                remedy='Make it with autoreset_mode="SameStep" (gymnasium.make_vec: vector_kwargs={"autoreset_mode": '
                "gymnasium.vector.AutoresetMode.SAME_STEP}).",
            )
        own = getattr(envs.unwrapped, "xp", None)  # of a FunctionalEnv, which stays in its library
        library = own if isinstance(own, str) else None
        self.envs = vector.ArrayConversion(envs, env_xp=library, target_xp="numpy")
        self._actions: Any = None
        super().__init__(
            envs.num_envs, self.envs.single_observation_space, self.envs.single_action_space
        )

    def reset(self) -> Any:
        """Reset all environments, with the seeds and options that were set, and return observations."""
        options = self._options[0]
        if any(other != options for other in self._options):
            raise af.OptionError(
                f"set_options() was given different options for the environments: {self._options!r:.80}",
                remedy="Pass one dict: vector environments are reset together.",
            )
        seeds = None if self._seeds[0] is None else list(self._seeds)
        observations, infos = self.envs.reset(seed=seeds, options=dict(options) or None)
        self.reset_infos = _by_environment(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        return self._own(observations)

    def step_async(self, actions: Any) -> None:
        """Keep actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """Take the step: return observations, float32 rewards, which episodes have ended, and a dict for each environment."""
        observations, rewards, terminated, truncated, infos = self.envs.step(self._actions)
        ended, infos = np.logical_or(terminated, truncated), dict(infos)
        final = infos.pop("final_obs", None)
        infos.pop("_final_obs", None)
        last = infos.pop("final_info", None)
        infos.pop("_final_info", None)
        dicts = _by_environment(infos, self.num_envs)
        if ended.any():
            if self._mode is AutoresetMode.DISABLED:
                final = self._own(observations)
                observations, first = self.envs.reset(options={"reset_mask": ended.copy()})
                firsts = _by_environment(first, self.num_envs)
            else:
                firsts = dicts
            lasts = dicts if last is None else _by_environment(last, self.num_envs)
            for index in map(int, np.flatnonzero(ended)):
                self.reset_infos[index] = firsts[index]
                dicts[index] = {
                    **dicts[index],
                    **lasts[index],
                    "terminal_observation": self._row(final, index),
                    "TimeLimit.truncated": bool(truncated[index]) and not terminated[index],
                }
        rewards = np.array(rewards, np.float32)
        return self._own(observations), rewards, ended, dicts

    def _own(self, observations: Any) -> Any:
        """Return observations that no later step writes to, and that can be written to."""
        space = self.envs.observation_space
        return build(space, (np.array(part) for part in split(space, observations)))

    def _row(self, batch: Any, index: int) -> Any:
        """Return the observation of one environment."""
        if isinstance(batch, np.ndarray) and batch.dtype == object:
            return batch[index]
        space = self.observation_space
        return build(space, (np.array(part[index]) for part in split(space, batch)))

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def get_images(self) -> Sequence[Any]:
        """Return an image of each environment."""
        images = self.envs.render()
        return [None] * self.num_envs if images is None else list(images)

    @property
    def _inner(self) -> Any:
        return self.envs.unwrapped

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of environments. Those that are a batch share theirs."""
        if hasattr(self._inner, "get_attr"):
            values = self._inner.get_attr(attr_name)
        else:
            values = [getattr(self._inner, attr_name)] * self.num_envs
        return [values[index] for index in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of environments. That of a batch can be set for all only."""
        chosen = list(self._get_indices(indices))
        if hasattr(self._inner, "set_attr"):
            if len(chosen) == self.num_envs:
                values = [value] * self.num_envs
            else:
                values = list(self._inner.get_attr(attr_name))
                for index in chosen:
                    values[index] = value
            self._inner.set_attr(attr_name, values)
            return
        self._whole(chosen, f"setting {attr_name}")
        setattr(self._inner, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of environments, and return what each returns."""
        chosen = list(self._get_indices(indices))
        own = getattr(self._inner, "envs", None)
        if own is not None:
            methods = [own[index].get_wrapper_attr(method_name) for index in chosen]
            return [method(*method_args, **method_kwargs) for method in methods]
        self._whole(chosen, f"{method_name}()")
        if hasattr(self._inner, "call"):
            return list(self._inner.call(method_name, *method_args, **method_kwargs))
        raise AttributeError(
            f"{self._inner!r} is a batch, and has no environments with a method {method_name!r}. Call the methods of .envs"
        )

    def _whole(self, chosen: list[int], what: str) -> None:
        if chosen != list(range(self.num_envs)):
            raise af.OptionError(
                f"{what} was asked of the environments {chosen}, but {self._inner!r} reaches all or none",
                remedy="Leave indices out.",
            )

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return which environments have a wrapper around them."""
        from stable_baselines3.common.env_util import is_wrapped

        chosen = self._get_indices(indices)
        own = getattr(self._inner, "envs", None)
        if own is None:
            return [False for _ in chosen]
        return [is_wrapped(own[index], wrapper_class) for index in chosen]


def _by_environment(infos: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """Return the infos of a vector environment as a dict for each environment."""
    dicts: list[dict[str, Any]] = [{} for _ in range(n)]
    for key, value in infos.items():
        if key[:1] == "_" and key[1:] in infos:
            continue
        mask = infos.get(f"_{key}")
        rows = range(n) if mask is None else map(int, np.flatnonzero(mask))
        values = _by_environment(value, n) if isinstance(value, dict) else value
        shared = mask is None and (not hasattr(values, "__len__") or len(values) != n)
        for index in rows:
            dicts[index][key] = values if shared else values[index]
    return dicts
