"""A step that only resets returns a reward, which depends on the action."""

import gymnasium as gym
import numpy as np

rewards = []
for action in (0, 2):
    envs = gym.make_vec("phys2d/Pendulum-v0", 4, vectorization_mode="vector_entry_point")
    envs.reset(seed=1)
    while not envs.step(np.zeros((4, 1), np.float32))[3].all():
        pass
    rewards.append(envs.step(np.full((4, 1), action, np.float32))[1])
assert (rewards[0] != rewards[1]).all(), rewards
