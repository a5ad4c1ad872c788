"""mjlab on a CPU, in which the caller resets what has ended, and its suite, which resets by itself."""

import warnings

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from real_simulators import ByHand, Row, built

import arrayferry as af
from arrayferry_audit import SuiteContract
from arrayferry_envs import from_env, make, make_vec
from arrayferry_gym import from_simulator

with warnings.catch_warnings(action="ignore"):
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.tasks.registry import load_env_cfg

pytestmark = pytest.mark.filterwarnings("ignore")
SOME = [True, False, False, True]


@pytest.fixture(scope="module")
def simulator():
    cfg = load_env_cfg("Mjlab-Cartpole-Balance")
    cfg.scene.num_envs, cfg.auto_reset, cfg.episode_length_s = 4, False, 1.0
    env = built("mjlab", "3 minutes", lambda: ManagerBasedRlEnv(cfg, device="cpu"))
    yield env
    env.close()


class TestMjlab(ByHand):
    """Before the sixth step, two environments are reset, so that not all reach the limit at once."""

    options = {"group": "actor"}

    def steps(self, simulator, actions):
        simulator.reset(seed=3)
        for number, action in enumerate(actions):
            if number == 5:
                simulator.reset(env_ids=torch.tensor(SOME).nonzero()[:, 0])
            groups, reward, terminated, truncated, _ = simulator.step(action)
            final = observation = groups["actor"].clone()
            copies = [x.clone() for x in (reward, terminated, truncated)]
            ended = terminated | truncated
            if ended.any():
                after = simulator.reset(env_ids=ended.nonzero()[:, 0])[0]["actor"]
                observation = torch.where(ended[:, None], after, final)
            yield Row(observation, final, *copies)

    def adapted_steps(self, envs, actions):
        envs.reset(seed=3)
        for number, action in enumerate(actions):
            if number == 5:
                envs.reset(options={"reset_mask": SOME})
            final, reward, terminated, truncated, _ = envs.step(action)
            observation, ended = final, terminated | truncated
            if ended.any():
                observation, _ = envs.reset(options={"reset_mask": ended})
            yield Row(observation, final, reward, terminated, truncated)


def test_it_resets_by_itself_unless_it_is_told_not_to(simulator, monkeypatch):
    monkeypatch.setattr(simulator.cfg, "auto_reset", True)
    with pytest.raises(af.OptionError, match="does not say when it resets"):
        from_simulator(simulator)


TASK = "mjlab/Mjlab-Cartpole-Balance"
LIMIT = 7


class TestSuite(SuiteContract):
    suite = "mjlab"
    sample = ["Mjlab-Cartpole-Balance"]
    options = {"max_episode_steps": 9}

    def test_environments_are_right(self):
        """mjlab draws from PyTorch's own random numbers, so that batches in one process influence each other."""
        with pytest.raises(AssertionError) as caught:
            super().test_environments_are_right()
        problems = str(caught.value).split("\n\nassert")[0].strip().splitlines()
        modes = ["SAME_STEP", "DISABLED"]
        assert [line.split(": ")[0] for line in problems] == [f"{TASK}, {mode}" for mode in modes]
        assert all("while further environments were made" in line for line in problems)


def own_steps(actions, seed):
    """The results of mjlab itself, which resets within the step, and of which `final_obs` cannot be known."""
    cfg = load_env_cfg("Mjlab-Cartpole-Balance")
    cfg.scene.num_envs = 4
    cfg.episode_length_s = LIMIT * cfg.sim.mujoco.timestep * cfg.decimation - 1e-6
    env = ManagerBasedRlEnv(cfg, device="cpu")
    rows = [env.reset(seed=seed)[0]["actor"].numpy().copy()]
    for action in actions:
        groups, *others, _ = env.step(torch.tensor(action))
        rows.append([groups["actor"].numpy().copy(), *(x.numpy().copy() for x in others)])
    env.close()
    return rows


def test_same_step_equals_what_mjlab_does_itself():
    actions = np.random.default_rng(0).normal(size=(20, 4, 1)).astype(np.float32)
    first, *rows = own_steps(actions, 3)
    envs = make_vec(TASK, 4, autoreset_mode="SameStep", max_episode_steps=LIMIT, group="actor")
    assert "max_episode_steps=7" in repr(envs)
    np.testing.assert_array_equal(envs.reset(seed=3)[0], first)
    ends = 0
    for action, row in zip(actions, rows, strict=True):
        *results, infos = envs.step(action)
        for ours, theirs in zip(results, row, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        done = results[2] | results[3]
        ends += done.sum()
        final = infos["final_obs"]
        assert ((final != results[0]).any(axis=1) == done).all()
    envs.close()
    assert ends == 8


def test_a_single_task_in_torch():
    env = make(TASK, xp="torch", max_episode_steps=3, group="actor")
    first, _ = env.reset(seed=1)
    assert first.shape == (5,)
    assert first.dtype == torch.float32
    for _ in range(2):
        for number in range(3):
            observation, reward, terminated, truncated, info = env.step(torch.ones(1))
            assert (terminated, truncated) == (False, number == 2)
            assert reward > 0
            assert "log" in info
        after, _ = env.reset()
        assert not torch.equal(after, observation)
    env.close()


def test_next_step_of_a_batch_of_one():
    envs = make_vec(TASK, 1, xp="torch", max_episode_steps=2)
    first, _ = envs.reset(seed=1)
    assert sorted(first) == ["actor", "critic"]
    envs.step(torch.ones(1, 1))
    assert envs.step(torch.ones(1, 1))[3].tolist() == [True]
    observation, reward, terminated, truncated, _ = envs.step(torch.ones(1, 1))
    assert (reward.tolist(), terminated.tolist(), truncated.tolist()) == ([0.0], [False], [False])
    assert observation["actor"].shape == (1, 5)
    assert envs.step(torch.ones(1, 1))[1] > 0
    envs.close()


def test_what_mjlab_cannot_do(simulator, monkeypatch):
    with pytest.raises(af.OptionError, match=r'no NEXT_STEP mode.*autoreset_mode="SameStep"'):
        make_vec(TASK, 4)
    with pytest.raises(af.OptionError, match="no such option"):
        make_vec(TASK, 4, autoreset_mode="SameStep", speed=2)
    envs = make_vec(TASK, 2, autoreset_mode="Disabled", max_episode_steps=None)
    envs.reset(seed=1)
    with pytest.raises(af.OptionError, match="passed with a seed"):
        envs.reset(seed=1, options={"reset_mask": [True, False]})
    envs.reset(options={"reset_mask": [True, False]})
    envs.step(np.zeros((2, 1), np.float32))  # the refused reset has lost nothing
    assert envs.unwrapped.cfg.episode_length_s == 1e9
    envs.close()
    adapted = from_env(simulator, autoreset_mode="SameStep")
    assert adapted.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert from_env(simulator).metadata["autoreset_mode"] is AutoresetMode.DISABLED
    monkeypatch.setattr(simulator.cfg, "auto_reset", True)
    with pytest.raises(af.OptionError, match=r"loses the last observations.*auto_reset=False"):
        from_env(simulator)
