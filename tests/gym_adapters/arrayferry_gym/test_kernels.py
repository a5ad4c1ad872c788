"""Kernels of wrappers: the values of Gymnasium's, in every library, eagerly and compiled, in every autoreset mode."""

import functools
import itertools
import json
from pathlib import Path

import array_api_compat.numpy as xnp  # as the kernels get it: NumPy 1.26 has no devices
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from cases import crossed, params
from envs import Forgetful, Samples, Takes, begun, in_mode
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from kernel_cases import ALL_LIBRARIES, LIBRARIES, MODES, RIGHT, WRONG, Steps, actions, flat

import arrayferry as af
from arrayferry_gym import ArrayConversion, make_rng, wrappers
from arrayferry_gym import vector as adapters
from arrayferry_gym.wrappers import kernels, merge
from arrayferry_gym.wrappers import vector as vector_wrappers
from arrayferry_gym.wrappers._kernels.kernel import Spaces
from arrayferry_gym.wrappers._kernels.moments import Moments, fresh, updated


class Dictionary(Steps):
    def __init__(self, number=0):
        both = {"x": spaces.Box(-10.0, 10.0, (2,), np.float32), "n": spaces.Discrete(3)}
        super().__init__(number, spaces.Dict(both))

    def _observed(self):
        return {"x": np.float32([self.sum, 1.0]), "n": np.int64(self.count % 3)}


class Image(Steps):
    def __init__(self, number):
        super().__init__(number, spaces.Box(0, 255, (4, 5, 3), np.uint8))

    def _observed(self):
        return np.random.default_rng(self.count).integers(0, 256, (4, 5, 3), np.uint8)


def vector(mode, env=Steps, xp="numpy", **options):
    """Make three environments of Gymnasium, for an agent of a library."""
    makes = [lambda number=number: env(number, **options) for number in range(3)]
    envs = in_mode(makes, mode)
    envs.spec = gym.envs.registration.EnvSpec("Steps-v0", max_episode_steps=10)
    return envs if xp == "numpy" else adapters.ArrayConversion(envs, target_xp=xp)


SINGLE = {
    "NormalizeObservation": {},
    "NormalizeReward": {},
    "ClipAction": {},
    "RescaleAction": {"min_action": np.float32(-1), "max_action": np.float32(0.5)},
    "ClipReward": {"min_reward": -0.25, "max_reward": 0.5},
    "RescaleObservation": {"min_obs": np.float32(-1), "max_obs": np.float32(3)},
    "ReshapeObservation": {"shape": (1, 2)},
    "DtypeObservation": {"dtype": np.int32},
}
STACKED = {
    "TimeAwareObservation": {"normalize_time": True},
    "FrameStackObservation": {"stack_size": 3},
    "DelayObservation": {"delay": 2},
    "FlattenObservation": {},
}


TURNED = {"TransformAction": {"func": lambda action: -action, "action_space": None}}
OF_ONE = [
    *((name, Steps) for name in (*SINGLE, *STACKED, *TURNED)),
    ("GrayscaleObservation", Image),
    *((f"{name}Observation", Dictionary) for name in ("FrameStack", "Delay", "Flatten")),
]


@pytest.mark.parametrize(
    ("name", "make", "xp"),
    [*((*row, "numpy") for row in OF_ONE), *crossed(params(OF_ONE), ALL_LIBRARIES[1:])],
)
def test_single_values_are_those_of_gymnasium(name, make, xp):
    options = {**SINGLE, **STACKED, **TURNED}.get(name, {})
    ours, plain = (gym.wrappers.TimeLimit(make(20), 30) for _ in range(2))
    if xp == "numpy":
        ours = getattr(wrappers, name)(ours, **options)
    else:  # also those of which the class is Gymnasium's
        kernel = getattr(kernels, name)(**options)
        ours = wrappers.KernelWrapper(ArrayConversion(ours, target_xp=xp), kernel)
    theirs = getattr(gym.wrappers, name)(plain, **options)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    digits = 2e-3 if name == "NormalizeObservation" else 1e-4
    for number in range(2):
        results = [env.reset(seed=1)[0] for env in (ours, theirs)]
        for action in actions(25, 1)[:, 0] * 3:
            np.testing.assert_allclose(*map(flat, results), rtol=digits, atol=digits / 10)
            assert {af.backend_of(x).name for x in af.flatten(results[0])[0]} == {xp}
            assert results[0] in ours.observation_space
            if make is not Dictionary:
                assert af.convert(results[0], "numpy").dtype == ours.observation_space.dtype
            steps = ours.step(af.convert(action, xp)), theirs.step(np.float32(action))
            results = [step[0] for step in steps]
            if name != "NormalizeReward" or number == 0:  # theirs goes on in the next episode
                assert steps[0][1] == pytest.approx(float(steps[1][1]), rel=1e-6)
            assert steps[0][2:4] == steps[1][2:4]
            assert isinstance(steps[0][1], float)
            if steps[0][2]:
                break


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
@pytest.mark.parametrize("name", [*SINGLE, "FlattenObservation"])
def test_vector_values_are_those_of_gymnasium(name, mode):
    if name == "NormalizeReward" or (mode == "SAME_STEP" and "Observation" in name):
        pytest.skip("where Gymnasium's lets returns go on in the next episode, or refuses the mode")
    options = SINGLE.get(name, {})
    ours = getattr(vector_wrappers, name)(vector(mode), **options)
    theirs = getattr(gym.wrappers.vector, name)(vector(mode), **options)
    if name != "NormalizeObservation" or gym.__version__ >= "1.3":  # which has no bounds since then
        assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    np.testing.assert_allclose(ours.reset()[0], theirs.reset()[0], rtol=1e-6)
    for action in actions(20) * 2:
        results = [env.step(np.array(action)) for env in (ours, theirs)]
        for one, other in zip(results[0][:4], results[1][:4], strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6)
        assert results[0][4].keys() == results[1][4].keys()
        if "final_obs" in results[0][4]:
            for one, other in zip(*(result[4]["final_obs"] for result in results), strict=True):
                assert (one is None) == (other is None)
                if one is not None:
                    np.testing.assert_allclose(one, other, rtol=1e-6)


