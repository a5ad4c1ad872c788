"""If `reset` follows the end of an episode, the next step resets again. So runs with the same seed differ."""

import gymnasium as gym
import numpy as np

envs = gym.make_vec("phys2d/CartPole-v1", 4, vectorization_mode="vector_entry_point")
envs.reset(seed=1)
one = np.asarray(envs.step(np.ones(4, int))[0])
while not envs.step(np.ones(4, int))[2].any():
    pass
envs.reset(seed=1)
two = np.asarray(envs.step(np.ones(4, int))[0])
assert (one != two).any(), (one, two)
