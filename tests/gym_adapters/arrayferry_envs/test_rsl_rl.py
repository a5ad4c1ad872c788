"""RSL-RL with other environments."""

from __future__ import annotations

import pytest
import torch

from arrayferry_envs import Pendulum
from arrayferry_gym import wrappers


def test_rsl_rl_logs_nothing_of_other_environments():
    """Statistics of episodes are arrays for each environment, under a name by which rsl_rl logs."""
    rsl_rl = pytest.importorskip("arrayferry_gym.rsl_rl", exc_type=ImportError)
    envs = Pendulum().make_vec(2, autoreset_mode="SameStep", max_episode_steps=1)
    env = rsl_rl.RslRlVecEnv(wrappers.vector.RecordEpisodeStatistics(envs))
    *_, extras = env.step(torch.zeros(2, 1))
    assert set(extras) == {"time_outs", "final_observations"}