ALL = {**SINGLE, **STACKED}
OF_TREES = {**STACKED, "FilterObservation": {"filter_keys": ["n"]}}
OF_TREES["TimeAwareObservation"] = {"flatten": False}
EACH = [(Steps, *row) for row in ALL.items()] + [(Dictionary, *row) for row in OF_TREES.items()]


def test_each_kernel_is_tested_here():
    names = [name for name in kernels.__all__ if name not in ("Kernel", "Spaces", "State", "Step")]
    files = Path(__file__).parents[1].glob("*/test_kernels.py")  # those of arrayferry_envs too
    text = "".join(path.read_text() for path in files)
    missing = [name for name in names if f'"{name}"' not in text and f"kernels.{name}(" not in text]
    assert missing == [], "add a row to ALL or OF_TREES here, or a test in a test_kernels.py"


@pytest.mark.parametrize(
    ("make", "name", "options", "mode"),
    crossed(params(EACH), MODES[:2]),
    ids=lambda x: "" if isinstance(x, dict) else None,
)
def test_every_library_has_the_same_values(make, name, options, mode):
    wrapper = getattr(vector_wrappers, name)
    made = [wrapper(vector(mode, make, xp), **options) for xp in LIBRARIES]
    before = [env.reset()[0] for env in made]
    for action in actions(12):
        for xp, env, x in zip(LIBRARIES, made, before, strict=True):
            assert {af.backend_of(part).name for part in af.flatten(x)[0]} == {xp}
            assert env.observation_space.contains(x), (xp, x, env.observation_space)
            np.testing.assert_allclose(flat(x), flat(before[0]), rtol=2e-5, atol=2e-5)
        steps = [env.step(af.convert(action, xp)) for xp, env in zip(LIBRARIES, made, strict=True)]
        for xp, env, step in zip(LIBRARIES, made, steps, strict=True):
            assert af.backend_of(step[1]).name == xp
            np.testing.assert_allclose(flat(step[1]), flat(steps[0][1]), rtol=1e-5)
            assert step[4].keys() == steps[0][4].keys()
            for index in np.flatnonzero(flat(steps[0][2])) if "final_obs" in step[4] else ():
                final = [found[4]["final_obs"][index] for found in (step, steps[0])]
                assert env.single_observation_space.contains(final[0])
                np.testing.assert_allclose(*map(flat, final), rtol=2e-5, atol=2e-5)
        before = [step[0] for step in steps]


@pytest.mark.parametrize(("xp", "mode"), crossed([*ALL_LIBRARIES, "dask"], MODES))
def test_each_observation_counts_once(xp, mode):
    plain, env = vector(mode), begun(vector_wrappers.NormalizeObservation(vector(mode, xp=xp)))
    seen = [*plain.reset()[0]]
    for action in actions(15):
        observations, _, terminated, _, infos = plain.step(action)
        env.step(action)
        if mode == "SAME_STEP" and "final_obs" in infos:
            seen += [x for x in infos["final_obs"] if x is not None]
        seen += [*observations]
        if mode == "DISABLED" and terminated.any():
            options = {"reset_mask": terminated}
            observations, _ = plain.reset(options=dict(options))
            env.reset(options=dict(options))
            seen += [*observations[terminated]]
    mean, var = moments_of(seen)
    found = env.state_dict()["obs_rms"]
    assert found["count"] == len(seen)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(found["var"], var, rtol=1e-5)


