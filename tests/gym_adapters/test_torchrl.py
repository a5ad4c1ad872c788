"""Vector environments of any library for TorchRL."""

import gymnasium as gym
import jax
import numpy as np
import pytest
from cases import crossed
from envs import Forgetful, Masked
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space
from recipes import run

import arrayferry as af
from arrayferry_audit import BridgeContract, BridgeStep, Probe
from arrayferry_envs import CartPole, FunctionalEnv
from arrayferry_gym import vector
from arrayferry_gym.wrappers.vector import RecordEpisodeStatistics

pytest.importorskip("torchrl")
import torch
from torchrl.envs import ActionMask, RewardSum, StepCounter, TransformedEnv, check_env_specs

from arrayferry_gym.torchrl import TorchRLEnv

MODES = ("SameStep", "Disabled")


def probes(n, mode, xp="numpy"):
    return Probe().make_vec(n, xp=xp, autoreset_mode=mode)


def of_gymnasium(n, mode):
    """They write each observation over the one before."""
    makes = [lambda: Probe().make()] * n
    return SyncVectorEnv(makes, copy=False, autoreset_mode=AutoresetMode(mode))


# The conformance kit, in the order in which TorchRL resets and steps.


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


# Spaces of every kind. The observation is the last action.


def echo(space):
    class Echo(FunctionalEnv):
        observation_space = action_space = space
        max_episode_steps = 3

        def reset(self, xp, rng, n, params):
            first = batch_space(space, n)
            first.seed(0)
            return jax.tree.map(xp.asarray, first.sample())

        def step(self, xp, rng, state, action, params):
            return action, 1.0, False

        def observe(self, xp, state, params):
            return state

    return Echo()


SPACES = {
    "Discrete": spaces.Discrete(3, start=2),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
    "MultiDiscrete of two axes": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[1, 1], [0, 5]]),
    "MultiBinary": spaces.MultiBinary(4),
    "Box": spaces.Box(-1, 1, (2,), np.float32),
    "Box of integers": spaces.Box(0, 255, (2, 2), np.uint8),
    "Dict": spaces.Dict(
        {"a": spaces.Discrete(3), "b": spaces.Dict({"c": spaces.MultiBinary((2, 2))})}
    ),
}


@pytest.mark.parametrize(("name", "xp"), crossed(SPACES, ["numpy", "torch", "jax"]))
def test_spaces(name, xp):
    """What is acted is observed, in both encodings."""
    space, seen = SPACES[name], []
    for categorical in (True, False):
        served = echo(space).make_vec(3, xp=xp, autoreset_mode="SameStep", check_actions="strict")
        env = TorchRLEnv(served, categorical_actions=categorical)
        check_env_specs(env)
        step = env.rollout(2)[:, -1]
        for key in env.observation_keys:
            observed = step["next"][key]
            place = (key,) if isinstance(key, str) else key
            place = ("action", *place) if name == "Dict" else "action"
            spec = env.full_action_spec[place]
            acted = step[place]
            if "Discrete" in name or key == "a":
                acted = spec.to_categorical(acted)
            assert torch.equal(observed, acted.to(observed.dtype))
            seen.append((key, observed.dtype, env.observation_spec[key].space))
        env.close()
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    if name.startswith(("Discrete", "Multi")):
        assert seen[0][1] == getattr(torch, str(space.dtype))


@pytest.mark.parametrize("categorical", [True, False])
def test_masks_of_actions(categorical):
    served = Masked().make_vec(2, xp="jax", autoreset_mode="SameStep")
    env = TransformedEnv(TorchRLEnv(served, categorical_actions=categorical), ActionMask())
    check_env_specs(env)
    steps = env.rollout(12, break_when_any_done=False)
    assert steps["action_mask"].dtype == torch.bool
    assert (steps["next", "reward"] == 1).all()


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
    with pytest.raises(af.OptionError, match=r"\[True, False\].*Reset them"):
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


@pytest.mark.filterwarnings("ignore:Creating .* is deprecated:DeprecationWarning")  # its own
def test_the_recipe():
    assert run("TorchRL")["steps"].shape == (16, 8)


def test_environments_stay_in_their_library():
    served = CartPole().make_vec(3, xp="jax", autoreset_mode="SameStep")
    env = TorchRLEnv(served)
    env.rollout(2)
    with af.trace() as trace:
        env.rollout(30, break_when_any_done=False)
    crossed = {(row.source, row.target) for row in trace.rows}
    assert crossed == {("jax", "torch"), ("torch", "jax"), ("torch", "numpy")}
    # actions are looked at in NumPy, in the memory of PyTorch
    assert all(row.how == "shared" for row in trace.rows if row.target == "numpy")
    TorchRLEnv(RecordEpisodeStatistics(served)).rollout(3)
    assert served.xp == "jax"


def test_behind_an_adapter():
    """An adapter around environments in JAX returns PyTorch, and is no environment in JAX."""
    served = CartPole().make_vec(3, xp="jax", autoreset_mode="Disabled")
    env = TorchRLEnv(vector.ArrayConversion(served, env_xp="jax", target_xp="torch"))
    check_env_specs(env)
    assert served.xp == "jax"


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
        with pytest.raises(TypeError, match=r"TorchRLEnv was given .* no vector environment"):
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
