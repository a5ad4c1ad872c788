"""`to_gymnax`: environments in the form of gymnax, alone and under `vmap`."""

from __future__ import annotations

import copy
import pickle
import sys
import types
from collections import namedtuple
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import quick_if
from functional_envs import Cells, CellsParams, Drawn, Parts
from gymnasium import spaces

import arrayferry as af
from arrayferry_envs import CartPole, Functions, Pendulum, repeat_action, to_gymnax, wrap
from arrayferry_gym.wrappers import kernels

NUM_STEPS = 40
NUM_ENVS = 16


class Nested(Parts):
    action_space = spaces.Tuple([Parts.action_space])

    def step(self, xp, rng, state, action, params):
        return super().step(xp, rng, state, *action, params)


class Case(NamedTuple):
    env: Any
    limit: int | None = 15
    params: dict[str, Any] = {}


CASES = {
    "CartPole": Case(CartPole()),
    "Pendulum": Case(Pendulum()),
    "Cells": Case(Cells(), 9, {"slippery": False, "rewards": np.arange(5, dtype=np.float32)}),
    "Drawn": Case(Drawn(), 4),
    "Nested": Case(Nested(), 4),
    "Normalised": Case(
        wrap(
            CartPole(),
            kernels.NormalizeObservation(),
            kernels.FrameStackObservation(2),
            kernels.RecordEpisodeStatistics(),
        )
    ),
    "Repeated": Case(repeat_action(Cells(), 2), 4),
    "Sticky": Case(wrap(Cells(), kernels.StickyAction(0.5)), 9),
}
NEVER_TERMINATE = {"Pendulum", "Nested"}


def actions_for(env: Any) -> Any:
    space = gym.vector.utils.batch_space(env.action_space, NUM_ENVS)
    space.seed(3)
    actions = [space.sample() for _ in range(NUM_STEPS)]
    return jax.tree.map(lambda *rows: jnp.asarray(np.stack(rows)), *actions)


def close(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3)


QUICK = {"CartPole", "Pendulum", "Drawn", "Nested", "Normalised"}


@pytest.mark.parametrize("name", quick_if(CASES, QUICK.__contains__))
def test_it_takes_the_steps_of_functions(name: str) -> None:
    """Each environment under `vmap` is like a batch of one in `Functions`."""
    case = CASES[name]
    env = to_gymnax(case.env, max_episode_steps=case.limit)
    params = env.default_params.replace(**case.params)
    functions = Functions(case.env, max_episode_steps=case.limit)

    def begin(key: Any, params: Any) -> Any:
        env_state, observation = functions.reset(key, 1, params._prepared)
        return jax.tree.map(lambda x: x[0], observation), env_state

    def step(key: Any, env_state: Any, action: Any, params: Any) -> Any:
        action = jax.tree.map(lambda x: x[None], action)
        env_state, outcome = functions.step(key, env_state, action, params._prepared)
        return env_state, jax.tree.map(lambda x: x[0], outcome)

    @jax.jit
    def run(key: Any, actions: Any, params: Any) -> Any:
        keys = jax.random.split(key, NUM_ENVS)
        first, state = jax.vmap(env.reset, (0, None))(keys, params)
        expected, env_state = jax.vmap(begin, (0, None))(keys, params)

        def one(carry: Any, inputs: Any) -> Any:
            key, action = inputs
            keys = jax.random.split(key, NUM_ENVS)
            axes = (0, 0, 0, None)
            got = jax.vmap(env.step, axes)(keys, carry[0], action, params)
            env_state, outcome = jax.vmap(step, axes)(keys, carry[1], action, params)
            return (got[1], env_state), (got, env_state, outcome)

        keys = jax.random.split(key, NUM_STEPS)
        return (first, expected), jax.lax.scan(one, (state, env_state), (keys, actions))[1]

    firsts, (got, env_state, outcome) = run(jax.random.key(5), actions_for(case.env), params)
    close(*firsts)
    observation, state, reward, done, infos = got
    close(state, env_state)
    close((observation, reward), (outcome.observation, outcome.reward))
    np.testing.assert_array_equal(done, outcome.terminated | outcome.truncated)
    np.testing.assert_array_equal(infos.pop("discount"), 1.0 - np.asarray(outcome.terminated))
    expected = {
        **outcome.final_info,
        "terminated": outcome.terminated,
        "truncated": outcome.truncated,
        "final_observation": outcome.final_observation,
    }
    if outcome.info:
        expected["next_info"] = outcome.info
    close(infos, expected)
    assert outcome.terminated.any() or name in NEVER_TERMINATE
    assert outcome.truncated.any()
    assert state.elapsed.max() == case.limit - 1


def test_a_step_is_one_without_reset_and_a_reset() -> None:
    env = to_gymnax(Cells(), max_episode_steps=2)
    key = jax.random.PRNGKey(3)  # a raw one
    _, state = env.reset(key)
    for index in range(2):
        inner = jax.random.fold_in(key, index)
        final, after, reward, done, infos = env.step_env(inner, state, 1)
        got = env.step(inner, state, 1)
        close((reward, done), got[2:4])
        close((final, final), (infos["final_observation"], got[4]["final_observation"]))
        first = env.reset_env(jax.random.split(inner)[1])
        close(got[:2], first if done else (final, after))
        assert bool(done) == (index == 1)
        _observation, state = got[:2]
    assert int(state.elapsed[0]) == 0
    assert infos["truncated"]
    assert infos["discount"] == 1.0
    assert not infos["terminated"]


