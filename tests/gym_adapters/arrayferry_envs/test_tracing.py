"""Served environments inside functions that JAX traces: what would leave traced values in them is refused."""

import copy
import functools
import pickle
import re

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import quick_if
from envs import begun
from functional_envs import LIBRARIES as SERVED
from functional_envs import Parts

import arrayferry as af
from arrayferry_envs import CartPole, Pendulum
from arrayferry_gym import ArrayConversion, vector

N = 2
ACTION = np.full((N, 1), 0.5, np.float32)
LIBRARIES = {**SERVED, "jax, differentiable": {"xp": "jax", "differentiable": True}}


KINDS = {
    "vector": (functools.partial(Pendulum().make_vec, N, autoreset_mode="SameStep"), ACTION),
    "single": (Pendulum().make, ACTION[0]),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def traced_action(envs, action):
    return [
        lambda: jax.jit(lambda x: envs.step(x)[0])(jnp.asarray(action)),
        lambda: jax.jit(lambda x: jnp.zeros(3) + jnp.asarray(envs.step(x)[1]))(action),
        lambda: jax.vmap(lambda x: envs.step(x)[0])(jnp.stack([action] * 3)),
        lambda: jax.grad(lambda x: envs.step(x)[1].sum())(jnp.asarray(action)),
        lambda: jax.jvp(lambda x: envs.step(x)[1], [jnp.asarray(action)], [jnp.asarray(action)]),
        lambda: jax.lax.scan(lambda c, x: (c, envs.step(x)[1]), 0, jnp.stack([action] * 3)),
        lambda: jax.eval_shape(lambda x: envs.step(x)[0], action),
        lambda: jax.make_jaxpr(lambda x: envs.step(x)[0])(action),
    ]


def staged(envs, action):
    """Nothing that is passed is traced, but what is computed is."""
    return [
        lambda: jax.jit(lambda: envs.step(action)[0])(),
        lambda: jax.jit(lambda: envs.reset()[0])(),
        lambda: jax.jit(lambda: envs.reset(seed=3)[0])(),
        lambda: jax.jit(lambda: envs.reset(options={"params": {"gravity": 3.0}})[0])(),
        lambda: jax.jit(lambda x: jax.vmap(lambda y: y + envs.step(action)[0])(x))(
            jnp.ones((4, 1))
        ),
        lambda: jax.lax.cond(True, lambda: envs.reset(seed=3)[0], lambda: envs.reset(seed=4)[0]),
        lambda: jax.jit(lambda: setattr(envs, "state", envs.state))(),
        lambda: jax.jit(lambda: envs.step(envs.action_space.sample())[0])(),
    ]


def traced_resets(envs):
    def gravity(x):
        return envs.reset(options={"params": {"gravity": x}})[0]

    return [
        lambda: jax.jit(gravity)(3.0),
        lambda: jax.vmap(gravity)(jnp.ones(3)),
        lambda: jax.grad(lambda x: gravity(x).sum())(3.0),
        lambda: jax.jit(lambda x: envs.reset(seed=x)[0])(3),
        lambda: jax.vmap(lambda x: envs.reset(seed=x)[0])(jnp.arange(3)),
    ]


def masked_resets(envs):
    mask = jnp.array([True, False])
    return [
        lambda: jax.jit(lambda x: envs.reset(options={"reset_mask": x})[0])(mask),
        lambda: jax.vmap(lambda x: envs.reset(options={"reset_mask": x})[0])(mask[None]),
        lambda: jax.jit(lambda: envs.reset(options={"reset_mask": [True, False]})[0])(),
    ]


def seen(envs, action):
    """What an agent sees from now on."""
    found = [envs.step(action) for _ in range(3)]
    found.append(envs.reset())
    found.append(envs.step(action))
    return [np.asarray(x).tolist() for x in af.flatten(af.convert(found, "numpy"))[0]]


@kinds
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_refused_changes_nothing(library, kind):
    make, action = KINDS[kind]
    envs, twin = (begun(make(**LIBRARIES[library]), 0) for _ in range(2))
    for each in (envs, twin):
        each.step(action)
    refused = traced_action(envs, action) + traced_resets(envs)
    if envs.xp == "jax":
        refused += staged(envs, action)
    if kind == "vector":
        refused += masked_resets(envs)[: 3 if envs.xp == "jax" else 2]
    for attempt in refused:
        with pytest.raises((af.TracedValueError, af.OptionError, gym.error.Error)) as error:
            attempt()
        if error.type is af.TracedValueError:
            assert re.search(r"Pendulum.*rollout.*Functions", str(error.value))
    assert seen(envs, action) == seen(twin, action)


@kinds
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_step_with_known_values_is_taken_under_vmap_and_grad(library, kind):
    make, action = KINDS[kind]
    envs, twin = (begun(make(**LIBRARIES[library]), 0) for _ in range(2))

    def reward(each):
        return jnp.asarray(np.asarray(af.convert(each.step(action)[1], "numpy", scalars="convert")))

    found = [
        jax.vmap(lambda x: x + reward(envs))(jnp.zeros(3))[0],
        jax.grad(lambda x: (x * reward(envs)).sum())(1.0),
        jax.jvp(lambda x: x * reward(envs), [1.0], [1.0])[0],
    ]
    jax.grad(lambda x: (x * jnp.asarray(np.asarray(envs.reset()[0]))).sum())(1.0)
    own = [reward(twin) for _ in range(3)]
    twin.reset()
    assert np.allclose(found[0], own[0])
    assert np.allclose(found[1], own[1].sum())
    assert np.allclose(found[2], own[2])
    assert seen(envs, action) == seen(twin, action)


@pytest.mark.parametrize("kind", quick_if(["made", "copied", "parametrized"], "made".__eq__))
def test_an_environment_that_is_made_in_the_traced_function_is_served_there(kind):
    def rewarded(envs, torque=0.5):
        envs.step(ACTION)
        return envs.step(jnp.full((N, 1), torque))[1].sum()

    def made(**params):
        return begun(Pendulum().make_vec(N, xp="jax", params=params), 0)

    outer = made()
    outer.step(ACTION)
    twin = pickle.loads(pickle.dumps(outer))
    function = {
        "made": lambda torque: rewarded(made(), torque),
        "copied": lambda torque: rewarded(copy.deepcopy(outer), torque),
        "parametrized": lambda gravity: rewarded(made(gravity=gravity)),
    }[kind]
    usual = function(0.5)
    if kind != "copied":  # JAX cannot copy keys inside jit
        assert np.isclose(jax.jit(function)(0.5), usual, rtol=1e-5)
    value, gradient = jax.value_and_grad(function)(0.5)
    assert np.isclose(value, usual, rtol=1e-5)
    step = 1e-2
    by_hand = (function(0.5 + step) - function(0.5 - step)) / (2 * step)
    assert np.isclose(gradient, by_hand, rtol=5e-2, atol=2e-3)
    assert seen(outer, ACTION) == seen(twin, ACTION)


def test_the_first_step_after_unpickling_may_be_refused():
    """Parameters are brought into JAX by the first step: they must not be traced either."""
    envs = begun(CartPole().make_vec(N, xp="jax"), 0)
    other = pickle.loads(pickle.dumps(envs))
    with pytest.raises(af.TracedValueError):
        jax.jit(lambda: other.step(np.zeros(N, int))[0])()
    action = np.zeros(N, int)
    assert seen(other, action) == seen(envs, action)


def test_traced_parts_of_an_action():
    made = {"xp": "jax", "autoreset_mode": "Disabled"}
    envs, twin = (begun(Parts().make_vec(N, **made), 0) for _ in range(2))
    known = {"x": np.zeros((N, 2), np.float32), "y": np.zeros((N, 2), int), "z": np.ones(N, int)}
    for function in (
        lambda x: envs.step({**known, "x": x[:, None] * known["x"]})[0],
        lambda x: envs.step({**known, "z": x.astype(int)})[0],
    ):
        for attempt in (jax.jit(function), lambda x, f=function: jax.vmap(f)(x[None])):
            with pytest.raises(af.TracedValueError):
                attempt(jnp.zeros(N))
    assert seen(envs, known) == seen(twin, known)


def test_through_an_adapter():
    for envs in (
        vector.ArrayConversion(Pendulum().make_vec(N, xp="jax"), target_xp="jax"),
        ArrayConversion(Pendulum().make(xp="jax"), target_xp="jax"),
    ):
        envs.reset(seed=0)
        action = envs.action_space.sample()
        with pytest.raises(af.TracedValueError, match="Functions"):
            jax.jit(lambda x, envs=envs: envs.step(x)[0])(action)
        envs.step(action)
