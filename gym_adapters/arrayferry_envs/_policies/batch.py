"""`EnvBatch`: environments of Gymnasium as a batch, with rewards of any shape and unchanged infos."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from arrayferry.typing import AnyTree
from arrayferry_gym.extending import RULES, as_rewards


class RewardedBatch(SyncVectorEnv):
    """A `SyncVectorEnv` of Gymnasium, with rewards of any shape."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._rewards: Any = np.empty(self.num_envs, object)

    def step(self, actions: AnyTree) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step. The rewards have the shape (n, *reward_shape)."""
        observations, rewards, *flags, infos = super().step(actions)
        return observations, as_rewards([*rewards], self.num_envs), *flags, infos


class EnvBatch(RewardedBatch):
    """Environments that are stepped one after the other. Unlike in a `SyncVectorEnv`, infos are not merged.

    Args:
        envs: the environments, with results in NumPy.
        copied: whether the returned observations are copies, which later steps do not change.
        mode: the autoreset mode.

    Attributes:
        infos: a list of the infos of the last step or reset of each environment. After a step in SAME_STEP mode, these
            are the infos before the automatic reset.
    """

    def __init__(self, envs: Sequence[Any], copied: bool, mode: AutoresetMode) -> None:
        makers: Any = [lambda env=env: env for env in envs]
        super().__init__(makers, copied, autoreset_mode=mode)
        self.infos: list[dict[str, Any]] = [{} for _ in envs]

    def step(self, actions: AnyTree) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step. The returned infos contain only "final_obs", the last observations of finished episodes."""
        observations, rewards, terminated, truncated, finals = super().step(actions)
        final_observations = np.empty(self.num_envs, object)
        for index, final_observation in finals.items():
            final_observations[index] = final_observation
        infos = {"final_obs": final_observations} if finals else {}
        return observations, rewards, terminated, truncated, infos

    def _add_info(self, vector_infos: Any, env_info: Any, env_num: int) -> Any:
        """Store the infos of one environment separately, since not all infos can be merged."""
        # a second call in one step has the infos of the reset, which are not stored
        if env_num in vector_infos:
            return vector_infos
        ended = self._terminations[env_num] or self._truncations[env_num]
        if not ended or not RULES[self.autoreset_mode].same_step:
            self.infos[env_num] = env_info
            return vector_infos
        # copied, since the environment may overwrite these arrays in later steps
        final, self.infos[env_num] = copy.deepcopy((env_info["final_obs"], env_info["final_info"]))
        return {**vector_infos, env_num: final}