@pytest.mark.parametrize("missing", [{}, {"left_out": (), "denied": True}])
def test_without_final_observations(missing):
    def stepped(wrapper, *args):
        env = begun(wrapper(Forgetful(vector("SAME_STEP"), **missing), *args))
        for action in actions(9):
            env.step(action)
        return env

    stateful = {"NormalizeObservation": (), "FrameStackObservation": (2,), "DelayObservation": (1,)}
    for name, args in stateful.items():
        with pytest.raises(af.OptionError, match="have no 'final_obs'"):
            stepped(getattr(vector_wrappers, name), *args)
    assert stepped(vector_wrappers.NormalizeReward).state_dict()["return_rms"]["count"] == 27
    assert stepped(vector_wrappers.RecordEpisodeStatistics).episode_count == 6
    stepped(vector_wrappers.StickyAction, 0.5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "name", ["NormalizeObservation", "FrameStackObservation", "TimeAwareObservation"]
)
def test_partial_resets(name, mode):
    options = {"FrameStackObservation": {"stack_size": 2}}.get(name, {})
    env = getattr(vector_wrappers, name)(vector(mode), **options)
    first = env.reset()[0].copy()
    for action in actions(2):
        before = env.step(action)[0]
    after = env.reset(options={"reset_mask": np.array([True, False, False])})[0]
    if name == "NormalizeObservation":
        np.testing.assert_allclose(after[1:], before[1:], rtol=0.5, atol=0.3)
        assert env.state_dict()["obs_rms"]["count"] == 3 + 6 + 1
    else:
        np.testing.assert_array_equal(after[1:], before[1:])
        np.testing.assert_array_equal(after[0], first[0])


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
def test_a_return_ends_with_its_episode(mode, truncates):
    env = begun(vector_wrappers.NormalizeReward(vector(mode, truncates=truncates)))
    returns, values, over = np.zeros(3), [], np.zeros(3, bool)
    for action in np.abs(actions(12)):
        _, _, terminated, truncated, _ = env.step(action)
        active = ~over if mode == "NEXT_STEP" else np.ones(3, bool)
        kept = returns * 0.99 * ~terminated  # as Gymnasium does
        returns = np.where(active, kept + action, 0)
        values += [*returns[active]]
        over = terminated | truncated
        if mode == "SAME_STEP":
            returns = np.where(over, 0, returns)
    found = env.state_dict()["return_rms"]
    assert found["count"] == len(values)
    assert found["mean"] == pytest.approx(np.sum(values, dtype=float) / (len(values) + 1e-4))


def test_the_returns_of_current_episodes_are_those_of_gymnasium():
    kinds = [("discounted_reward", wrappers, gym.wrappers, Steps)]
    if gym.__version__ >= "1.4":  # before, returns go on in the next episode
        many = vector_wrappers, gym.wrappers.vector, lambda _: vector("SAME_STEP")
        kinds.append(("accumulated_reward", *many))
    for name, *modules, make in kinds:
        pair = [module.NormalizeReward(make(9), 0.5) for module in modules]
        assert getattr(pair[0], name).tolist() == getattr(pair[1], name).tolist()
        for env in pair:
            env.reset()
        for action in actions(8):
            for env in pair:
                env.step(action[0] if make is Steps else action)
            np.testing.assert_allclose(*(getattr(env, name) for env in pair), rtol=1e-6)


def test_an_environment_that_resets_itself():
    env = wrappers.NormalizeObservation(gym.wrappers.Autoreset(Steps(0)))
    stacked = wrappers.KernelWrapper(
        gym.wrappers.Autoreset(Steps(0)), kernels.FrameStackObservation(2)
    )
    env.reset()
    first = stacked.reset()[0]
    for action in actions(4, 1):
        env.step(action[0])
        observation = stacked.step(action[0])[0]
    np.testing.assert_array_equal(observation, first)
    assert env.state_dict()["obs_rms"]["count"] == 5


@pytest.mark.parametrize("x64", [False, True])
def test_counts_in_jax_go_up_to_the_largest(x64, enable_x64):
    values = {"count": 2**31 - 10, "mean": [10.0, -3.0], "var": [4.0, 1.0]}
    with enable_x64(x64):
        moments = fresh(jnp, (2,), None).given(jnp, values, None)
        assert moments.read() == values
        counts = []
        for _ in range(3):
            moments = jax.jit(functools.partial(updated, jnp))(moments, jnp.zeros((5, 2)))
            counts.append(moments.read()["count"])
        more = moments.given(jnp, {**values, "count": 2**40}, None)
    assert counts == [2**31 - 5, 2**31 - 1, 2**31 - 1]
    assert more.read()["count"] == 2**31 - 1
    in_numpy = fresh(xnp, (2,), None).given(xnp, {**values, "count": 2**40}, None)
    assert updated(xnp, in_numpy, np.zeros((5, 2))).read()["count"] == 2**40 + 5


@pytest.mark.parametrize("x64", [False, True])
def test_moments_of_many_values(x64, enable_x64):
    values = {"count": 2**30, "mean": [10.0, -3.0], "var": [4.0, 1.0]}
    x = np.repeat([[11.0, -2.0]], 2**20, axis=0)
    with enable_x64(x64):
        moments = fresh(jnp, (2,), None).given(jnp, values, None)
        found = updated(jnp, moments, jnp.asarray(x)).read()
    weight = 2**20 / (2**30 + 2**20)
    assert found["count"] == 2**30 + 2**20
    change = np.subtract(found["mean"], [10.0, -3.0])
    np.testing.assert_allclose(change, [weight, weight], rtol=1e-3)
    expected = (1 - weight) * np.array([4.0, 1.0]) + weight * (1 - weight)
    np.testing.assert_allclose(found["var"], expected, rtol=1e-6)


def moments_of(values):
    """Return mean and variance of all values and of the first estimate, which weighs 1e-4, computed in float64."""
    values, weight = np.asarray(values, np.float64), len(values) + 1e-4
    mean = values.sum(axis=0) / weight
    return mean, (((values - mean) ** 2).sum(axis=0) + 1e-4 * (1 + mean**2)) / weight


