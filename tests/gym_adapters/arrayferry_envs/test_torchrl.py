"""Functional environments in TorchRL."""

import jax
import numpy as np
import pytest
import torch
from cases import crossed
from functional_envs import Masked
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from recipes import run
from torchrl.envs import ActionMask, TransformedEnv, check_env_specs

import arrayferry as af
from arrayferry_envs import CartPole, FunctionalEnv
from arrayferry_gym import vector
from arrayferry_gym.torchrl import TorchRLEnv
from arrayferry_gym.wrappers.vector import RecordEpisodeStatistics


def echo(space):
    class Echo(FunctionalEnv):
        observation_space = action_space = space
        max_episode_steps = 3

        def reset(self, xp, rng, n, params):
            first = batch_space(space, n)
            first.seed(0)
            return jax.tree.map(xp.asarray, first.sample())

        def step(self, xp, rng, state, action, params):
            return action, 1.0, False

        def observe(self, xp, state, params):
            return state

    return Echo()


SPACES = {
    "Discrete": spaces.Discrete(3, start=2),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
    "MultiDiscrete of two axes": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[1, 1], [0, 5]]),
    "MultiBinary": spaces.MultiBinary(4),
    "Box": spaces.Box(-1, 1, (2,), np.float32),
    "Box of no axes": spaces.Box(-1, 1, (), np.float32),
    "Box of integers": spaces.Box(0, 255, (2, 2), np.uint8),
    "Dict": spaces.Dict(
        {"a": spaces.Discrete(3), "b": spaces.Dict({"c": spaces.MultiBinary((2, 2))})}
    ),
}


@pytest.mark.parametrize(("name", "xp"), crossed(SPACES, ["numpy", "torch", "jax"]))
def test_spaces(name, xp):
    """What is acted is observed, in both encodings."""
    space, seen = SPACES[name], []
    for categorical in (True, False):
        served = echo(space).make_vec(3, xp=xp, autoreset_mode="SameStep", check_actions="strict")
        env = TorchRLEnv(served, categorical_actions=categorical)
        check_env_specs(env)
        step = env.rollout(2)[:, -1]
        for key in env.observation_keys:
            observed = step["next"][key]
            place = (key,) if isinstance(key, str) else key
            place = ("action", *place) if name == "Dict" else "action"
            spec = env.full_action_spec[place]
            acted = step[place]
            if "Discrete" in name or key == "a":
                acted = spec.to_categorical(acted)
            assert torch.equal(observed, acted.to(observed.dtype))
            seen.append((key, observed.dtype, env.observation_spec[key].space))
        env.close()
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    if name.startswith(("Discrete", "Multi")):
        assert seen[0][1] == getattr(torch, str(space.dtype))


@pytest.mark.parametrize("categorical", [True, False])
def test_masks_of_actions(categorical):
    served = Masked().make_vec(2, xp="jax", autoreset_mode="SameStep")
    env = TransformedEnv(TorchRLEnv(served, categorical_actions=categorical), ActionMask())
    check_env_specs(env)
    steps = env.rollout(12, break_when_any_done=False)
    assert steps["action_mask"].dtype == torch.bool
    assert (steps["next", "reward"] == 1).all()


def test_environments_stay_in_their_library():
    served = CartPole().make_vec(3, xp="jax", autoreset_mode="SameStep")
    env = TorchRLEnv(served)
    env.rollout(2)
    with af.trace() as trace:
        env.rollout(30, break_when_any_done=False)
    crossed = {(row.source, row.target) for row in trace.rows}
    assert crossed == {("jax", "torch"), ("torch", "numpy"), ("numpy", "jax")}
    # actions are looked at in NumPy, in the memory of PyTorch
    assert all(row.how == "shared" for row in trace.rows if row.target == "numpy")
    TorchRLEnv(RecordEpisodeStatistics(served)).rollout(3)
    assert served.xp == "jax"


def test_behind_an_adapter():
    """An adapter around environments in JAX returns PyTorch, and is no environment in JAX."""
    served = CartPole().make_vec(3, xp="jax", autoreset_mode="Disabled")
    env = TorchRLEnv(vector.ArrayConversion(served, env_xp="jax", target_xp="torch"))
    check_env_specs(env)
    assert served.xp == "jax"


@pytest.mark.filterwarnings("ignore:Creating .* is deprecated:DeprecationWarning")  # its own
def test_the_recipe():
    assert run("TorchRL")["steps"].shape == (16, 8)
