"""What runs code of JAX compiles nothing after a few calls, and so do new objects where equal ones share."""

import copy

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functional_envs import Cells, Drawn, lean

from arrayferry_envs import (
    CartPole,
    Functions,
    evaluate,
    freeze,
    repeat_action,
    rollout,
    to_gymnax,
    with_seeds,
    wrap,
)
from arrayferry_gym import ArrayConversion, JaxToNumpy, JaxToTorch, make_rng, vector, wrappers
from arrayferry_gym.sb3 import SB3VecEnv
from arrayferry_gym.torchrl import TorchRLEnv
from arrayferry_gym.wrappers import kernels
from arrayferry_gym.wrappers import vector as vector_wrappers

COMPILED = []
MODES = ("SAME_STEP", "NEXT_STEP", "DISABLED")
ACTIONS = np.array([0, 1, 0, 1])
KERNELS = kernels.NormalizeObservation(), kernels.NormalizeReward(), kernels.RescaleAction(-1, 1)


def count(name, seconds, **more):
    if name == "/jax/core/compile/backend_compile_duration":
        COMPILED.append(name)


jax.monitoring.register_event_duration_secs_listener(count)


def compiles_no_more(call, first=3):
    """Call a function with 0, 1, 2 and so on, and check that nothing is compiled after a few calls."""
    for number in range(first + 3):
        if number == first:
            COMPILED.clear()
        call(number)
    assert COMPILED == []


def wrapped():
    return wrap(CartPole(), *KERNELS[:2])


def acts(envs, actions=None):
    """Return a function that resets environments and takes a few steps."""

    def call(number):
        envs.reset(seed=number)
        for _ in range(3):
            envs.step(envs.action_space.sample() if actions is None else actions)

    return call


