"""How episodes start: with parameters that are drawn, in states that are given, and with masks of actions."""

import array_api_strict
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs import begun, host
from functional_envs import Drawn, Masked

import arrayferry as af
from arrayferry_envs import CartPole, EnvResultError, Functions, evaluate, rollout

N = 4
LIBRARIES = ["numpy", "torch", pytest.param("jax"), pytest.param(array_api_strict, id="strict")]
modes = pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])


@pytest.fixture(params=LIBRARIES)
def xp(request):
    """The library in which environments are served."""
    return request.param


@modes
def test_parameters_are_drawn_at_each_reset(xp, mode):
    envs = Drawn().make_vec(N, xp=xp, autoreset_mode=mode)
    observation, info = envs.reset(seed=0)
    ends = host(observation["end"]).copy()
    drawn, over = [ends], np.zeros(N, bool)
    assert (host(info["end"]) == ends).all()
    for _ in range(40):
        observation, reward, terminated, _, info = map(host, envs.step(np.zeros(N, int)))
        count, new = observation["count"], observation["count"] == 0
        assert (observation["end"][~new] == ends[~new]).all()
        assert (reward == np.where(new & (mode == "NextStep"), 0, ends)).all()
        if mode == "SameStep":
            assert (terminated == new).all()
            assert (info["final_obs"]["end"] == ends).all()
            assert (info["final_obs"]["count"] == ends)[new].all()
        else:
            assert (new == over & (mode == "NextStep")).all()
            assert (terminated == (count >= ends) & ~new).all()
        over = terminated
        ends = observation["end"].copy()
        drawn.append(ends[new])
    values = np.concatenate(drawn)
    assert set(values) <= {2, 3, 4, 5}
    assert mode == "Disabled" or len(set(values)) > 2
    envs.reset(options={"reset_mask": np.arange(N) == 1})
    assert (host(envs.state.params)["end"][np.arange(N) != 1] == ends[np.arange(N) != 1]).all()
    assert envs.params["end"] == 0


def test_what_they_are_drawn_from_can_be_changed(xp):
    envs = Drawn().make_vec(500, xp=xp, params={"most": 3.0})
    assert set(host(envs.reset(seed=0)[0]["end"])) == {2}
    ends = host(envs.reset(options={"params": {"most": 9.0}})[0]["end"])
    assert set(ends) == {2, 3, 4, 5, 6, 7, 8}


def test_images_of_states_with_drawn_parameters(xp):
    env = begun(Drawn().make(xp=xp, render_mode=None), 0)
    env.step(0)
    assert env._image(0).max() == 1


@pytest.mark.assumes_other("strict")
def test_drawn_parameters_in_compiled_calls():
    def at_zero(params, observation, key):
        return jnp.zeros(N, int), None

    _, transitions = rollout(Drawn(), at_zero, None, jax.random.key(0), 60, N, collect="state")
    ends = np.asarray(transitions.observation["end"])
    assert (ends == transitions.state.tree.params["end"]).all()
    over = np.asarray(transitions.terminated)
    assert (transitions.episode_length[over] == ends[over]).all()
    assert (ends[1:][~over[:-1]] == ends[:-1][~over[:-1]]).all()
    results = evaluate(Drawn(), at_zero, key=jax.random.key(0), num_envs=N, episodes=20)
    assert set(np.asarray(results.lengths).ravel()) == {2, 3, 4, 5}
    assert (results.returns == results.lengths**2).all()
    functions = Functions(Drawn())
    env_state, observation = functions.reset(jax.random.key(0), N)
    _, outcome = jax.jit(functions.step)(jax.random.key(1), env_state, jnp.zeros(N, int))
    assert (outcome.reward == observation["end"]).all()


NOT_DRAWN = [
    (lambda xp, rng, n, p: None, "returned the parameters"),
    (lambda xp, rng, n, p: {**p, "more": rng.uniform((n,))}, "returned the parameters"),
    (lambda xp, rng, n, p: {**p, "end": 3.0}, r"returned 3.0 for params\['end'\]"),
    (lambda xp, rng, n, p: {**p, "end": rng.uniform((n + 1,))}, "that of the 4 environ"),
    (lambda xp, rng, n, p: {**p, "label": "other"}, r"'other' for params\['label'\]"),
]


@pytest.mark.parametrize(("drawn", "told"), NOT_DRAWN)
def test_what_cannot_be_drawn(drawn, told):
    class Wrong(Drawn):
        def sample_params(self, xp, rng, n, params):
            return drawn(xp, rng, n, params)

    with pytest.raises(EnvResultError, match=told):
        Wrong().make_vec(N, xp="numpy").reset(seed=0)


