"""Bridges to trainers pass the conformance kit, and each trainer takes some updates on environments in JAX."""

import functools
import importlib
import warnings

import jax
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from infos import Tells
from real_simulators import learns
from recipes import RECIPES, run

import arrayferry as af
from arrayferry_audit import BridgeContract, BridgeStep, Probe
from arrayferry_envs import CartPole, Pendulum
from arrayferry_gym import vector
from arrayferry_gym.sb3 import SB3VecEnv

pytestmark = pytest.mark.filterwarnings("ignore")
with warnings.catch_warnings(action="ignore"):
    from sb3_contrib import MaskablePPO
    from tianshou.env import DummyVectorEnv

    from arrayferry_gym.rsl_rl import RslRlVecEnv
    from arrayferry_gym.tianshou import TianshouVectorEnv


@pytest.mark.parametrize(
    "trainer", sorted(RECIPES.keys() - {"RLlib", "rsl_rl", "Tianshou", "skrl"})
)
def test_the_recipe(trainer):
    """RLlib has a file of its own, and others of these are run below."""
    run(trainer)


class Allowed(Probe):
    """All actions are allowed but that which is its count modulo 3."""

    observation_space = spaces.Dict(
        {"probe": Probe.observation_space, "action_mask": spaces.MultiBinary(3)}
    )

    def observe(self, xp, state, params):
        mask = xp.astype(state.count[:, None] % 3 != xp.arange(3)[None], xp.int8)
        return {"probe": super().observe(xp, state, params), "action_mask": mask}


def test_maskable_ppo_takes_allowed_actions_only():
    envs = SB3VecEnv(Allowed().make_vec(4, xp="jax", autoreset_mode="SameStep"))
    model = MaskablePPO("MultiInputPolicy", envs, n_steps=16, batch_size=32, device="cpu")
    model.learn(256)
    masks, actions = model.rollout_buffer.action_masks, model.rollout_buffer.actions
    assert masks.shape == (64, 3)
    assert not masks.all()
    assert masks[np.arange(64), actions.reshape(-1).astype(int)].all()


# rsl_rl: continuous actions only


class ContinuousProbe(Probe):
    """Its actions are the numbers of the probe."""

    action_space = spaces.Box(0.0, 2.0, (1,), np.float32)

    def step(self, xp, rng, state, action, params):
        return super().step(xp, rng, state, xp.round(action[:, 0]), params)


class TestRslRlSameStep(BridgeContract):
    exclusive = True
    xp, mode = "jax", "SameStep"

    def make(self):
        return RslRlVecEnv(
            ContinuousProbe().make_vec(self.num_envs, xp=self.xp, autoreset_mode=self.mode)
        )

    def reset(self, bridge, seed):
        return bridge.reset(seed=seed)["policy"]

    def step(self, bridge, actions):
        given = torch.as_tensor(actions, dtype=torch.float32)[:, None]
        observations, rewards, dones, extras = bridge.step(given)
        assert torch.equal(bridge.get_observations()["policy"], observations["policy"])
        counts = torch.where(dones, 0, observations["policy"][:, 1]).long()
        assert torch.equal(bridge.episode_length_buf, counts)
        truncated, final = extras["time_outs"], extras["final_observations"]["policy"]
        return BridgeStep(observations["policy"], rewards, dones & ~truncated, truncated, final)

    def spaces(self, bridge):
        return bridge.envs.single_observation_space, None


class TestRslRlDisabled(TestRslRlSameStep):
    xp, mode = "torch", "Disabled"


def test_rsl_rl_learns():
    recipe = run("rsl_rl")
    runner = recipe["OnPolicyRunner"](recipe["env"], recipe["config"])
    with learns(runner.alg.actor):
        runner.learn(3)
    with pytest.raises(af.OptionError, match="init_at_random_ep_len=False"):
        runner.learn(1, init_at_random_ep_len=True)


def test_what_rsl_rl_does_not_take():
    with pytest.raises(TypeError, match="continuous, but the actions are Discrete"):
        RslRlVecEnv(CartPole().make_vec(2, autoreset_mode="SameStep"))
    with pytest.raises(af.OptionError, match="rsl_rl learns from every step"):
        RslRlVecEnv(Pendulum().make_vec(2))
    envs = Pendulum().make_vec(2, autoreset_mode="SameStep")
    envs.single_observation_space = spaces.Discrete(3)
    with pytest.raises(TypeError, match="FlattenObservation"):
        RslRlVecEnv(envs)


# Tianshou


class TestTianshouSameStep(BridgeContract):
    xp, mode = "jax", "SameStep"

    def make(self):
        return TianshouVectorEnv(
            Probe().make_vec(self.num_envs, xp=self.xp, autoreset_mode=self.mode)
        )

    def reset(self, bridge, seed):
        bridge.seed(seed)
        return bridge.reset()[0]

    def step(self, bridge, actions):
        final, reward, terminated, truncated, infos = bridge.step(actions)
        assert [info["env_id"] for info in infos] == list(range(self.num_envs))
        observation, ended = final.copy(), np.flatnonzero(terminated | truncated)
        if ended.size:
            observation[ended] = bridge.reset(ended)[0]
        return BridgeStep(observation, reward, terminated, truncated, final)

    def spaces(self, bridge):
        return bridge.observation_space[0], bridge.action_space[0]


