"""A step that only resets returns a reward of 1. With `SyncVectorEnv`, this reward is 0."""

import gymnasium as gym
import numpy as np

envs = gym.make_vec("phys2d/CartPole-v1", 4, vectorization_mode="vector_entry_point")
envs.reset(seed=1)
ended = np.zeros(4, bool)
while not ended.any():
    ended = np.asarray(envs.step(np.ones(4, int))[2])
_, reward, terminated, *_ = envs.step(np.ones(4, int))
print("in the step that resets, rewards:", reward[ended], "terminated:", terminated[ended])
assert (reward[ended] == 1).all()
