"""The bridge to TorchRL passes the tests of bridges."""

import gymnasium as gym
import pytest
import torch
from cases import crossed
from envs import Forgetful
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torchrl.envs import RewardSum, StepCounter, TransformedEnv

import arrayferry as af
from arrayferry_audit import BridgeContract, BridgeStep, Probe
from arrayferry_envs import CartPole
from arrayferry_gym.torchrl import TorchRLEnv

MODES = ("SameStep", "Disabled")


def probes(n, mode, xp="numpy"):
    return Probe().make_vec(n, xp=xp, autoreset_mode=mode)


def of_gymnasium(n, mode):
    """They write each observation over the one before."""
    makes = [lambda: Probe().make()] * n
    return SyncVectorEnv(makes, copy=False, autoreset_mode=AutoresetMode(mode))


class TestSameStep(BridgeContract):
    def make(self):
        return TorchRLEnv(probes(self.num_envs, "SameStep", "jax"), categorical_actions=True)

    def reset(self, bridge, seed):
        if seed is not None:
            bridge.set_seed(seed)
        self.state = bridge.reset()
        return self.state["observation"]

    def step(self, bridge, actions):
        self.state["action"] = torch.as_tensor(actions)
        step, self.state = bridge.step_and_maybe_reset(self.state)
        after = step["next"]
        done, terminated, truncated = (
            after[name][:, 0] for name in ("done", "terminated", "truncated")
        )
        assert torch.equal(done, terminated | truncated)
        reward = after["reward"][:, 0]
        return BridgeStep(
            self.state["observation"], reward, terminated, truncated, after["observation"]
        )

    def spaces(self, bridge):
        return bridge.envs.single_observation_space, bridge.envs.single_action_space


class TestDisabled(TestSameStep):
    def make(self):
        return TorchRLEnv(probes(self.num_envs, "Disabled", "torch"), categorical_actions=True)


@pytest.mark.long
class TestGymnasiumSameStep(TestSameStep):
    def make(self):
        return TorchRLEnv(of_gymnasium(self.num_envs, "SameStep"), categorical_actions=True)


@pytest.mark.long
class TestGymnasiumDisabled(TestSameStep):
    def make(self):
        return TorchRLEnv(of_gymnasium(self.num_envs, "Disabled"), categorical_actions=True)


@pytest.mark.parametrize(("make", "mode"), crossed([probes, of_gymnasium], MODES))
def test_environments_are_reset_before_their_end(make, mode):
    """`StepCounter` ends episodes of its own, here those of the second environment only."""
    env = TorchRLEnv(make(2, mode), categorical_actions=True)

    def policy(tensordict):
        return tensordict.set("action", torch.zeros(2, dtype=torch.int64))

    state = env.reset()
    starts = []
    for number in range(8):
        _, state = env.step_and_maybe_reset(policy(state))
        if number % 2 == 0:
            state["_reset"] = torch.tensor([[False], [True]])
            state = env.reset(state)
        start, count = state["observation"].unbind(1)
        assert count.tolist() == [(number + 1) % 4, number % 2]
        starts.append(start.tolist())
    first, second = zip(*starts, strict=True)
    assert len(set(first)) == 3
    assert len(set(second)) == 4
    counted = TransformedEnv(env, StepCounter(3), RewardSum())
    steps = counted.rollout(9, policy, break_when_any_done=False)
    assert steps["observation"][:, :, 1].tolist() == [[0, 1, 2] * 3] * 2
    done = steps["next", "done"][:, 2::3]
    assert done.all()
    assert not steps["next", "terminated"].any()


@pytest.mark.parametrize(("make", "mode"), crossed([probes, of_gymnasium], MODES))
def test_until_all_have_ended(make, mode):
    env = TorchRLEnv(make(2, mode), categorical_actions=True)

    def policy(tensordict):  # the first environment terminates after two steps
        late = tensordict["observation"][:, 1] >= 1
        tensordict["action"] = torch.where(late & torch.tensor([True, False]), 1, 0)
        return tensordict

    for _ in range(2):
        steps = env.rollout(20, policy, break_when_any_done=False, break_when_all_done=True)
        assert steps.shape == (2, 4)
        ends = steps["next", "observation"][:, :, 1]
        assert ends.tolist() == [[1, 2, 2, 2], [1, 2, 3, 4]]
        assert steps["next", "terminated"][:, -1, 0].tolist() == [True, False]
        assert steps["next", "truncated"][:, -1, 0].tolist() == [False, True]


def test_environments_that_wait_keep_their_values():
    env = TorchRLEnv(probes(2, "Disabled"), categorical_actions=True)
    state = env.reset()
    state["action"] = torch.tensor([1, 0])
    state = env.step_mdp(env.step(state))
    before = state["observation"].clone()
    state["_step"], state["action"] = torch.tensor([False, True]), torch.tensor([0, 2])
    after = env.step(state)["next"]
    assert torch.equal(after["observation"][0], before[0])
    assert after["observation"][1].tolist() == [before[1, 0].item(), 2]
    assert after["reward"].tolist() == [[0], [3]]
    assert after["done"].tolist() == [[True], [False]]
    with pytest.raises(af.OptionError, match=r"\[True, False\].*Reset these"):
        env.step(env.rand_action(env.step_mdp(state).exclude("_step")))


@pytest.mark.parametrize("mode", MODES)
def test_seeds(mode):
    env = TorchRLEnv(probes(2, mode), categorical_actions=True)

    def starts(**given):
        return env.reset(**given)["observation"][:, 0].tolist()

    env.set_seed(1)
    first, second = starts(), starts()
    assert first != second
    env.set_seed(1)
    assert [starts(), starts()] == [first, second]
    env.set_seed(2)
    assert starts(seed=1) == first
    state = env.reset()
    env.set_seed(1)  # and no reset before the next steps
    for _ in range(4):
        _, state = env.step_and_maybe_reset(state.set("action", torch.zeros(2, dtype=torch.int64)))
    assert state["observation"][:, 1].tolist() == [0, 0]
    assert state["observation"][:, 0].tolist() == second


class Named(gym.vector.VectorEnv):
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    num_envs = 2
    single_action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.single_observation_space = space


def test_what_is_refused():
    with pytest.raises(af.OptionError, match=r"TorchRL learns from every step.*SameStep"):
        TorchRLEnv(CartPole().make_vec(2))
    for wrong in ("CartPole-v1", CartPole(), gym.make("CartPole-v1")):
        with pytest.raises(TypeError, match=r"TorchRLEnv was given .* not a vector environment"):
            TorchRLEnv(wrong)
    with pytest.raises(af.OptionError, match=r"a part 'reward'.*Rename"):
        TorchRLEnv(Named(spaces.Dict({"reward": spaces.Discrete(2)})))
    with pytest.raises(TypeError, match=r"Text.*\['mission'\] has no fixed shape or no numbers"):
        TorchRLEnv(Named(spaces.Dict({"mission": spaces.Text(5)})))
    with pytest.raises(af.OptionError, match="categorical_actions"):
        TorchRLEnv(probes(2, "SameStep"), categorical_actions=1)


def test_a_lost_observation_is_told():
    env = TorchRLEnv(Forgetful(probes(2, "SameStep")), categorical_actions=True)
    with pytest.raises(af.OptionError, match=r"'final_obs'.*Disabled"):
        env.rollout(5, break_when_any_done=False)
