"""Numbers that a dtype does not hold: given ones are refused, those of a step are clipped alike, and `check_functional_env` names them."""

import array_api_strict
import jax
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.testing import assert_array_equal

import arrayferry as af
from arrayferry_envs import (
    FunctionalEnv,
    check_functional_env,
    evaluate,
    repeat_action,
    rollout,
    wrap,
)
from arrayferry_gym.extending import cast_clipped, cast_fitting
from arrayferry_gym.vector import ArrayConversion
from arrayferry_gym.wrappers import kernels
from arrayferry_gym.wrappers.vector import DtypeObservation, NormalizeObservation, StickyAction

LIBRARIES = {"numpy": "numpy", "torch": "torch", "jax": "jax", "strict": array_api_strict}
NAN = float("nan")


class Shown(FunctionalEnv):
    """Shows what it is told to, and pays it."""

    observation_space = spaces.Box(0, 255, (1,), np.uint8)
    action_space = spaces.Discrete(2)
    max_episode_steps = 3
    reward_dtype = "float32"

    def __init__(self, default=0.0, *, wide=False, pays=0.0):
        self.default_params = {"shown": default}
        self.wide, self.pays = wide, pays

    def reset(self, xp, rng, n, params):
        return {"time": rng.uniform((n,), 0.0, 1.0), "count": xp.zeros((n,), dtype=xp.int8)}

    def step(self, xp, rng, state, action, params):
        dtype = xp.float64 if self.wide else xp.float32
        return state, xp.full(action.shape, self.pays, dtype=dtype), False

    def observe(self, xp, state, params):
        zeros = xp.zeros((state["time"].shape[0],), dtype=xp.float32)
        return (zeros + xp.astype(xp.asarray(params["shown"]), xp.float32))[:, None]


def still(params, observation, key):
    return jax.numpy.zeros(observation.shape[0], int), None


GIVEN = [
    (np.int8(1), 300, "int8"), (np.array(1, np.int8), np.int64(300), "int8"),
    (np.array([1, 2], np.uint8), np.array([-1, 2]), "uint8"), (np.array(1, np.int8), 1.7, "int8"),
    (np.array(1, np.int8), torch.tensor(1.7), "int8"), (np.array(1, np.int8), NAN, "int8"),
    (np.array(1, np.int32), 2**40, "int32"), (np.array(1, np.int32), 2**70, "int32"),
    (np.float32(1), np.full(3, 1e300), "float32"), (np.array(1, np.float32), 1e300, "float32"),
    (1.0, np.array(1e300), "float32"), (1.0, 10**400, r"float\d\d"), (np.array(True), 2, "bool"),
    (np.array(1.0, np.float32), 1 + 2j, "float32"),
]  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("default", "given", "dtype"), GIVEN, ids=range(len(GIVEN)))
def test_parameters_are_refused_where_they_are_given(library, default, given, dtype):
    env, xp = Shown(default), LIBRARIES[library]
    words = "does not fit|too large"
    refused = pytest.raises(
        af.OptionError, match=rf"params\['shown'\] is .*{dtype} is needed: .*({words})"
    )
    with refused:
        env.make_vec(3, xp=xp, params={"shown": given})
    envs = env.make_vec(3, xp=xp)
    with refused:
        envs.reset(options={"params": {"shown": given}})
    if library == "jax":
        with refused:
            rollout(env, still, None, jax.random.key(0), 2, 3, env_params={"shown": given})
        with refused:
            evaluate(wrap(env), still, num_envs=2, key=0, env_params={"shown": given})


@pytest.mark.parametrize("library", LIBRARIES)
def test_parameters_that_fit_are_taken(library):
    fitting = [
        (np.int8(1), 2.0, 2), (np.array(1, np.int32), True, 1), (np.array(True), 1, True),
        (np.array(1, np.float32), 2**70, 2.0**70), (np.array(1, np.float32), float("inf"), np.inf),
        (1.0, np.arange(3), np.arange(3)), (np.float32(1), 0.1, np.float32(0.1)),
        (np.array(1, np.int32), np.array([1, 2], object)[1:][0], 2),
    ]  # fmt: skip
    for default, given, held in fitting:
        envs = Shown(default).make_vec(3, xp=LIBRARIES[library], params={"shown": given})
        assert_array_equal(np.float32(af.convert(envs.params["shown"], "numpy")), np.float32(held))


