"""Simulators as vector environments: in each form, with each autoreset mode, and with the faults that they may have.

Where they are passed as they are, they are refused, and single environments that look alike are not.
"""

from __future__ import annotations

import collections
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from envs import Samples, begun
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from refusals import refused_step
from simulators import LIMIT, ONE, Genesis, IsaacLab, ManiSkill, Mjlab, Simulator

import arrayferry as af
from arrayferry_gym import ArrayConversion, JaxToTorch, from_simulator, vector, wrappers


def genesis(simulator=None, **options):
    """Return environments that lose last observations."""
    options = {"action_space": spaces.Discrete(3), **options}
    observed = spaces.Dict({"policy": ONE})
    return from_simulator(
        simulator or Genesis(3), final="lost", observation_space=observed, **options
    )


def test_metadata_that_all_environments_share_say_nothing(monkeypatch):
    monkeypatch.setitem(gym.Env.metadata, "autoreset_mode", AutoresetMode.SAME_STEP)
    with pytest.raises(af.OptionError, match="does not say when it resets"):
        from_simulator(ManiSkill(3))


def test_groups_are_a_dict():
    envs = from_simulator(IsaacLab(3))
    observations, infos = envs.reset(seed=1)
    assert set(observations) == {"policy", "critic"}
    assert envs.single_observation_space["critic"].shape == (2,)
    assert infos["log"]["mean"].shape == ()
    *_, infos = envs.step(torch.ones(3, dtype=torch.int64))
    assert infos["_final_obs"].all()
    assert torch.equal(infos["final_obs"]["critic"], infos["final_obs"]["policy"] - 1)


@pytest.mark.parametrize(
    "simulator", [IsaacLab(3, compute_final_obs=False), Mjlab(3, auto_reset=True, captures=False)]
)
def test_last_observations_are_not_lost_in_silence(simulator):
    envs = begun(from_simulator(simulator, autoreset_mode="SameStep"))
    envs.step(torch.zeros(3))
    refused_step(envs, torch.ones(3), "the last observation of the episode is lost", af.OptionError)


def test_a_mode_that_is_not_said_is_asked_for():
    for silent in (Mjlab(3, auto_reset=True), Genesis(3)):
        with pytest.raises(af.OptionError, match="does not say when it resets"):
            from_simulator(silent, observation_space=ONE, action_space=spaces.Discrete(3))
    assert from_simulator(Mjlab(3)).metadata["autoreset_mode"] is AutoresetMode.DISABLED


def test_lost_observations_are_accepted_where_nobody_needs_them():
    simulator = IsaacLab(3, compute_final_obs=False)
    envs = from_simulator(simulator, final="lost", group="policy")
    normal = begun(wrappers.vector.NormalizeObservation(envs))
    for _ in range(2):
        *_, infos = normal.step(torch.ones(3, dtype=torch.int64))
        assert "final_obs" not in infos
    assert float(normal.obs_rms.count) == pytest.approx(
        9, abs=0.01
    )  # the first of three episodes each
    assert float(normal.obs_rms.mean[1]) == 0.0
    stats = begun(wrappers.vector.RecordEpisodeStatistics(envs))
    *_, infos = stats.step(torch.ones(3, dtype=torch.int64))
    assert infos["episode"]["l"].tolist() == [1, 1, 1]
    for module, bridge in (("torchrl", "TorchRLEnv"), ("sb3", "SB3VecEnv")):
        make = getattr(
            pytest.importorskip(f"arrayferry_gym.{module}", exc_type=ImportError), bridge
        )
        with pytest.raises(af.OptionError, match="loses the last observations"):
            make(envs)


def test_a_finite_horizon_terminates():
    simulator = IsaacLab(2)
    simulator.cfg.is_finite_horizon = True
    envs = begun(from_simulator(simulator))
    for _ in range(LIMIT):
        _, _, terminated, truncated, _ = envs.step(torch.zeros(2))
    assert terminated.all()
    assert not truncated.any()


def test_resets_of_some_keep_the_others():
    envs = begun(from_simulator(Mjlab(3), group="actor"))
    before = envs.step(torch.tensor([0, 1, 0]))[0]
    after, _ = envs.reset(options={"reset_mask": np.array([False, True, False])})
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert after[1, 1] == 0
    assert before[1, 1] == 1
    again, infos = envs.reset(options={"reset_mask": torch.zeros(3, dtype=torch.bool)})
    assert torch.equal(again, after)
    assert infos == {}
    with pytest.raises(af.OptionError, match=r"takes no options\. Leave out terrain"):
        genesis().reset(options={"terrain": 1})


class TestSeeds:
    def test_several_are_combined(self):
        envs = from_simulator(IsaacLab(3), group="policy")
        firsts = [envs.reset(seed=seed)[0] for seed in ([1, 2, 3], [1, 2, 3], [1, 2, 4], 1)]
        assert torch.equal(firsts[0], firsts[1])
        assert not torch.equal(firsts[0], firsts[2])
        assert not torch.equal(firsts[0], firsts[3])

    def test_lists_of_none_go_nowhere(self):
        simulator, given = Genesis(3), []
        simulator.seed = given.append
        envs = begun(genesis(simulator), [None, None, None])
        assert given == []
        envs.reset(seed=[None, None, 1])
        assert len(given) == 1

    def test_a_simulator_without_seeds_says_so(self):
        simulator = Genesis(3)
        simulator.seed = None
        with pytest.warns(UserWarning, match="takes no seed"):
            genesis(simulator).reset(seed=1)