class TestTianshouDisabled(TestTianshouSameStep):
    xp, mode = "torch", "Disabled"


class TestTianshouGymnasium(TestTianshouSameStep):
    def make(self):
        makes = [lambda: Probe().make()] * self.num_envs
        return TianshouVectorEnv(SyncVectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP))


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_tianshou_steps_some_environments(mode):
    envs = TianshouVectorEnv(Probe().make_vec(4, xp="jax", autoreset_mode=mode))
    starts = envs.reset()[0][:, 0]
    for count in range(1, 4):
        observations, rewards, *_, infos = envs.step([2, 0], [3, 1])
        assert observations.tolist() == [[starts[3], count], [starts[1], count]]
        assert rewards.tolist() == [count + 1, count]
        assert [info["env_id"] for info in infos] == [3, 1]
    with pytest.raises(af.OptionError, match=r"\[True, False, True, False\].*Reset these"):
        envs.step([0, 0, 0, 0])
    *_, truncated, _ = envs.step([0, 0], [1, 3])
    assert truncated.tolist() == [True, True]
    firsts, _ = envs.reset([3, 1, 0])
    assert firsts[:, 1].tolist() == [0, 0, 0]
    observations, *_ = envs.step([0, 0, 0], [0, 1, 3])
    assert observations[:, 0].tolist() == [firsts[2, 0], firsts[1, 0], firsts[0, 0]]
    envs.close()
    with pytest.raises(AssertionError):
        envs.reset()


def test_tianshou_takes_actions_from_0_on():
    env = type("Starts", (Probe,), {"action_space": spaces.Discrete(3, start=1)})()
    with pytest.raises(af.OptionError, match=r"start=1\).*Tianshou expects numbers from 0 on"):
        TianshouVectorEnv(env.make_vec(2, autoreset_mode="SameStep"))


@pytest.mark.parametrize("mode", ["SAME_STEP", "DISABLED"])
def test_infos_are_those_of_tianshous_own(mode):
    makes = [functools.partial(Tells, number) for number in range(4)]
    ours = TianshouVectorEnv(SyncVectorEnv(makes, autoreset_mode=AutoresetMode[mode]))
    theirs = DummyVectorEnv(makes)
    for envs in (ours, theirs):
        envs.reset()
    for number in range(30):
        results = [envs.step(np.zeros(4, int)) for envs in (ours, theirs)]
        np.testing.assert_equal(results[0][4].tolist(), results[1][4].tolist())
        ended = np.flatnonzero(results[0][2] | results[0][3])
        if ended.size and number % 3:
            resets = [envs.reset(ended[::-1]) for envs in (ours, theirs)]
            np.testing.assert_equal(resets[0][1].tolist(), resets[1][1].tolist())
        elif ended.size:  # all, of which some have ended
            infos = ours.reset()[1]
            others = np.setdiff1d(range(4), ended)
            wanted = dict(zip(ended.tolist(), theirs.reset(ended)[1], strict=True))
            if others.size:
                wanted |= dict(zip(others.tolist(), theirs.reset(others)[1], strict=True))
            np.testing.assert_equal(infos.tolist(), [wanted[index] for index in range(4)])


@pytest.mark.parametrize("mode", ["SAME_STEP", "DISABLED"])
def test_infos_of_a_seed_come_with_the_next_reset(mode):
    makes = [functools.partial(Tells, number) for number in range(2)]
    envs = TianshouVectorEnv(SyncVectorEnv(makes, autoreset_mode=AutoresetMode[mode]))
    envs.seed(1)
    assert [info["begun"] for info in envs.reset()[1]] == [1, 1]
    assert [info["begun"] for info in envs.reset([1])[1]] == [2]
    assert [info["begun"] for info in envs.reset([0, 1])[1]] == [2, 3]


def test_tianshou_learns():
    recipe = run("Tianshou")
    buffer = recipe["VectorReplayBuffer"](4000, 16)  # in which each episode has room
    collector = recipe["Collector"](recipe["algorithm"], recipe["envs"], buffer)
    steps = {"epoch_num_steps": 400, "collection_step_num_env_steps": 200}
    options = recipe["OnPolicyTrainerParams"](training_collector=collector, max_epochs=1, **steps)
    with learns(recipe["policy"].actor):
        recipe["algorithm"].run_training(options)
    collector.reset()
    stats = collector.collect(n_episode=20)  # of which some environments play one, some two
    assert stats.n_collected_episodes == 20
    assert (stats.lens >= 8).all()
    assert np.array_equal(stats.lens, stats.returns)
    whole = collector.buffer[:]
    following = whole.obs_next[~whole.done]
    assert np.abs(following[:, 2]).max() < 0.2095  # where an episode goes on


