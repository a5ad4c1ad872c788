"""Trainers for gymnax's environments, with environments of `to_gymnax`: `make bridges`."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functional_envs import Cells

from arrayferry_envs import CartPole, Pendulum, to_gymnax

pytestmark = pytest.mark.filterwarnings("ignore")
with warnings.catch_warnings(action="ignore"):
    import gymnax
    from gymnax.environments import spaces
    from rejax import PPO, SAC


def test_ppo_of_rejax_learns() -> None:
    ppo = PPO.create(
        env=to_gymnax(CartPole()),
        total_timesteps=131072,
        eval_freq=32768,
        num_envs=8,
        num_steps=64,
        num_epochs=10,
        num_minibatches=4,
        learning_rate=1e-3,
        max_grad_norm=10.0,
        ent_coef=0.01,
        agent_kwargs={"activation": "relu"},
    )
    keys = jax.random.split(jax.random.key(0), 2)
    _, (lengths, returns) = jax.jit(jax.vmap(ppo.train))(keys)  # two trainings at once
    np.testing.assert_array_equal(lengths, returns)
    means = returns.mean(axis=2)
    assert (means[:, 0] < 50.0).all()
    assert (means[:, 3:].max(axis=1) > 400.0).all()


def test_sac_of_rejax_takes_continuous_actions() -> None:
    sac = SAC.create(
        env=to_gymnax(Pendulum(), max_episode_steps=20),
        total_timesteps=256,
        eval_freq=128,
        num_envs=4,
        fill_buffer=64,
        buffer_size=512,
        batch_size=32,
    )
    _, (lengths, returns) = jax.jit(sac.train)(jax.random.key(0))
    assert (lengths == 20).all()
    assert jnp.isfinite(returns).all()


def test_spaces_and_results_are_those_of_gymnax() -> None:
    own = to_gymnax(CartPole())
    theirs, params = gymnax.make("CartPole-v1")
    for env, values, count in ((own, own.default_params, 4), (theirs, params, 5)):
        assert isinstance(env.action_space(values), spaces.Discrete)
        assert isinstance(env.observation_space(values), spaces.Box)
        assert env.observation_space(values).shape == (4,)
        assert values.max_steps_in_episode == 500
        _, state = env.reset(jax.random.key(0), values)
        *rest, infos = env.step(jax.random.key(1), state, 1, values)
        assert len(rest) == count
        assert {"discount", "final_observation", "terminated", "truncated"} <= infos.keys()
    cells = to_gymnax(Cells())
    assert isinstance(cells.observation_space(), spaces.Discrete)
    assert cells.action_space().sample(jax.random.key(0)).shape == ()
