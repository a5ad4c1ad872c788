"""Kernels around functional environments: compiled, and as wrappers of what is served."""

import copy
import functools
import gc
import io
import pickle
import types
import weakref
from unittest import mock

import gymnasium as gym
import jax
import numpy as np
import pytest
import torch
from cases import crossed, quick_if
from envs import begun
from functional_envs import Cells, Masked, Sums, at_random, still, with_two_rewards
from gymnasium import spaces
from kernel_cases import ALL_LIBRARIES, LIBRARIES, MODES, WRONG, Steps, actions, flat

import arrayferry as af
from arrayferry_envs import CartPole, Functions, Pendulum, evaluate, freeze, rollout, wrap
from arrayferry_gym import ArrayConversion, wrappers
from arrayferry_gym import vector as adapters
from arrayferry_gym.wrappers import kernels
from arrayferry_gym.wrappers import vector as vector_wrappers
from arrayferry_gym.wrappers._kernels.kernel import Spaces

STATISTICS = wrap(Sums(), kernels.RecordEpisodeStatistics(), kernels.NormalizeObservation())
FRAMES = wrap(Sums(), kernels.FrameStackObservation(3, padding_type="zero"))
REWARDS = kernels.TransformReward(lambda x: x * 2), kernels.ClipReward(-0.3, 0.4)
CHAINS = {
    "statistics": wrap(STATISTICS, kernels.NormalizeReward()),
    "frames": wrap(FRAMES, kernels.FlattenObservation(), *REWARDS),
}


@pytest.mark.parametrize(("chain", "mode"), crossed(CHAINS, MODES))
def test_compiled_steps_are_those_of_served_environments(chain, mode):
    env = CHAINS[chain]
    functions = Functions(env, autoreset_mode=mode)
    env_state, first = functions.reset(jax.random.key(0), 3)
    step = jax.jit(functions.step)
    served = [env.make_vec(3, xp=xp, autoreset_mode=mode) for xp in ALL_LIBRARIES]
    for envs in served:
        seen = envs.reset(seed=1)[0]
        np.testing.assert_allclose(flat(seen), flat(first), rtol=1e-6)
        assert envs.observation_space.contains(seen)
    over = np.zeros(3, bool)
    for number, action in enumerate(actions(16)):
        env_state, outcome = step(jax.random.key(number), env_state, action)
        for xp, envs in zip(ALL_LIBRARIES, served, strict=True):
            found = envs.step(af.convert(action, xp))
            for one, other in zip(found[:4], outcome[:4], strict=True):
                np.testing.assert_allclose(flat(one), flat(other), rtol=1e-5, atol=2e-6)
            ended = np.asarray(outcome.terminated | outcome.truncated) & ~over
            if chain == "statistics":
                assert ("episode" in found[4]) == bool(ended.any())
                if ended.any():
                    one, other = found[4]["episode"], outcome.info["episode"]
                    np.testing.assert_allclose(flat(one["r"]), flat(other["r"]), rtol=1e-6)
                    np.testing.assert_array_equal(flat(one["l"]), flat(other["l"]))
            if mode == "SAME_STEP":
                final = found[4]["final_obs"]
                np.testing.assert_allclose(
                    flat(final), flat(outcome.final_observation), rtol=1e-5, atol=1e-6
                )
        if mode == "DISABLED":
            over |= ended
    assert over.any() == (mode == "DISABLED")


def _wrapped(xp, mode, between):
    """Return nested wrappers, innermost first, with something between each two."""
    envs = CartPole().make_vec(3, xp=xp, autoreset_mode=mode, max_episode_steps=9)
    chain = [vector_wrappers.RecordEpisodeStatistics(envs)]
    for each in (vector_wrappers.NormalizeObservation, vector_wrappers.NormalizeReward):
        chain.append(each(between(chain[-1])))
    return chain