ENVS = {
    "CartPole": CartPole, "wrapped": wrapped, "Drawn": Drawn, "Cells": Cells,
    "repeated": lambda: repeat_action(CartPole(), 2), "levels": lambda: with_seeds(CartPole(), [1, 2]),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_envs", [4, 70])  # few are drawn apart from 64 on
@pytest.mark.parametrize("env", [CartPole, wrapped])
def test_functions_outside_jit(env, num_envs, mode):
    actions = jnp.zeros(num_envs, int)
    functions = Functions(env(), autoreset_mode=mode, max_episode_steps=2)
    at = [functions.reset(jax.random.key(0), num_envs)[0]]

    def step(number):
        functions.reset(jax.random.key(number), num_envs)
        for _ in range(3):
            at[0], _ = functions.step(jax.random.key(number), at[0], actions)
        params = {"gravity": 9.0 + number}
        Functions(env(), autoreset_mode=mode).step(jax.random.key(1), at[0], actions, params)

    compiles_no_more(step)


def test_functions_outside_jit_are_those_inside():
    functions = Functions(CartPole(), max_episode_steps=3)
    env_state, _ = functions.reset(jax.random.key(0), 70)
    twin = env_state._replace(elapsed=env_state.elapsed + jnp.arange(70) % 3)
    for number, start in enumerate(
        [env_state, twin, env_state._replace(elapsed=env_state.elapsed + 2)]
    ):
        given = jax.random.key(number), start, jnp.zeros(70, int)
        for ours, theirs in zip(
            jax.tree.leaves(functions.step(*given)),
            jax.tree.leaves(jax.jit(functions.step)(*given)),
            strict=True,
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize("mode", ["SAME_STEP", "DISABLED"])
def test_served_environments(name, mode):
    envs = ENVS[name]().make_vec(4, xp="jax", autoreset_mode=mode)

    def call(number):
        for rows in (None, [True, False, False, True]):
            envs.reset(seed=number, options=None if rows is None else {"reset_mask": rows})
            envs.step(envs.action_space.sample())
        envs.reset(options={"state": envs.state})

    compiles_no_more(call)


def test_served_single_environments():
    env = CartPole().make(xp="jax")
    compiles_no_more(acts(env, 1))
    compiles_no_more(lambda number: env.reset(options={"params": {"gravity": 9.0 + number}}))


@pytest.mark.assumes_other("strict")
def test_rollouts_and_evaluations():
    before = [None]
    env = wrapped()
    saved = env.state_dict(rollout(env, lean, None, jax.random.key(0), 5, 4)[0].env_state)

    def call(number):
        before[0], _ = rollout(wrapped(), lean, None, jax.random.key(number), 5, 4, carry=before[0])
        rollout(wrapped(), lean, None, jax.random.key(0), 5, 4, wrapper_state=saved)
        evaluate(
            wrapped(), lean, key=number, num_envs=4, wrapper_state=saved, env_params={"gravity": 9.0 + number}
        )  # fmt: skip
        wrapped().wrapper_state(saved), freeze(before[0].env_state.wrappers)

    compiles_no_more(call)


def test_the_form_of_gymnax():
    state = to_gymnax(CartPole()).reset(jax.random.key(0))[1]

    def call(number):
        env = to_gymnax(CartPole())
        key, params = jax.random.key(number), env.default_params.replace(gravity=9.0 + number)
        env.reset(key), env.step(key, state, 1), env.step_env(key, state, 1, params)

    compiles_no_more(call)


def test_random_numbers():
    def call(number):
        rng = make_rng("jax", number)
        rng.normal((3,)), rng.uniform((3,)), rng.integers((3,), 0, 5), rng.key()
        rng.categorical((3,), jnp.zeros((3, 2)))

    compiles_no_more(call)


@pytest.mark.parametrize("adapter", [JaxToNumpy, JaxToTorch])
def test_adapters_of_environments_in_jax(adapter):
    env = getattr(vector, adapter.__name__)(CartPole().make_vec(4, xp="jax"))
    compiles_no_more(acts(env), first=6)  # converters learn
    compiles_no_more(acts(adapter(CartPole().make(xp="jax"))), first=6)


def single():
    return ArrayConversion(gym.make("CartPole-v1"), "numpy", "jax")


def batch():
    return vector.ArrayConversion(gym.make_vec("CartPole-v1", 4), "numpy", "jax")


@pytest.mark.parametrize(
    "name",
    ["NormalizeObservation", "NormalizeReward", "TimeAwareObservation", "FlattenObservation"],
)
def test_new_wrappers_that_are_equal(name):
    for make, module in ((single, wrappers), (batch, vector_wrappers)):

        def call(number, make=make, module=module):
            env = getattr(module, name)(make())
            acts(env)(number)
            if make is single:
                copy.deepcopy(env).step(1)

        compiles_no_more(call, first=6)


class Halves(kernels.Kernel):
    """Divides rewards by a number that may change: what is compiled for it is not shared."""

    parts = ("reward",)
    by = 2

    def step(self, xp, state, result):
        return state, result._replace(reward=result.reward / Halves.by)


def test_kernels_of_users_are_compiled_for_each_wrapper(monkeypatch):
    for by in (2, 4):
        monkeypatch.setattr(Halves, "by", by)
        env = vector_wrappers.KernelVectorWrapper(batch(), Halves())
        env.reset(seed=1)
        assert float(env.step(ACTIONS)[1][0]) == 1 / by


@pytest.mark.parametrize("mode", ["SAME_STEP", "DISABLED"])
def test_bridges(mode):
    envs = CartPole().make_vec(4, xp="jax", autoreset_mode=mode, max_episode_steps=1)

    def call(number):
        bridge = SB3VecEnv(envs)
        bridge.reset(), bridge.step(ACTIONS)
        TorchRLEnv(envs).rollout(2)

    compiles_no_more(call, first=6)


def test_agents_of_jax_in_other_environments():
    compiles_no_more(lambda number: evaluate(batch(), lean, key=number, policy_xp="jax"), first=6)
