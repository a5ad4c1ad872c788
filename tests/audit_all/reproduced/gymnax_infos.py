"""The last observation has the name that Gymnasium used before 1.1. Infos have no masks. No mode is stated."""

import gymnax
import numpy as np
from gymnax.wrappers.gym import GymnaxToVectorGymWrapper

envs = GymnaxToVectorGymWrapper(*gymnax.make("CartPole-v1")[:1], 4)
envs.reset(seed=1)
results = envs.step(np.ones(4, int))
while not results[2].any():
    results = envs.step(np.ones(4, int))
print(envs.metadata, sorted(results[4]))
assert not {"final_obs", "_final_observation", "final_info"} & results[4].keys()
