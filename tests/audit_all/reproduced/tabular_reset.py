"""The first automatic reset fails if states are not one array. `make_vec` avoids the failure."""

import numpy as np
from gymnasium.envs.functional_jax_env import FunctionalJaxVectorEnv
from gymnasium.envs.tabular.blackjack import BlackjackFunctional

envs = FunctionalJaxVectorEnv(BlackjackFunctional(), 4)
envs.reset(seed=1)
try:
    assert [envs.step(np.zeros(4, int)) for _ in range(9)] == []
except AttributeError as error:
    print(error)
