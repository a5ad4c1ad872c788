"""Tasks of mjlab: robots that are simulated in batches on a GPU, or more slowly on a CPU."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

import arrayferry as af
from arrayferry.typing import AnyTree
from arrayferry_gym import from_simulator
from arrayferry_gym.extending import RULES, Episodes, autoreset_mode_of

NO_LIMIT_S = 1e9
"""The length of an episode without a step limit, in seconds, as in mjlab's own configurations for playing."""


class Resetting(VectorWrapper[Any, Any, Any]):
    """A batch that resets its environments.

    mjlab itself resets in the step that ends an episode, but then loses the last observation.

    Args:
        envs: the batch, in DISABLED mode.
        autoreset_mode: SAME_STEP, or NEXT_STEP for a batch of one environment.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any], autoreset_mode: AutoresetMode) -> None:
        super().__init__(envs)
        self.metadata = {**envs.metadata, "autoreset_mode": autoreset_mode}
        self._same_step = RULES[autoreset_mode].same_step
        self._no_reward: Any = None  # rewards of 0, if the next step only resets

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those in the option `reset_mask`."""
        self._no_reward = None
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: AnyTree) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments."""
        if (rewards := self._no_reward) is not None:
            observations, infos = self.reset()
            return observations, rewards, rewards.bool(), rewards.bool(), infos
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        ended = terminated | truncated
        if ended.any() and self._same_step:
            final_infos = Episodes.final_infos(observations, infos, ended)
            observations, infos = self.env.reset(options={"reset_mask": ended})
            infos = infos | final_infos
        elif ended.any():
            self._no_reward = torch.zeros_like(rewards)
        return observations, rewards, terminated, truncated, infos


def ids() -> list[str]:
    """Return the names of the tasks, also of other packages that add tasks to mjlab."""
    return list(import_module("mjlab.tasks.registry").list_tasks())


def load(
    name: str,
    num_envs: int,
    *,
    autoreset_mode: AutoresetMode,
    max_episode_steps: Any = 0,
    seed: int | None = None,
    play: bool = False,
    group: str | None = None,
    simulation_device: str | None = None,
) -> VectorEnv[Any, Any, Any]:
    """Make a batch of a task.

    Args:
        name: the name of the task.
        num_envs: the number of environments.
        autoreset_mode: SAME_STEP, DISABLED, or for a batch of one environment also NEXT_STEP.
        max_episode_steps: the step limit, None for no limit, or 0 for the limit of the task.
        seed: seeds the constants that the task draws when it is made. `reset(seed=)` does not draw them again.
        play: whether to use the configuration in which mjlab plays the task.
        group: the group of observations to return, such as "actor", or None for a dict of all groups.
        simulation_device: the device of the simulation. None means "cuda:0", or "cpu" if PyTorch finds no GPU.
    """
    mode = _mode_for(num_envs, autoreset_mode)
    cfg = import_module("mjlab.tasks.registry").load_env_cfg(name, play=play)
    cfg.scene.num_envs, cfg.auto_reset = num_envs, False
    cfg.seed = cfg.seed if seed is None else seed
    if max_episode_steps != 0:
        step_s = cfg.sim.mujoco.timestep * cfg.decimation
        # half a step less, because mjlab rounds the number of steps up
        limit_s = (max_episode_steps - 0.5) * step_s if max_episode_steps else NO_LIMIT_S
        cfg.episode_length_s = limit_s
    device = simulation_device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    env = import_module("mjlab.envs").ManagerBasedRlEnv(cfg, device)
    return adapt(env, mode, group)


def _mode_for(num_envs: int, autoreset_mode: AutoresetMode | str) -> AutoresetMode:
    """Return the autoreset mode, and refuse NEXT_STEP for several environments."""
    mode = autoreset_mode_of(autoreset_mode)
    if num_envs > 1 and mode is AutoresetMode.NEXT_STEP:
        raise af.OptionError(
            f"{num_envs} environments of mjlab have no NEXT_STEP mode, because a step cannot leave out the environments "
            "that are reset",
            remedy='Pass autoreset_mode="SameStep" or "Disabled".',
        )
    return mode


def adapt(
    env: Any,
    autoreset_mode: AutoresetMode | str = AutoresetMode.DISABLED,
    group: str | None = None,
) -> VectorEnv[Any, Any, Any]:
    """Convert a simulation that was made with `auto_reset=False` to a vector environment of Gymnasium."""
    mode = _mode_for(env.num_envs, autoreset_mode)
    if env.cfg.auto_reset:
        raise af.OptionError(
            f"{env!r:.80} resets by itself, and then loses the last observations of episodes",
            remedy="Make it with auto_reset=False in its configuration.",
        )
    envs: Any = from_simulator(env, group=group)
    envs = Resetting(envs, mode) if RULES[mode].by_itself else envs
    envs.max_episode_steps = env.max_episode_length
    return envs  # type: ignore[no-any-return]
