"""The metadata states no mode, although the metadata of the base class does."""

import gymnasium as gym

envs = gym.make_vec("phys2d/Pendulum-v0", 4, vectorization_mode="vector_entry_point")
print(envs.metadata)
assert "autoreset_mode" not in envs.metadata