@pytest.mark.parametrize("xp", LIBRARIES)
@pytest.mark.parametrize("dtype", ["small", np.float16, np.uint8, np.float64, np.int64])
def test_moments_have_the_digits_that_their_values_need(dtype, xp):
    """Also in float32, in which 1 has no digits for a variance of 1e-8; and of dtypes too small for a sum."""
    rng = np.random.default_rng(0)
    small = rng.normal(0, 1e-4, (100, 2)).astype(np.float32)
    x = small if dtype == "small" else rng.integers(100, 200, (5_000, 2)).astype(dtype)
    array = af.convert(x, xp)
    xp = af.namespace_of(array)
    found = updated(xp, fresh(xp, (2,), None), array).read()
    mean, var = moments_of(x)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found["var"], var, rtol=1e-5)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", ["NormalizeObservation", "NormalizeReward", "ClipReward"])
def test_states_of_others_are_refused(name, begun):
    options = {"ClipReward": (-1.0, 1.0)}.get(name, ())
    for env in (
        getattr(wrappers, name)(Steps(), *options),
        getattr(vector_wrappers, name)(vector("NEXT_STEP"), *options),
    ):
        if begun:
            env.reset()
        before = env.state_dict()
        for wrong in WRONG:
            with pytest.raises(af.OptionError):
                env.load_state_dict(wrong)
        assert env.state_dict() == before
        env.load_state_dict(before)


def test_statistics_are_merged():
    """As those of one run that has seen everything."""
    x = np.random.default_rng(0).normal(100, 3, (60, 2))
    runs = [updated(xnp, fresh(xnp, (2,), None), part) for part in (x[:10], x[10:])]
    merged = merge(map(Moments.read, [*runs, fresh(xnp, (2,), None)]))
    together = updated(xnp, fresh(xnp, (2,), None), x).read()
    assert merged["count"] == 60
    np.testing.assert_allclose(merged["mean"], together["mean"], rtol=1e-12)
    np.testing.assert_allclose(merged["var"], together["var"], rtol=1e-9)


class Counted(kernels.Kernel):
    """Observes how many steps all episodes have had."""

    parts = ("observation",)

    def init(self, xp, n, spaces, device):
        return kernels.State(lasting=xp.zeros((1,), dtype=xp.float32, device=device))

    def reset(self, xp, state, rows, observation):
        return state, xp.zeros_like(observation) + state.lasting

    def step(self, xp, state, result):
        state = state._replace(lasting=state.lasting + 1)
        return state, result._replace(observation=xp.zeros_like(result.observation) + state.lasting)


@pytest.mark.parametrize("xp", LIBRARIES)
def test_a_lasting_state_goes_on_in_another_library(xp):
    env = adapters.ArrayConversion(vector("NEXT_STEP"))
    env = begun(vector_wrappers.KernelVectorWrapper(env, Counted()))
    for count, library in enumerate(("numpy", "numpy", xp, xp, "numpy"), 1):
        observations = env.step(af.convert(actions(1)[0], library))[0]
        assert (flat(observations) == count).all()


def test_a_state_that_was_loaded_before_the_first_reset():
    env = wrappers.NormalizeObservation(Steps())
    given = {"obs_rms": {**RIGHT, "mean": np.float32([1, 2])}, "return_rms": {**RIGHT}}
    env.load_state_dict(given)
    given["obs_rms"]["mean"][:] = 7
    assert env.state_dict() == {"obs_rms": {**RIGHT, "mean": [1.0, 2.0]}}
    assert env.obs_rms.mean.tolist() == [1.0, 2.0]
    env.update_running_mean = False
    env.reset()
    assert env.state_dict()["obs_rms"]["mean"] == [1.0, 2.0]
    env.update_running_mean = True
    env.reset()
    assert env.state_dict()["obs_rms"]["count"] == 2
    statistics = env.obs_rms
    statistics.mean = np.ones(2)
    env.obs_rms = statistics
    assert env.obs_rms.mean.tolist() == [1.0, 1.0]
    with pytest.raises(af.OptionError, match="has no mean, var and count"):
        env.obs_rms = 3


def test_statistics_of_wrappers_of_gymnasium_inside_are_frozen():
    theirs = gym.wrappers.NormalizeObservation(gym.make("CartPole-v1"))
    env = wrappers.ClipReward(theirs, -1, 1)
    for setting in (False, True):
        env.update_running_mean = setting
        assert theirs.update_running_mean is env.update_running_mean is setting


def cart(*around):
    """Return a function that makes a CartPole with wrappers around it, innermost first."""

    def make():
        env = gym.make("CartPole-v1")
        for each in around:
            env = each(env)
        return env

    return make


