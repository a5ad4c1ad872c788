"""`SB3VecEnv`: vector environments of any library for Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import VectorEnv

import arrayferry as af
from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import missing_package
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym._spaces.trees import values_at

from ._bridged import Bridged, check_starts

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as _error:
    raise missing_package(__name__, "stable-baselines3", _error) from _error

__all__ = ["SB3VecEnv"]

MASK, MASKS = "action_mask", "action_masks"
"""The key of action masks in observations or infos, and the name of the method that `MaskablePPO` calls."""


@uncompiled
class SB3VecEnv(VecEnv):
    """A vector environment of any library as a `VecEnv` of Stable-Baselines3, which supports only NumPy.

    Stable-Baselines3 learns from every step, so an environment must reset in the same step (SAME_STEP) or leave
    resets to its caller (DISABLED). In DISABLED mode, this class resets finished environments.

    The infos of a step are from before any reset. In the infos of each environment, "TimeLimit.truncated" tells whether
    the episode was truncated and not terminated. At the end of an episode, "terminal_observation" is the observation
    before the reset. The infos of resets are in `reset_infos`. Stable-Baselines3 logs the "episode" infos that a
    `RecordEpisodeStatistics` around the environments adds.

    Args:
        envs: the vector environment to train in, of any library.

    Attributes:
        envs: the environments in NumPy.
        reset_infos: for each environment, the infos of its last reset.

    Raises:
        TypeError: `envs` is not a vector environment.
        arrayferry.OptionError: `envs` resets in the next step, or a Discrete or MultiDiscrete does not begin at 0.

    Examples:
        >>> from arrayferry_envs import CartPole
        >>> from arrayferry_gym.sb3 import SB3VecEnv
        >>> envs = SB3VecEnv(CartPole().make_vec(4, xp="jax", autoreset_mode="SameStep"))
        >>> envs.reset().shape
        (4, 4)
    """

    envs: Any
    reset_infos: list[dict[str, Any]]

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self._bridged = Bridged(envs, "SB3VecEnv", "Stable-Baselines3", "numpy", infos=True)
        check_starts("Stable-Baselines3", envs.single_observation_space, envs.single_action_space)
        self.envs = self._bridged.envs
        self._actions: Any = None
        self._infos: list[dict[str, Any]] = []  # for each environment, the latest infos
        obs_space = self.envs.single_observation_space
        self._observes_masks = isinstance(obs_space, spaces.Dict) and MASK in obs_space.spaces
        super().__init__(envs.num_envs, obs_space, self.envs.single_action_space)

    def reset(self) -> Any:
        """Reset all environments with the seeds and options that were set, and return observations."""
        options = self._options[0]
        if any(other != options for other in self._options):
            raise af.OptionError(
                f"set_options() was given different options for the environments: {self._options!r:.80}",
                remedy="Pass one dict, since vector environments are reset together.",
            )
        seeds = None if self._seeds[0] is None else list(self._seeds)
        observations = self._bridged.reset(seed=seeds, options=dict(options) or None)
        self.reset_infos = list(self._bridged.firsts)
        self._infos = list(self._bridged.firsts)
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: AnyTree) -> None:
        """Store actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """Take the step with the stored actions.

        Returns:
            Observations, rewards (float32 of shape (num_envs,)), ends of episodes (bool of the same shape), and infos (a
            list of dicts).
        """
        final_obs, rewards, terminated, truncated, infos = self._bridged.step(self._actions)
        observations, ended = final_obs, terminated | truncated
        cut_flags = (truncated & ~terminated).tolist()
        if not infos:
            infos = [{"TimeLimit.truncated": is_cut} for is_cut in cut_flags]
        else:
            for info, is_cut in zip(infos, cut_flags, strict=True):
                info["TimeLimit.truncated"] = is_cut
        self._infos = list(infos)
        (ended_rows,) = ended.nonzero()
        if len(ended_rows):
            observations, new_infos = self._bridged.reset(self._bridged.done), self._bridged.firsts
            last_obs = values_at(self.observation_space, final_obs, ended_rows)
            for index, last_row in zip(ended_rows.tolist(), last_obs, strict=True):
                self.reset_infos[index] = self._infos[index] = new_infos[index]
                infos[index]["terminal_observation"] = last_row
        return observations, rewards.astype(np.float32), ended, infos

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def get_images(self) -> Sequence[Any]:
        """Return a list with an image of each environment, or with None if they cannot be rendered."""
        return self._bridged.images()

    def _serves_masks(self, name: str) -> bool:
        """Tell whether `name` is "action_masks" and observations or infos have masks, but no method returns them."""
        exists = self._observes_masks or (self._infos and all(MASK in info for info in self._infos))
        return name == MASKS and bool(exists) and not self._bridged.has_method(name)

    def _mask(self, index: int) -> Any:
        """Return the action mask of one environment, bool and one-dimensional."""
        if self._bridged.current is None:
            raise ResetNeeded("Call reset() first: before it, there are no action masks.")
        if self._observes_masks:
            mask = self._bridged.current[MASK][index]
        else:
            mask = self._infos[index][MASK]
        return np.array(mask, bool).reshape(-1)

    def get_attr(self, attr_name: str, indices: AnyArray = None) -> list[Any]:
        """Return a list with an attribute of each chosen environment. The environments of a batch share the attribute.

        If action masks are in observations or infos, the attribute `action_masks` is a function that returns the mask.
        """
        chosen = list(self._get_indices(indices))
        if self._serves_masks(attr_name):
            return [partial(self._mask, index) for index in chosen]
        return self._bridged.get(attr_name, chosen)

    def set_attr(self, attr_name: str, value: AnyTree, indices: AnyArray = None) -> None:
        """Set an attribute of the chosen environments. A batch supports this only for all environments."""
        self._bridged.set(attr_name, value, list(self._get_indices(indices)))

    def env_method(
        self, method_name: str, *method_args: Any, indices: AnyArray = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the chosen environments, and return a list of results.

        A method of a batch is called once, for all environments. A result with a row for each environment is split into
        rows. Any other result is repeated for each environment.
        """
        chosen = list(self._get_indices(indices))
        if self._serves_masks(method_name):
            return [self._mask(index) for index in chosen]
        return self._bridged.call(method_name, chosen, *method_args, **method_kwargs)

    def env_is_wrapped(self, wrapper_class: Any, indices: AnyArray = None) -> list[bool]:
        """Return a list that tells for each chosen environment whether it has a wrapper of this class."""
        from stable_baselines3.common.env_util import is_wrapped

        singles = self._bridged.singles
        return [
            singles is not None and is_wrapped(singles[index], wrapper_class)
            for index in self._get_indices(indices)
        ]
