"""While some environments reset, the others do not move, but get the reward of a move."""

import gymnasium as gym
import numpy as np

envs = gym.make_vec("phys2d/CartPole-v1", 4, vectorization_mode="vector_entry_point")
before, ended = envs.reset(seed=1)[0], np.zeros(4, bool)
while ended.all() or not ended.any():
    before, _, ended, *_ = map(np.asarray, envs.step(np.array([0, 0, 1, 1])))
after, *_ = envs.step(np.array([0, 0, 1, 1]))
print("another, before and after the step:", before[~ended][0], after[~ended][0])
assert (after[~ended] == before[~ended]).all()
