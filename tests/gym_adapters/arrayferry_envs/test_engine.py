"""Kernels that run in the engine of served environments do what wrappers around these environments do."""

import copy
import itertools
import pickle
import time

import numpy as np
import pytest
from cases import quick_if
from envs import EVERY_MODE, begun
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from kernel_cases import LIBRARIES
from refusals import refused_step

import arrayferry as af
import arrayferry_gym.wrappers.vector as vector_wrappers
from arrayferry_envs import CartPole, EnvResultError, Pendulum, wrap
from arrayferry_gym import wrappers
from arrayferry_gym.wrappers import kernels as k
from arrayferry_gym.wrappers._kernels.kernel import arguments_of

CHAINS = {
    "normalised": (CartPole, [k.NormalizeObservation(), k.NormalizeReward(0.9)]),
    "stacked": (CartPole, [k.FrameStackObservation(3), k.TimeAwareObservation(flatten=False)]),
    "delayed": (CartPole, [k.DelayObservation(2), k.NormalizeObservation(), k.NormalizeObservation()]),
    "actions": (Pendulum, [k.RescaleAction(np.float32(-1), np.float32(1)), k.ClipAction(), k.ClipReward(-1, 1)]),
    "recorded": (CartPole, [k.ReshapeObservation((2, 2)), k.RecordEpisodeStatistics(buffer_length=3, gamma=0.9)]),
}  # fmt: skip


class Two(CartPole):
    """It has two rewards, and infos."""

    reward_shape = (2,)

    def step(self, xp, rng, state, action, params):
        state, _, *flags = super().step(xp, rng, state, action, params)
        return state, xp.ones((state.position.shape[0], 2), dtype=xp.float32), *flags

    def info(self, xp, state, params):
        return {"position": state.position}


def around(envs, chain):
    """Put the wrapper of each kernel around environments."""
    module = vector_wrappers if hasattr(envs, "num_envs") else wrappers
    for kernel in chain:
        envs = getattr(module, type(kernel).__name__)(envs, **arguments_of(kernel))
    return envs


def pair(name, n=4, **options):
    """Return environments with kernels inside, and with wrappers around."""
    env, chain = CHAINS[name]
    return wrap(env(), *chain).make_vec(n, **options), around(env().make_vec(n, **options), chain)


def actions(envs, count):
    """Return actions of some steps."""
    rng = np.random.default_rng(0)
    if "Discrete" in repr(envs.single_action_space):
        return rng.integers(0, 2, (count, envs.num_envs))
    return rng.uniform(-1.5, 1.5, (count, envs.num_envs, 1)).astype(np.float32)


def same(one, other):
    """Compare results in NumPy, without what takes time."""
    ours, theirs = (af.convert(tree, "numpy") for tree in (one, other))
    for infos in (ours[-1], theirs[-1]):
        infos.get("episode", {}).pop("t", None)
    left, right = af.flatten(ours), af.flatten(theirs)
    assert left[1].paths == right[1].paths
    for x, y in zip(left[0], right[0], strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-5)


QUICK = {("jax", AutoresetMode.SAME_STEP), *(("numpy", mode) for mode in EVERY_MODE)}


QUEUES = "episode_count", "return_queue", "length_queue", "episode_returns", "episode_lengths"


