"""An environment whose steps tell to which episode they belong, and which of its steps they are."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from arrayferry_envs import FunctionalEnv


class Walk(FunctionalEnv):
    """Counts the steps of an episode, which ends at a number that was drawn, or is truncated."""

    class State(NamedTuple):
        name: Any  # of the episode
        end: Any
        count: Any

    observation_space = spaces.Dict(
        {
            "walk": spaces.Tuple(
                [spaces.Box(0, 1, (), np.float32), spaces.Box(0, 99, (2,), np.int32)]
            ),
            "image": spaces.Box(0, 255, (32, 33, 3), np.uint8),
        }
    )
    action_space = spaces.Dict({"a": spaces.Discrete(9), "b": spaces.Box(-9, 9, (2,), np.float32)})
    reward_shape = (2,)
    reward_dtype = "float64"
    max_episode_steps = 11

    def reset(self, xp, rng, n, params):
        count = xp.zeros((n,), dtype=xp.int32)
        return self.State(rng.uniform((n,)), rng.integers((n,), 1, 20), count)

    def step(self, xp, rng, state, action, params):
        state = state._replace(count=state.count + 1)
        reward = xp.stack([state.name, xp.astype(state.count, xp.float32)], axis=1)
        return state, reward, state.count == state.end

    def observe(self, xp, state, params):
        count = xp.stack([state.count, state.end], axis=1)
        image = xp.astype(state.name * 255, xp.uint8)[:, None, None, None]
        texture = xp.reshape(xp.arange(32 * 33 * 3, dtype=xp.int32) % 251, (32, 33, 3))
        return {
            "walk": (state.name, count),
            "image": image ^ xp.astype(texture, xp.uint8)[None, ...],
        }


def policy(params, observation, key):
    count = observation["walk"][1][:, 0]
    return {
        "a": count % 9,
        "b": jnp.stack([count.astype(float) * 2, observation["walk"][0]], 1),
    }, None


def check_walks(dataset):
    """Check that each episode is one, from its first step to its last."""
    assert len(dataset) > 10
    for episode in dataset:
        n = len(episode)
        name, count = episode.observations["walk"]
        assert np.array_equal(count[:, 0], np.arange(n + 1))
        assert (name == name[0]).all()
        assert (episode.observations["image"] == episode.observations["image"][0]).all()
        assert (episode.observations["image"][0, 0, 1, 0] ^ 3) == np.uint8(name[0] * 255)
        assert np.array_equal(episode.actions["a"], np.arange(n) % 9)
        assert np.array_equal(episode.actions["b"][:, 1], name[1:])
        assert np.array_equal(episode.rewards[:, 1], np.arange(1, n + 1))
        assert episode.terminations.tolist() == [*[False] * (n - 1), count[0, 1] == n]
        assert episode.truncations.tolist() == [*[False] * (n - 1), n == 11]
        assert n == min(count[0, 1], 11)
