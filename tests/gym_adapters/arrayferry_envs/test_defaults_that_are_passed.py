"""A parameter is chosen if its value differs from the default, however both are held. The others are drawn."""

import copy
import dataclasses
import pickle
from typing import Any

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gymnasium import spaces

import arrayferry as af
from arrayferry_envs import (
    FunctionalEnv,
    Functions,
    evaluate,
    repeat_action,
    rollout,
    with_seeds,
    wrap,
)
from arrayferry_gym.wrappers import kernels

LIBRARIES = {"numpy": "numpy", "torch": "torch", "jax": "jax", "strict": array_api_strict}


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Weather:
    wind: Any = dataclasses.field(default_factory=lambda: np.array(0.5, np.float32))
    gust: Any = dataclasses.field(default_factory=lambda: np.float32(0.1))
    push: Any = 0.3
    rain: Any = dataclasses.field(default_factory=lambda: np.array([1, 2], np.int32))
    name: Any = dataclasses.field(default=("calm", 1000), metadata={"static": True})


class Windy(FunctionalEnv):
    observation_space = spaces.Box(-100, 100, (4,), np.float32)
    action_space = spaces.Discrete(2)
    max_episode_steps = 2
    default_params = Weather()

    def sample_params(self, xp, rng, n, params):
        drawn = {name: rng.uniform((n,), 1.0, 2.0) for name in ("wind", "gust", "push")}
        rain = xp.astype(rng.uniform((n, 2), 5.0, 1000.0), xp.int32)
        return dataclasses.replace(params, **drawn, rain=rain)

    def reset(self, xp, rng, n, params):
        return rng.uniform((n,), 0.0, 1.0)

    def step(self, xp, rng, state, action, params):
        return state, params.wind, False

    def observe(self, xp, state, params):
        rain = xp.astype(params.rain[:, 0], xp.float32)
        return xp.stack([params.wind, params.gust, params.push, rain], axis=1)


DEFAULTS = np.array([0.5, 0.1, 0.3, 1.0], np.float32)
OWN = Windy.default_params
PASSED = {
    "new": Weather(),
    "pickled": pickle.loads(pickle.dumps(OWN)),
    "copied": copy.deepcopy(OWN),
    "copies": Weather(np.copy(OWN.wind), np.copy(OWN.gust), 0.3, np.copy(OWN.rain)),
    "numbers": Weather(0.5, 0.1, np.float32(0.3), np.array([1.0, 2.0])),
    "torch": Weather(*map(torch.asarray, (0.5, 0.1, 0.3, [1, 2]))),
    "jax": Weather(*map(jnp.asarray, (0.5, 0.1, 0.3, [1, 2]))),
    "bfloat16": Weather(*map(jnp.bfloat16, (0.5, 0.1, 0.3)), np.array([1, 2])),
    "static": dataclasses.replace(OWN, name=("calm", int("1000"))),
}
AROUND = {
    "alone": lambda env: env,
    "wrapped": lambda env: wrap(env, kernels.RecordEpisodeStatistics()),
    "repeated": lambda env: repeat_action(env, 2),
    "seeded": lambda env: with_seeds(env, range(50)),
}


def still(params, observation, key):
    return jnp.zeros(observation.shape[0], int), None


def seen_in(env, params, ways):
    """Return observations (n, 4) of first states, from each way to pass parameters."""
    if "served" in ways:
        for xp in LIBRARIES.values():
            yield env.make_vec(3, xp=xp, params=params).reset(seed=1)[0]
            yield env.make(xp=xp, params=params).reset(seed=1)[0]
            envs = env.make_vec(3, xp=xp)
            envs.reset(seed=1)
            yield envs.reset(options={"params": params})[0]
    else:
        key = jax.random.key(1)
        yield rollout(env, still, None, key, 1, 3, env_params=params)[1].observation[0]
        yield Functions(env).reset(key, 3, params)[1]


CASES = [(passed, "wrapped") for passed in PASSED] + [
    ("pickled", around) for around in AROUND if around != "wrapped"
]


@pytest.mark.parametrize("ways", ["served", "compiled"])
@pytest.mark.parametrize(("passed", "around"), CASES)
def test_defaults_that_are_passed_are_drawn(passed, around, ways):
    for seen in seen_in(AROUND[around](Windy()), PASSED[passed], ways):
        seen = af.convert(seen, "numpy")
        assert np.all(seen > DEFAULTS + 0.4)


@pytest.mark.parametrize("ways", ["served", "compiled"])
@pytest.mark.parametrize("around", ["alone", "wrapped"])
def test_another_value_is_not_drawn(around, ways):
    for params, wind in (
        (dataclasses.replace(PASSED["pickled"], wind=np.float32(0.75)), 0.75),
        ({"wind": np.array(0.5)}, 0.5),  # a field that a dict names is chosen with any value
    ):
        for seen in seen_in(AROUND[around](Windy()), params, ways):
            seen = af.convert(seen, "numpy")
            assert np.all(seen[..., 0] == wind)
            assert np.all(seen[..., 1:] > DEFAULTS[1:] + 0.4)


@pytest.mark.parametrize("params", [Weather(), pickle.loads(pickle.dumps(OWN))])
def test_evaluations_draw_them_too(params):
    found = evaluate(
        wrap(Windy(), kernels.ClipReward(0.0, 9.0)), still, num_envs=4, key=0, env_params=params
    )
    assert np.all(np.asarray(found.returns) > 2)


def test_arrays_that_are_traced_are_chosen():
    def wind(x):
        params = dataclasses.replace(OWN, wind=x)
        return Functions(Windy()).reset(jax.random.key(0), 2, params)[1][:, 0]

    assert jax.jit(wind)(jnp.asarray(0.5)).tolist() == [0.5, 0.5]


def test_numbers_that_are_no_numbers_are_equal():
    class Unknown(Windy):
        default_params = dataclasses.replace(OWN, wind=np.array(np.nan, np.float32))

    params = dataclasses.replace(OWN, wind=np.array(np.nan))
    assert np.all(Unknown().make_vec(2, params=params).reset(seed=0)[0][:, 0] > 0.9)
