"""Advantages of functional environments, step by step."""

import jax
import numpy as np
import pytest
from definitions import FACTORS, summed
from functional_envs import at_random

import arrayferry as af
from arrayferry_envs import CartPole, rollout
from arrayferry_gym import advantages


def test_steps_as_they_come():
    _, transitions = rollout(
        CartPole(), at_random, None, jax.random.key(0), 30, 4, max_episode_steps=9
    )

    @jax.jit
    def found(transitions):
        values, after = (
            x.sum(-1) for x in (transitions.observation, transitions.final_observation)
        )
        return advantages(transitions, values, after, **FACTORS), values, after

    advantage, values, after = found(transitions)
    flags = np.asarray(transitions.terminated), np.asarray(transitions.truncated)
    expected = summed(transitions.reward, values, after, *flags, **FACTORS)
    np.testing.assert_allclose(advantage, expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(af.OptionError, match="together with steps"):
        advantages(transitions, values, after, *flags, **FACTORS)