@pytest.mark.assumes_other("x64")
def test_a_number_that_only_jax_does_not_hold():
    assert Shown(1.0).make_vec(2, params={"shown": 1e300}).params["shown"] == 1e300
    with pytest.raises(af.OptionError, match="1e\\+300 is no float32"):
        Shown(1.0).make_vec(2, xp="jax", params={"shown": 1e300})
    some = {"reset_mask": np.array([True, False]), "params": {"shown": 1e300}}
    envs = Shown(1.0).make_vec(2)
    envs.reset(seed=0)
    with pytest.raises(af.NarrowingError, match="some of the environments does not fit float32"):
        envs.reset(options=some)


class Drawn(Shown):
    def sample_params(self, xp, rng, n, params):
        return {"shown": rng.integers((n,), 1, 5)}


@pytest.mark.parametrize("library", ["numpy", "torch", "strict"])
def test_a_given_number_that_what_is_drawn_does_not_hold(library):
    envs = Drawn(1.0).make_vec(3, xp=LIBRARIES[library], params={"shown": 1.7})
    with pytest.raises(
        af.NarrowingError, match=r"params\['shown'\] does not fit int\d+: 1.7 is no"
    ):
        envs.reset(seed=0)
    envs.reset(seed=0, options={"params": {"shown": 2.0}})
    assert af.convert(envs.state.params["shown"], "numpy").tolist() == [2, 2, 2]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("number", [1e300, -1e300])
def test_states_are_refused_where_they_are_set(library, number):
    for envs in (Shown().make_vec(2, xp=LIBRARIES[library]), Shown().make(xp=LIBRARIES[library])):
        envs.reset(seed=0)
        state = af.convert(envs.state, "numpy")
        count = len(state["time"])
        for time in (np.full(count, number), torch.full((count,), number, dtype=torch.float64)):
            with pytest.raises(af.NarrowingError, match=r"(?=.*\['time'\]).* fit float32"):
                envs.state = {**state, "time": time}
            with pytest.raises(af.NarrowingError, match="fit float32"):
                envs.reset(options={"state": {**state, "time": time}})
        envs.state = {**state, "time": np.full(count, 0.25)}
        assert np.all(af.convert(envs.state["time"], "numpy") == 0.25)


CLIPPED = {256.0: 255, -3.0: 0, NAN: 0, np.inf: 255, -np.inf: 0, 254.7: 254, 1e30: 255}


@pytest.mark.parametrize("library", LIBRARIES)
def test_observations_are_clipped_alike(library):
    for shown, seen in CLIPPED.items():
        env = Shown(np.float32(0))
        for changed in (env, repeat_action(env, 2), wrap(env, kernels.FrameStackObservation(1))):
            envs = changed.make_vec(2, xp=LIBRARIES[library], params={"shown": np.float32(shown)})
            observations, _ = envs.reset(seed=0)
            assert af.convert(observations, "numpy").ravel().tolist() == [seen, seen]


@pytest.mark.parametrize("library", LIBRARIES)
def test_observations_that_a_wrapper_casts_are_clipped_alike(library):
    class Floats(Shown):
        observation_space = spaces.Box(0.0, 255.0, (1,), np.float32)

    for shown, seen in CLIPPED.items():
        envs = Floats(np.float32(0)).make_vec(
            2, xp=LIBRARIES[library], params={"shown": np.float32(shown)}
        )
        observations, _ = DtypeObservation(envs, np.uint8).reset(seed=0)
        assert af.convert(observations, "numpy").ravel().tolist() == [seen, seen]


SOURCES = {
    "float32": [300.0, -1.0, NAN, np.inf, -np.inf, 1.7, -1.7, 1e30, 2.0**31, -(2.0**31), 2.0**32],
    "float16": [300.0, -1.0, NAN, np.inf, -np.inf, 1.7, 65504.0], "int8": [-128, -1, 0, 127],
    "int32": [300, -1, 2**31 - 1, -(2**31), 70000], "int16": [300, -1, 32767, -32768],
    "uint32": [0, 300, 2**31, 2**32 - 1], "uint16": [0, 300, 65535],
    "int64": [2**63 - 1, -(2**63), 2**40, -1, 5], "uint64": [2**64 - 1, 2**63, 2**40, 5],
}  # fmt: skip
WANTED = ["int8", "uint8", "int16", "uint16", "int32", "uint32"]


@pytest.mark.parametrize("source", SOURCES)
def test_casts_are_clipped_to_the_nearest_number(source):
    given = np.array(SOURCES[source], source)
    for wanted in WANTED:
        limits = np.iinfo(wanted)
        expected = [
            limits.min if x != x else int(np.clip(x, limits.min, limits.max))
            for x in given.tolist()
        ]
        for library, target in LIBRARIES.items():
            lacked = {"jax": ("int64", "uint64"), "strict": ("float16",)}
            if source in lacked.get(library, ()):
                continue
            x = af.convert(given, target)
            xp = af.namespace_of(x)
            cast = cast_clipped(x, getattr(xp, wanted))
            assert str(cast.dtype).split(".")[-1] == wanted
            assert af.convert(cast, "numpy").tolist() == expected, (library, wanted)


