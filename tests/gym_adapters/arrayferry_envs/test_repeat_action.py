"""Environments in which each action counts for several steps."""

import copy
import pickle

import array_api_strict
import gymnasium as gym
import jax
import numpy as np
import pytest
from cases import crossed
from envs import begun
from functional_envs import Count, still
from gymnasium import spaces

import arrayferry as af
import arrayferry_envs
from arrayferry_envs import (
    CartPole,
    Functions,
    check_functional_env,
    evaluate,
    repeat_action,
    rollout,
    wrap,
)
from arrayferry_gym.wrappers import kernels


class Counts(Count):
    """Counts steps. Ends where the count reaches what was drawn, is truncated in row 2 after 5."""

    observation_space = spaces.Box(-99, 99, (), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (), np.float32)
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, objectives=False, sign=1):
        self.objectives, self.sign = objectives, sign
        self.reward_shape = (2,) if objectives else ()

    def sample_params(self, xp, rng, n, params):
        row = xp.arange(n, dtype=xp.float32)
        return {"end": 7 + 3 * row, "stop": 99 - 94 * xp.astype(row == 2, xp.float32)}

    def step(self, xp, rng, state, action, params):
        state, reward, *flags = super().step(xp, rng, state, action, params)
        return state, xp.stack([reward, action], axis=1) if self.objectives else reward, *flags

    def observe(self, xp, state, params):
        return state * self.sign

    def render(self, state, index):
        return np.full((2, 2, 3), state[index], np.uint8)


@pytest.mark.parametrize("xp", ["numpy", "torch", "jax", array_api_strict])
@pytest.mark.parametrize("objectives", [False, True])
def test_episodes_end_between_the_steps_of_an_action(xp, objectives):
    envs = repeat_action(Counts(objectives), 4).make_vec(3, xp=xp, autoreset_mode="SAME_STEP")
    assert np.asarray(envs.reset(seed=1)[0]).tolist() == [0, 0, 0]
    seen = []
    for _ in range(3):
        found = envs.step(np.full(3, 0.5, np.float32))
        _, reward, terminated, truncated, infos = af.convert(found, "numpy")
        seen.append((infos["final_obs"].tolist(), terminated.tolist(), truncated.tolist()))
        total = reward[:, 0] if objectives else reward
        seen[-1] += (total.tolist(), infos["final_info"]["twice"].tolist())
        if objectives:
            assert (reward[:, 1] <= 2).all()
    no = [False] * 3
    assert seen[0] == ([4, 4, 4], no, no, [10, 10, 10], [8, 8, 8])
    assert seen[1] == (
        [7, 8, 5], [True, False, False], [False, False, True], [18, 26, 5], [14, 16, 10]
    )  # fmt: skip
    assert seen[2] == ([4, 10, 4], [False, True, False], no, [10, 19, 10], [8, 20, 8])


