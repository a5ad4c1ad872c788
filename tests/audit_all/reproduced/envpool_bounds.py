"""Observations are outside of their space, whose lower bound is the least positive number."""

import envpool

envs = envpool.make_gymnasium("LunarLander-v3", num_envs=1, seed=1)
observation = envs.reset()[0][0]
print(envs.single_observation_space, observation)
assert not envs.single_observation_space.contains(observation)
