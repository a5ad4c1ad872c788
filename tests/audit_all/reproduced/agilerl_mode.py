"""The docstring describes an autoreset mode, but the metadata does not state it."""

import gymnasium as gym
from agilerl.vector.dummy_vec_env import DummyVecEnv

envs = DummyVecEnv(gym.make("CartPole-v1"))
print(envs.metadata)
assert "autoreset_mode" not in (envs.metadata or {})