@pytest.mark.parametrize(("xp", "mode"), crossed(ALL_LIBRARIES, MODES))
def test_nested_wrappers_read_ends_once(xp, mode):
    nested = _wrapped(xp, mode, lambda envs: envs)
    apart = _wrapped(xp, mode, gym.vector.VectorWrapper)
    mask = np.array([True, False, True])
    for number, action in enumerate(np.random.default_rng(5).integers(0, 2, (60, 3))):
        options = {"reset_mask": mask} if number % 24 else None
        for chain in (nested, apart) if number % 12 == 0 else ():
            chain[-1].reset(seed=number, options=options)
        results = [chain[-1].step(af.convert(action, xp)) for chain in (nested, apart)]
        for result in results:
            result[4].get("episode", {}).pop("t", None)
        one, other = (af.flatten(af.convert(result, "numpy"))[0] for result in results)
        assert [x.tobytes() for x in one] == [x.tobytes() for x in other]
        masks = [[each._episodes.masks for each in chain] for chain in (nested, apart)]
        if number < 12 or mode == "SAME_STEP":
            assert len({*map(id, masks[0])}) == 1
        assert len({*map(id, masks[1])}) == 3
    assert nested[-1].state_dict() == apart[-1].state_dict()


@pytest.mark.parametrize("xp", ["numpy", "jax"])
def test_environments_with_recorders_are_released_without_the_garbage_collector(xp):
    envs = begun(wrap(Cells(), kernels.RecordEpisodeStatistics()).make_vec(2, xp=xp))
    envs.step(envs.action_space.sample())
    gc.collect()
    gc.disable()
    try:
        kept = weakref.ref(envs)
        del envs
        assert kept() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(("xp", "served"), crossed(ALL_LIBRARIES, ["make", "make_vec"]))
def test_whole_numbers_are_normalised_in_every_library(xp, served):
    env = begun(getattr(wrap(Cells(), kernels.NormalizeObservation()), served)(xp=xp))
    observation = env.step(af.convert(env.action_space.sample(), xp))[0]
    assert af.backend_of(observation).name == xp
    assert "float32" in str(observation.dtype)
    assert env.state_dict()["obs_rms"]["count"] == 2


TwoRewards = with_two_rewards(Sums)


@pytest.mark.parametrize("xp", ALL_LIBRARIES)
def test_rewards_with_several_objectives_keep_their_shape(xp):
    env = begun(wrap(TwoRewards(), kernels.ClipReward(-0.25, 0.5)).make(xp=xp))
    reward = env.step(af.convert(np.float32(1.0), xp))[1]
    assert af.convert(reward, "numpy").tolist() == [0.5, -0.25]


@pytest.mark.parametrize(("xp", "mode"), [*zip(ALL_LIBRARIES, (*MODES, "SAME_STEP"), strict=False)])
def test_statistics_of_several_objectives_are_those_of_each(xp, mode):
    def made(env):
        envs = env.make_vec(3, xp=xp, autoreset_mode=mode)
        envs = vector_wrappers.RecordEpisodeStatistics(envs, gamma=0.5)
        return begun(vector_wrappers.NormalizeReward(envs))

    envs, other = made(TwoRewards()), made(Sums())
    rng, ends = np.random.default_rng(0), 0
    for _ in range(20):
        action = af.convert(rng.uniform(0, 1, 3).astype(np.float32), xp)
        (_, rewards, *flags, infos), (_, reward, *_, infos_of_one) = af.convert(
            (envs.step(action), other.step(action)), "numpy"
        )
        np.testing.assert_allclose(rewards, np.stack([reward, -reward], axis=1), rtol=1e-5)
        assert infos.keys() == infos_of_one.keys()
        for name in ("r", "dr") if "episode" in infos else ():
            ours, one = (each["episode"][name] for each in (infos, infos_of_one))
            np.testing.assert_allclose(ours, np.stack([one, -one], axis=1), rtol=1e-5)
        ended = flags[0] | flags[1]
        ends += ended.sum()
        if mode == "DISABLED" and ended.any():
            for x in (envs, other):
                x.reset(options={"reset_mask": ended})
    assert ends >= 3
    mean = other.return_rms.mean
    np.testing.assert_allclose(envs.return_rms.mean, [mean, -mean], rtol=1e-5)