@pytest.mark.parametrize(
    ("xp", "mode"), quick_if(itertools.product(LIBRARIES, EVERY_MODE), QUICK.__contains__)
)
@pytest.mark.parametrize("name", CHAINS)
def test_steps_are_those_of_wrappers(name, xp, mode):
    inside, outside = pair(name, xp=xp, autoreset_mode=mode, max_episode_steps=9)
    same(inside.reset(seed=3), outside.reset(seed=3))
    for action in actions(outside, 24):
        one, other = inside.step(action), outside.step(action)
        same(one, other)
        ended = np.asarray(one[2]) | np.asarray(one[3])
        if mode is AutoresetMode.DISABLED and ended.any():
            options = {"reset_mask": ended}
            same(inside.reset(options=options), outside.reset(options=options))
    statistics = inside.state_dict(), outside.state_dict()
    assert [*statistics[0]] == [*statistics[1]]
    for one, other in zip(*(each.values() for each in statistics), strict=True):
        assert one["count"] == other["count"]
        np.testing.assert_allclose(one["mean"], other["mean"], rtol=2e-4, atol=1e-5)
    if name == "recorded":
        for name in QUEUES:
            queues = [getattr(x, name) for x in (inside, outside)]
            np.testing.assert_allclose(*af.convert(queues, "numpy"))
        assert len(inside.time_queue) == len(outside.time_queue) == inside.buffer_length


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("name", CHAINS)
def test_attributes_are_those_of_wrappers(name, many):
    env, chain = CHAINS[name]
    if not many:
        classes = [getattr(wrappers, type(kernel).__name__) for kernel in chain]
        ours = [cls.__module__ == wrappers.__name__ for cls in classes]
        chain = [*itertools.compress(chain, ours)]
    if not chain:
        pytest.skip("Gymnasium's wrapper has no kernel")
    wrapped = wrap(env(), *chain)
    inside = wrapped.make_vec(3) if many else wrapped.make()
    outside = around(env().make_vec(3) if many else env().make(), chain)

    def shown(of, attribute):
        value = getattr(of, attribute)
        return None if callable(value) or attribute.startswith("np_random") else repr(value)

    for stepped in (False, True):
        layer = outside
        while layer is not layer.unwrapped:  # the outermost first
            names = [x for x in dir(layer) if x[:1] != "_"]
            alone = {
                f"{part}{s}" for part in ("action", "observation", "reward") for s in ("", "s")
            }
            for attribute in (
                {*names} - {"env", "class_name", "wrapper_spec", "unwrapped", "spec"} - alone
            ):
                assert attribute in dir(inside)
                seen = sum(attribute in dir(each) for each in (layer, outside))
                if seen == 2 and "spaces" not in attribute and attribute != "episode_start_times":
                    assert shown(inside, attribute) == shown(outside, attribute)
            layer = layer.env
        for envs in (inside, outside):
            if not stepped:
                envs.reset(seed=1)
                envs.step(envs.action_space.sample() * 0)
    assert repr(inside).startswith(("<Wrapped", "Wrapped"))


@pytest.mark.parametrize("xp", LIBRARIES)
def test_statistics_are_read_set_and_frozen(xp):
    inside, outside = pair("delayed", xp=xp)
    given = {"obs_rms_2": {"count": 5, "mean": [1.0] * 4, "var": [2.0] * 4}}
    for envs in (inside, outside):
        envs.load_state_dict({**envs.state_dict(), **given})
        assert envs.obs_rms.mean.tolist() == [1.0] * 4  # of the outermost
        envs.reset(seed=1)
        envs.step(np.zeros(4, int))
        envs.obs_rms = envs.obs_rms
        assert envs.update_running_mean is True
        envs.update_running_mean = False
        assert envs.update_running_mean is False
        before = envs.state_dict()
        envs.step(np.ones(4, int))
        assert envs.state_dict() == before
        with pytest.raises(af.OptionError, match="but the state has"):
            envs.load_state_dict({"other": before["obs_rms"]})
        wrong = {**before, "obs_rms": {**before["obs_rms"], "mean": [0.0]}}
        with pytest.raises(af.OptionError):
            envs.load_state_dict(wrong)
        assert envs.state_dict() == before
        envs.close()
        envs.reset(seed=2)
        assert envs.state_dict() == before
        with pytest.raises(af.OptionError, match="no mean, var and count"):
            envs.obs_rms = 3
    assert inside.state_dict().keys() == outside.state_dict().keys() == {"obs_rms", "obs_rms_2"}
    means = [x.state_dict()["obs_rms_2"]["mean"] for x in (inside, outside)]
    np.testing.assert_allclose(*means, rtol=1e-4)
    around = vector_wrappers.NormalizeObservation(inside)
    assert [*around.state_dict()] == ["obs_rms", "obs_rms_2", "obs_rms_3"]
    around.update_running_mean = True
    assert inside.update_running_mean is True


