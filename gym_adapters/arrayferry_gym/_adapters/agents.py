"""Agents that share an environment: each has an adapter of its own."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import arrayferry as af

from .adapter import Adapter


class _View:
    """An environment as seen by one agent: the attributes that an `Adapter` needs.

    Args:
        env: the environment.
        agent: the agent, None for what belongs to all.
    """

    def __init__(self, env: Any, agent: Hashable) -> None:
        self.env = env
        self.agent = agent
        self.metadata: dict[str, Any] = getattr(env, "metadata", None) or {}

    @property
    def action_space(self) -> Any:
        return self._space("action_space")

    @property
    def observation_space(self) -> Any:
        return self._space("observation_space")

    @property
    def state_space(self) -> Any:
        return self.env.state_space

    def _space(self, name: str) -> Any:
        try:
            return getattr(self.env, name)(self.agent)
        except KeyError as error:
            known = [*dict.fromkeys((*getattr(self.env, "possible_agents", ()), *self.env.agents))]
            if self.agent in known:
                raise
            raise af.OptionError(
                f"there is no agent {self.agent!r:.80}", remedy=f"The agents are {known!r:.200}."
            ) from error


class AgentAdapter(Adapter):
    """The adapter of one agent in an environment with several."""

    # public names, since no user sees this class
    space = Adapter._space
    explain = Adapter._explain
    detect = Adapter._observe

    def __init__(self, env: Any, agent: Hashable, *arguments: Any, **options: Any) -> None:
        self.env = _View(env, agent)
        self._setup(self.env, *arguments, **options)
        self.libraries = self._libraries

    def act(self, action: Any) -> Any:
        """Convert an action to the form that the environment expects of the agent."""
        try:
            return self._act(action)
        except af.ConversionError as error:
            error.reason = f"agent {self.env.agent!r}: {error.reason}"
            raise

    def begin(self, options: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Prepare for another episode, and convert the options of the reset."""
        self._check_space()
        return self._reset_options(options)

    def convert_observation(self, observation: Any) -> Any:
        """Convert an observation."""
        self._observe(observation)
        return self.libraries.to_agent(observation)

    def convert_number(self, value: Any, kind: type) -> Any:
        """Convert a reward or a flag."""
        return self.libraries.to_number(value, kind)

    def convert_info(self, info: Any) -> Any:
        """Convert an info."""
        return self.libraries.convert_infos(info)
