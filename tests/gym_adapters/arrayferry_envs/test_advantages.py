"""Advantages of functional environments, step by step."""

import jax
import numpy as np
import pytest
from functional_envs import at_random

import arrayferry as af
from arrayferry_envs import CartPole, rollout
from arrayferry_gym import advantages

FACTORS = {"discount": 0.97, "decay": 0.9}


def summed(rewards, values, after, terminated, truncated, counts=None, *, discount, decay):
    """The definition: for each step, the errors of the later steps of its episode, each with its weight."""
    rewards, values, after = (np.asarray(x, np.float64) for x in (rewards, values, after))
    extra = (..., *(None,) * (values.ndim - terminated.ndim))
    ended = (terminated | truncated)[extra]
    counts = np.ones_like(ended) if counts is None else counts[extra]
    errors = rewards + discount * np.where(terminated[extra], 0, after) - values
    total = np.zeros_like(errors)
    for begin in range(len(errors)):
        alive, weight = counts[begin].copy(), 1.0
        for step in range(begin, len(errors)):
            alive = alive & counts[step]
            total[begin] += np.where(alive, weight * errors[step], 0)
            weight *= discount * decay
            alive = alive & ~ended[step]
            if not alive.any():
                break
    return total


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
    with pytest.raises(af.OptionError, match="flags as well"):
        advantages(transitions, values, after, *flags, **FACTORS)