THEIRS, THEIRS_OF_BATCHES = gym.wrappers, gym.wrappers.vector
INSIDE = {
    "theirs": (
        lambda: wrappers.ClipReward(cart(THEIRS.NormalizeObservation, THEIRS.NormalizeReward)(), -1, 1),
        ["gymnasium_obs_rms", "gymnasium_return_rms"],
    ),
    "theirs in an adapter": (
        lambda: wrappers.NormalizeObservation(ArrayConversion(cart(THEIRS.NormalizeObservation)())),
        ["gymnasium_obs_rms", "obs_rms"],
    ),
    "theirs twice": (
        lambda: wrappers.ClipReward(cart(THEIRS.NormalizeReward, THEIRS.NormalizeReward)(), -1, 1),
        ["gymnasium_return_rms", "gymnasium_return_rms_2"],
    ),
    "theirs of batches": (
        lambda: vector_wrappers.NormalizeObservation(
            THEIRS_OF_BATCHES.NormalizeReward(
                THEIRS_OF_BATCHES.NormalizeObservation(SyncVectorEnv([cart()] * 2))
            )
        ),
        ["gymnasium_obs_rms", "gymnasium_return_rms", "obs_rms"],
    ),
    "in a batch": (
        lambda: vector_wrappers.ClipReward(
            adapters.ArrayConversion(
                SyncVectorEnv([cart(THEIRS.NormalizeObservation, wrappers.NormalizeReward)] * 2)
            ), -1, 1,
        ),
        ["envs[0].gymnasium_obs_rms", "envs[0].return_rms", "envs[1].gymnasium_obs_rms", "envs[1].return_rms"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "names"), INSIDE.values(), ids=INSIDE)
def test_statistics_of_all_wrappers_inside_are_saved_loaded_and_frozen(make, names):
    env = begun(make(), 0)
    for _ in range(5):
        env.step(env.action_space.sample())
    saved = json.loads(json.dumps(env.state_dict()))
    assert [*saved] == names
    assert all(each["count"] > 4 for each in saved.values())
    other = make()
    other.load_state_dict(saved)
    other.update_running_mean = False
    begun(other, 1).step(other.action_space.sample())
    assert other.state_dict() == saved
    other.update_running_mean = True
    other.step(other.action_space.sample())
    assert all(other.state_dict()[name]["count"] > saved[name]["count"] for name in names)
    wrong = {**saved, names[0]: {"count": 1, "mean": [0.0] * 9, "var": [1.0] * 9}}
    with pytest.raises(af.OptionError, match="the statistics have a count of 1"):
        make().load_state_dict(wrong)


@pytest.mark.parametrize(("make", "names"), INSIDE.values(), ids=INSIDE)
def test_states_without_statistics_from_inside_are_loaded_with_a_warning(make, names):
    saved = {name: x for name, x in make().state_dict().items() if name == "obs_rms"}
    env = make()
    with pytest.warns(UserWarning, match="not loaded, since the state or the wrappers") as told:
        env.load_state_dict(saved)
    assert [each.filename for each in told] == [__file__]
    assert all((name in str(told[0].message)) == (name not in saved) for name in names[:-1])


def test_statistics_of_more_environments_than_there_are_are_told():
    def make(count):
        envs = SyncVectorEnv([cart(wrappers.NormalizeReward)] * count)
        return vector_wrappers.NormalizeObservation(envs)

    with pytest.warns(UserWarning, match=r"^envs\[2\].return_rms were not loaded"):
        make(2).load_state_dict(make(3).state_dict())


def showing(x, low, high, action_space):
    """Return an environment that always observes x, and remembers the action."""
    space = spaces.Box(low, high, x.shape, x.dtype)
    return gym.wrappers.TransformObservation(Takes(action_space), lambda _: x, space)


@pytest.mark.parametrize("xp", LIBRARIES)
def test_whole_numbers_are_rescaled_as_floats(xp):
    whole = spaces.Box(np.int64([0, -(2**31)]), np.int64([10, 2**31 - 1]), dtype=np.int64)
    env = showing(np.uint8([0, 51, 255]), 0, 255, whole)
    rescaled = wrappers.RescaleObservation(ArrayConversion(env, target_xp=xp), 0, 1)
    np.testing.assert_allclose(flat(rescaled.reset()[0]), [0, 0.2, 1], rtol=1e-6)
    assert rescaled.observation_space == spaces.Box(0, 1, (3,), np.float32)
    acting = begun(wrappers.RescaleAction(ArrayConversion(env, target_xp=xp), -1, 1))
    assert acting.action_space == spaces.Box(-1, 1, (2,), np.float32)
    for action, low, high in ((-1, 0, -(2**31)), (-0.5, 2, -(2**30)), (3, 10, 2**31 - 1)):
        acting.step(af.convert(np.full(2, action, np.float32), xp))
        taken = env.unwrapped.taken
        assert taken.dtype == np.int64
        assert taken[0] == low
        assert taken[1] == pytest.approx(high, abs=200)  # that of float32 below
    with pytest.raises(af.ConversionError, match="NaN cannot be rounded"):
        acting.step(af.convert(np.full(2, np.nan, np.float32), xp))


def test_a_part_that_is_fixed_is_not_rescaled():
    env = Takes(spaces.Box(np.array([0, 1]), np.array([10, 1]), (2,), int))
    env = begun(wrappers.RescaleAction(env, -1, 1))
    env.step(np.array([0.6, 0.5], np.float32))
    assert env.unwrapped.taken.tolist() == [8, 1]


def test_wide_bounds_are_rescaled():
    wide = -1e308, 1e308
    env = showing(np.array([-1e308, 0, 1e308]), *wide, spaces.Box(*wide, (3,), np.float64))
    env = wrappers.RescaleAction(wrappers.RescaleObservation(env, 0, 1), 0, 1)
    assert env.reset()[0].tolist() == [0, 0.5, 1]
    env.step(np.array([0, 0.5, 1]))
    assert env.unwrapped.taken.tolist() == [-1e308, 0, 1e308]


def test_options_of_a_reset_stay_as_they_are():
    for wrapper in (vector_wrappers.RecordEpisodeStatistics, vector_wrappers.DictInfoToList):
        envs = begun(wrapper(vector("DISABLED")))
        options = {"reset_mask": np.array([True, False, True])}
        envs.reset(options=options)
        assert [*options] == ["reset_mask"]


NO_ARRAYS = [
    spaces.Text(3),
    spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,))]),
    spaces.Dict(a=spaces.Box(0, 1, (2, 2)), b=spaces.Sequence(spaces.Discrete(3))),
]


