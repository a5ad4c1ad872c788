"""The spaces of a batch of four environments are the spaces of a single environment."""

import envpool

envs = envpool.make_gymnasium("CartPole-v1", num_envs=4, seed=1)
observation, _ = envs.reset()
print(envs.observation_space, observation.shape)
assert not envs.observation_space.contains(observation)
