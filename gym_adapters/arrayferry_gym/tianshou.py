"""`TianshouVectorEnv`: vector environments of any library for Tianshou."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import missing_package
from arrayferry.typing import AnyTree
from arrayferry_gym._spaces.trees import values_at

from ._bridged import Bridged, check_starts
from .vector import ArrayConversion

try:
    from tianshou.env import BaseVectorEnv
except ImportError as _error:
    raise missing_package(__name__, "tianshou", _error) from _error

__all__ = ["TianshouVectorEnv"]


@uncompiled
class TianshouVectorEnv(BaseVectorEnv):  # type: ignore[misc]
    """A vector environment of any library as a vector environment of Tianshou, which supports only NumPy.

    Tianshou calls `reset` after each episode. The environments may reset in the same step (SAME_STEP) or leave resets to
    their caller (DISABLED), but not reset in the next step. In both modes, a step returns the observation before any
    reset, and a reset returns the first observation of the next episode.

    A vector environment steps as a whole. When Tianshou steps only some environments, the others step too, and must be
    reset before Tianshou steps them again. The collectors of Tianshou reset them.

    Args:
        envs: the vector environment to train in, of any library.

    Attributes:
        envs: the environments in NumPy.

    Raises:
        TypeError: `envs` is not a vector environment, or observations are a Tuple.
        arrayferry.OptionError: `envs` resets in the next step, or a Discrete or MultiDiscrete of actions does not begin
            at 0.

    Examples:
        >>> from arrayferry_envs import CartPole
        >>> from arrayferry_gym.tianshou import TianshouVectorEnv
        >>> envs = TianshouVectorEnv(CartPole().make_vec(4, xp="jax", autoreset_mode="SameStep"))
        >>> observations, infos = envs.reset([0, 2])
        >>> observations.shape
        (2, 4)
    """

    envs: ArrayConversion[Any, Any, Any]

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        # super().__init__() is not called, since it would start a worker for each environment
        self._bridged = Bridged(envs, "TianshouVectorEnv", "Tianshou", "numpy", infos=True)
        check_starts("Tianshou", envs.single_action_space)
        self.envs = self._bridged.envs
        self._space = envs.single_observation_space
        if isinstance(self._space, spaces.Tuple):
            raise TypeError(
                f"Tianshou does not support observations that are a Tuple, such as {self._space}. Use a Dict"
            )
        self.env_num: int = envs.num_envs
        self.wait_num: int = envs.num_envs
        self.workers: list[Any] = []
        self.waiting_id: list[int] = []
        self.ready_id: list[int] = list(range(self.env_num))
        self.is_async: bool = False
        self.is_closed: bool = False

    def reset(self, env_id: Any = None, **kwargs: Any) -> tuple[Any, Any]:
        """Reset all environments, or those with the given indices.

        Args:
            env_id: an index, a list or array of indices, or None for all.
            **kwargs: `seed` and `options`, as for `reset` of vector environments.

        Returns:
            The observations and infos of the selected environments.
        """
        ids = self._ids(env_id)
        observations = self._bridged.reset(self._rows(ids), **kwargs)
        infos = self._bridged.firsts
        return self._observations(observations, ids), _array([dict(infos[index]) for index in ids])

    def step(self, action: AnyTree, id: Any = None) -> tuple[Any, Any, Any, Any, Any]:  # noqa: A002
        """Take a step in all environments, or in those with the given indices.

        Args:
            action: one action for each selected environment.
            id: an index, a list or array of indices, or None for all.

        Returns:
            The observations, rewards, terminated, truncated and infos of the selected environments.
        """
        ids = self._ids(id)
        chosen_actions = np.asarray(action)
        actions = np.repeat(chosen_actions[:1], self.env_num, axis=0)
        actions[ids] = chosen_actions
        row_mask = None if len(ids) == self.env_num else self._rows(ids)
        observations, *arrays, infos = self._bridged.step(actions, row_mask)
        dicts = [{**(infos[index] if infos else {}), "env_id": index} for index in ids]
        reward, terminated, truncated = (array[ids] for array in arrays)
        return self._observations(observations, ids), reward, terminated, truncated, _array(dicts)

    def seed(self, seed: int | list[int] | None = None) -> list[Any]:
        """Reset all environments with a seed. The next call of `reset` returns the observations and infos.

        Args:
            seed: as for `reset` of vector environments. If it is None, nothing is reset.

        Returns:
            A list with an entry for each environment: a list with its seed, or None if `seed` is None.
        """
        if seed is None:
            return [None] * self.env_num
        self._bridged.seed(seed)
        seeds = range(seed, seed + self.env_num) if isinstance(seed, int) else seed
        return [[env_seed] for env_seed in seeds]

    def _ids(self, env_id: Any) -> list[int]:
        """Return an index, or several indices, as a list. None means the indices of all environments."""
        self._assert_is_not_closed()
        return self.ready_id if env_id is None else np.atleast_1d(np.asarray(env_id)).tolist()

    def _rows(self, ids: list[int]) -> Any:
        row_mask = np.zeros(self.env_num, bool)
        row_mask[ids] = True
        return row_mask

    def _observations(self, batch: AnyTree, ids: list[int]) -> Any:
        """Return the observations of some environments as an array. For a Dict, return an object array of dicts."""
        observations = values_at(self._space, batch, ids)
        return _array(observations) if isinstance(self._space, spaces.Dict) else observations

    def get_env_attr(self, key: str, id: Any = None) -> list[Any]:  # noqa: A002
        """Return a list with an attribute of each chosen environment. The environments of a batch share the attribute."""
        return self._bridged.get(key, self._ids(id))

    def set_env_attr(self, key: str, value: AnyTree, id: Any = None) -> None:  # noqa: A002
        """Set an attribute of the chosen environments. A batch supports this only for all environments."""
        self._bridged.set(key, value, self._ids(id))

    def render(self, **kwargs: Any) -> list[Any]:
        """Return a list with an image of each environment, or with None if they cannot be rendered."""
        self._assert_is_not_closed()
        return self._bridged.images()

    def close(self) -> None:
        """Close the environments."""
        self._assert_is_not_closed()
        self.envs.close()
        self.is_closed = True


def _array(dicts: list[Any]) -> Any:
    """Return a list of dicts as a one-dimensional object array."""
    array = np.empty(len(dicts), object)
    array[:] = dicts
    return array