@pytest.mark.parametrize("xp", LIBRARIES)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_go_on(copied, xp):
    chain = k.NormalizeObservation(), k.StickyAction(0.5), k.RecordEpisodeStatistics(5)
    envs = begun(wrap(CartPole(), *chain).make_vec(3, xp=xp))
    steps = np.random.default_rng(1).integers(0, 2, (40, 3))
    for action in steps[:20]:
        envs.step(action)
    other = copied(envs)
    for action in steps[20:]:
        same(envs.step(action), other.step(action))
    assert envs.state_dict() == other.state_dict()
    assert [*envs.return_queue] == [*other.return_queue]


@pytest.mark.parametrize("env", [CartPole, Two])
def test_setting_what_is_updated_compiles_nothing(env):
    wrapped = wrap(env(), k.NormalizeObservation(), k.NormalizeReward())
    envs = begun(wrapped.make_vec(4, xp="jax"))
    # the action is an array of JAX in the first step, and one of NumPy from then on
    for _ in range(2):
        envs.step(np.zeros(4, int))
    program = envs._stepper._prepared(envs._params)[1][1]
    compiled = program._cache_size()
    for updating in (False, True, False):
        envs.update_running_mean = updating
        envs.step(np.ones(4, int))
    envs.load_state_dict(envs.state_dict())
    envs.step(np.ones(4, int))
    assert program._cache_size() == compiled


def test_arrays_of_kernels_are_not_those_of_results():
    env = wrap(CartPole(), k.FrameStackObservation(3), k.DelayObservation(1))
    envs, twin = env.make_vec(2), env.make_vec(2)
    envs.reset(seed=1)[0][:] = 7.0
    twin.reset(seed=1)
    for _ in range(4):
        one, other = envs.step([0, 1])[0], twin.step([0, 1])[0]
        np.testing.assert_array_equal(one, other)
        one[:] = 7.0


class Branches(k.Kernel):
    """JAX cannot trace it."""

    parts = ("observation",)

    def __init__(self, at):
        self.at = at

    def spoilt(self, x):
        return x * 2 if float(x.sum()) > 0 else x

    def reset(self, xp, state, rows, observation):
        return state, self.spoilt(observation) if self.at == "reset" else observation

    def action(self, xp, rng, state, action):
        return state, action * int(bool(action.sum() >= 0)) if self.at == "action" else action

    def step(self, xp, state, result):
        if self.at == "step":
            np.asarray(result.observation)
        return state, result


@pytest.mark.parametrize("at", ["reset", "action", "step"])
def test_a_kernel_that_jax_cannot_trace_is_refused(at):
    kernel = Branches(at)
    envs = wrap(CartPole(), kernel).make_vec(2, xp="jax")
    if at != "reset":
        envs.reset(seed=1)
    words = rf"Branches\(at='{at}'\).*test_engine\.py:\d+"
    with pytest.raises(EnvResultError, match=words) as error:
        envs.reset(seed=1) if at == "reset" else envs.step([0, 1])
    assert "KernelVectorWrapper(envs, kernel)" in str(error.value)
    for served in (
        wrap(CartPole(), kernel).make_vec(2),
        vector_wrappers.KernelVectorWrapper(CartPole().make_vec(2), kernel),
    ):
        begun(served).step(np.array([0, 1]))


def test_functions_of_a_user_get_arrays_of_the_agents_library():
    clamped = wrap(CartPole(), k.TransformObservation(lambda x: x.clamp(-0.01, 0.01)))
    envs = clamped.make_vec(3, xp="torch")
    assert float(envs.reset(seed=1)[0].abs().max()) <= 0.01


@pytest.mark.parametrize("xp", ["numpy", "torch"])
def test_random_kernels_around_each_other_draw_different_numbers(xp):
    drawn = []

    class Draws(k.Kernel):
        parts = ()

        def action(self, xp, rng, state, action):
            drawn.append(rng.uniform((4,)))
            return state, action

    begun(wrap(CartPole(), Draws(), Draws()).make_vec(4, xp=xp)).step(np.zeros(4, int))
    assert len(drawn) == 2
    assert not (drawn[0] == drawn[1]).any()