class Bounces(Counts):
    """Observations that rise and fall, of several forms."""

    observation_space = spaces.Dict(
        image=spaces.Box(0, 255, (2, 2), np.uint8), speed=spaces.Box(-1, 1, (), np.float32)
    )

    def observe(self, xp, state, params):
        high = xp.astype(state % 3 * 100, xp.uint8)
        image = xp.stack([high, 250 - high, 0 * high, high // 2], axis=1)
        return {"image": xp.reshape(image, (-1, 2, 2)), "speed": -state / 20}


@pytest.mark.parametrize("xp", ["numpy", "torch", "jax", array_api_strict])
@pytest.mark.parametrize("repeats", [2, 3, 4])
def test_maxima_are_those_of_gymnasium(xp, repeats):
    ours = repeat_action(Bounces(), repeats, maximum=True).make(xp=xp)
    image = gym.wrappers.TransformObservation(
        Bounces().make(), lambda seen: np.asarray(seen["image"]), Bounces.observation_space["image"]
    )
    theirs = gym.wrappers.MaxAndSkipObservation(image, repeats)
    for seed in range(3):
        steps = 0
        seen, expected = ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        assert np.asarray(seen["image"]).tolist() == expected.tolist()  # not a maximum
        ended = False
        while not ended:
            seen, *outcome = ours.step(np.float32(0))[:4]
            expected, *right = theirs.step(np.float32(0))[:4]
            assert outcome == right
            ended, steps = right[1], steps + repeats
            if steps <= 7:  # Gymnasium's has older ones where an episode ends in between
                assert np.asarray(seen["image"]).tolist() == expected.tolist()
        assert np.asarray(seen["speed"]) == np.float32(-6 / 20)  # the larger one, of step 6


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
@pytest.mark.parametrize("xp", ["numpy", "torch", "jax", array_api_strict])
def test_maxima_where_episodes_end(xp, mode):
    envs = repeat_action(Counts(), 4, maximum=True).make_vec(3, xp=xp, autoreset_mode=mode)
    falls = repeat_action(Counts(sign=-1), 4, maximum=True).make_vec(3, xp=xp, autoreset_mode=mode)
    seen = []
    for each in (envs, falls):
        each.reset(seed=1)
        for _ in range(2):
            observations, *_, infos = each.step(np.zeros(3, np.float32))
        if mode == "SAME_STEP":
            assert np.asarray(observations).tolist() == [0, 8 if each is envs else -7, 0]
            observations = infos["final_obs"]
        seen.append(np.asarray(observations).tolist())
    assert seen == [[7, 8, 5], [-6, -7, -4]]
    if mode == "DISABLED":
        mask = np.asarray([True, False, True])
        observations = falls.reset(options={"reset_mask": mask})[0]
        assert np.asarray(observations).tolist() == [0, -7, 0]
    elif mode == "NEXT_STEP":
        observations = falls.step(np.zeros(3, np.float32))[0]
        assert np.asarray(observations)[[0, 2]].tolist() == [0, 0]


def test_maxima_in_a_rollout():
    env = repeat_action(Counts(sign=-1), 4, maximum=True)
    _, found = rollout(env, still, None, jax.random.key(0), 3, 3)
    assert found.observation[:, 0].tolist() == [0, -3, 0]
    assert found.final_observation[:, 0].tolist() == [-3, -6, -3]
    assert found.reward[:, 0].tolist() == [10, 18, 10]
    kernel = wrap(env, kernels.FrameStackObservation(2))
    _, found = rollout(kernel, still, None, jax.random.key(0), 2, 3)
    assert found.final_observation[1, 0].tolist() == [-3, -6]
    assert not check_functional_env(repeat_action(CartPole(), 2, maximum=True), ["numpy", "jax"])


def test_an_episode_of_one_step_has_the_maximum_with_its_first_observation():
    env = repeat_action(Counts(sign=-1), 4, maximum=True)
    envs = begun(env.make_vec(1, params={"end": 1.0}, autoreset_mode="SAME_STEP"))
    assert envs.step(np.zeros(1, np.float32))[-1]["final_obs"].tolist() == [0]


def test_the_limit_counts_the_steps_of_the_environment():
    env = repeat_action(Limited(), 4)
    assert env.max_episode_steps is None

    _, found = rollout(env, still, None, jax.random.key(0), 6, 5)
    assert found.reward.tolist() == [[4.0] * 5, [4.0] * 5, [1.0] * 5] * 2
    assert found.truncated.tolist() == [[False] * 5, [False] * 5, [True] * 5] * 2
    results = evaluate(env, still, key=jax.random.key(1), num_envs=4, max_episode_steps=2)
    assert results.lengths.tolist() == [[2]] * 4
    assert results.returns.tolist() == [[8.0]] * 4


def test_kernels_around_it():
    env = wrap(repeat_action(Counts(), 4), kernels.RecordEpisodeStatistics())
    functions = Functions(env)
    env_state, _ = functions.reset(jax.random.key(0), 3)
    for number in range(2):
        env_state, outcome = functions.step(jax.random.key(number), env_state, jax.numpy.zeros(3))
    assert outcome.info["episode"]["r"].tolist() == [28.0, 0.0, 15.0]
    assert outcome.info["episode"]["l"].tolist() == [2, 0, 2]  # the actions of the agent


class Rewards(CartPole):
    """Rewards, flags and a number of results that an author chooses."""

    def __init__(self, reward, terminated=False, rest=()):
        self.chosen = reward, terminated, rest

    def step(self, xp, rng, state, action, params):
        reward, terminated, rest = self.chosen
        if isinstance(reward, np.ndarray):
            reward = af.convert(reward, xp, narrowing="allow")
        return state, reward, terminated, *rest


REWARDS = [True, 1, 1.0, np.array([True] * 3), *(np.array([100] * 3, name) for name in ("int8", "uint8", "int16", "int32", "float32"))]  # fmt: skip


@pytest.mark.parametrize(
    ("rest", "reward", "xp"),
    crossed([(), (None,), (False,)], REWARDS, ["numpy", "torch", "jax", array_api_strict]),
    ids=lambda x: str(x.dtype) if isinstance(x, np.ndarray) else None,
)
@pytest.mark.filterwarnings("ignore:the rewards of")
def test_rewards_are_floats_before_they_are_added_up(xp, reward, rest):
    envs = begun(repeat_action(Rewards(reward, rest=rest), 4).make_vec(3, xp=xp))
    found, terminated, truncated = af.convert(envs.step([0, 1, 0])[1:4], "numpy")
    assert found.dtype == np.float32
    assert found.tolist() == [4.0 * float(np.max(reward))] * 3
    assert not (terminated | truncated).any()


CHECKED = [
    ((np.full(3, 2**24 + 1),), "loses digits"),
    ((np.ones(3, np.complex64),), "real part"),
    ((np.float32(1),), "with 3 environments and reward_shape"),
    (("much",), "with 3 environments and reward_shape"),
    ((1.0, 1), "terminated of Rewards"),
    ((1.0, np.ones(3, int)), "terminated of Rewards"),
    ((1.0, False, (np.True_,)), "truncated of Rewards"),
    ((1.0, False, (1,)), "truncated of Rewards"),
    ((1.0, False, (np.zeros(3, np.int8),)), "truncated of Rewards"),
    ((1.0, False, (np.zeros((3, 1), bool),)), "truncated of Rewards"),
    ((1.0, False, (None, None)), "5 values, not three or four"),
]


@pytest.mark.parametrize(("results", "why"), CHECKED)
def test_what_the_environment_inside_returns_is_checked(results, why):
    for env in (Rewards(*results), repeat_action(Rewards(*results), 2)):
        envs = begun(env.make_vec(3))
        with pytest.raises(arrayferry_envs.EnvResultError, match=why):
            envs.step([0, 1, 0])


class Steady(CartPole):
    """Never terminates."""

    max_episode_steps = None

    def step(self, xp, rng, state, action, params):
        return (*super().step(xp, rng, state, action, params)[:2], False)


class Limited(Steady):
    max_episode_steps = 9


@pytest.mark.parametrize(
    ("case", "how"),
    crossed(
        [
            (repeat_action(Limited(), 4), {}, 3),
            (repeat_action(repeat_action(Limited(), 2), 2), {}, 3),
            (repeat_action(Limited(), 4), {"max_episode_steps": 2}, 2),
            (repeat_action(Limited(), 4), {"max_episode_steps": 5}, 3),
            (repeat_action(Steady(), 4), {"max_episode_steps": 4}, 4),
            (Steady(), {"max_episode_steps": 4}, 4),
            (Limited(), {"max_episode_steps": 4}, 4),
            (Limited(), {}, 9),
        ],
        ["rollout", "Functions", "make_vec", "make"],
    ),
)
def test_time_that_observations_hold(case, how):
    inner, limit, known = case
    env = wrap(inner, kernels.TimeAwareObservation(normalize_time=True))
    expected = np.arange(known + 3) % known / known
    if how == "rollout":
        _, found = rollout(env, still, None, jax.random.key(0), known + 3, 2, **limit)
        times = found.observation[:, 1, -1]
        evaluate(env, still, key=jax.random.key(0), num_envs=2, **limit)
    elif how == "Functions":
        functions = Functions(env, **limit)
        env_state, observation = functions.reset(jax.random.key(0), 2)
        times, step = [observation[1, -1]], jax.jit(functions.step)
        for _ in range(known + 2):
            env_state, outcome = step(jax.random.key(1), env_state, np.zeros(2, int))
            times.append(outcome.observation[1, -1])
    else:
        one = how == "make"
        envs = env.make(**limit) if one else env.make_vec(2, autoreset_mode="SAME_STEP", **limit)
        times, action = [envs.reset(seed=1)[0][..., -1].max()], 0 if one else [0, 0]
        for _ in range(known + 2):
            seen, *_, truncated, _ = envs.step(action)
            if one and truncated:
                seen, _ = envs.reset()
            times.append(seen[..., -1].max())
        assert envs.observation_space.contains(seen)
    np.testing.assert_allclose(times, expected, rtol=1e-6)


@pytest.mark.long
def test_a_limit_that_comes_later():
    env = wrap(Steady(), kernels.TimeAwareObservation(), kernels.NormalizeReward())
    assert pickle.loads(pickle.dumps(env)) == copy.deepcopy(env) == env
    for name in ("observation_space", "action_space"):
        with pytest.raises(AttributeError, match="max_episode_steps"):
            getattr(env, name)
    for run in (env.make_vec, env.make, lambda: Functions(env)):
        with pytest.raises(ValueError, match="max_episode_steps"):
            run()
    key = jax.random.key(0)
    carry, _ = rollout(env, still, None, key, 2, 2, max_episode_steps=3)
    states = env.state_dict(carry.env_state)
    more, _ = rollout(env, still, None, key, 2, 2, max_episode_steps=3, wrapper_state=states)
    assert env.state_dict(more.env_state)["return_rms"]["count"] == 8
    timed = kernels.TimeAwareObservation(flatten=False)
    with pytest.raises((TypeError, AssertionError), match="Box"):  # as Gymnasium has it
        wrap(Steady(), timed, kernels.ClipAction())


@pytest.mark.long
def test_equality_and_copies():
    env = repeat_action(CartPole, 4)
    assert env == repeat_action(CartPole(), 4) != repeat_action(CartPole(), 5)
    assert pickle.loads(pickle.dumps(env)) == copy.deepcopy(env) == env
    assert repr(env) == "<repeat_action(<CartPole>, 4)>"
    other = repeat_action(CartPole(), 4, maximum=True)
    assert env != other
    assert "maximum=True" in repr(other)
    assert not check_functional_env(repeat_action(CartPole(), 2))


def test_images_are_those_of_the_environment():
    env = begun(repeat_action(Counts(), 2).make(render_mode="rgb_array"))
    env.step(np.float32(0))
    assert (env.render() == 2).all()