@pytest.mark.parametrize("xp", LIBRARIES)
@pytest.mark.parametrize("space", NO_ARRAYS, ids=["Text", "OneOf", "Sequence"])
def test_values_that_are_no_arrays_are_flattened_as_by_gymnasium(space, xp):
    def made():
        return SyncVectorEnv([lambda: Samples(space)] * 3)

    ours = vector_wrappers.FlattenObservation(adapters.ArrayConversion(made(), target_xp=xp))
    own = gym.wrappers.vector.FlattenObservation(made())
    seen, expected = (envs.reset(seed=1)[0] for envs in (ours, own))
    assert ours.observation_space.contains(seen)
    np.testing.assert_array_equal(flat(seen), flat(expected).astype(np.float32))
    if not isinstance(space, spaces.Dict):
        kernel = vector_wrappers.KernelVectorWrapper(made(), kernels.FlattenObservation())
        np.testing.assert_array_equal(kernel.reset(seed=1)[0], expected)


def filtered(env, module):
    return module.FilterObservation(env, [next(iter(env.observation_space.spaces))])


def nested(env, module):
    """Put the observations into a new Dict. Gymnasium's wrapper does not know the library of the new space."""
    first = next(iter(env.observation_space.spaces))
    space = getattr(env.observation_space[first], "original", env.observation_space[first])
    new = spaces.Dict(inner=spaces.Dict(a=space))
    return wrappers.TransformObservation(env, lambda x: {"inner": {"a": x[first]}}, new)


INNER = {
    "filter": filtered,
    "transform": nested,
    "flatten": lambda env, module: module.FlattenObservation(env),
    "stack": lambda env, module: module.FrameStackObservation(env, 2),
    "delay": lambda env, module: module.DelayObservation(env, 1),
}


@pytest.mark.parametrize(("xp", "module"), crossed(LIBRARIES, [wrappers, gym.wrappers]))
def test_chains_of_wrappers_keep_the_library(xp, module):
    for names in itertools.chain(*(itertools.permutations(INNER, n) for n in (1, 2, 3))):
        if "flatten" in names and {"filter", "transform"} & {*names[names.index("flatten") :]}:
            continue  # they need a Dict
        env = ArrayConversion(Dictionary(9), target_xp=xp)
        for name in names:
            env = INNER[name](env, module)
        found = [env.reset()[0], env.step(env.action_space.sample())[0]]
        found.append(env.observation_space.sample())
        assert {af.backend_of(x).name for x in af.flatten(found)[0]} == {xp}, names
        assert all(map(env.observation_space.contains, found)), names
    timed = gym.wrappers.TimeLimit(ArrayConversion(Dictionary(9), target_xp=xp), 9)
    assert af.backend_of(module.TimeAwareObservation(timed).reset()[0]).name == xp


@pytest.mark.parametrize("own", [True, False])
def test_the_step_limit_is_that_of_the_environments_or_as_given(own):
    def limited():
        return gym.wrappers.TimeLimit(Steps(20), 4)

    env = limited if own else lambda: Steps(20)
    envs = SyncVectorEnv([env] * 2)
    given = {} if own else {"max_episode_steps": np.int64(4)}
    for timed in (
        vector_wrappers.TimeAwareObservation(envs, normalize_time=True, **given),
        wrappers.TimeAwareObservation(env(), normalize_time=True, **given),
    ):
        begun(timed)
        step = timed.step(np.zeros(timed.action_space.shape, np.float32))
        assert np.ravel(step[0])[2] == 0.25
    assert timed.max_timesteps == 4
    assert begun(wrappers.TimeAwareObservation(Steps(), max_episode_steps=2**40)).timesteps == 0
    with pytest.raises(ValueError, match="pass max_episode_steps"):
        vector_wrappers.TimeAwareObservation(SyncVectorEnv([Steps, limited]))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int8, np.float32])
def test_actions_of_each_dtype_are_clipped(dtype):
    clipped = begun(wrappers.ClipAction(Takes(spaces.Box(2, 5, (1,), dtype))))
    for x, taken in ((0, 2), (3, 3), (100, 5)):
        assert clipped.action_space.contains(np.full(1, x, dtype))
        clipped.step(np.full(1, x, dtype))
        assert (clipped.env.taken.item(), clipped.env.taken.dtype) == (taken, dtype)