@pytest.mark.needs("stable_baselines3")
def test_a_bridge_knows_what_kernels_make_of_rewards_and_infos():
    from arrayferry_gym.sb3 import SB3VecEnv

    chain = k.RecordEpisodeStatistics(), k.TransformReward(lambda x: x.sum(-1), shape=())
    envs = SB3VecEnv(wrap(Two(), *chain).make_vec(2, autoreset_mode="SameStep"))
    envs.reset()
    done = np.zeros(2, bool)
    while not done.any():
        _, rewards, done, infos = envs.step(np.array([1, 1]))
        assert rewards.tolist() == [2.0, 2.0]
    info = infos[int(done.argmax())]
    assert info["episode"]["r"].shape == (2,)
    assert abs(info["position"]) > 0.05
    with pytest.raises(af.OptionError, match="one number"):
        SB3VecEnv(wrap(Two(), chain[0]).make_vec(2, autoreset_mode="SameStep"))


class Levels(CartPole):
    """Its actions are whole numbers in a Box."""

    action_space = spaces.Box(0, 4, (1,), np.int32)

    def step(self, xp, rng, state, action, params):
        return super().step(xp, rng, state, xp.astype(action[:, 0] > 2, xp.int32), params)


@pytest.mark.parametrize("xp", LIBRARIES)
def test_an_action_that_is_no_number_is_refused_where_whole_numbers_are_needed(xp):
    bounds = np.float32(-1), np.float32(1)
    envs = begun(wrap(Levels(), k.RescaleAction(*bounds)).make_vec(2, xp=xp))
    envs.step(np.float32([[0.5], [1]]))
    refused_step(envs, np.float32([[np.nan], [1]]), "NaN cannot be rounded")
    inside = k.Spaces(Levels().observation_space, Levels().action_space)
    with pytest.raises(af.ConversionError, match="NaN cannot be rounded"):
        k.RescaleAction(*bounds).around(inside).refuse_nan(np, np.float32([[np.nan]]))


@pytest.mark.parametrize("xp", LIBRARIES)
@pytest.mark.assumes_other("strict")
def test_a_function_may_make_a_whole_number_of_any_action(xp):
    levels = spaces.Box(-1, 1, (1,), np.float32)
    chain = (
        k.RescaleAction(np.float32(-1), np.float32(1)),
        k.TransformAction(lambda x: (x > 0) * 2.0 - 1),
    )
    for kernel in (k.TransformAction(lambda x: (x > 0) * 4, levels), chain):
        envs = begun(wrap(Levels(), *(kernel if kernel is chain else [kernel])).make_vec(2, xp=xp))
        assert envs.step(np.float32([[np.nan], [1]]))[1].shape == (2,)


SOME = {"reset_mask": [True, False, True]}


@pytest.mark.parametrize("mode", EVERY_MODE)
@pytest.mark.parametrize("options", [None, SOME], ids=["all", "some"])
def test_recorders_time_episodes_that_a_reset_cuts(monkeypatch, mode, options):
    chain = [k.RecordEpisodeStatistics(stats_key=key) for key in "ab"]
    given = {"autoreset_mode": mode, "max_episode_steps": 5}
    inside, plain = wrap(CartPole(), *chain).make_vec(3, **given), CartPole().make_vec(3, **given)
    clock, told = [0.0], ([], [])
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    for envs, seen in zip((inside, around(plain, chain)), told, strict=True):
        for now in range(25):
            clock[0] = float(now)
            if now in (0, 6, 7, 14):  # in the step before the second, episodes have ended
                envs.reset(options=options if now else None)
                continue
            infos = envs.step(np.zeros(3, int))[4]
            seen.append({key: infos[key]["t"].tolist() for key in "ab" if key in infos})
    assert told[0] == told[1]
    assert all(x["a"] == x["b"] for x in told[0] if x)
    assert sum(map(bool, told[0])) > 1
