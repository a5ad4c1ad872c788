"""Two episodes with the same seed differ after the cart mines, since NumPy's global generator draws the amounts."""

import mo_gymnasium
import numpy as np

ends = []
for _ in range(2):
    env = mo_gymnasium.make("minecart-v0")
    env.reset(seed=1)
    env.action_space.seed(1)
    ends.append([env.step(env.action_space.sample())[0] for _ in range(300)])
print("different steps of 300:", sum(not np.array_equal(*x) for x in zip(*ends, strict=True)))
assert not np.array_equal(*ends)