@pytest.mark.long
def test_compiled_statistics_of_several_objectives_are_those_of_each():
    def policy(params, observation, key):
        return abs(observation[:, 0]) / 4 + 0.3, None

    chain = kernels.RecordEpisodeStatistics(gamma=0.5), kernels.NormalizeReward()
    env, one = wrap(TwoRewards(), *chain), wrap(Sums(), *chain)
    run = functools.partial(rollout, policy=policy, policy_params=None, num_steps=9, num_envs=3)
    run = functools.partial(run, key=jax.random.key(0))
    carry, statistics = run(env)[0], one.state_dict(run(one)[0].env_state)["return_rms"]
    for state in (env.state_dict(carry.env_state), carry.env_state.wrappers):
        more, _ = run(env, wrapper_state=state)
        assert env.state_dict(more.env_state)["return_rms"]["count"] == 2 * 27
    found = env.state_dict(carry.env_state)
    mean = statistics["mean"]
    np.testing.assert_allclose(found["return_rms"]["mean"], [mean, -mean], rtol=1e-5)
    words = r"returns of the shape \(2,\), but rewards have the shape \(\)"
    with pytest.raises(af.OptionError, match=words):
        run(one, wrapper_state=found)


@pytest.mark.parametrize("xp", [*LIBRARIES, "compiled"])
def test_steps_after_the_end_of_an_episode_do_not_count(xp):
    if xp == "compiled":
        functions = Functions(STATISTICS, autoreset_mode="DISABLED")
        env_state, _ = functions.reset(jax.random.key(0), 3)
    else:
        served = Sums().make_vec(3, xp=xp, autoreset_mode="DISABLED")
        counted = vector_wrappers.RecordEpisodeStatistics(served)
        envs = begun(vector_wrappers.NormalizeObservation(counted))
    over, steps, told = np.zeros(3, bool), 0, 0
    for number, value in enumerate(np.linspace(-1.0, 1.0, 12)):
        action = np.full(3, value, np.float32)
        if xp == "compiled":
            env_state, outcome = functions.step(jax.random.key(number), env_state, action)
            ended, info = outcome.terminated | outcome.truncated, outcome.info
        else:
            *_, terminated, truncated, info = envs.step(af.convert(action, xp))
            ended = terminated | truncated
        steps += 3 - over.sum()
        told += np.asarray(info.get("_episode", False)).sum()
        over |= np.asarray(ended)
    assert told == over.sum() > 0
    state = STATISTICS.state_dict(env_state) if xp == "compiled" else envs.state_dict()
    assert state["obs_rms"]["count"] == 3 + steps
    if xp != "compiled":
        assert counted.episode_count == len(counted.return_queue) == told


