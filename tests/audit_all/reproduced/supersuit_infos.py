"""A later step changes the infos that an earlier step has returned."""

import copy

import supersuit
from mpe2 import simple_spread_v3

envs = supersuit.pettingzoo_env_to_vec_env_v1(simple_spread_v3.parallel_env(N=4))
_, infos = envs.reset(seed=1)
before = copy.deepcopy(infos)
for _ in range(25):
    envs.step([1] * 4)
assert str(infos) != str(before), (infos, before)
