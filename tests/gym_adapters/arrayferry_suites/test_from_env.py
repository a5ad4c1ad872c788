"""Functional environments of other libraries, as far as they are here: Gymnasium's own, and what is refused."""

from __future__ import annotations

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs import begun
from func_env import LIMIT, Ends, Params
from gymnasium import spaces
from gymnasium.envs.phys2d.cartpole import CartPoleFunctional

import arrayferry as af
from arrayferry_envs import EnvResultError, JaxEnv, from_env, rollout


def test_steps_are_those_of_the_environment():
    env = from_env(CartPoleFunctional())
    assert env.max_episode_steps is None
    envs = begun(env.make_vec(4, xp="jax", autoreset_mode="Disabled"))
    for _ in range(8):
        state, _, _ = envs.state.tree
        seen, reward, terminated, truncated, _ = envs.step(np.array([0, 1, 0, 1]))
        own = jax.vmap(lambda s, a: env.env.transition(s, a, None, env.default_params))(
            state, jnp.array([0, 1, 0, 1])
        )
        np.testing.assert_allclose(seen, own, rtol=1e-6)
        assert reward.tolist() == [1.0] * 4
        assert not truncated.any()
        assert terminated.dtype == bool


def test_parameters():
    envs = begun(from_env(Ends()).make_vec(2, params={"scale": np.float32([1, 5])}))
    assert envs.step([0, 0])[1].tolist() == [1.0, 5.0]
    given = from_env(Ends(), Params(scale=3.0))
    assert given.default_params.scale == 3.0
    envs = begun(given.make_vec(1, params={"ends": 2}))
    assert envs.step([2])[2].tolist() == [True]
    assert envs.step([1])[4]["count"].tolist() == [0]  # of the episode that follows


class Inside:
    def __init__(self, factor):
        self.factor = factor
        self.table = jnp.full(3, factor)


class Hides(Inside):
    """What is pickled is not all that a copy has."""

    def __getstate__(self):
        return {"factor": 0.0}

    def __deepcopy__(self, memo):
        return type(self)(self.factor)


class Holds(Ends):
    """Holds an object with an array, a module, a space, and a method of its own."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.observation_space = spaces.Box(0, LIMIT, (2,), np.float32)
        self.inside = Inside(factor)
        self.module = jnp
        self.own = self.reward

    def reward(self, state, action, next_state, rng, params=None):
        return self.module.asarray(self.inside.factor * self.inside.table[0])


def test_a_copy_is_held():
    inner = Holds()
    env = from_env(inner)
    envs = env.make_vec(2, xp="numpy")

    def rewards(env):
        act = rollout(env, lambda *_: (jnp.zeros(2, int), None), None, jax.random.key(0), 1, 2)
        envs.reset(seed=1)
        return act[1].reward.tolist(), envs.step([0, 0])[1].tolist()

    assert rewards(env) == ([[1.0, 1.0]], [1.0, 1.0])
    inner.inside.factor = 7.0
    assert rewards(env) == ([[1.0, 1.0]], [1.0, 1.0])
    assert rewards(from_env(inner))[0] == [[7.0, 7.0]]


def test_equal_contents_are_equal():
    env = from_env(Holds(2.0))
    assert repr(env.observation_space)  # which the space keeps
    assert env == from_env(Holds(2.0))
    assert hash(env) == hash(from_env(Holds(2.0)))
    assert from_env(Ends()) == pickle.loads(pickle.dumps(from_env(Ends())))
    others = [Holds(3.0), Holds(2.0), Holds(2.0), type("Holds", (Holds,), {})(2.0)]
    others[1].marker = 1
    others[2].inside.table = jnp.full(3, 3.0)
    for other in others:
        assert env != from_env(other)
    hidden = [Holds(), Holds()]
    hidden[0].inside, hidden[1].inside = Hides(1.0), Hides(2.0)
    assert from_env(hidden[0]) != from_env(hidden[1])
    assert from_env(Ends(), Params(scale=2.0)) != from_env(Ends(), Params(scale=3.0))


def test_copies_of_an_environment_are_equal():
    env = from_env(Ends(), Params(scale=2.0))
    start = env.make_vec(2).reset(seed=0)[0].tolist()
    for other in (copy.copy(env), copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert env == other
        assert hash(env) == hash(other)
        assert other.make_vec(2).reset(seed=0)[0].tolist() == start


def test_what_cannot_be_copied_is_refused(tmp_path):
    env = Ends()
    env.file = (tmp_path / "file").open("w")
    with env.file, pytest.raises(af.OptionError, match="Ends cannot be copied"):
        from_env(env)


class Begins(Ends):
    """Begins with a whole number, and goes on with others."""

    def initial(self, rng, params=None):
        return {**super().initial(rng, params), "sum": 0}

    def transition(self, state, action, rng, params=None):
        return {**super().transition(state, action, rng, params), "sum": state["sum"] + 0.25}

    def reward(self, state, action, next_state, rng, params=None):
        return next_state["sum"]


def test_states_keep_the_dtype_of_later_steps():
    envs = begun(from_env(Begins()).make_vec(2))
    assert [envs.step([0, 0])[1][0] for _ in range(3)] == [0.25, 0.5, 0.75]


class Counts(Ends):
    """Has whole numbers as rewards."""

    def reward(self, state, action, next_state, rng, params=None):
        return next_state["count"]


@pytest.mark.parametrize("xp", ["jax", "numpy"])
def test_rewards_that_are_whole_numbers_need_no_warning(xp):
    envs = begun(from_env(Counts()).make_vec(2, xp=xp))
    reward = envs.step([0, 0])[1]
    assert (reward.dtype, reward.tolist()) == ("float32", [1.0, 1.0])


def test_rendering():
    pytest.importorskip("pygame")
    env = begun(from_env(CartPoleFunctional()).make(render_mode="rgb_array"))
    assert env.render().dtype == np.uint8


def test_no_word_of_an_error_is_cut():
    class Fails(Ends):
        def initial(self, rng, params=None):
            raise ValueError("words " * 100)

    with pytest.raises(af.OptionError, match=r"fails with JAX .* \(ValueError: (words ?)+\.\.\.\)"):
        from_env(Fails())


def test_nothing_is_imported_for_it(run_python):
    run_python(
        """