class TestSpaces:
    def test_those_of_other_packages(self):
        envs = from_simulator(Mjlab(3))
        assert envs.single_observation_space == spaces.Dict({"actor": spaces.Box(0.0, LIMIT, (2,))})

    def test_bounds_of_actions(self):
        action = spaces.Box(-np.inf, np.inf, (1,))
        envs = genesis(action_space=action, action_bounds=(-1, 1))
        assert envs.single_action_space == spaces.Box(-1, 1, (1,))
        assert envs.action_space.shape == (3, 1)

    def test_a_space_that_is_wrong(self):
        envs = from_simulator(IsaacLab(2), observation_space=spaces.Box(-1, 1, (7,)))
        with pytest.raises(TypeError, match="observation_space"):
            envs.reset()


def test_results_of_another_form_are_refused():
    simulator, flags = IsaacLab(2), torch.zeros(2)
    simulator.step = lambda actions: (simulator.observed(), None, flags, flags, {})
    envs = begun(from_simulator(simulator), None)
    refused_step(envs, torch.zeros(2), "returned rewards None", TypeError)


def test_wrappers_of_gymnasium_do_not_hide_it():
    inner = IsaacLab(3)
    envs = from_simulator(gym.wrappers.OrderEnforcing(inner))
    assert envs.num_envs == 3
    assert envs.device == torch.device("cpu")
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    envs.reset(seed=1)
    assert envs.step(np.zeros(3, np.int64))[1].tolist() == [1.0, 1.0, 1.0]
    envs.close()


def test_rsl_rl_logs_what_the_simulator_reports():
    rsl_rl = pytest.importorskip("arrayferry_gym.rsl_rl", exc_type=ImportError)
    envs = genesis(action_space=spaces.Box(-1, 1, (1,)))
    simulator = envs.env
    simulator.max_episode_length, simulator.episode_length_buf = LIMIT, torch.zeros(3)
    env = rsl_rl.RslRlVecEnv(envs)
    env.episode_length_buf = torch.tensor([1, 2, 3])
    assert simulator.episode_length_buf.tolist() == [1, 2, 3]
    assert env.max_episode_length == LIMIT
    for _ in range(LIMIT):
        _, _, ended, extras = env.step(torch.zeros(3, 1))
    assert ended.all()
    assert extras["time_outs"].all()
    assert "mean" in extras["log"]
    assert "final_observations" not in extras


def test_a_step_reads_nothing_from_the_device():
    """On the meta device, tensors have no values: reading one raises."""

    class Remote(Simulator):
        metadata: ClassVar[dict] = {"autoreset_mode": AutoresetMode.SAME_STEP}

        def reset(self):
            return self.obs_buf, {}

        def step(self, actions):
            flags = self.reset_terminated, self.reset_time_outs
            return self.obs_buf, self.rew_buf, *flags, {"final_obs": self.obs_buf}

    simulator = Remote(3)
    for name, value in vars(simulator).items():
        if isinstance(value, torch.Tensor):
            setattr(simulator, name, value.to("meta"))
    simulator.device = torch.device("meta")
    simulator.single_observation_space = spaces.Box(0, LIMIT, (2,))
    envs = begun(from_simulator(simulator), None)
    with pytest.raises(RuntimeError, match="meta"):
        bool(simulator.reset_terminated.any())
    for _ in range(3):
        results = envs.step(torch.zeros(3, device="meta"))
        observations, rewards, *_ = results
        assert {x.device.type for x in results[:4]} == {"meta"}
        assert observations is not simulator.obs_buf
        assert rewards.shape == (3,)


CONTAINERS = {
    "ordered": lambda x: collections.OrderedDict(a=x),
    "nested": lambda x: {"a": [collections.OrderedDict(b=(x,))]},
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("numpy", [False, True])
def test_no_result_is_a_live_buffer(container, numpy):
    class Held(Genesis):
        def step(self, actions):
            result = super().step(actions)
            buffer = self.obs_buf.numpy() if numpy else self.obs_buf
            self.extras["held"] = CONTAINERS[container](buffer)
            self.extras["view"] = memoryview(self.obs_buf.numpy())
            return result

    envs = begun(genesis(Held(3)), None)
    held = envs.step(torch.zeros(3))[-1]["held"]
    before = af.convert(held, "numpy", copy=True)
    assert type(held) is type(before)
    view = envs.step(torch.zeros(3))[-1]["view"]
    assert (shown := view.tolist())
    for _ in range(2):
        envs.step(torch.ones(3))
    (now,), (then,) = (af.flatten(x)[0] for x in (held, before))
    assert isinstance(now, np.ndarray if numpy else torch.Tensor)
    np.testing.assert_array_equal(now, then)
    assert view.tolist() == shown


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8, "numpy", "a column"])
def test_time_outs_of_any_dtype_may_come_late(dtype):
    class Late(Genesis):
        def step(self, actions):
            *results, infos = super().step(actions)
            time_outs = infos.pop("time_outs")
            if time_outs.any():
                library = {"numpy": np.asarray, "a column": lambda x: x[:, None]}
                given = library.get(dtype, lambda x: x.to(dtype))
                infos = {**infos, "time_outs": given(time_outs)}
            return *results, infos

    envs = begun(genesis(Late(3)), None)
    for number in range(LIMIT):
        if dtype == "a column" and number == LIMIT - 1:
            refused_step(envs, torch.zeros(3), "returned truncations", TypeError)
            break
        *_, terminated, truncated, _ = envs.step(torch.zeros(3))
        assert terminated.dtype == truncated.dtype == torch.bool
        assert truncated.tolist() == [number == LIMIT - 1] * 3
        assert not terminated.any()


