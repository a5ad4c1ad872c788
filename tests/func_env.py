"""The probe of the kit as a `FuncEnv` of Gymnasium."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium import spaces
from gymnasium.experimental.functional import FuncEnv

LIMIT = 4
"""The steps of an episode."""


@struct.dataclass
class Params:
    scale: float = 1.0
    ends: int = 1


class Ends(FuncEnv):
    """The action that ends the episode is in the state, as `terminal` gets no action."""

    observation_space = spaces.Box(0, LIMIT, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def initial(self, rng, params=None):
        start, count = jax.random.uniform(rng), jnp.zeros((), jnp.int32)
        return {"start": start, "count": count, "over": jnp.zeros((), bool)}

    def transition(self, state, action, rng, params=None):
        return {**state, "count": state["count"] + 1, "over": action == params.ends}

    def observation(self, state, rng, params=None):
        return jnp.stack([state["start"], state["count"].astype(jnp.float32)])

    def reward(self, state, action, next_state, rng, params=None):
        return (next_state["count"] + action / 2) * params.scale

    def terminal(self, state, rng, params=None):
        return state["over"]

    def state_info(self, state, params=None):
        return {"count": state["count"]}

    def get_default_params(self, **kwargs):
        return Params()
