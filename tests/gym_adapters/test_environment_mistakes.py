"""Mistakes with environments of no library: one rule in each library, and answers that say what to do."""

from __future__ import annotations

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from envs import LIBRARIES, library, make_vec, still
from gymnasium import spaces

import arrayferry as af
from arrayferry_gym.functional import (
    CartPole,
    EnvResultError,
    FunctionalEnv,
    Functions,
    HostFunctions,
    Pendulum,
    episode,
    rollout,
)

KEY = jax.random.key(0)


class Mixed(FunctionalEnv):
    """States without a stated dtype, next to numbers that have one."""

    observation_space = spaces.Box(-999, 999, (2,), np.float32)
    action_space = spaces.Discrete(2)
    default_params = {"gravity": np.float64(0.5), "mass": np.float32(2), "name": "x"}

    def reset(self, xp, rng, n, params):
        return {"wide": xp.zeros((n,)), "narrow": xp.zeros((n,), dtype=xp.float32)}

    def step(self, xp, rng, state, action, params):
        one = xp.ones(state["wide"].shape, dtype=xp.float32)
        wide = xp.astype(state["wide"] + params["gravity"] * params["mass"], xp.float32)
        narrow = state["narrow"] + params["gravity"] * xp.ones(one.shape)
        return {"wide": wide, "narrow": narrow}, params["gravity"] * one, False

    def observe(self, xp, state, params):
        return xp.stack([xp.astype(state["wide"], xp.float32), state["narrow"]], axis=1)


@library
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_floats_of_any_precision_are_one_mistake_less(library, mode):
    envs = Mixed().make_vec(2, autoreset_mode=mode, max_episode_steps=3, **LIBRARIES[library])
    envs.reset(seed=0)
    dtypes = [leaf.dtype for leaf in af.flatten(envs.state)[0]]
    for number in (1, 2):
        observation, reward, *_ = envs.step(np.zeros(2, int))
        assert af.convert(observation, "numpy").tolist() == [[number, number / 2]] * 2
        assert af.convert(reward, "numpy").dtype == np.float32
        assert [leaf.dtype for leaf in af.flatten(envs.state)[0]] == dtypes
    for _ in range(3):
        envs.step(np.zeros(2, int))
    assert [leaf.dtype for leaf in af.flatten(envs.state)[0]] == dtypes
    envs.reset(options={"params": {"gravity": 1, "mass": np.float64(1)}})
    assert af.convert(envs.step(np.zeros(2, int))[0], "numpy").tolist() == [[1, 1]] * 2


def test_the_same_in_rollouts():
    _, found = rollout(Mixed(), still, None, KEY, 3, 2, env_params={"gravity": np.float32(0.5)})
    assert found.final_observation[:, 0, 0].tolist() == [1, 2, 3]


@library
def test_another_kind_of_dtype_is_an_error_with_the_line(library):
    class Broken(Mixed):
        def step(self, xp, rng, state, action, params):
            return {**state, "wide": xp.astype(state["wide"], xp.int32)}, 1.0, False

    envs = Broken().make_vec(2, **LIBRARIES[library])
    envs.reset(seed=0)
    line = Broken.step.__code__.co_firstlineno
    with pytest.raises(
        EnvResultError,
        match=rf"Broken\.step\(\) \(.*mistakes\.py:{line}\) gave .*int32 for state\['wide'\]",
    ):
        envs.step(np.zeros(2, int))


@library
@pytest.mark.parametrize("value", [np.float64(2.0), np.float32(2.0), 2.0])
def test_a_float_for_a_static_parameter_is_named(library, value):
    class Static(Mixed):
        default_params = {"gravity": 0.5, "mass": 2.0, "steps": 1}

    with pytest.raises(af.OptionError, match=r"params\['steps'\] is static"):
        Static().make_vec(2, params={"steps": value}, **LIBRARIES[library])


WHOLE = [np.int64(3), np.uint8(3), np.asarray(3), jnp.asarray(3), torch.tensor(3)]