@pytest.mark.parametrize("xp", LIBRARIES)
def test_statistics_are_saved_and_frozen(xp):
    def run(env, seed):
        env.reset(seed=seed)
        env.action_space.seed(seed)
        for _ in range(20):
            env.step(env.action_space.sample())
        return env.state_dict()

    env, other = (
        vector_wrappers.NormalizeObservation(CartPole().make_vec(4, xp=xp)) for _ in range(2)
    )
    base = run(env, 1)
    file = io.BytesIO()
    torch.save(base, file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == base
    other.load_state_dict(base)
    assert other.state_dict() == base
    assert other.update_running_mean
    other.load_state_dict({"obs_rms": {"count": 1, "mean": [np.nan] * 4, "var": [np.nan] * 4}})
    assert np.isnan(other.obs_rms.var).all()
    together = run(env, 3)
    env.update_running_mean = False
    assert run(env, 4) == together
    for copied in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        assert copied.state_dict() == together
        assert not copied.update_running_mean


@pytest.mark.parametrize("many", [False, True])
def test_states_have_the_statistics_of_all_wrappers(many):
    env = wrap(
        CartPole(), kernels.NormalizeObservation(), kernels.ClipReward(-1, 1), kernels.NormalizeReward(),
        kernels.NormalizeObservation(), kernels.RecordEpisodeStatistics(),
    )  # fmt: skip

    envs, other = (env.make_vec(2) if many else env.make() for _ in range(2))
    envs.reset(seed=0)
    for _ in range(3):
        envs.step(np.array([0, 1]) if many else 1)
    saved = envs.state_dict()
    assert saved.keys() == {"obs_rms", "return_rms", "obs_rms_2"}
    assert saved["obs_rms"] != saved["obs_rms_2"]
    other.load_state_dict(saved)
    assert other.state_dict() == saved
    other.reset(seed=1)
    assert other.state_dict()["return_rms"] == saved["return_rms"]
    wrong = {**saved, "obs_rms": {**saved["obs_rms"], "mean": [0.0]}}
    before = other.state_dict()
    with pytest.raises(af.OptionError):
        other.load_state_dict(wrong)
    assert other.state_dict() == before
    other.load_state_dict({})  # of the outermost wrapper alone, which has none
    with pytest.raises(af.OptionError, match="but the state has"):
        other.load_state_dict({"other": saved["obs_rms"]})


@pytest.mark.parametrize("module", [wrappers, vector_wrappers])
def test_statistics_of_all_wrappers_inside_are_frozen(module):
    base = Sums().make() if module is wrappers else Sums().make_vec(2)
    inner = module.NormalizeObservation(base)
    reward = module.NormalizeReward(inner)
    env = begun(module.ClipReward(reward, -1, 1), 0)
    before = env.state_dict()
    env.update_running_mean = False
    env.step(env.action_space.sample())
    assert env.state_dict() == before
    assert not any(each.update_running_mean for each in (env, reward, inner))
    inner.update_running_mean = True
    env.step(env.action_space.sample())
    assert [name for name, x in env.state_dict().items() if x != before[name]] == ["obs_rms"]
    assert env.update_running_mean
    assert reward.update_running_mean
    before = env.state_dict()
    if module is vector_wrappers:  # evaluate() leaves each as it was
        evaluate(env, at_random, policy_xp="jax")
        assert env.state_dict() == before
    env.step(env.action_space.sample())
    assert [name for name, x in env.state_dict().items() if x != before[name]] == ["obs_rms"]
    plain = module.ClipReward(base, -1, 1)
    with pytest.raises(AttributeError, match="nor any wrapper inside has statistics"):
        plain.update_running_mean = False


@pytest.mark.long
def test_kernel_states_of_others_are_refused():
    def run(env, state=None):
        return rollout(env, still, None, jax.random.key(0), 2, 2, wrapper_state=state)[0]

    around = kernels.NormalizeObservation(), kernels.NormalizeReward(), kernels.ClipReward(-1, 1)
    envs = [wrap(CartPole(), kernel) for kernel in around]
    states = [run(env).env_state.wrappers for env in envs]
    for number, env in enumerate(envs):
        run(env, states[number])
        others = [state for place, state in enumerate(states) if place != number]
        own = [*states[number]], states[number] * 2
        for wrong in (*others, *WRONG[:3], (1,), (None,), "a", *own):
            with pytest.raises(af.OptionError):
                run(env, wrong)
    pixels = wrap(Cells(), kernels.FlattenObservation(), kernels.NormalizeObservation())
    with pytest.raises(af.OptionError, match="of another kernel"):
        run(pixels, (run(pixels).env_state.wrappers[0], states[0][0]))
    frozen = run(envs[0], freeze(states[0]))
    values = envs[0].state_dict(frozen.env_state)
    assert values["obs_rms"]["count"] == 6
    assert envs[0].state_dict(run(envs[0], values).env_state)["obs_rms"]["count"] == 12


def test_evaluation_uses_statistics_and_leaves_them():
    chain = kernels.RecordEpisodeStatistics(), kernels.NormalizeObservation()
    env = wrap(CartPole(), *chain, kernels.FrameStackObservation(2))

    def policy(params, observation, key):
        return (observation[:, 1, 2] > 0).astype(int), None

    carry, steps = rollout(env, policy, None, jax.random.key(0), 200, 16, collect=("info",))
    ended = np.asarray(steps.terminated | steps.truncated)
    seen, final = np.asarray(steps.observation[1:]), np.asarray(steps.final_observation[:-1])
    np.testing.assert_array_equal(seen[~ended[:-1]], final[~ended[:-1]])
    assert (seen[ended[:-1]] != final[ended[:-1]]).any()
    lengths, returns = (steps.info["episode"][name] for name in "lr")
    np.testing.assert_array_equal(lengths, np.where(ended, steps.episode_length, 0))
    np.testing.assert_array_equal(returns, lengths)
    values = env.state_dict(carry.env_state)
    assert values["obs_rms"]["count"] == 16 + 200 * 16 + ended.sum()
    key = jax.random.key(1)
    trained = carry.env_state.wrappers

    def after(state):
        return env.state_dict(
            rollout(env, policy, None, key, 5, 8, wrapper_state=state)[0].env_state
        )

    run = functools.partial(evaluate, env, policy, key=key, num_envs=8)
    first, second = (run(wrapper_state=state).returns for state in (trained, values))
    np.testing.assert_array_equal(first, second)
    assert (first > 0).all()
    assert after(freeze(trained)) == after(freeze(env.wrapper_state(values))) == values
    assert after(values)["obs_rms"]["count"] >= values["obs_rms"]["count"] + 48
    with pytest.raises(af.OptionError, match="carry and wrapper_state"):
        rollout(env, policy, None, key, 5, 16, carry=carry, wrapper_state=values)


PICKLED = ["ClipReward", "FrameStackObservation", "NormalizeReward", "StickyAction"]


@pytest.mark.parametrize(
    ("name", "xp", "module"), crossed(PICKLED, LIBRARIES, [wrappers, vector_wrappers])
)
def test_a_pickled_wrapper_goes_on(name, xp, module):
    options = {"ClipReward": (-0.5, 0.5), "FrameStackObservation": (3,), "StickyAction": (0.5,)}
    env = Sums().make(xp=xp) if module is wrappers else Sums().make_vec(3, xp=xp)
    env = begun(getattr(module, name)(env, *options.get(name, ())))
    taken = actions(6)[:, 0] if module is wrappers else actions(6)
    env.step(af.convert(taken[0], xp))
    copied = pickle.loads(pickle.dumps(env))
    for action in taken[1:]:
        results = [each.step(af.convert(action, xp))[:2] for each in (env, copied)]
        leaves = af.flatten(results)[0]
        assert {af.backend_of(x).name for x in leaves} == {xp}
        np.testing.assert_array_equal(*map(flat, results))


def test_the_statistics_of_a_rollout_serve_ordinary_environments():
    env = wrap(CartPole(), kernels.NormalizeObservation(), kernels.NormalizeReward())

    carry, _ = rollout(env, at_random, None, jax.random.key(0), 50, 8)
    values = env.state_dict(carry.env_state)
    ordinary = wrappers.NormalizeObservation(gym.make("CartPole-v1"))
    ordinary.load_state_dict(values)
    ordinary.update_running_mean = False
    observation, _ = ordinary.reset(seed=1)
    raw, _ = gym.make("CartPole-v1").reset(seed=1)
    mean, var = (np.asarray(values["obs_rms"][name]) for name in ("mean", "var"))
    np.testing.assert_allclose(observation, (raw - mean) / np.sqrt(var + 1e-8), rtol=1e-5)
    assert ordinary.state_dict()["obs_rms"] == values["obs_rms"]


class Negate(kernels.Kernel, types.SimpleNamespace):
    """A kernel whose other base is of C, and without attributes."""

    parts = ("reward",)

    def step(self, xp, state, result):
        return state, result._replace(reward=-result.reward)


def test_equal_kernels():
    small, other = (wrap(CartPole(), kernels.NormalizeObservation(x)) for x in (1e-8, 1e-3))
    assert wrap(CartPole(), kernels.NormalizeObservation(1e-8)) == small != other
    pads = [kernels.FrameStackObservation(2, padding_type=np.full(4, x)) for x in (0.0, 0.0, 1.0)]
    assert pads[0] == pads[1] != pads[2]
    assert Negate() == Negate()
    assert len({Negate(), Negate()}) == 1
    assert hash(wrap(CartPole(), Negate())) == hash(wrap(CartPole(), Negate()))
    assert wrap(CartPole(), Negate()) == wrap(CartPole(), Negate())
    assert Negate() != CartPole() != Negate()
    assert Negate() == mock.ANY


def test_functions_that_hold_arrays_are_refused():
    scale = np.ones(4, np.float32)
    with pytest.raises(af.OptionError, match="would not see changes of"):
        wrap(CartPole(), kernels.TransformObservation(lambda x: x * scale))
    halved = wrap(CartPole(), kernels.TransformObservation(lambda x: x * 0.5))
    observation = Functions(halved).reset(jax.random.key(0), 2)[1]
    whole = Functions(CartPole()).reset(jax.random.key(0), 2)[1]
    np.testing.assert_array_equal(observation, whole * 0.5)


def test_what_is_wrong_is_named():
    refused = "ClipAction requires a Box" if gym.__version__ >= "1.4" else None
    with pytest.raises((TypeError, AssertionError), match=refused):
        wrap(CartPole(), kernels.ClipAction())
    if gym.__version__ >= "1.4":  # which checks it since then
        inside = Spaces(spaces.Discrete(2), spaces.Discrete(2))
        with pytest.raises(gym.error.InvalidBound):
            kernels.NormalizeReward(gamma=1.5).around(inside)


def test_statistics_do_not_replace_infos_of_the_same_name():
    count = vector_wrappers.RecordEpisodeStatistics
    envs = begun(count(count(Sums().make_vec(3, max_episode_steps=1))))
    with pytest.raises(ValueError, match="'episode' but this key already exists in info"):
        envs.step(np.full(3, 0.5, np.float32))


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, object])
@pytest.mark.parametrize("mode", MODES)
def test_flags_of_any_dtype_are_booleans(mode, dtype):
    class Flags(gym.vector.VectorWrapper):
        def step(self, action):
            observation, reward, *flags, infos = self.env.step(action)
            masks = {key: infos[key].astype(dtype) for key in ("_final_obs",) if key in infos}
            return observation, reward, *(x.astype(dtype) for x in flags), {**infos, **masks}

    def halves(params, observation, key):
        return np.full(3, 0.5, np.float32), None

    def envs():
        return Sums().make_vec(3, autoreset_mode=mode)

    wanted = evaluate(envs(), halves, episodes=2, policy_xp="numpy")
    assert wanted.lengths.tolist() == [[4, 4]] * 3
    found = evaluate(Flags(envs()), halves, episodes=2, policy_xp="numpy")
    assert all(map(np.array_equal, wanted, found))
    for to_agent in (lambda x: x, lambda x: adapters.ArrayConversion(x, target_xp="torch")):
        env = begun(vector_wrappers.RecordEpisodeStatistics(to_agent(Flags(envs()))))
        for _ in range(4):
            *_, terminated, _, infos = env.step(np.full(3, 0.5, np.float32))
        assert infos["episode"]["l"].tolist() == [4] * 3
        assert terminated.dtype in (np.bool_, torch.bool)
    single = gym.Wrapper(Steps())
    flags = (1, 0) if dtype is object else (dtype(1), dtype(0))
    single.step = lambda action: (*Steps.step(single.env, action)[:2], *flags, {})
    counted = begun(wrappers.KernelWrapper(single, kernels.RecordEpisodeStatistics()))
    _, _, *found, info = counted.step(np.float32(0))
    assert info["episode"]["l"] == 1
    assert [x is True for x in found] == [True, False]


