"""How many functions of ours run in calls that programs make millions of times. Fewer are welcome."""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from envs import Takes
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import arrayferry as af
import arrayferry_gym
from arrayferry_gym.functional import CartPole, rollout, wrap
from arrayferry_gym.wrappers import kernels

OURS = tuple(str(Path(package.__file__).parent) for package in (af, arrayferry_gym))


def frames(call):
    """Return how many functions of ours run in the third call."""
    call(), call()
    count = 0

    def counted(frame, event, argument):
        nonlocal count
        name = frame.f_code.co_filename
        count += event == "call" and (name.startswith(OURS) or name.startswith("<arrayferry"))

    sys.setprofile(counted)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def steps(env, actions):
    env.reset(seed=0)
    return lambda: env.step(actions)


def taking(space, dtype):
    """Take steps with actions of a narrower dtype, as JAX has them."""
    env = arrayferry_gym.ArrayConversion(Takes(space), target_xp="numpy")
    return steps(env, np.ones(space.shape, dtype))


def forms():
    """Take steps with two forms of actions in turn."""
    envs = CartPole().make_vec(3)
    envs.reset(seed=0)
    return lambda: [envs.step(form) for form in (np.ones(3, int), torch.ones(3, dtype=int))]


def policy(params, observation, key):
    return (observation @ params > 0).astype(int), None


def rollouts(env):
    params, key = jnp.ones(4), jax.random.key(0)
    carry, _ = rollout(env, policy, params, key, 3, 2)
    state = carry.running.wrappers
    options = {"wrapper_state": state} if state else {}
    return lambda: rollout(env, policy, params, key, 3, 2, **options)


def conversions():
    convert = af.converter("torch")  # with no structures that other tests have used
    return lambda: convert({"a": np.ones(2)})


CALLS = {
    "a conversion": (2, conversions),
    "a step": (5, lambda: steps(arrayferry_gym.NumpyToTorch(gym.make("CartPole-v1")), 1)),
    "a step of several": (
        7,
        lambda: steps(
            arrayferry_gym.vector.NumpyToTorch(
                SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
            ),
            torch.ones(2, dtype=torch.int64),
        ),
    ),
    "int32 for int64": (10, lambda: taking(spaces.MultiDiscrete([3] * 16), np.int32)),
    "uint8 for int64": (10, lambda: taking(spaces.MultiDiscrete([3] * 16), np.uint8)),
    "int16 for int32": (10, lambda: taking(spaces.MultiDiscrete([300] * 2, np.int32), np.int16)),
    "float32 for float64": (10, lambda: taking(spaces.Box(-1, 1, (4,), np.float64), np.float32)),
    "two forms in turn": (71, forms),
    "a rollout": (98, lambda: rollouts(CartPole())),
    "a rollout with wrappers": (
        115,
        lambda: rollouts(
            wrap(CartPole(), kernels.NormalizeObservation(), kernels.NormalizeReward())
        ),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_frames_of_the_third_call(name):
    limit, make = CALLS[name]
    assert frames(make()) <= limit
