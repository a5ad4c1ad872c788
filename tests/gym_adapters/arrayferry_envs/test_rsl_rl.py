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


@pytest.mark.parametrize(("limit", "told"), [(None, 200), (7, 7)])
def test_rsl_rl_knows_the_limit_of_an_environment_without_a_spec(limit, told):
    rsl_rl = pytest.importorskip("arrayferry_gym.rsl_rl", exc_type=ImportError)
    options = {} if limit is None else {"max_episode_steps": limit}
    envs = Pendulum().make_vec(2, autoreset_mode="SameStep", **options)
    assert rsl_rl.RslRlVecEnv(envs).max_episode_length == told
    assert (
        rsl_rl.RslRlVecEnv(wrappers.vector.RecordEpisodeStatistics(envs)).max_episode_length == told
    )