@pytest.mark.parametrize("xp", LIBRARIES)
@pytest.mark.parametrize("name", ["RecordEpisodeStatistics", "NormalizeReward"])
def test_rewards_in_lists_are_arrays(name, xp):
    kernel = getattr(kernels, name)()

    def step(env, reward):
        own = env.step
        env.step = lambda action: (*own(action)[:1], reward, *own(action)[2:])
        single = isinstance(env, gym.Env)
        adapter = (ArrayConversion if single else adapters.ArrayConversion)(env, target_xp=xp)
        wrapper = wrappers.KernelWrapper if single else vector_wrappers.KernelVectorWrapper
        wrapped = begun(wrapper(adapter, kernel))
        return [float(x) for x in wrapped.step(wrapped.action_space.sample())[1]]

    for make in (Steps, lambda: Sums().make_vec(2)):
        expected = step(make(), np.array([1.0, 2]))
        assert step(make(), [1.0, 2]) == pytest.approx(expected)
        with pytest.raises(TypeError, match=r"the rewards are \{.*numbers.* needed"):
            step(make(), {"a": 1.0})
    with pytest.raises(TypeError, match="2 numbers in an array or a list are needed"):
        step(make(), [1.0])


def test_kernels_of_ones_own_are_served_as_they_are():
    class Twice(kernels.NormalizeObservation):
        def step(self, xp, state, result):
            state, result = super().step(xp, state, result)
            return state, result._replace(observation=result.observation * 2)

    plain, twice = (
        wrap(Sums(), kind()).make_vec(3) for kind in (kernels.NormalizeObservation, Twice)
    )
    assert twice.obs_rms.count < 1
    plain.reset(seed=1), twice.reset(seed=1)
    np.testing.assert_allclose(
        *(flat(env.step(np.float32([1, 0, 1]))[0]) * by for env, by in ((plain, 2), (twice, 1)))
    )


