"""The examples with wrappers learn: PPO with normalisation, and with a policy that remembers."""

from __future__ import annotations

import jax
import numpy as np
import ppo_normalised
import ppo_recurrent
import pytest
from ppo import PPO, Settings


def test_one_update_of_each():
    agent, env = PPO(Settings(updates=2, num_envs=4, num_steps=8)), ppo_normalised.environment()
    _, statistics, lengths = jax.jit(lambda seed: ppo_normalised.train(agent, env, seed))(0)
    assert lengths.shape == (2,)
    assert int(statistics[2].lasting["obs_rms"].low) >= 4 + 4 + 64
    settings = ppo_recurrent.SETTINGS._replace(updates=2, num_envs=8, num_steps=4)
    network, lengths = jax.jit(lambda seed: ppo_recurrent.train(seed, settings))(0)
    assert lengths.shape == (2,)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(network))


@pytest.mark.long
@pytest.mark.parametrize("arguments", [[], ["--raw"]])
def test_normalisation_makes_it_learn(arguments):
    assert (ppo_normalised.main(arguments) >= 400) == (arguments == [])


@pytest.mark.long
def test_memory_is_learnt():
    settings = ppo_recurrent.SETTINGS._replace(updates=250)
    _, lengths = jax.jit(lambda seed: ppo_recurrent.train(seed, settings))(0)
    assert np.nanmean(lengths[:20]) < 60 < 150 < np.nanmean(lengths[-50:])