def test_a_cast_that_must_fit_reads_no_traced_array():
    def cast(x):
        return cast_fitting(x, jax.numpy.int8.dtype, "it")

    assert jax.jit(cast)(jax.numpy.ones(2)).tolist() == [1, 1]
    with pytest.raises(af.NarrowingError, match=r"300.0, at \[0\], is no int8"):
        cast(jax.numpy.array([300.0]))
    assert cast(jax.numpy.array([3.0])).dtype == np.int8


@pytest.mark.assumes_other("seterr")
@pytest.mark.parametrize("library", LIBRARIES)
def test_check_names_what_does_not_fit(library):
    name = getattr(LIBRARIES[library], "__name__", library)
    for shown in (256.0, -1.0, NAN):
        (problem,) = check_functional_env(Shown(np.float32(shown)), [name])
        assert problem.method == "observe"
        assert "observation does not fit uint8" in problem.what
    assert (
        check_functional_env(Shown(np.float32(254.7)), [name]) == []
    )  # the fraction is cut off in each library
    if library != "jax":  # which has no float64
        (problem,) = check_functional_env(Shown(wide=True, pays=1e300), [name])
        assert problem.method == "step"
        assert "reward does not fit float32" in problem.what


def test_a_number_as_reward_that_does_not_fit():
    class Paid(Shown):
        def step(self, xp, rng, state, action, params):
            return state, self.pays, False

    envs = Paid(pays=1e300).make_vec(2)
    envs.reset(seed=0)
    with pytest.raises(af.ArrayFerryError, match="loses digits: 1e\\+300 is no float32"):
        envs.step(np.zeros(2, int))
    envs = Paid(pays=float("-inf")).make_vec(2)
    envs.reset(seed=0)
    assert envs.step(np.zeros(2, int))[1].tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_rewards_of_an_adapter_are_clipped(library):
    envs = ArrayConversion(
        Shown(wide=True, pays=2.0**40).make_vec(2), target_xp=library, reward_dtype="int32"
    )
    envs.reset(seed=0)
    rewards = envs.step(af.convert(np.zeros(2, np.int32), library))[1]
    assert af.convert(rewards, "numpy").tolist() == [2**31 - 1] * 2


@pytest.mark.assumes_other("x64")
@pytest.mark.parametrize("library", LIBRARIES)
def test_statistics_are_refused_where_they_are_loaded(library):
    given = {"obs_rms": {"count": 3, "mean": [1e300], "var": [1.0]}}

    class Wide(Shown):
        observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    env = wrap(Wide(), kernels.NormalizeObservation())
    served = env.make_vec(2, xp=LIBRARIES[library])
    around = NormalizeObservation(Wide().make_vec(2, xp=LIBRARIES[library]))
    for envs in (served, around):
        envs.reset(seed=0)
        if library != "jax":
            envs.load_state_dict(given)
            assert envs.obs_rms.mean.tolist() == [1e300]
            continue
        with pytest.raises(af.NarrowingError, match="of the statistics does not fit float32"):
            envs.load_state_dict(given)
        values = envs.obs_rms
        values.var = np.array([1e300])
        with pytest.raises(af.NarrowingError, match="of the statistics does not fit float32"):
            envs.obs_rms = values
    if library == "jax":
        later = NormalizeObservation(Wide().make_vec(2, xp="jax"))
        later.load_state_dict(given)  # its library is not known yet
        with pytest.raises(af.NarrowingError, match="of the statistics does not fit float32"):
            later.reset(seed=0)
        with pytest.raises(af.NarrowingError, match="of the statistics does not fit float32"):
            rollout(env, still, None, jax.random.key(0), 2, 2, wrapper_state=given)


@pytest.mark.parametrize("library", LIBRARIES)
def test_sticky_actions_must_be_in_their_space(library):
    envs = StickyAction(Shown().make_vec(2, xp=LIBRARIES[library]), 0.0)
    envs.reset(seed=0)
    for wrong in ([0.9, 1.7], [NAN, 0.0]):
        action = af.convert(np.array(wrong, np.float32), LIBRARIES[library])
        with pytest.raises(af.NarrowingError, match="an action does not fit int"):
            envs.step(action)
    envs.step(af.convert(np.array([0.0, 1.0], np.float32), LIBRARIES[library]))
    envs.step(af.convert(np.array([0, 1], np.int8), LIBRARIES[library]))