@modes
def test_given_starts(xp, mode):
    envs = begun(CartPole().make_vec(N, xp=xp, autoreset_mode=mode), 0)
    state = envs.state
    moved = type(state)(*(x + 0.01 for x in state))
    expected = np.stack([host(x) for x in moved], axis=1)
    for _ in range(5):
        envs.step(np.ones(N, int))
    found = host(envs.reset(options={"state": moved})[0])
    assert np.allclose(found, expected)
    first = [host(x).copy() for x in envs.step(np.ones(N, int))[:2]]
    assert np.allclose(
        host(envs.reset(options={"state": moved})[0]), expected
    )  # nothing was changed
    assert all(np.array_equal(a, host(b)) for a, b in zip(first, envs.step(np.ones(N, int)), strict=False))  # fmt: skip
    mask = np.arange(N) % 2 == 0
    found = host(envs.reset(options={"state": moved, "reset_mask": mask})[0])
    assert np.allclose(found[mask], expected[mask])
    assert np.allclose(found[~mask], first[0][~mask])
    fresh = CartPole().make_vec(N, xp=xp, autoreset_mode=mode)
    assert np.allclose(host(fresh.reset(seed=0, options={"state": host(moved)})[0]), expected)


def test_given_starts_that_do_not_fit():
    envs = begun(CartPole().make_vec(N, xp="numpy"), 0)
    before = envs.state
    for wrong in (np.zeros(N), tuple(before), type(before)(*(x[:2] for x in before)), "state"):
        with pytest.raises(EnvResultError, match="state"):
            envs.reset(options={"state": wrong})
        with pytest.raises(EnvResultError, match="state"):
            CartPole().make_vec(N, xp="numpy").reset(options={"state": wrong})
        assert all((a == b).all() for a, b in zip(before, envs.state, strict=True))


@modes
def test_masks_of_actions_are_in_the_infos_too(xp, mode):
    envs = Masked().make_vec(N, xp=xp, autoreset_mode=mode)
    observation, info = envs.reset(seed=0)
    for _ in range(7):
        assert (host(info["action_mask"]) == host(observation["action_mask"])).all()
        assert host(info["_action_mask"]).all()
        assert af.backend_of(info["action_mask"]).name == envs.xp
        observation, _, _, _, info = envs.step(np.zeros(N, int))
    if envs.xp in ("numpy", "torch"):
        info["action_mask"][...] = 7
        assert host(observation["action_mask"]).max() == 1
    env = Masked().make(xp=xp)
    observation, info = env.reset(seed=0)
    assert host(info["action_mask"]).tolist() == host(observation["action_mask"]).tolist()
    assert host(env.step(0)[4]["action_mask"]).tolist() == [0, 1, 0]
    sampled = env.action_space.sample(np.array([0, 1, 0], np.int8))
    assert int(host(sampled)) == 1


@pytest.mark.parametrize("xp", ["numpy", "torch", "jax"])
def test_seeds_decide_the_whole_batch(xp):
    def alike(a, b):
        return any((x == y).all() for x in a for y in b)

    def first(seed, n=2):
        envs = CartPole().make_vec(n, xp=xp)
        return af.convert(envs.reset(seed=seed)[0], "numpy")

    one = first([7, 9])
    np.testing.assert_array_equal(one, first([7, 9]))
    for other in ([7, 8], [9, 7], [7, None], 7, None):
        assert not alike(one, first(other))
    np.testing.assert_array_equal(first([7, None]), first([7, None]))
    assert not alike(first(7, 4), first(7, 8))


class Forms(Masked):
    """Rewards, flags and infos in every form that an author may return."""

    max_episode_steps = 6

    def __init__(self, form):
        self.form = form
        self.reward_shape = (2,) if form == "objectives" else ()

    def step(self, xp, rng, state, action, params):
        state, reward, over = super().step(xp, rng, state, action, params)
        reward = {
            "float": 0.1, "int": 3, "array": reward, "int16": xp.astype(action, xp.int16),
            "double": xp.astype(state, xp.float64), "objectives": xp.stack([reward, state], axis=1),
        }[self.form]  # fmt: skip
        flags = (False, over) if self.form in ("float", "objectives") else (over, False)
        return state, reward, *flags

    def info(self, xp, state, params):
        return {"x": state[:, None], "_hidden": state}


@pytest.mark.parametrize("form", ["float", "int", "array", "int16", "double", "objectives"])
@pytest.mark.parametrize("xp", ["numpy", "torch"])
def test_one_environment_is_a_batch_of_one(xp, form):
    one = Forms(form).make(xp=xp)
    batch = Forms(form).make_vec(1, xp=xp, autoreset_mode="DISABLED")
    first, firsts = one.reset(seed=[3])[0], batch.reset(seed=[3])[0]
    ended = set()
    for action in (0, np.int64(1), np.int32(2), np.uint8(1), 1.0, True):
        np.testing.assert_array_equal(first["count"], firsts["count"][0])
        first, reward, terminated, truncated, info = one.step(action)
        firsts, rewards, *flags, infos = batch.step([int(action)])
        np.testing.assert_array_equal(reward, np.asarray(rewards)[0])
        assert type(reward) is float or form == "objectives"
        assert [terminated, truncated] == [bool(flag[0]) for flag in flags]
        ended |= {terminated, truncated}
        assert type(terminated) is type(truncated) is bool
        assert info.keys() == {"x", "action_mask"}
        np.testing.assert_array_equal(info["x"], infos["x"][0])
        kept = host(one.state).copy()
        first["count"][:] = info["x"][:] = 100  # the results are the agent's
        np.testing.assert_array_equal(host(one.state), kept)
        first["count"][:] = float(kept[0])
    assert ended == {True, False}
    one.close()
    with pytest.raises(gym.error.ResetNeeded):
        one.step(1)