# skrl


def wrapped(mode, library="torch", make=CartPole, n=4):
    wrap_env = importlib.import_module(f"skrl.envs.wrappers.{library}").wrap_env
    envs = make().make_vec(n, xp="jax", autoreset_mode=mode)
    return wrap_env(vector.ArrayConversion(envs, env_xp="jax", target_xp="numpy"), verbose=False)


@pytest.mark.parametrize(
    ("mode", "following", "counted"),
    [("SameStep", 0, 5), ("NextStep", 4, 4), ("Disabled", 4, None)],
)
def test_what_skrl_sees_at_the_end_of_an_episode(mode, following, counted):
    """It takes what `step` returns as the next observation of the transition, and as the first of the next one."""
    env = wrapped(mode, make=Probe)
    env.reset()
    zeros = torch.zeros(4, 1, dtype=torch.int64)
    for _ in range(4):
        observation, _, _, truncated, _ = env.step(zeros)
    assert truncated.all()
    assert observation[:, 1].tolist() == [following] * 4
    again, _ = env.reset()
    assert torch.equal(again, observation)  # it resets once only
    observation, reward, _, _, _ = env.step(zeros)
    if mode == "SameStep":  # the transition after the last is one
        assert observation[:, 1].tolist() == [1] * 4
        assert reward[:, 0].tolist() == [1] * 4
    elif mode == "NextStep":  # it is none, but skrl learns from it
        assert observation[:, 1].tolist() == [0] * 4
        assert reward[:, 0].tolist() == [0] * 4
    else:  # nobody resets
        assert observation[:, 1].tolist() == [5] * 4


def test_skrl_for_jax():
    env = wrapped("SameStep", "jax")
    first, _ = env.reset()
    observation, reward, *_ = env.step(jax.numpy.ones((4, 1), int))
    assert isinstance(observation, jax.Array)
    assert observation.shape == first.shape == (4, 4)
    assert reward[:, 0].tolist() == [1] * 4


def test_skrl_learns(tmp_path):
    from skrl.agents.torch.ppo import PPO, PPO_CFG
    from skrl.memories.torch import RandomMemory
    from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
    from skrl.trainers.torch import SequentialTrainer

    env = run("skrl")["env"]
    given = {
        "observation_space": env.observation_space,
        "action_space": env.action_space,
        "device": env.device,
    }

    def model(mixin, outputs):
        class Linear(mixin, Model):
            def __init__(self):
                Model.__init__(self, **given)
                mixin.__init__(self)
                self.net = torch.nn.Linear(4, outputs)

            def compute(self, inputs, role):
                return self.net(inputs["observations"]), {}

        return Linear()

    config = PPO_CFG(rollouts=16, learning_epochs=1, mini_batches=2, time_limit_bootstrap=True)
    config.experiment.directory = str(tmp_path)
    config.experiment.write_interval = config.experiment.checkpoint_interval = 0
    models = {"policy": model(CategoricalMixin, 2), "value": model(DeterministicMixin, 1)}
    memory = RandomMemory(memory_size=16, num_envs=env.num_envs, device=env.device)
    agent = PPO(models=models, memory=memory, cfg=config, **given)
    options = {"timesteps": 48, "headless": True, "disable_progressbar": True}
    trainer = SequentialTrainer(
        cfg={**options, "close_environment_at_exit": False}, env=env, agents=agent
    )
    with learns(models["policy"]):
        trainer.train()


# CleanRL: its scripts are loops over vector environments of Gymnasium


def test_the_loop_of_cleanrl():
    """Q-learning from transitions whose next observation is that of the last state."""
    envs = vector.ArrayConversion(
        Probe().make_vec(4, xp="jax", autoreset_mode="SameStep"),
        env_xp="jax",
        target_xp="torch",
        stack_final=True,
    )
    observation, _ = envs.reset(seed=1)
    values = torch.nn.Linear(2, 3)
    optimiser = torch.optim.SGD(values.parameters(), 0.01)
    ends = 0
    for _ in range(12):
        with torch.no_grad():
            action = values(observation).argmax(1)
        following, reward, terminated, truncated, infos = envs.step(action)
        after, ended = following, terminated | truncated
        if ended.any():
            after = torch.where(ended[:, None], infos["final_obs"], following)
        assert torch.equal(after[:, 0], observation[:, 0])  # of the same episode
        assert torch.equal(after[:, 1], observation[:, 1] + 1)
        assert (following[ended, 1] == 0).all()
        with torch.no_grad():
            target = reward + 0.9 * values(after).max(1).values * ~terminated
        loss = (values(observation).gather(1, action[:, None])[:, 0] - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        observation, ends = following, ends + int(ended.sum())
    assert ends >= 8
