"""Two resets with the same seed have different goals."""

import crazyflow  # noqa: F401
import gymnasium as gym

envs = gym.make_vec("DroneReachPos-v0", num_envs=4)
one, two = (envs.reset(seed=1)[0] for _ in range(2))
print({key: (one[key][0].tolist(), two[key][0].tolist()) for key in one})
assert any((one[key] != two[key]).any() for key in one)