def test_wrapping_a_wrapped_environment():
    chain = [kernels.RescaleAction(np.float32(-1), np.float32(1)), kernels.ClipAction()]
    chain.append(kernels.TransformAction(lambda action: -action))
    once = wrap(wrap(Pendulum(), chain[0]), *chain[1:])
    assert once == wrap(Pendulum(), *chain)
    envs = begun(once.make_vec(2))
    plain = begun(Pendulum().make_vec(2))
    for _ in range(3):
        ours, theirs = envs.step(np.float32([[0.5], [-1]])), plain.step(np.float32([[-1], [2]]))
        np.testing.assert_allclose(ours[0], theirs[0])


@pytest.mark.parametrize("xp", LIBRARIES)
def test_frames_are_the_agents(xp):
    env = begun(vector_wrappers.FrameStackObservation(CartPole().make_vec(2, xp=xp), 3))
    first = env.step(np.array([0, 1]))[0]
    kept = flat(first)
    if xp != "jax":
        first[:] = 0
    second = flat(env.step(np.array([0, 1]))[0]).reshape(2, 3, 4)
    np.testing.assert_array_equal(second[:, :2], kept.reshape(2, 3, 4)[:, 1:])


@pytest.mark.parametrize("xp", quick_if(LIBRARIES, "jax".__ne__))
def test_sticky_actions_of_served_environments(xp):
    env = wrap(CartPole(), kernels.StickyAction(0.5))

    def run(env):
        envs = begun(env.make_vec(4, xp=xp), 7)
        chosen = [af.convert(np.array([0, 1, 0, 1]) ^ (i % 2), xp) for i in range(9)]
        return [flat(envs.step(action)[0]) for action in chosen]

    np.testing.assert_array_equal(run(env), run(env))
    assert not np.array_equal(run(env), run(CartPole()))
    single = begun(env.make(xp=xp))
    assert single.step(1)[0].shape == (4,)


