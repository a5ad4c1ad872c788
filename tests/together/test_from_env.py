"""Environments of suites pass the tests of bridges."""

from func_env import LIMIT, Ends

from arrayferry_audit import BridgeContract
from arrayferry_envs import from_env


class TestFuncEnv(BridgeContract):
    def make(self):
        return from_env(Ends()).make_vec(
            self.num_envs, xp="torch", autoreset_mode="SameStep", max_episode_steps=LIMIT
        )
