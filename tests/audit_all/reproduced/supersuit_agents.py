"""Rows are agents of one game. Spaces are for one agent. Flags are uint8. Infos are a list."""

import numpy as np
import supersuit
from mpe2 import simple_spread_v3

envs = supersuit.pettingzoo_env_to_vec_env_v1(simple_spread_v3.parallel_env(N=4))
observation, _ = envs.reset(seed=1)
results = [envs.step(np.ones(4, int)) for _ in range(25)][-1]
print(envs.observation_space.shape, observation.shape, results[3].dtype, results[4][0].keys())
assert (envs.observation_space.shape, results[3].dtype) == ((24,), np.uint8)
assert "terminal_observation" in results[4][0]
