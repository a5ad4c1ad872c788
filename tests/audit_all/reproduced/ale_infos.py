"""Rewards are int32. Infos have no masks. In SAME_STEP mode, the infos of last steps are missing."""

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

envs = AtariVectorEnv("breakout", num_envs=4, autoreset_mode=AutoresetMode.SAME_STEP)
envs.reset(seed=1)
_, reward, ended, _, infos = envs.step(np.ones(4, np.int64))
while not ended.any():
    _, reward, ended, _, infos = envs.step(np.ones(4, np.int64))
assert reward.dtype == np.int32
assert not {"_lives", "final_info"} & infos.keys(), infos.keys()