@pytest.mark.skipif(gym.__version__ < "1.2", reason="DictInfoToList takes no dicts in infos")
def test_statistics_in_lists_of_infos():
    counted = vector_wrappers.RecordEpisodeStatistics(CartPole().make_vec(2, xp="torch"))
    env = begun(vector_wrappers.DictInfoToList(counted))
    found = []
    for _ in range(40):
        infos = env.step(torch.tensor([1, 1]))[4]
        found += [info["episode"] for info in infos if "episode" in info]
    assert found
    assert {"r", "l", "t"} <= found[0].keys()
    assert counted.episode_count == len(found) == len(counted.return_queue)


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")
def test_a_dtype_that_the_library_lacks():
    env = wrap(Sums(), kernels.DtypeObservation("float16")).make_vec(2, xp="array_api_strict")
    observation, _ = env.reset(seed=1)
    assert "float32" in str(observation.dtype)
    assert env.observation_space.contains(observation)


def test_observations_that_are_no_box():
    """Gymnasium before 1.4 asserts without a word."""
    envs = Masked().make_vec(2)
    with pytest.raises((AssertionError, ValueError), match="NormalizeObservation"):
        vector_wrappers.NormalizeObservation(envs)
    flat = vector_wrappers.NormalizeObservation(vector_wrappers.FlattenObservation(envs))
    assert flat.reset(seed=1)[0].shape == (2, 4)


def test_paddings_and_bounds_are_memory_of_the_kernel():
    """PyTorch warns of arrays that cannot be written to."""
    padding, bound = np.full(4, 0.25, np.float32), np.float32([0.25])
    for x in (padding, bound):
        x.flags.writeable = False
    inside = (
        kernels.FrameStackObservation(2, padding_type=padding),
        kernels.ClipReward(None, bound),
    )
    envs = wrap(CartPole(), *inside).make_vec(2, xp="torch", differentiable=True)
    assert envs.reset(seed=1)[0][0, 0].tolist() == [0.25] * 4
    assert envs.step(torch.tensor([0, 1]))[1].tolist() == [0.25, 0.25]
    envs = wrap(Pendulum(), kernels.ClipAction()).make_vec(2, xp="torch", differentiable=True)
    envs.reset(seed=1)
