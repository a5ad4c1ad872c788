"""Observations of a Discrete space are int32, but the space says int64."""

import envpool

envs = envpool.make_gymnasium("FrozenLake-v1", num_envs=4, seed=1)
observation, _ = envs.reset()
print(envs.single_observation_space.dtype, observation.dtype)
assert observation.dtype != envs.single_observation_space.dtype
