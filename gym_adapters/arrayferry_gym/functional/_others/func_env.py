"""Functional environments of Gymnasium."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .base import OtherEnv
from .spaces import plain


class FuncEnvAdapter(OtherEnv):
    """A `FuncEnv` of Gymnasium, written for JAX. It truncates nothing: pass `max_episode_steps`.

    Args:
        env: the environment.
        params: its parameters, None for its own.
    """

    def __init__(self, env: Any, params: Any = None) -> None:
        super().__init__(env, env.get_default_params() if params is None else params)
        env = self.env
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": 30,
            **getattr(env, "metadata", {}),
        }
        self._dtypes = self._lasting_dtypes()

    def begin(self, key: Any, params: Any) -> Any:
        """Return state, observation and infos."""
        first, seeing = jax.random.split(key)
        state = self.env.initial(first, params)
        return (
            state,
            self.env.observation(state, seeing, params),
            self.env.state_info(state, params),
        )

    def advance(self, key: Any, kept: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any]:
        """Take a step."""
        moving, rewarding, ending, seeing = jax.random.split(key, 4)
        before, env = kept[0], self.env
        state = env.transition(before, action, moving, params)
        reward = env.reward(before, action, state, rewarding, params)
        terminated = env.terminal(state, ending, params)
        after = state, env.observation(state, seeing, params), env.state_info(state, params)
        return after, jnp.asarray(reward), jnp.asarray(terminated), jnp.zeros((), bool)

    def seen(self, kept: Any, params: Any) -> Any:
        """Return the observation."""
        return plain(kept[1])

    def told(self, kept: Any, params: Any) -> dict[str, Any]:
        """Return the infos of the state."""
        return {str(name): jnp.asarray(x) for name, x in kept[2].items()}

    def render(self, state: Any, index: int) -> Any:
        """Draw it as the environment does."""
        one = jax.tree.map(lambda x: np.asarray(x)[index], state.tree[0])
        return self.env.render_image(
            one, self.env.render_init(self.default_params), self.default_params
        )[1]
