"""If states are several arrays, the first automatic reset fails. With `make_vec`, it works."""

import numpy as np
from gymnasium.envs.functional_jax_env import FunctionalJaxVectorEnv
from gymnasium.envs.tabular.blackjack import BlackjackFunctional

envs = FunctionalJaxVectorEnv(BlackjackFunctional(), 4)
envs.reset(seed=1)
try:
    assert [envs.step(np.zeros(4, int)) for _ in range(9)] == []
except AttributeError as error:
    print(error)
