"""Environments whose methods need one library, served to agents of others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from cases import crossed
from functional_envs import InJax, InTorch

import arrayferry as af
from arrayferry_envs import check_functional_env, repeat_action, rollout, wrap
from arrayferry_gym.wrappers import kernels

NEEDS = [InJax, InTorch, lambda: repeat_action(InJax(), 1)]


@pytest.mark.parametrize(("needs", "mode"), crossed(NEEDS, ["NextStep", "SameStep", "Disabled"]))
def test_every_library_is_served(needs, mode):
    served = {}
    for xp in ("numpy", "torch", "jax"):
        envs = needs().make_vec(5, xp=xp, autoreset_mode=mode, max_episode_steps=7)
        values = [envs.reset(seed=3)]
        for number in range(30):
            action = af.convert(np.arange(5) % 2 if number % 3 else np.ones(5, int), xp)
            values.append(envs.step(action))
        assert {af.backend_of(x).name for x in af.flatten(values)[0]} == {xp}
        assert af.backend_of(af.flatten(envs.state)[0][0]).name == needs().library
        envs.state = envs.state
        assert envs.observation_space.sample().shape == (5, 4)
        assert envs.observation_space.contains(values[0][0])
        served[xp] = af.convert(values, "numpy")
    for xp in ("torch", "jax"):  # equal, since one library computes all
        np.testing.assert_equal(served[xp], served["numpy"])


def test_single_environments_and_wrapped_ones_are_served():
    env = InJax().make(xp="torch")
    observation, _ = env.reset(seed=1)
    observation, reward, terminated, _, _ = env.step(torch.tensor(1))
    assert (type(observation), type(reward), type(terminated)) == (torch.Tensor, float, bool)
    envs = wrap(InJax(), kernels.NormalizeObservation()).make_vec(3, xp="torch")
    assert type(envs.reset(seed=1)[0]) is torch.Tensor


def test_the_others_cannot_compute_them():
    assert rollout(InJax(), lambda *_: (jnp.ones(2, int), None), None, jax.random.key(0), 3, 2)
    assert InTorch().make_vec(2, xp="torch", differentiable=True)
    assert check_functional_env(InJax) == []
