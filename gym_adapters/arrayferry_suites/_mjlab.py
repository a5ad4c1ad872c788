"""Tasks of mjlab: robots that are simulated in batches on a GPU, or more slowly on a CPU."""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

import torch
from gymnasium.vector import AutoresetMode, VectorWrapper

import arrayferry as af
from arrayferry._utilities.options import combined_seed, options_of
from arrayferry.typing import AnyTree
from arrayferry_gym import from_simulator
from arrayferry_gym.extending import RULES, Episodes, autoreset_mode_of

NO_LIMIT_S = 1e9
"""The length of an episode without a step limit, in seconds, as in mjlab's own configurations for playing."""


class Tasks(VectorWrapper[Any, Any, Any]):
    """A batch of a task of mjlab as a vector environment of Gymnasium.

    mjlab itself resets in the step that ends an episode, but then loses the last observation, so this class resets. A
    seed makes a new simulation, since a task draws constants when it is made, and its curriculum changes it.

    Args:
        env: the simulation, made with `auto_reset=False`.
        autoreset_mode: when environments are reset after an episode. NEXT_STEP is only for a batch of one environment.
        group: the group of observations to return, or None for a dict of all groups.
    """

    def __init__(self, env: Any, autoreset_mode: AutoresetMode, group: str | None) -> None:
        self._task, self._cfg, self._group = env, copy.deepcopy(env.cfg), group
        super().__init__(from_simulator(env, group=group))
        self.metadata = {**self.env.metadata, "autoreset_mode": autoreset_mode}
        self.max_episode_steps = env.max_episode_length
        self._rule = RULES[autoreset_mode]
        self._no_reward: Any = None  # rewards of 0, if the next step only resets

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those in the option `reset_mask`."""
        number = combined_seed(seed, self.num_envs)
        if number is not None and options_of(options).get("reset_mask") is not None:
            raise af.OptionError(
                "a reset_mask was passed with a seed, which makes a new simulation of mjlab",
                remedy="Leave out the seed, or reset all environments.",
            )
        self._no_reward = None
        if number is not None:
            self._make_anew(number)
        return self.env.reset(seed=number, options=options)

    def _make_anew(self, seed: int) -> None:
        """Replace the simulation by a new one, whose constants the seed determines."""
        old, cfg = self._task, copy.deepcopy(self._cfg)
        cfg.seed = seed
        self._task = type(old)(cfg, old.device, old.render_mode)
        self.env = from_simulator(self._task, group=self._group)
        old.close()

    def step(self, actions: AnyTree) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments."""
        if (rewards := self._no_reward) is not None:
            observations, infos = self.reset()
            return observations, rewards, rewards.bool(), rewards.bool(), infos
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        ended = terminated | truncated
        if self._rule.by_itself and ended.any():
            if self._rule.same_step:
                final = Episodes.final_infos(observations, infos, ended)
                observations, infos = self.env.reset(options={"reset_mask": ended})
                infos = infos | final
            else:
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
    play: bool = False,
    group: str | None = None,
    simulation_device: str | None = None,
) -> Tasks:
    """Make a batch of a task.

    Args:
        name: the name of the task.
        num_envs: the number of environments.
        autoreset_mode: SAME_STEP, DISABLED, or for a batch of one environment also NEXT_STEP.
        max_episode_steps: the step limit, None for no limit, or 0 for the limit of the task.
        play: whether to use the configuration in which mjlab plays the task.
        group: the group of observations to return, such as "actor", or None for a dict of all groups.
        simulation_device: the device of the simulation. None means "cuda:0", or "cpu" if PyTorch finds no GPU.
    """
    mode = _mode_for(num_envs, autoreset_mode)
    cfg = import_module("mjlab.tasks.registry").load_env_cfg(name, play=play)
    cfg.scene.num_envs, cfg.auto_reset = num_envs, False
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
) -> Tasks:
    """Convert a simulation that was made with `auto_reset=False` to a vector environment of Gymnasium."""
    mode = _mode_for(env.num_envs, autoreset_mode)
    if env.cfg.auto_reset:
        raise af.OptionError(
            f"{env!r:.80} resets by itself, and then loses the last observations of episodes",
            remedy="Make it with auto_reset=False in its configuration.",
        )
    return Tasks(env, mode, group)
