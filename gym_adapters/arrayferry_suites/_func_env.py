"""Functional environments of Gymnasium."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arrayferry.typing import AnyTree
from arrayferry_envs import JaxEnv


class FuncEnvAdapter(JaxEnv):
    """A `FuncEnv` of Gymnasium in JAX. It does not truncate episodes. For a step limit, pass `max_episode_steps`.

    Args:
        env: the `FuncEnv` of Gymnasium.
        params: the parameters of the environment, or None for the defaults.
    """

    def __init__(self, env: Any, params: AnyTree = None) -> None:
        super().__init__(env, env.get_default_params() if params is None else params)
        metadata = getattr(self.env, "metadata", {})
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 30, **metadata}

    def actions(self, example: AnyTree) -> Any:
        """Return the space that the environment declares."""
        return self.env.action_space

    def observations(self, example: AnyTree) -> Any:
        """Return the space that the environment declares."""
        return self.env.observation_space

    def begin(self, key: Any, params: AnyTree) -> Any:
        """Return the first state, observation and infos of an episode."""
        state_key, observation_key = jax.random.split(key)
        return self._shown(self.env.initial(state_key, params), observation_key, params)

    def _shown(self, state: AnyTree, key: Any, params: AnyTree) -> Any:
        return state, self.env.observation(state, key, params), self.env.state_info(state, params)

    def advance(
        self, key: Any, kept: Any, action: AnyTree, params: AnyTree
    ) -> tuple[Any, Any, Any, Any]:
        """Take a step."""
        move_key, reward_key, terminal_key, observation_key = jax.random.split(key, 4)
        state_before, env = kept[0], self.env
        state = env.transition(state_before, action, move_key, params)
        reward = env.reward(state_before, action, state, reward_key, params)
        terminated = env.terminal(state, terminal_key, params)
        kept_after = self._shown(state, observation_key, params)
        return kept_after, jnp.asarray(reward), jnp.asarray(terminated), jnp.zeros((), bool)

    def observation_of(self, kept: Any, params: AnyTree) -> Any:
        """Return the observation."""
        return kept[1]

    def info_of(self, kept: Any, params: AnyTree) -> dict[str, Any]:
        """Return the infos of the state."""
        return jax.tree.map(jnp.asarray, kept[2])  # type: ignore[no-any-return]

    def image_of(self, kept: Any) -> Any:
        """Return the image that the environment renders."""
        state, params = jax.tree.map(np.asarray, kept[0]), self.default_params
        return self.env.render_image(state, self.env.render_init(params), params)[1]
