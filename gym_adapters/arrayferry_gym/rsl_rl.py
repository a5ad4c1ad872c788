"""`RslRlVecEnv`: vector environments of any library for rsl_rl."""

from __future__ import annotations

import sys
from typing import Any

from gymnasium import spaces
from gymnasium.vector import VectorEnv

import arrayferry as af
from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import missing_package
from arrayferry.typing import AnyArray, AnyTree, Device

from ._bridged import Bridged
from .vector import ArrayConversion
from .wrappers._driver import step_limit

try:
    import torch
    from rsl_rl.env import VecEnv
    from tensordict import TensorDict
except ImportError as _error:
    raise missing_package(__name__, "rsl-rl-lib", _error) from _error

__all__ = ["RslRlVecEnv"]

LOGGED = ("log", "episode")
"""The keys of a simulator's infos whose values rsl_rl logs."""


@uncompiled
class RslRlVecEnv(VecEnv):  # type: ignore[misc]
    """A vector environment of any library as a `VecEnv` of rsl_rl.

    rsl_rl learns from every step, so an environment must reset in the same step (SAME_STEP) or leave resets to its
    caller (DISABLED). In DISABLED mode, this class resets finished environments.

    Observations are float32, in a TensorDict with one group "policy", or with one group for each key of a Dict. Actions
    are float32 (num_envs, num_actions), since rsl_rl's policies are continuous. `extras["time_outs"]` is true where an
    episode was truncated and has not terminated. For such an episode, rsl_rl should use the value of the last
    observation, but uses the value of the observation before it. Other algorithms find the last observations in
    `extras["final_observations"]`, if `envs` returns them.

    Args:
        envs: the vector environment to train in, of any library.
        device: the device of all tensors.

    Attributes:
        envs: the environments in PyTorch.
        num_envs: the number of environments.
        num_actions: the number of components of an action.
        max_episode_length: the number of steps after which an episode is truncated, or `sys.maxsize` if it is not
            known.
        device: the device of all tensors.
        cfg: an empty dict, which rsl_rl saves with its logs.

    Raises:
        TypeError: `envs` is not a vector environment, or a space is not supported.
        arrayferry.OptionError: `envs` resets in the next step.

    Examples:
        >>> from arrayferry_envs import Pendulum
        >>> from arrayferry_gym.rsl_rl import RslRlVecEnv
        >>> env = RslRlVecEnv(Pendulum().make_vec(4, xp="jax", autoreset_mode="SameStep"))
        >>> env.get_observations()["policy"].shape
        torch.Size([4, 3])
    """

    envs: ArrayConversion[Any, Any, Any]
    num_envs: int
    num_actions: int
    max_episode_length: int
    device: Any
    cfg: dict[str, Any]

    def __init__(self, envs: VectorEnv[Any, Any, Any], device: Device = "cpu") -> None:
        self._bridged = Bridged(envs, "RslRlVecEnv", "rsl_rl", "torch", device, needs_final=False)
        self.envs = self._bridged.envs
        self.num_envs = envs.num_envs
        obs_space, act_space = envs.single_observation_space, envs.single_action_space
        self._grouped = isinstance(obs_space, spaces.Dict)
        groups = obs_space.spaces if isinstance(obs_space, spaces.Dict) else {"policy": obs_space}
        for group_space in groups.values():
            if not isinstance(group_space, (spaces.Box, spaces.MultiBinary)):
                raise TypeError(
                    f"rsl_rl learns from a Box, a MultiBinary or a Dict of these, not from {obs_space}. Flatten the "
                    "observations, for example by FlattenObservation of arrayferry_gym.wrappers.vector"
                )
        if not isinstance(act_space, spaces.Box):
            raise TypeError(
                f"the policies of rsl_rl are continuous, but the actions are {act_space}. Use an environment whose actions are a Box"
            )
        self._shapes = {key: (self.num_envs, *(box.shape or (1,))) for key, box in groups.items()}
        self._action_shape = (self.num_envs, *act_space.shape)
        self.num_actions = int(torch.Size(act_space.shape).numel())
        limit = step_limit(envs)
        limit = getattr(envs, "max_episode_length", None) if limit is None else limit
        self.max_episode_length = sys.maxsize if limit is None else limit
        self.device, self.cfg = device, {}
        self._lengths = torch.zeros(self.num_envs, dtype=torch.int64, device=device)
        self._observations: Any = None

    @property
    def episode_length_buf(self) -> Any:
        """The number of steps of each episode so far, int64 (num_envs,). The property can be set only for a simulator."""
        return self._lengths

    @episode_length_buf.setter
    def episode_length_buf(self, lengths: AnyArray) -> None:
        simulator = self._bridged.simulator
        if hasattr(simulator, "episode_length_buf"):
            simulator.episode_length_buf = lengths
            self._lengths = lengths.clone()
            return
        raise af.OptionError(
            "episode_length_buf cannot be set, since these environments count the steps of their episodes themselves",
            remedy="Call learn(..., init_at_random_ep_len=False).",
        )

    def reset(self, *, seed: Any = None) -> Any:
        """Reset all environments, and return observations. rsl_rl does not call this method. Call it to set a seed."""
        self._observations = self._tensordict(self._bridged.reset(seed=seed))
        self._lengths = torch.zeros_like(self._lengths)
        return self._observations

    def get_observations(self) -> Any:
        """Return the current observations. If the environments were not reset yet, reset them first."""
        return self.reset() if self._observations is None else self._observations

    def step(self, actions: AnyTree) -> tuple[Any, Any, Any, dict[str, Any]]:
        """Take a step, and reset finished environments.

        Args:
            actions: the actions, (num_envs, num_actions).

        Returns:
            Observations (a TensorDict), rewards (float32 of shape (num_envs,)), ends of episodes (bool of the same
            shape), and extras (a dict).
        """
        self.get_observations()
        final_obs, rewards, terminated, truncated, _ = self._bridged.step(
            actions.reshape(self._action_shape)
        )
        ended = terminated | truncated
        extras = {"time_outs": truncated & ~terminated}
        # in environments that are not simulators, "log" and "episode" may mean something else
        if self._bridged.simulator is not None:
            extras.update((key, info) for key, info in self._bridged.given.items() if key in LOGGED)
        if not self._bridged.loses_final:
            extras["final_observations"] = self._tensordict(final_obs)
        observations = self._bridged.reset(ended) if ended.any() else final_obs
        self._observations = self._tensordict(observations)
        self._lengths = torch.where(ended, 0, self._lengths + 1)
        return self._observations, rewards.to(torch.float32), ended, extras

    def _tensordict(self, observations: AnyTree) -> Any:
        groups = observations if self._grouped else {"policy": observations}
        tensors = {
            key: groups[key].to(torch.float32).reshape(shape) for key, shape in self._shapes.items()
        }
        return TensorDict(tensors, batch_size=(self.num_envs,), device=self.device)

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()
