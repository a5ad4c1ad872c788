"""An environment of JaxMARL as a parallel environment of PettingZoo, in JAX. This module imports JAX."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from pettingzoo.utils.env import ParallelEnv

import arrayferry as af
from arrayferry_gym._options.env_options import seed_of
from arrayferry_gym._spaces.foreign import gymnasium_space

_ALL = "__all__"
_WORLD = "world_state"


class JaxMARLEnv(ParallelEnv[Any, Any, Any]):  # type: ignore[misc]
    """An environment of JaxMARL as a parallel environment of PettingZoo, in JAX.

    Args:
        env: the environment.

    Attributes:
        env: as given.
        env_state: the state of JaxMARL after the last reset or step, None before the first.

    Raises:
        TypeError: `env` is not an environment of JaxMARL, or its observations are not a dict with those of each agent.
    """

    def __init__(self, env: Any) -> None:
        if not (hasattr(env, "step_env") and hasattr(env, "agents") and hasattr(env, "reset")):
            raise TypeError(
                f"from_jaxmarl was given {env!r:.80}, which is no environment of JaxMARL. Pass what jaxmarl.make returns"
            )
        self.env = env
        self.possible_agents: list[Any] = list(env.agents)
        self.agents: list[Any] = []
        name = str(getattr(env, "name", type(env).__name__))
        self.metadata: dict[str, Any] = {"name": name, "render_modes": []}
        self.render_mode: str | None = None
        self.env_state: Any = None
        self._key: Any = None
        self._idle: dict[Any, Any] = {}
        observations, state = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
        if not isinstance(observations, Mapping) or not observations.keys() >= {*env.agents}:
            kind = list(observations) if isinstance(observations, Mapping) else type(observations)
            raise TypeError(
                f"the observations of {name} are not a dict with those of each of the agents {self.possible_agents}: {kind}. "
                "Write a wrapper whose reset and step_env return such a dict"
            )
        self._observation_spaces = {
            agent: gymnasium_space(env.observation_space(agent), observations[agent])
            for agent in self.possible_agents
        }
        self._action_spaces = {
            agent: gymnasium_space(env.action_space(agent)) for agent in self.possible_agents
        }
        if _WORLD in observations:
            world = observations[_WORLD]
            self.state_space: Any = spaces.Box(
                -np.inf, np.inf, world.shape, np.dtype(world.dtype).type
            )
        self._world: Any = None
        self._masks = self._available_method(state)

    def observation_space(self, agent: Any) -> Any:
        """Return the space of the observations of an agent."""
        return self._observation_spaces[agent]

    def action_space(self, agent: Any) -> Any:
        """Return the space of the actions of an agent."""
        return self._action_spaces[agent]

    def _available_method(self, state: Any) -> str | None:
        """Return the name of the method that says which actions are available, None if there is none."""
        for name in ("get_avail_actions", "get_legal_moves"):
            try:
                shapes = jax.eval_shape(getattr(self.env, name), state)
            except (AttributeError, NotImplementedError):
                continue
            pairs = self._action_spaces.items()
            if all(shapes[agent].shape == (getattr(x, "n", None),) for agent, x in pairs):
                return name
        return None

    # compiled for each object, so that JAX keeps none of them alive

    @functools.cached_property
    def _compiled(self) -> tuple[Any, Any, Any]:
        return jax.jit(self._first), jax.jit(self._next), jax.jit(self._unlimited)

    def _first(self, key: Any) -> Any:
        key, own = jax.random.split(key)
        observations, state = self.env.reset(own)
        return key, state, observations, *self._available(state)

    def _next(self, key: Any, state: Any, actions: Any) -> Any:
        key, own = jax.random.split(key)
        observations, state, rewards, dones, infos = self.env.step_env(own, state, actions)
        return key, state, observations, rewards, dones, infos, *self._available(state)

    def _unlimited(self, key: Any, state: Any, actions: Any) -> Any:
        """Return which agents would be done if this were the first step of an episode, which reaches no limit."""

        def earlier(path: Any, leaf: Any) -> Any:
            name = getattr(path[-1], "name", getattr(path[-1], "key", None)) if path else None
            if name not in ("step", "steps"):
                return leaf
            # some count the step before they compare, some after
            return jnp.full_like(leaf, 0 if jnp.isdtype(leaf.dtype, "unsigned integer") else -1)

        state = jax.tree_util.tree_map_with_path(earlier, state)
        return self.env.step_env(jax.random.split(key)[1], state, actions)[3]

    def _available(self, state: Any) -> tuple[Any, Any]:
        """Return the masks of actions, and for each agent an action that it can take."""
        own = {agent: self.env.action_space(agent) for agent in self.possible_agents}
        if self._masks is None:
            return {}, {agent: jnp.zeros(space.shape, space.dtype) for agent, space in own.items()}
        available = getattr(self.env, self._masks)(state)
        masks = {agent: (available[agent] != 0).astype(jnp.int8) for agent in own}
        return masks, {
            agent: mask.argmax().astype(own[agent].dtype) for agent, mask in masks.items()
        }

    def reset(
        self, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[Any, Any], dict[Any, dict[str, Any]]]:
        """Begin an episode. A seed also determines all later ones. Options are ignored, since JaxMARL has none."""
        if seed is not None or self._key is None:
            number: Any = seed_of(seed, 1)
            self._key = jax.random.key_data(af.registry.backend("jax").random(number).key())
        self._key, self.env_state, observations, masks, self._idle = self._compiled[0](self._key)
        self._world = observations.get(_WORLD)
        self.agents = self.possible_agents[:]
        infos = self._infos_of_agents({}, masks)
        return {agent: observations[agent] for agent in self.agents}, infos

    def step(
        self, actions: Mapping[Any, Any]
    ) -> tuple[dict[Any, Any], dict[Any, Any], dict[Any, bool], dict[Any, bool], dict[Any, Any]]:
        """Take a step with the action of each agent that is still in the game."""
        if not self.agents:
            raise gym.error.ResetNeeded("Call reset(): no agent is in the game.")
        missing = [agent for agent in self.agents if actions.get(agent) is None]
        if missing:
            raise af.OptionError(
                f"there is no action for the agent {missing[0]!r}",
                remedy=f"Pass one for each of {', '.join(map(repr, self.agents))}.",
            )
        taken = {
            agent: jnp.asarray(actions[agent], idle.dtype) if agent in self.agents else idle
            for agent, idle in self._idle.items()
        }
        before = self._key, self.env_state, taken
        self._key, self.env_state, observations, rewards, dones, infos, masks, self._idle = (
            self._compiled[1](*before)
        )
        self._world = observations.get(_WORLD)
        rewards, dones = jax.device_get((rewards, dones))
        ended = self._ended(dones)
        terminated = ended
        if any(ended.values()):
            terminated = self._ended(jax.device_get(self._compiled[2](*before)))
        here, infos = self.agents, self._infos_of_agents(infos, masks)
        self.agents = [agent for agent in here if not ended[agent]]
        return (
            {agent: observations[agent] for agent in here},
            {agent: rewards[agent] for agent in here},
            {agent: ended[agent] and terminated[agent] for agent in here},
            {agent: ended[agent] and not terminated[agent] for agent in here},
            infos,
        )

    def _ended(self, dones: Mapping[Any, Any]) -> dict[Any, bool]:
        return {agent: bool(dones[agent] or dones[_ALL]) for agent in self.possible_agents}

    def _infos_of_agents(self, infos: Any, masks: Any) -> dict[Any, dict[str, Any]]:
        """Return the infos of each agent in the game: its own, those shared by all, and the mask of its actions."""
        agents = {*self.possible_agents}
        informed: dict[Any, dict[str, Any]] = {agent: {} for agent in self.agents}
        for agent, info in informed.items():
            for key, value in infos.items():
                own = isinstance(value, Mapping) and value.keys() >= agents
                info[key] = value[agent] if own else value
            if masks:
                info["action_mask"] = masks[agent]
        return informed

    def state(self) -> Any:
        """Return the state of the world, if it is part of the observations."""
        return super().state() if self._world is None else self._world

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}