@pytest.mark.parametrize("three", WHOLE, ids=lambda x: type(x).__name__)
def test_whole_numbers_of_any_library(three):
    _, found = rollout(CartPole(), still, None, KEY, three, three, max_episode_steps=three)
    assert found.reward.shape == (3, 3)
    assert found.truncated[2].all()
    found = episode(CartPole(), still, None, KEY, three, max_episode_steps=three)
    assert found.length.tolist() == [3] * 3
    assert Functions(CartPole(), max_episode_steps=three).reset(KEY, three)[1].shape == (3, 4)
    envs = CartPole().make_vec(three, max_episode_steps=three)
    assert type(envs.num_envs) is int
    assert envs.reset(seed=0)[0].shape == (3, 4)


@pytest.mark.parametrize(
    "wrong",
    [
        *(0, -1, 2.0, "3", None, np.float64(3), np.arange(3)),
        *(kind(True) for kind in (bool, np.bool_, jnp.asarray, torch.tensor)),
    ],
)
def test_what_is_no_whole_number(wrong):
    for attempt in (
        lambda: rollout(CartPole(), still, None, KEY, wrong, 2),
        lambda: rollout(CartPole(), still, None, KEY, 2, wrong),
        lambda: episode(CartPole(), still, None, KEY, wrong),
        lambda: Functions(CartPole()).reset(KEY, wrong),
        lambda: CartPole().make_vec(wrong),
    ):
        with pytest.raises(af.OptionError, match=r"num_.*is not valid"):
            attempt()


def test_a_traced_number_of_steps():
    with pytest.raises(af.OptionError, match="traced, but shapes are fixed"):
        jax.jit(lambda n: rollout(CartPole(), still, None, KEY, n, 2)[1].reward)(3)


def test_the_carry_of_another_environment():
    carry, _ = rollout(CartPole(), still, None, KEY, 2, 2)
    host = HostFunctions(make_vec(2, gym.vector.AutoresetMode.SAME_STEP))
    for env in (Mixed(), Pendulum(), host):
        with pytest.raises(af.OptionError, match="carry is of another environment than"):
            rollout(env, still, None, KEY, 2, 2, carry=carry)
    assert rollout(CartPole(), still, None, KEY, 2, 2, carry=carry)[1].reward.shape == (2, 2)


@pytest.mark.parametrize("run", [rollout, episode])
def test_tensors_of_a_policy(run):
    def given(policy):
        return run(CartPole(), policy, None, KEY, 2, *((2,) if run is rollout else ()))

    with pytest.raises(
        af.OptionError, match=r"array of torch in its action.*make_vec\(n, xp='torch'\)"
    ):
        given(lambda p, o, k: (torch.zeros(2, dtype=torch.int64), None))
    with pytest.raises(af.OptionError, match="array of torch in its extras"):
        given(lambda p, o, k: (jnp.zeros(2, int), {"a": torch.zeros(2)}))
    with pytest.raises(af.OptionError, match="policy=None cannot be called"):
        given(None)


FUNCTIONAL = {
    "rollout": lambda env: rollout(env, still, None, KEY, 2, 2),
    "episode": lambda env: episode(env, still, None, KEY, 2),
    "Functions": Functions,
}


@pytest.mark.parametrize("run", FUNCTIONAL)
def test_something_else_than_an_environment(run):
    call = FUNCTIONAL[run]
    made = r"HostFunctions\(gymnasium\.make_vec\('CartPole-v1', n\)\)"
    for env, answer in (
        ("CartPole-v1", rf"unwrapped\.functional.*{made}"),
        (CartPole().make_vec(2), r"pass its \.functional"),
        (gym.make("arrayferry/CartPole-v0"), r"\.unwrapped\.functional"),
        (gym.make("CartPole-v1"), r"HostFunctions\(envs\)"),
        (3, r"such as CartPole\(\)"),
    ):
        with pytest.raises(TypeError, match=answer):
            call(env)


def test_host_functions_where_they_are_not_taken():
    host = HostFunctions(make_vec(2, gym.vector.AutoresetMode.SAME_STEP))
    with pytest.raises(af.OptionError, match="rollout"):
        episode(host, still, None, KEY, 2)
    with pytest.raises(TypeError, match="reset and step of its own"):
        Functions(host)
