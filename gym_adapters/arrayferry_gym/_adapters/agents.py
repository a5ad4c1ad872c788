"""`AgentAdapter`, the adapter of one agent in an environment with several agents."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import arrayferry as af
from arrayferry.typing import AnyTree

from .adapter import Adapter


class AgentAdapter(Adapter):
    """The adapter of one agent in an environment with several agents.

    Args:
        env: the environment.
        agent: the name of the agent, or None for values that all agents share, such as the state.
        **options: as for `ArrayConversion`.
    """

    # other modules call these methods, so their names have no underscore
    space = Adapter._space
    explain = Adapter._explain
    detect = Adapter._observe

    def __init__(self, env: Any, agent: Hashable, **options: Any) -> None:
        self.env, self.agent = env, agent
        self._setup(env, **options)
        self.libraries = self._libraries

    def _original(self, name: str) -> Any:
        space = getattr(self.env, name)
        if name == "state_space":
            return space
        try:
            return space(self.agent)
        except KeyError as error:
            agents = [*dict.fromkeys((*getattr(self.env, "possible_agents", ()), *self.env.agents))]
            if self.agent in agents:
                raise
            raise af.OptionError(
                f"there is no agent {self.agent!r:.80}", remedy=f"The agents are {agents!r:.200}."
            ) from error

    def act(self, action: AnyTree) -> Any:
        """Return an action as the environment expects it from this agent."""
        self._note = None
        try:
            return self._act(action)
        except af.ConversionError as error:
            error.reason = f"agent {self.agent!r}: {error.reason}"
            raise

    def begin(self, options: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Prepare for a reset. Return the options of the reset, converted to the library of the environment."""
        self._check_space()
        return self._reset_options(options)

    def convert_observation(self, observation: AnyTree) -> Any:
        """Detect the environment's library from an observation, and convert the observation to the agent's library."""
        self._observe(observation)
        return self.libraries.to_agent(observation)

    def convert_number(self, value: AnyTree, kind: type) -> Any:
        """Convert a reward to a float, or a flag to a bool. Arrays with axes are converted to the agent's library."""
        return self.libraries.to_number(value, kind)

    def convert_info(self, info: AnyTree) -> Any:
        """Convert an info to `info_xp` or, by default, to the agent's library."""
        return self.libraries.convert_infos(info)
