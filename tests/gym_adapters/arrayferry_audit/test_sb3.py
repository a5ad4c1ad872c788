"""The bridge to Stable-Baselines3 passes the tests of bridges."""

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecFrameStack, VecMonitor, VecNormalize

from arrayferry_audit import BridgeContract, BridgeStep, Probe
from arrayferry_envs import CartPole
from arrayferry_gym.sb3 import SB3VecEnv


class TestSameStep(BridgeContract):
    """The conformance kit. An episode that terminates at the limit counts as terminated only."""

    exclusive = True

    def make(self):
        return SB3VecEnv(Probe().make_vec(self.num_envs, xp="jax", autoreset_mode="SameStep"))

    def reset(self, bridge, seed):
        if seed is not None:
            bridge.seed(seed)
        return bridge.reset()

    def step(self, bridge, actions):
        observation, reward, dones, infos = bridge.step(actions)
        truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        final = [info.get("terminal_observation") for info in infos]
        return BridgeStep(observation, reward, dones & ~truncated, truncated, final)

    def spaces(self, bridge):
        return bridge.observation_space, bridge.action_space


class TestDisabled(TestSameStep):
    def make(self):
        return SB3VecEnv(Probe().make_vec(self.num_envs, xp="torch", autoreset_mode="Disabled"))


class TestGymnasium(TestSameStep):
    def make(self):
        makes = [lambda: Probe().make()] * self.num_envs
        return SB3VecEnv(SyncVectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP))


class Batch(VectorWrapper):
    """Has no `final_info`, and infos with things for each environment and for all."""

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed, options=options)[0], {"mask": np.arange(3)}

    def step(self, actions):
        *results, infos = self.env.step(actions)
        infos = {
            "name": "abc", 5: np.arange(3), "each": ["a", "b", "c"], "mask": np.arange(3), "_name": "d",
            "size": np.float32(2), "bytes": b"abc", "names": {"x": "xyz"}, "set": {1, 2, 3},
            "final_obs": infos["final_obs"],
        }  # fmt: skip
        return *results, infos


def test_infos_of_a_batch():
    envs = SB3VecEnv(Batch(Probe().make_vec(3, autoreset_mode="SameStep")))
    envs.reset()
    infos = envs.step(np.array([0, 1, 0]))[3]
    shared = {"name": "abc", "_name": "d", "size": 2.0, "bytes": b"abc", "set": {1, 2, 3}}
    assert infos[2] == {
        **shared, 5: 2, "each": "c", "mask": 2, "names": {"x": "xyz"}, "TimeLimit.truncated": False
    }  # fmt: skip
    assert "mask" not in infos[1]  # it is of the next episode
    assert envs.reset_infos[1] == {"mask": 1}
    assert infos[1]["each"] == "b"


def test_under_their_wrappers():
    envs = VecNormalize(
        VecMonitor(SB3VecEnv(CartPole().make_vec(4, xp="jax", autoreset_mode="SameStep")))
    )
    model = PPO("MlpPolicy", envs, n_steps=16, batch_size=32, n_epochs=1, device="cpu", seed=0)
    model.learn(128)
    assert model.ep_info_buffer

    stacked = VecFrameStack(SB3VecEnv(Probe().make_vec(2, autoreset_mode="SameStep")), 3)
    stacked.reset()
    for _ in range(4):
        observation, _, dones, infos = stacked.step(np.zeros(2, int))
    assert dones.all()
    assert infos[0]["terminal_observation"][1::2].tolist() == [2, 3, 4]
    assert observation[0, 1::2].tolist() == [0, 0, 0]
