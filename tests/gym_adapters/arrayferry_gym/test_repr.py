"""What adapters look like in a shell."""

import gymnasium as gym
import pytest
from envs import begun

import arrayferry as af
import arrayferry_gym


def test_an_environment_that_cannot_be_written():
    class Odd(gym.Env):
        observation_space = action_space = gym.spaces.Discrete(2)

        def __str__(self):
            raise RuntimeError("it was closed")

    assert repr(arrayferry_gym.ArrayConversion(Odd())) == "<ArrayConversion, incomplete>"


def test_pytest_leaves_out_frames_inside_an_adapter():
    env = begun(arrayferry_gym.ArrayConversion(gym.make("CartPole-v1"), target_xp="torch"))
    with pytest.raises(af.ConversionError) as caught:
        env.step("left")
    shown = caught.traceback.filter(caught)
    assert shown[-1].name != "test_pytest_leaves_out_frames_inside_an_adapter"
    assert len(shown) <= 4 < len(caught.traceback)