import sys, arrayferry_envs as functional
class Env: pass
try:
    functional.from_env(Env())
except TypeError:
    pass
assert not {"jax", "gymnax", "brax", "pgx", "jumanji", "navix"} & sys.modules.keys()
"""
    )


@pytest.mark.parametrize("results", [(0.0, 1.0, False), (0.0, 1.0, False, False, {}), 0.0])
def test_a_step_of_another_number_of_results(results):
    class Wrong(JaxEnv):
        def actions(self, example):
            return spaces.Discrete(2)

        def begin(self, key, params):
            return jnp.zeros(2)

        def advance(self, key, kept, action, params):
            return results

        def observation_of(self, kept, params):
            return kept

    count = len(results) if isinstance(results, tuple) else 1
    with pytest.raises(
        EnvResultError, match=rf"Wrong\.advance returned {count} results\. Return four"
    ):
        Wrong(Ends())


class Right(JaxEnv):
    """An environment whose methods are replaced by wrong ones."""

    def actions(self, example):
        return spaces.Discrete(2)

    def begin(self, key, params):
        return jnp.zeros(2)

    def advance(self, key, kept, action, params):
        return kept + 1, 1.0, False, False

    def observation_of(self, kept, params):
        return kept


def test_observations_may_be_computed():
    class Computed(Right):
        def observation_of(self, kept, params):
            return {"row": kept[None] * 2, "sum": jnp.stack([kept.sum(), kept[0]])}

    envs = Computed(Ends()).make_vec(3)
    assert {key: space.shape for key, space in envs.single_observation_space.items()} == {
        "row": (1, 2), "sum": (2,),
    }  # fmt: skip
    envs.reset(seed=0)
    observation = envs.step(envs.action_space.sample())[0]
    np.testing.assert_array_equal(observation["row"], np.full((3, 1, 2), 2))
    np.testing.assert_array_equal(observation["sum"], [[2, 1]] * 3)


FALSE, ONE = jnp.zeros((), bool), jnp.ones(())
WRONG = {
    "the order": ("advance", (jnp.zeros(2), FALSE, ONE, FALSE),
                  r"Mine\.advance returned a reward of dtype bool, but float32 for terminated\. Return, in this order"),
    "a flag": ("advance", (jnp.zeros(2), ONE, FALSE[None], FALSE),
               r"Mine\.advance returned terminated of shape \(1,\), not one bool"),
    "a shape": ("observations", spaces.Box(0, 1, (3,)),
                r"Mine\.observation_of returned shape \(2,\) for observation, but its space requires shape \(3,\)"),
    "a structure": ("observations", spaces.Dict(x=spaces.Box(0, 1, (2,))), r"Mine\.observation_of returned shape \(2,\)"),
    "no space": ("actions", 4, r"Mine\.actions returned 4, not a space\. Return one of gymnasium"),
    "no observations": ("observations", None, r"Mine\.observations returned None, not a space"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_names_the_method_of_its_author(name):
    method, result, words = WRONG[name]
    wrong = type("Mine", (Right,), {method: lambda *arguments: result})
    with pytest.raises(EnvResultError, match=words):
        wrong(Ends())


@pytest.mark.parametrize(
    ("info", "words"),
    [(jnp.ones(()), "not a dict"), ({"a": {"b": "x"}}, r"'x' for \['a'\]\['b'\]")],
)
def test_wrong_infos_name_the_method_of_their_author(info, words):
    wrong = type("Mine", (Right,), {"info_of": lambda *arguments: info})
    with pytest.raises(EnvResultError, match=rf"Mine\.info_of returned .*{words}"):
        wrong(Ends()).make_vec(2, xp="jax").reset(seed=0)


@pytest.mark.parametrize("method", ["begin", "advance", "observation_of", "actions", "image_of"])
def test_a_method_that_is_missing_is_named(method):
    unfinished = type("Mine", (Right,), {method: getattr(JaxEnv, method)})
    with pytest.raises(NotImplementedError, match=rf"Mine needs the method {method}\(self"):
        unfinished(Ends()).image_of(None)