def test_observations_that_are_no_arrays():
    def made():
        observed = spaces.Dict(said=spaces.Text(9), x=spaces.Discrete(4))
        return gym.wrappers.TimeLimit(Samples(observed, Steps.action_space), 9)

    for env in (
        wrappers.ClipReward(made(), -1, 1),
        wrappers.NormalizeReward(made()),
        wrappers.FrameStackObservation(made(), 2),
        wrappers.TimeAwareObservation(made(), flatten=False),
        wrappers.StickyAction(made(), 0.5),
        wrappers.ClipAction(made()),
    ):
        assert env.observation_space.contains(env.reset(seed=1)[0])
        assert env.observation_space.contains(env.step(np.array(0.5, np.float32))[0])


@pytest.mark.parametrize("duration", [1, (2, 4)])
def test_sticky_actions(duration):
    inside = Spaces(spaces.Discrete(9), spaces.Discrete(10_000))
    kernel = kernels.StickyAction(0.25, duration).around(inside)
    n, taken = 400, []
    rng, state = make_rng("numpy", 1), kernel.init(xnp, n, kernel.inside, None)
    for number in range(200):
        state, action = kernel.action(xnp, rng, state, np.full(n, number))
        taken.append(action)
    taken = np.asarray(taken)
    assert (taken[0] == 0).all()
    repeated = taken[1:] == taken[:-1]
    mean = 1 if duration == 1 else 3
    likely = 0.25 * mean / (0.25 * mean + 0.75)
    assert repeated.mean() == pytest.approx(likely, abs=0.01)
    if duration != 1:
        changes = np.flatnonzero(~repeated[:, 0])
        assert (np.diff(changes)[np.diff(changes) > 1] > 2).all()


@pytest.mark.parametrize("xp", ["torch", "jax"])
def test_the_library_may_follow_from_the_actions(xp):
    plain = vector_wrappers.FrameStackObservation(vector("NEXT_STEP"), 2)
    many = adapters.ArrayConversion(vector("NEXT_STEP"))
    many = vector_wrappers.FrameStackObservation(vector_wrappers.NormalizeReward(many), 2)
    one = wrappers.NormalizeObservation(ArrayConversion(gym.make("CartPole-v1")))
    plain.reset()
    assert type(many.reset()[0]) is np.ndarray
    assert type(one.reset(seed=1)[0]) is np.ndarray
    for action in actions(4):
        observations, rewards, *_ = many.step(af.convert(action, xp))
        assert af.backend_of(observations).name == af.backend_of(rewards).name == xp
        np.testing.assert_allclose(flat(observations), flat(plain.step(action)[0]), rtol=1e-6)
    for count in range(2, 6):
        observation, *_ = one.step(af.convert(np.array(count % 2), xp))
        assert af.backend_of(observation).name == xp
        assert one.state_dict()["obs_rms"]["count"] == count


def test_specs_hold_the_arguments():
    env = wrappers.ClipReward(wrappers.NormalizeObservation(gym.make("CartPole-v1")), -1, 0.5)
    again = gym.make(env.spec)
    assert str(again) == str(env)
    again.reset(seed=1)
    assert again.step(0)[1] == 0.5
    names = [spec.name for spec in again.spec.additional_wrappers]
    assert names == ["NormalizeObservation", "ClipReward"]


def test_other_wrappers_are_gymnasiums():
    assert wrappers.TimeLimit is gym.wrappers.TimeLimit
    assert vector_wrappers.HumanRendering is gym.wrappers.vector.HumanRendering


def test_dtypes_of_other_libraries():
    env = gym.make("CartPole-v1")
    for dtype in (torch.float64, np.float64, "float64"):
        observation, _ = wrappers.DtypeObservation(env, dtype).reset(seed=1)
        assert observation.dtype == np.float64


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_the_space_of_whole_numbers_without_bounds(dtype):
    env = wrappers.DtypeObservation(Steps(0, spaces.Box(-np.inf, np.inf, (2,), np.float32)), dtype)
    limits = np.iinfo(dtype)
    assert env.observation_space == spaces.Box(limits.min, limits.max, (2,), np.dtype(dtype).type)
    assert env.reset()[0] in env.observation_space


NO_BOX = {
    "ClipAction": {}, "GrayscaleObservation": {}, "RescaleAction": {"min_action": 0, "max_action": 1},
    "RescaleObservation": {"min_obs": 0, "max_obs": 1}, "ResizeObservation": {"shape": (2, 2)},
}  # fmt: skip


@pytest.mark.parametrize("name", NO_BOX)
def test_spaces_that_are_no_box_are_refused(name):
    refused = rf"{name} requires .*Box" if gym.__version__ >= "1.4" else None
    with pytest.raises((TypeError, AssertionError), match=refused):
        getattr(wrappers, name)(gym.make("FrozenLake-v1"), **NO_BOX[name])


