"""Spaces of served environments."""

import pytest
from functional_envs import Cells
from gymnasium import spaces
from gymnasium.vector.utils import iterate


@pytest.mark.parametrize("xp", ["numpy", "torch", "jax"])
def test_the_batch_of_a_served_tuple_is_iterated_by_environments(xp):
    class Pair(Cells):
        observation_space = spaces.Tuple((Cells.observation_space, spaces.Box(0, 1, (2,))))

        def observe(self, xp, state, params):
            return state, xp.ones((state.shape[0], 2), dtype=xp.float32)

    envs = Pair().make_vec(3, xp=xp)
    observation, _ = envs.reset(seed=0)
    rows = [*iterate(envs.observation_space, observation)]
    assert [[part.tolist() for part in row] for row in rows] == [
        [part[index].tolist() for part in observation] for index in range(3)
    ]
