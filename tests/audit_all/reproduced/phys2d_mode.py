"""The mode is missing in its metadata, and stated by its base class."""

import gymnasium as gym

envs = gym.make_vec("phys2d/Pendulum-v0", 4, vectorization_mode="vector_entry_point")
print(envs.metadata)
assert "autoreset_mode" not in envs.metadata
