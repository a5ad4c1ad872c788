"""The examples with wrappers and trainers learn: PPO with normalisation, with a policy that remembers, and by TorchRL."""

import distributed
import jax
import numpy as np
import ppo_cluster
import ppo_jit
import ppo_normalised
import ppo_recurrent
import pytest
import sweep
import torch
from clusters import local_cluster
from ppo import PPO, Settings


@pytest.mark.long
def test_trainings_at_once_are_those_alone():
    settings = Settings(updates=3, num_envs=8, num_steps=32)
    returns = sweep.sweep([0.001, 0.01], 2, settings)
    agent = PPO(settings._replace(learning_rate=0.01))
    _, alone = jax.jit(lambda seed: ppo_jit.train(agent, seed))(1)
    np.testing.assert_allclose(returns[1, 1], alone, rtol=0.2)
    assert (returns[0, 1, 0] == returns[1, 1, 0]).all()
    assert (returns[0, 0, 0] != returns[0, 1, 0]).all()


def test_a_game_of_two_libraries():
    pytest.importorskip("pettingzoo")
    import pettingzoo_game

    found = pettingzoo_game.main(updates=2, games=4)
    assert {name: len(shares) for name, shares in found.items()} == {"player_1": 2, "player_2": 2}
    assert all(sum(shares) == 1 for both in found.values() for shares in both)


@pytest.mark.long
def test_players_of_two_libraries_learn_from_each_other():
    pytest.importorskip("pettingzoo")
    import pettingzoo_game

    for before, after in pettingzoo_game.main().values():
        assert after[0] > before[0] + 0.1


@pytest.mark.long
@pytest.mark.parametrize("arguments", [[], ["--raw"]])
def test_normalisation_makes_it_learn(arguments):
    assert (ppo_normalised.main(arguments) >= 400) == (arguments == [])


@pytest.mark.long
def test_memory_is_learnt():
    settings = ppo_recurrent.SETTINGS._replace(updates=250)
    _, lengths = jax.jit(lambda seed: ppo_recurrent.train(seed, settings))(0)
    assert np.nanmean(lengths[:20]) < 60 < 150 < np.nanmean(lengths[-50:])


@pytest.fixture
def one_thread():
    """PyTorch and JAX take the same cores otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.long
@pytest.mark.usefixtures("one_thread")
def test_an_agent_learns_from_workers():
    with local_cluster(2, processes=True) as cluster, distributed.Client(cluster) as client:
        result = ppo_cluster.run(Settings(updates=100), client, 0, lambda *_: lambda *_: None)
    assert np.nanmean(result.curves[0][:5]) < 60
    assert result.scores[0] >= 200


@pytest.mark.long
@pytest.mark.usefixtures("one_thread")
def test_torchrl_learns():
    pytest.importorskip("torchrl")
    import torchrl_ppo

    result = torchrl_ppo.run(
        Settings(updates=100), 0, lambda name, updates: lambda done, score: None
    )
    assert np.nanmean(result.curves[0][:5]) < 60
    assert result.scores[0] >= 400