def test_parameters_are_arguments_of_jit() -> None:
    env = to_gymnax(Cells)
    params = env.default_params
    assert params.slippery is True
    assert len(jax.tree.leaves(params)) == 1
    seen = []

    @jax.jit
    def reset(params: Any) -> Any:
        seen.append((params.slippery, params.swapped))
        return env.reset(jax.random.key(0), params)

    for slippery in (True, True, False):
        reset(params.replace(slippery=slippery, swapped=True))
    reset(jax.tree.map(lambda x: x + 0, params.replace(swapped=True)))
    assert seen == [(True, True), (False, True)]
    assert params.tree._replace(rewards=None) == CellsParams(rewards=None)
    for again in (copy.deepcopy(params), pickle.loads(pickle.dumps(params)), copy.copy(params)):
        assert jax.tree.structure(again) == jax.tree.structure(params)
    with pytest.raises(af.OptionError, match="static"):
        params.replace(slippery=jnp.array(True))
    with pytest.raises(af.OptionError, match="no parameter 'gravity'"):
        params.replace(gravity=1.0)
    with pytest.raises(AttributeError, match="gravity"):
        _ = params.gravity
    with pytest.raises(af.OptionError, match="default_params"):
        env.reset(jax.random.key(0), CellsParams())
    drawn = to_gymnax(Drawn()).default_params
    assert (drawn.least, drawn.label, jax.tree.leaves(drawn)) == (2, "kept", [0.0, 6.0])
    assert "most" in repr(drawn)


def test_the_step_limit_is_a_parameter() -> None:
    env = to_gymnax(CartPole())
    assert env.default_params.max_steps_in_episode == 500
    params = env.default_params.replace(max_steps_in_episode=1)
    _, state = env.reset(jax.random.key(0), params)
    *_, done, infos = env.step(jax.random.key(0), state, 0, params)
    assert done
    assert infos["truncated"]
    unlimited = to_gymnax(Parts()).default_params
    assert unlimited.max_steps_in_episode == 2**31 - 1
    assert unlimited.replace(max_steps_in_episode=7).max_steps_in_episode == 7


def test_gradients_go_through_steps() -> None:
    env = to_gymnax(Pendulum(), max_episode_steps=1)

    def total(torque: Any, params: Any) -> Any:
        _, state = env.reset(jax.random.key(0), params)
        rewards = 0.0
        for _ in range(2):
            _, state, reward, *_ = env.step(jax.random.key(1), state, torque, params)
            rewards += reward
        return rewards

    found = jax.jit(jax.grad(total, argnums=(0, 1)))(jnp.ones(1), env.default_params)
    assert found[0] != 0.0
    assert found[1].start_angular_velocity != 0.0


def test_environments_that_are_equal_are_compiled_once() -> None:
    env = to_gymnax(CartPole())
    assert env == to_gymnax(CartPole()) == copy.deepcopy(env) == pickle.loads(pickle.dumps(env))
    assert len({env, copy.deepcopy(env), to_gymnax(CartPole(), max_episode_steps=3)}) == 2
    assert (env.name, repr(env)) == ("CartPole", "<to_gymnax(<CartPole>)>")
    assert to_gymnax(wrap(CartPole(), kernels.ClipReward(-1, 1))).name == "CartPole"


# Those of gymnax, which is not installed here
SPACES = types.SimpleNamespace(
    Discrete=namedtuple("Discrete", "n"),
    Box=namedtuple("Box", "low high shape dtype"),
    Dict=namedtuple("Dict", "spaces"),
    Tuple=namedtuple("Tuple", "spaces"),
)


def test_spaces_are_those_of_gymnax(monkeypatch: pytest.MonkeyPatch) -> None:
    env = to_gymnax(Nested())
    monkeypatch.setitem(sys.modules, "gymnax", None)
    monkeypatch.setitem(sys.modules, "gymnax.environments.spaces", None)
    with pytest.raises(af.BackendUnavailableError, match="pip install gymnax"):
        env.action_space()
    of = SPACES
    monkeypatch.setitem(sys.modules, "gymnax.environments.spaces", of)
    acted = env.action_space().spaces[0].spaces
    assert acted["x"] == of.Box(-1.0, 1.0, (2,), np.dtype("float32"))
    assert acted["z"] == of.Discrete(3)
    at = of.Box(-9.0, 9.0, (2,), np.dtype("float64"))
    parts = of.Tuple([of.Discrete(9), of.Box(0, 1, (2,), np.dtype("int8"))])
    assert env.observation_space(env.default_params) == of.Dict({"a": at, "b": parts})
    cart = to_gymnax(wrap(CartPole(), kernels.FrameStackObservation(3)))
    box = cart.observation_space()
    assert box.shape == box.low.shape == (3, 4)
    assert cart.num_actions == 2
    assert to_gymnax(Pendulum()).num_actions == 1

    class Odd(CartPole):
        action_space = spaces.MultiDiscrete([2, 3])
        observation_space = spaces.Discrete(3, start=1)

    odd = to_gymnax(Odd())
    many = odd.action_space()
    np.testing.assert_array_equal(many.high, [1, 2])
    assert many.low == 0
    assert odd.num_actions == 2
    with pytest.raises(af.OptionError, match=r"no space like Discrete.*Let the space start at 0"):
        odd.observation_space()


def test_what_is_no_key_is_named():
    with pytest.raises(af.OptionError, match=r"^key=~int\d\d\[\] is not a JAX key"):
        to_gymnax(CartPole()).reset(0)
