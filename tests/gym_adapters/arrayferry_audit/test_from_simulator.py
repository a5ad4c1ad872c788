"""Simulators pass the tests of bridges."""

from __future__ import annotations

from gymnasium import spaces
from simulators import ONE, Genesis, IsaacLab, ManiSkill, Mjlab

from arrayferry_audit import BridgeContract, BridgeStep
from arrayferry_gym import from_simulator, vector


class TestIsaacLab(BridgeContract):
    def make(self):
        return from_simulator(IsaacLab(self.num_envs), group="policy")


class TestIsaacLabForNumpy(BridgeContract):
    num_envs = 5

    def make(self):
        envs = from_simulator(IsaacLab(self.num_envs), group="policy")
        return vector.ArrayConversion(envs, target_xp="numpy")


class LeavesResets(BridgeContract):
    """A vector environment that leaves the reset to the trainer."""

    def step(self, bridge, actions):
        final, reward, terminated, truncated, _ = bridge.step(actions)
        observation, ended = final, terminated | truncated
        if ended.any():
            observation, _ = bridge.reset(options={"reset_mask": ended})
        return BridgeStep(observation, reward, terminated, truncated, final)


class TestMjlab(LeavesResets):
    """Leaves resets to the trainer."""

    def make(self):
        return from_simulator(Mjlab(self.num_envs), group="actor")


class TestManiSkill(LeavesResets):
    """Resets those that its options name."""

    def make(self):
        return from_simulator(ManiSkill(self.num_envs), autoreset_mode="Disabled")


class TestGenesis(BridgeContract):
    """Its limits are no termination, and its ends are one flag. Seeds go to its `seed`."""

    exclusive = True

    def make(self):
        return from_simulator(
            Genesis(self.num_envs), autoreset_mode="SameStep", group="policy",
            observation_space=ONE, action_space=spaces.Discrete(3),
        )  # fmt: skip


class TestTerminalRows(BridgeContract):
    """Resets in the step, and returns last observations of those that have ended alone."""

    def make(self):
        simulator = Mjlab(self.num_envs, auto_reset=True)
        return from_simulator(simulator, autoreset_mode="SameStep", group="actor")
