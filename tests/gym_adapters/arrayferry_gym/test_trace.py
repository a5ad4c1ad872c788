"""A trace counts what the adapters convert, and the numbers that they read without a conversion."""

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from envs import Takes, begun

import arrayferry as af
from arrayferry_gym import ArrayConversion


@pytest.mark.parametrize("make", [torch.tensor, jnp.asarray], ids=["torch", "jax"])
def test_actions_and_observations_are_counted_at_the_step(make):
    target = af.backend_of(make(1)).name
    env = begun(ArrayConversion(gym.make("CartPole-v1"), target_xp=target), 0)
    with af.trace() as t:
        for _ in range(5):
            env.step(make(1))
    read = [row for row in t.rows if row.source == target]
    assert sum(row.arrays for row in read) == 5
    assert {row.target for row in read} <= {"numpy", "python"}
    assert [row.arrays for row in read if row.target == "python"] == [4]
    observed = [row for row in t.rows if row.target == target]
    assert sum(row.arrays for row in observed) >= 5
    assert {row.file for row in t.rows} == {__file__}


def test_actions_are_the_same_with_a_trace():
    env = begun(ArrayConversion(gym.make("CartPole-v1"), target_xp="torch"), 0)
    plain = [env._act(torch.tensor(1)) for _ in range(3)]
    with af.trace() as t:
        watched = [env._act(torch.tensor(1)) for _ in range(3)]
        assert [type(action) for action in watched] == [type(action) for action in plain]
        assert watched == plain
        count = t.arrays
        env._act(np.int64(1))
        env._act(1)
        assert t.arrays == count == 3  # what is of NumPy already, or a number, does not cross


class OfJax(Takes):
    """Its rewards and flags are arrays of JAX."""

    def step(self, action):
        return jnp.zeros(2), jnp.asarray(1.5), jnp.asarray(False), False, {}


def test_rewards_that_become_numbers_are_counted():
    env = begun(ArrayConversion(OfJax(gym.spaces.Discrete(2), "jax"), target_xp="torch"))
    with af.trace() as t:
        _, reward, terminated, _, _ = env.step(torch.tensor(1))
    assert (reward, terminated) == (1.5, False)
    assert sum(row.arrays for row in t.rows if (row.source, row.target) == ("jax", "python")) == 2
