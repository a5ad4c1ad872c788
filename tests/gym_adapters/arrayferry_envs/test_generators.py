"""Keys of each of JAX's generators, typed and raw, wherever a key or a seed is taken."""

import pickle

import jax
import numpy as np
import pytest
from cases import quick_if
from envs import begun
from functional_envs import at_random
from raw_random import Fed

import arrayferry as af
from arrayferry_envs import CartPole, Functions, evaluate, rollout, wrap
from arrayferry_gym import make_rng
from arrayferry_gym.wrappers import kernels

GENERATORS = ["threefry2x32", "rbg", "unsafe_rbg"]
NEWER = ["philox2x32", "threefry4x32"]  # with keys of one number, and of four
try:
    jax.random.key(0, impl=NEWER[0])
    GENERATORS += NEWER
except ValueError:  # an older JAX
    pass
generators = pytest.mark.parametrize("name", quick_if(GENERATORS, "threefry2x32".__eq__))
SECOND = {4: "rbg", 2: "threefry2x32"}
"""What a raw key is of, by its length, if that is not the one of the default generator."""


@pytest.fixture
def default_generator():
    before = jax.config.jax_default_prng_impl
    yield lambda name: jax.config.update("jax_default_prng_impl", name)
    jax.config.update("jax_default_prng_impl", before)


@generators
def test_typed_and_raw_keys_of_each(name, default_generator):
    typed, env = jax.random.key(7, impl=name), wrap(CartPole(), kernels.StickyAction(0.25))
    for default in ("threefry2x32", name):
        default_generator(default)
        raw = jax.random.key_data(typed)
        if default != name and len(raw) not in SECOND:
            with pytest.raises(af.OptionError, match="is not a JAX key"):
                rollout(env, at_random, None, raw, 3, 2)
            continue
        of_raw = jax.random.wrap_key_data(raw, impl=name if default == name else SECOND[len(raw)])
        for use in (
            lambda key: rollout(env, at_random, None, key, 30, 70),
            lambda key: evaluate(CartPole(), at_random, key=key, num_envs=3, max_episode_steps=20),
            lambda key: Functions(env).step(key, *_begun(env, key)),
        ):
            one, other = use(of_raw), use(raw)
            for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
                np.testing.assert_array_equal(*map(_numbers, (x, y)))
    starts = rollout(CartPole(), at_random, None, typed, 200, 70)[1]
    first = np.asarray(starts.observation)[np.asarray(starts.began)]
    assert len(np.unique(first, axis=0)) == len(first) > 200  # no episode twice
    assert np.abs(first.mean(axis=0)).max() < 0.05 / np.sqrt(3) / np.sqrt(len(first)) * 6


def _begun(env, key):
    env_state, _ = Functions(env).reset(key, 3)
    return env_state, np.array([0, 1, 0])


def _numbers(x):
    return jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x


@generators
def test_served_environments_keep_the_generator_that_they_were_seeded_with(name, default_generator):
    default_generator(name)
    envs = begun(CartPole().make_vec(70, xp="jax", autoreset_mode="SameStep"))
    default_generator("threefry2x32")
    copy = pickle.loads(pickle.dumps(envs))
    for _ in range(40):
        one, other = (env.step(np.ones(70, int))[0] for env in (envs, copy))
        np.testing.assert_array_equal(one, other)
    default_generator("rbg")
    seen = [envs.reset(seed=1)[0]]
    seen += [envs.step(np.ones(70, int))[0] for _ in range(40)]
    assert len(np.unique(np.concatenate(seen), axis=0)) == 41 * 70


def test_random_numbers_go_back_to_a_state():
    for name in ("numpy", "torch", "jax", "array_api_strict"):
        backend = af.registry.backend(name)
        for rng in (make_rng(name, 3), make_rng(backend)):
            rng.normal((2,))
            state = pickle.loads(pickle.dumps(rng.getstate()))
            first = [backend.to_numpy(rng.uniform((3,))).tolist() for _ in range(6)]
            for _ in range(2):
                rng.setstate(state)
                again = [backend.to_numpy(rng.uniform((3,))).tolist() for _ in range(6)]
                assert again == first


def test_random_numbers_of_other_classes_go_back_too():
    rng = Fed(np.arange(4.0))
    rng.uniform(())
    state = rng.getstate()
    for _ in range(2):
        assert [rng.uniform(()), rng.uniform(())] == [1, 2]
        rng.setstate(state)