# Passed as they are.


def batch(stated):
    """Return a batch that states the spaces of one environment as its own, or its own alone."""
    env = ManiSkill(4).unwrapped
    if stated == "one":
        env.observation_space, env.action_space = ONE, env.single_action_space
    del env.single_observation_space, env.single_action_space
    return env


class First(gym.Wrapper):
    """Shows the first environment of a batch."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = env.unwrapped.single_observation_space
        self.action_space = env.unwrapped.single_action_space

    def reset(self, **options):
        observation, infos = self.env.reset(**options)
        return observation[0].numpy(), infos

    def step(self, action):
        *results, infos = self.env.step(torch.zeros(self.env.unwrapped.num_envs))
        observation, reward, terminated, truncated = (x[0].numpy() for x in results)
        return observation, float(reward), bool(terminated), bool(truncated), infos


WORDS = r"was given .*, which is a batch of {} environments, as in Isaac Lab.*VectorEnv"


WRAPPED = [
    lambda env: env,
    gym.wrappers.OrderEnforcing,
    lambda env: gym.wrappers.TimeLimit(env, 3),
    lambda env: gym.wrappers.TransformReward(gym.wrappers.OrderEnforcing(env), lambda x: 2 * x),
]


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("inner", [lambda count: ManiSkill(count).unwrapped, IsaacLab])
@pytest.mark.parametrize("made", WRAPPED)
def test_batches_are_refused_when_they_are_wrapped(count, inner, made):
    torchrl = pytest.importorskip("arrayferry_gym.torchrl", exc_type=ImportError)
    env = made(inner(count))
    adapters = [ArrayConversion, JaxToTorch, vector.ArrayConversion, vector.JaxToNumpy]
    normalised = [wrappers.NormalizeObservation, wrappers.NormalizeReward]
    for refused in (*adapters, *normalised, torchrl.TorchRLEnv):
        with pytest.raises(TypeError, match=WORDS.format(count)) as caught:
            refused(env)
        assert refused not in adapters or str(caught.value).startswith(refused.__name__)
        assert "arrayferry_gym.from_simulator(env)" in str(caught.value)


@pytest.mark.parametrize("stated", ["one", "batch"])
def test_batches_that_state_other_spaces_are_refused_when_they_show(stated):
    def play(env):
        env.reset()
        env.step(env.action_space.sample())

    with pytest.raises(TypeError, match=WORDS.format(4)):
        play(ArrayConversion(batch(stated), target_xp="numpy"))


def test_simulators_of_other_kinds():
    for adapter in (ArrayConversion, vector.ArrayConversion):
        with pytest.raises(TypeError, match=WORDS.format(4)):
            adapter(Genesis(4))
    with pytest.raises(TypeError, match=r"if it is a single environment\. A batch of several"):
        vector.ArrayConversion(batch("one"))


PART = spaces.Box(-1, 1, (3,), np.float32)


def single(num_envs, shape=(3,), **attributes):
    """Return one environment with a number of environments for some purpose of its own."""
    env = Samples(spaces.Box(-1, 1, shape, np.float32), spaces.Discrete(2))
    vars(env).update(num_envs=num_envs, **attributes)
    return env


ONES = [
    single(1),
    single(4),
    single(3),  # as many as there are numbers in an observation
    single(2, (2, 3)),
    single(1, (1, 3)),
    single(None),
    single(0),
    single("4"),
    single(1, (1, 3), single_observation_space=spaces.Box(-1, 1, (1, 3), np.float32)),
    single(4, (4, 3), single_observation_space=spaces.Box(-1, 1, (4, 3), np.float32)),
    single(4, single_observation_space=PART, single_action_space=spaces.Discrete(2)),
    gym.wrappers.FlattenObservation(single(2, (2, 3))),
    First(ManiSkill(1)),
    First(ManiSkill(4)),
    gym.make("CartPole-v1"),
]


@pytest.mark.parametrize("env", ONES)
def test_single_environments_go_on(env):
    env = wrappers.ClipReward(ArrayConversion(env, target_xp="torch"), -1, 1)
    observation, _ = env.reset(seed=1)
    assert observation.shape == env.observation_space.shape
    observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
    assert isinstance(observation, torch.Tensor)
    assert terminated is truncated is False
