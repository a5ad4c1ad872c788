"""`reset` ignores its seed."""

import envpool

envs = envpool.make_gymnasium("CartPole-v1", num_envs=4, seed=1)
one, two = (envs.reset(seed=1)[0] for _ in range(2))
print(one[0], two[0])
assert (one != two).any()