class Named(gym.Env):
    """Its attributes have names that ours have too."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    _limit, xp, functional, _driver, _shown, max_episode_steps = 3, "jax", 1, 2, 3, "no"

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), np.float64(1), False, False, {}


def test_attributes_of_any_environment_mean_nothing():
    adapter = ArrayConversion(Named(), target_xp="torch")
    adapter.reset()
    assert adapter.env_backend.name == "numpy"
    assert isinstance(adapter.step(1)[0], torch.Tensor)
    with pytest.raises(ValueError, match="max_episode_steps"):
        wrappers.TimeAwareObservation(Named(), normalize_time=True)
    wrappers.StickyAction(Named(), 0.5).reset(seed=1)
    batch = SyncVectorEnv([Named, Named], autoreset_mode="SameStep")
    adapters.ArrayConversion(batch, target_xp="torch", stack_final=True).reset()


@pytest.mark.parametrize("name", ["ClipReward", "NormalizeReward", "TransformReward"])
def test_rewards_of_single_environments_are_scalars(name):
    arguments = {"ClipReward": (-0.5, 0.5), "TransformReward": (np.abs,)}.get(name, ())
    made = [getattr(of, name)(Named(), *arguments) for of in (wrappers, gym.wrappers)]
    for env in made:
        env.reset(seed=1)
    assert {type(env.step(1)[1]) for env in made} == {np.float64}


ALONE = {
    "ClipAction": ({}, "action"), "RescaleAction": (SINGLE["RescaleAction"], "action"),
    "ClipReward": (SINGLE["ClipReward"], "reward"), "DtypeObservation": ({"dtype": np.int32}, "observation"),
    "NormalizeObservation": ({}, "observation"), "RescaleObservation": (SINGLE["RescaleObservation"], "observation"),
    "ReshapeObservation": ({"shape": (1, 3)}, "observation"), "TimeAwareObservation": ({}, "observation"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_methods_that_apply_to_one_value_are_those_of_gymnasium(name):
    arguments, method = ALONE[name]
    envs = [
        getattr(of, name)(gym.make("Pendulum-v1"), **arguments) for of in (wrappers, gym.wrappers)
    ]
    for env in envs:
        env.reset(seed=1)
        env.step(np.zeros(1, np.float32))
    inner = envs[0].env
    value = {"action": np.float32([0.7]), "reward": 3.0}.get(
        method, inner.observation_space.sample()
    )
    ours, theirs = (getattr(env, method)(value) for env in envs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    again = getattr(envs[0], method)(value)
    np.testing.assert_array_equal(again, ours)  # nothing has changed


@pytest.mark.parametrize("xp", ["torch", "jax"])
def test_methods_that_apply_to_values_of_a_batch(xp):
    def batch():
        return adapters.ArrayConversion(
            SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 2), target_xp=xp
        )

    x = af.convert(np.ones((2, 3), np.float32), xp)
    envs = vector_wrappers.ReshapeObservation(batch(), (3, 1))
    assert envs.observations(x).shape == (2, 3, 1)
    assert af.backend_of(envs.observations(x)).name == xp
    envs = vector_wrappers.ClipReward(batch(), -0.5, 0.5)
    assert af.convert(envs.rewards(x[:, 0]), "numpy").tolist() == [0.5, 0.5]
    envs = vector_wrappers.RescaleAction(batch(), np.float32(-1), np.float32(1))
    np.testing.assert_allclose(af.convert(envs.actions(x[:, :1]), "numpy"), [[2], [2]])


class LiveFlags(gym.vector.VectorWrapper):
    """Its flags are the same arrays in all steps."""

    def __init__(self, env):
        super().__init__(env)
        self.flags = np.zeros(3, bool), np.zeros(3, bool)

    def step(self, actions):
        observations, rewards, *flags, infos = self.env.step(actions)
        for own, given in zip(self.flags, flags, strict=True):
            own[:] = given
        return observations, rewards, *self.flags, infos


class Shortened(vector_wrappers.NormalizeObservation):
    """It changes flags where they are."""

    def step(self, actions):
        results = super().step(actions)
        results[3][1] = True
        return results


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
@pytest.mark.parametrize("what", ["wrapper taken away", "flags changed"])
def test_ends_are_those_of_the_step_itself(mode, what):
    """Also where flags are the same arrays as those that a wrapper inside has read."""
    inner = Shortened if what == "flags changed" else vector_wrappers.NormalizeObservation
    recorded = []
    for between in (lambda envs: envs, gym.vector.VectorWrapper):
        envs = vector_wrappers.RecordEpisodeStatistics(between(inner(LiveFlags(vector(mode)))))
        envs.reset(seed=1)
        found: list[object] = []
        for number, action in enumerate(actions(12)):
            if number == 2 and inner is not Shortened:
                envs.env = envs.env.env if type(envs.env) is inner else envs.env.env.env
            found.append(envs.step(action)[4].get("episode", {}).get("l", np.zeros(3)).tolist())
        recorded.append(found)
    assert recorded[0] == recorded[1]
    assert any(map(any, recorded[0]))


class Informs(kernels.Kernel):
    """Adds an info whose name is that of another with a letter before it."""

    parts = ("observation",)

    def reset(self, xp, state, rows, observation):
        return state, observation

    def step(self, xp, state, result):
        n = result.observation.shape[0]
        info = {"b": xp.ones((n,)), "_b": xp.zeros((n,), dtype=xp.bool), "ab": xp.ones((n,))}
        return state, result._replace(info=info)


@pytest.mark.parametrize("single", [True, False])
def test_the_mask_of_an_info_is_of_this_info_alone(single):
    if single:
        env = wrappers.KernelWrapper(gym.make("CartPole-v1"), Informs())
        action = 0
    else:
        env = vector_wrappers.KernelVectorWrapper(gym.make_vec("CartPole-v1", 2), Informs())
        action = np.zeros(2, int)
    env.reset(seed=0)
    infos = env.step(action)[-1]
    assert "b" not in infos
    np.testing.assert_array_equal(infos["ab"], 1.0)
