"""The example that steps an ordinary environment from compiled code, by callbacks."""

import gymnasium as gym
import host_callbacks
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs import make_vec
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

SAME = AutoresetMode.SAME_STEP


def test_steps_equal_those_of_a_loop():
    found = host_callbacks.main(num_envs=4, num_steps=200)
    envs = make_vec(4, SAME)
    observation, _ = envs.reset(seed=0)
    ends = 0
    for step in range(200):
        assert (found.observation[step] == observation).all()
        observation, reward, terminated, truncated, infos = envs.step(
            np.asarray(found.action[step])
        )
        final = observation.copy()
        for row in np.flatnonzero(terminated | truncated):
            final[row], ends = infos["final_obs"][row], ends + 1
        assert (found.final_observation[step] == final).all()
        assert (found.reward[step] == reward).all()
        assert (found.terminated[step] == terminated).all()
        assert (found.truncated[step] == truncated).all()
    assert ends > 10
    assert len(np.unique(found.action)) == 2


class Counts(gym.Env):
    """Observes the number of its steps, keeps its actions and writes to them, and may raise in its third step."""

    observation_space = spaces.Box(0, 9, (1,))
    action_space = spaces.Box(0, 9, (1,))

    def __init__(self, error=None):
        self.error, self.actions = error, []

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if len(self.actions) == 2 and self.error is not None:
            raise self.error
        action += 0.0
        self.actions.append(action)
        return np.full(1, len(self.actions), np.float32), 0.5, False, False, {}


def collected(env, act, copy=True):
    """Take five steps with actions that follow from observations."""
    envs = SyncVectorEnv([lambda: env], autoreset_mode=SAME, copy=copy)
    collect = host_callbacks.collector(envs, lambda _, seen, key: act(seen), 5)
    return jax.block_until_ready(collect(None, 0, jax.random.key(0)))


@pytest.mark.parametrize("copy", [True, False])
def test_arrays_that_either_side_uses_again(copy):
    env = Counts()
    found = collected(env, lambda seen: seen + 1, copy)
    assert np.ravel(env.actions).tolist() == found.action.ravel().tolist() == [1, 2, 3, 4, 5]
    assert found.observation.ravel().tolist() == [0, 1, 2, 3, 4]
    assert found.final_observation.ravel().tolist() == [1, 2, 3, 4, 5]
    assert found.reward.dtype == np.float32
    assert found.reward.tolist() == [[0.5]] * 5


@pytest.mark.parametrize(
    ("env", "act", "words"),
    [
        (Counts(KeyError("broken")), lambda seen: seen, "KeyError: 'broken'"),
        (Counts(), lambda seen: jnp.zeros((1, 3)), r"the shape \(1, 1\), not \(1, 3\)"),
        (gym.make("CartPole-v1"), lambda seen: jnp.full(1, 7), r"Discrete\(2\)|MultiDiscrete"),
    ],
    ids=["its own", "a wrong shape", "no such action"],
)
def test_errors_of_the_environment_are_raised(env, act, words):
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match=words):
            collected(env, act)
    collected(Counts(), lambda seen: seen)  # goes on
