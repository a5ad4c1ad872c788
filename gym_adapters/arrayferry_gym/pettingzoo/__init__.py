"""Adapters for environments of PettingZoo. The agents in one game may use different libraries.

`ParallelConversion` is for parallel environments, `AECConversion` for environments in which agents take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

import arrayferry as af
from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import forwarded_seed, missing_package
from arrayferry._utilities.text import never_raises
from arrayferry.typing import AnyTree, Device, Target
from arrayferry_gym._adapters.adapter import Adapter, arguments_of, takes
from arrayferry_gym._options.libraries import target_like

try:
    from pettingzoo.utils.env import AECEnv, ParallelEnv
    from pettingzoo.utils.wrappers import BaseParallelWrapper, BaseWrapper
except ImportError as _error:
    raise missing_package(__name__, "pettingzoo", _error) from _error

if TYPE_CHECKING:
    from typing import Unpack

    from arrayferry_gym._adapters.overloads import Options

__all__ = ["AECConversion", "ParallelConversion"]

_NUMBERS = {
    "rewards": float,
    "_cumulative_rewards": float,
    "terminations": bool,
    "truncations": bool,
}
"""The attributes of an AEC environment that map agents to numbers, and the types of these numbers."""


class _AgentAdapter(Adapter):
    """The adapter of one agent in a game.

    Args:
        env: the environment.
        agent: the name of the agent, or None for values that all agents share, such as the state.
        **options: as for `ArrayConversion`.
    """

    def __init__(self, env: Any, agent: Hashable, **options: Any) -> None:
        self.env, self._agent = env, agent
        self._setup(env, **options)

    def _original(self, name: str) -> Any:
        space = getattr(self.env, name)
        if name == "state_space":
            return space
        try:
            return space(self._agent)
        except KeyError as error:
            agents = [*dict.fromkeys((*getattr(self.env, "possible_agents", ()), *self.env.agents))]
            if self._agent in agents:
                raise
            raise af.OptionError(
                f"there is no agent {self._agent!r:.80}", remedy=f"The agents are {agents!r:.200}."
            ) from error

    def act(self, action: AnyTree) -> Any:
        """Return an action as the environment expects it from this agent."""
        self._note = None
        try:
            return self._act(action)
        except af.ConversionError as error:
            error.reason = f"agent {self._agent!r}: {error.reason}"
            raise

    def begin(self, options: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Prepare for a reset. Return the options of the reset, converted to the library of the environment."""
        self._check_space()
        return self._reset_options(options)

    def convert_observation(self, observation: AnyTree) -> Any:
        """Detect the environment's library from an observation, and convert the observation to the agent's library."""
        self._observe(observation)
        return self._libraries.to_agent(observation)

    def convert_number(self, value: AnyTree, kind: type) -> Any:
        """Convert a reward to a float, or a flag to a bool. Arrays with axes are converted to the agent's library."""
        return self._libraries.to_number(value, kind)

    def convert_info(self, info: AnyTree) -> Any:
        """Convert an info to `info_xp` or, by default, to the agent's library."""
        return self._libraries.convert_infos(info)


class _Conversion:
    """The base class of both conversions. It has an adapter for each agent, and one for values that all agents share."""

    fixed_options: tuple[str, ...] = ()

    env: Any

    @takes("stack_final", "reward_dtype", "convert_render")
    def __init__(
        self,
        env: Any,
        env_xp: Target | None = None,
        target_xp: Target | Mapping[Any, Target | None] | None = None,
        env_device: Device = None,
        target_device: Device = None,
        *,
        like: Any = None,
        **options: Unpack[Options],
    ) -> None:
        self._options = arguments_of(_Conversion, self, env_xp, None, env_device, **options)
        _check(type(self), env)
        super().__init__(env)  # type: ignore[call-arg]
        possible_agents = getattr(env, "possible_agents", None)
        self._targets = _targets(possible_agents, target_xp, target_device, like)
        self._adapters: dict[Any, _AgentAdapter] = {}
        # only for AECConversion: the latest info of each agent, before and after its conversion
        self._infos: dict[Any, tuple[Any, Any]] = {}
        self._common = self._adapter(None)
        for agent in dict.fromkeys((*(possible_agents or ()), *self._targets)):
            if agent is not None:
                self._of(agent)

    def _adapter(self, agent: Any) -> _AgentAdapter:
        xp, device = self._targets.get(agent, self._targets[None])
        options = {**self._options, "target_xp": xp, "target_device": device}
        return _AgentAdapter(self.env, agent, **options)

    def _of(self, agent: Any) -> _AgentAdapter:
        """Return the adapter of an agent. If the agent has joined during a game, create its adapter."""
        adapter = self._adapters.get(agent)
        if adapter is None:
            adapter = self._adapters[agent] = self._adapter(agent)
        return adapter

    def _each(self, convert: Callable[..., Any], values: AnyTree, *kind: type) -> dict[Any, Any]:
        """Convert each value of a dict by `convert`, a method of `_AgentAdapter` with the last argument `kind`."""
        return {agent: convert(self._of(agent), value, *kind) for agent, value in values.items()}

    def _after_reset(self) -> None:
        """Prepare all adapters for a new game. Delete the adapters of agents that are not in this game."""
        possible_agents = getattr(self.env, "possible_agents", self.env.agents)
        for agent in self._adapters.keys() - {*possible_agents, *self.env.agents}:
            del self._adapters[agent]
        for adapter in self._adapters.values():
            adapter.begin()

    def _reset_arguments(self, seed: Any, options: dict[str, Any] | None) -> dict[str, Any]:
        """Return the arguments for `reset` of the environment, with converted options."""
        return {"seed": forwarded_seed(seed, 1), "options": self._common.begin(options)}

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the environment. Spaces are converted."""
        value = super().__getattr__(name)  # type: ignore[misc]
        if name in ("observation_spaces", "action_spaces"):
            return {agent: self._of(agent)._space(name[:-1]) for agent in value}
        return self._common._space(name) if name == "state_space" else value

    def observation_space(self, agent: Any) -> Any:
        """Return the observation space of an agent, for arrays of the agent's library."""
        return self._of(agent)._space("observation_space")

    def action_space(self, agent: Any) -> Any:
        """Return the action space of an agent, for arrays of the agent's library."""
        return self._of(agent)._space("action_space")

    def state(self) -> Any:
        """Return the state of the game, converted if one library was given for all agents."""
        return self._common.convert_observation(self.env.state())

    @never_raises
    def __repr__(self) -> str:
        library_texts = {
            agent: str(adapter._libraries) for agent, adapter in self._adapters.items()
        }
        shown_text = ", ".join(f"{agent}: {libs}" for agent, libs in library_texts.items())
        if len(set(library_texts.values())) <= 1:
            shown_text = next(iter(library_texts.values()), str(self._common._libraries))
        return f"<{type(self).__name__}({shown_text})<{self.env}>>"


@uncompiled
class ParallelConversion(_Conversion, BaseParallelWrapper[Any, Any, Any]):  # type: ignore[misc]
    """Use a PettingZoo parallel environment with agents of other array libraries.

    Each agent receives observations and infos, including action masks, as arrays of its library. The agent's actions
    may be of any library, and are converted to the environment's library, and to the dtypes and shapes of the action
    space. Rewards are of type `float`, terminations and truncations of type `bool`. Rewards that have axes are arrays
    of the agent's library. Spaces sample and contain arrays of the agent's library. The result of `render` is
    unchanged.

    If an action is refused, the environment is not stepped.

    Args:
        env: the environment of PettingZoo.
        env_xp: the library of the environment, as a name ("jax") or namespace. None detects it from the observations.
        target_xp: the library of the agents, or a dict with a library for each agent. The library of an agent that has
            None, or is missing from the dict, is detected from the agent's actions.
        env_device: the device of converted actions. None detects it from the observations.
        target_device: the device of converted observations and infos, or a dict with a device for each agent. None
            leaves them on their device.
        like: an array, a module with parameters, an Equinox model, or a dict with one of these for each agent. Pass
            `like` instead of `target_xp` and `target_device`, to use the library and the device of the array.
        info_xp: the library that infos are converted to, or None for the agent's library.
        convert_info: False to leave infos unchanged.
        copy: as in `arrayferry.convert`.
        narrowing: as in `arrayferry.convert`.
        scalars: as in `arrayferry.convert`, for infos.
        unknown: as in `arrayferry.convert`.
        sparse: as in `arrayferry.convert`. The default is "dense".
        check_actions: as in `arrayferry_gym.ArrayConversion`.

    Raises:
        arrayferry.ArrayFerryError: a library or a device is unknown or unavailable, an option is unknown or invalid, or
            a dict names an agent that the environment does not have.
        TypeError: `env` is not a parallel environment.

    Examples:
        >>> import pettingzoo
        >>> from arrayferry_gym.pettingzoo import ParallelConversion
        >>> game = pettingzoo.make("parallel", "classic/rps-v2")
        >>> env = ParallelConversion(game, target_xp={"player_0": "jax", "player_1": "torch"})
        >>> observations, infos = env.reset(seed=1)
        >>> observations["player_0"], observations["player_1"]
        (Array(3, dtype=int32), tensor(3))
        >>> actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        >>> observations, rewards, terminations, truncations, infos = env.step(actions)
    """

    def reset(
        self, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[Any, Any], dict[Any, dict[str, Any]]]:
        """Reset the environment. `options` are converted to its library."""
        observations, infos = self.env.reset(**self._reset_arguments(seed, options))
        self._after_reset()
        self._common._observe(observations)
        observations = self._each(_AgentAdapter.convert_observation, observations)
        return observations, self._each(_AgentAdapter.convert_info, infos)

    def step(
        self, actions: Mapping[Any, Any]
    ) -> tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any], dict[Any, Any], dict[Any, Any]]:
        """Take a step with a dict of actions by agent. The actions may be of any library.

        Raises:
            TypeError: `actions` is not a dict.
            arrayferry.ConversionError: an action is refused. The error names the agent.
        """
        if not isinstance(actions, Mapping):
            raise TypeError(
                f"step() takes a dict with the action of each agent, but got {actions!r:.80}"
            )
        fitted = self._each(_AgentAdapter.act, actions)
        try:
            observations, rewards, terminations, truncations, infos = self.env.step(fitted)
        except Exception as error:
            for agent in fitted:
                self._of(agent)._explain(error)
            raise
        return (
            self._each(_AgentAdapter.convert_observation, observations),
            self._each(_AgentAdapter.convert_number, rewards, float),
            self._each(_AgentAdapter.convert_number, terminations, bool),
            self._each(_AgentAdapter.convert_number, truncations, bool),
            self._each(_AgentAdapter.convert_info, infos),
        )


@uncompiled
class AECConversion(_Conversion, BaseWrapper[Any, Any, Any]):  # type: ignore[misc]
    """Use a PettingZoo AEC environment, in which agents take turns, with agents of other array libraries.

    The arguments and the conversion are those of `ParallelConversion`.

    Raises:
        arrayferry.ArrayFerryError: as for `ParallelConversion`.
        TypeError: `env` is not an AEC environment.

    Examples:
        >>> import pettingzoo
        >>> from arrayferry_gym.pettingzoo import AECConversion
        >>> game = pettingzoo.make("aec", "classic/tictactoe-v3")
        >>> env = AECConversion(game, target_xp={"player_1": "jax", "player_2": "torch"})
        >>> env.reset(seed=1)
        >>> for agent in env.agent_iter():
        ...     observation, reward, terminated, truncated, info = env.last()
        ...     over = terminated or truncated
        ...     mask = observation["action_mask"]
        ...     env.step(None if over else env.action_space(agent).sample(mask))
    """

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the environment. Rewards, terminations, truncations and infos are converted."""
        value = super().__getattr__(name)
        if name in _NUMBERS:
            return self._each(_AgentAdapter.convert_number, value, _NUMBERS[name])
        if name == "infos":
            return {agent: self._converted_info(agent, info) for agent, info in value.items()}
        return value

    def _converted_info(self, agent: Any, info: AnyTree) -> Any:
        last_info, converted = self._infos.get(agent, (None, None))
        if last_info is not info:
            converted = self._of(agent).convert_info(info)
            self._infos[agent] = info, converted
        return converted

    def reset(self, seed: Any = None, options: dict[str, Any] | None = None) -> None:
        """Reset the environment. `options` are converted to its library."""
        self._infos = {}
        self.env.reset(**self._reset_arguments(seed, options))
        self._after_reset()

    def step(self, action: AnyTree) -> None:
        """Take a step with an action of any library for the agent whose turn it is.

        If the agent is terminated or truncated, `action` must be None.

        Raises:
            arrayferry.ConversionError: the action is refused. The error names the agent.
        """
        adapter = None
        if action is not None:
            adapter = self._of(self.env.agent_selection)
            # if this agent has no observation yet, request one to detect the environment's library
            if adapter._libraries.observed is None:
                adapter._observe(self.env.observe(self.env.agent_selection))
            action = adapter.act(action)
        self._infos = {}
        try:
            self.env.step(action)
        except Exception as error:
            if adapter is not None:
                adapter._explain(error)
            raise

    def observe(self, agent: Any) -> Any:
        """Return the observation of an agent, or None if the environment returns None."""
        try:
            observation = self.env.observe(agent)
        except Exception:
            self.observation_space(agent)  # raises a clearer error if the agent does not exist
            raise
        return self._converted_observation(agent, observation)

    def last(self, observe: bool = True) -> tuple[Any, Any, Any, Any, Any]:
        """Return the results for the agent whose turn it is.

        The results are the agent's observation, the sum of its rewards since its last step, terminated, truncated and
        info.
        """
        agent = self.env.agent_selection
        observation, reward, terminated, truncated, info = self.env.last(observe)
        adapter = self._of(agent)
        return (
            self._converted_observation(agent, observation),
            adapter.convert_number(reward, float),
            adapter.convert_number(terminated, bool),
            adapter.convert_number(truncated, bool),
            self._converted_info(agent, info),
        )

    def _converted_observation(self, agent: Any, observation: AnyTree) -> Any:
        if observation is None:
            return None
        self._common._observe(observation)
        return self._of(agent).convert_observation(observation)

    def agent_iter(self, max_iter: int = 2**63) -> Any:
        """Yield each agent when it is its turn."""
        return self.env.agent_iter(max_iter)


def _targets(
    possible: Any, target_xp: Any, target_device: Device, like: Any
) -> dict[Any, tuple[Any, Any]]:
    """Return a dict with the library and the device of each agent that the arguments name.

    The key None has the library and the device of all other agents.
    """
    inputs = {"target_xp": target_xp, "target_device": target_device, "like": like}
    agent_dicts = {name: value for name, value in inputs.items() if isinstance(value, Mapping)}
    for name, agent_dict in agent_dicts.items():
        agents = list(agent_dict if possible is None else possible)
        unknown_agents = [agent for agent in agent_dict if agent not in agents]
        if unknown_agents:
            raise af.OptionError(
                f"{name} names the agent {unknown_agents[0]!r}, which the environment does not have",
                remedy=f"Its agents are {', '.join(map(repr, agents))}.",
            )
    targets = {}
    for agent in (None, *dict.fromkeys(name for agents in agent_dicts.values() for name in agents)):
        xp, device, example = (
            value.get(agent) if isinstance(value, Mapping) else value for value in inputs.values()
        )
        targets[agent] = (xp, device) if example is None else target_like(example, xp, device)
    return targets


def _check(cls: type, env: Any) -> None:
    """Check that an environment is parallel or AEC, as the class of the conversion requires."""
    wanted, other = (ParallelEnv, AECEnv) if issubclass(cls, ParallelEnv) else (AECEnv, ParallelEnv)
    if isinstance(env, wanted):
        return
    wanted_text = "a parallel" if wanted is ParallelEnv else "an AEC"
    remedy = "Pass an environment of PettingZoo"
    if isinstance(env, other):
        name = "AECConversion" if other is AECEnv else "ParallelConversion"
        remedy = f"Use arrayferry_gym.pettingzoo.{name} for this one"
    elif isinstance(env, (gym.Env, VectorEnv)):
        remedy = "For an environment of Gymnasium use ArrayConversion of arrayferry_gym or arrayferry_gym.vector"
    elif hasattr(env, "step_env"):
        remedy = "For one of JaxMARL write a pettingzoo.ParallelEnv around its reset and step_env"
    elif hasattr(env, "parallel_env"):
        remedy = f"Call its {'parallel_env' if wanted is ParallelEnv else 'env'}() first"
    raise TypeError(
        f"{cls.__name__} takes {wanted_text} environment of PettingZoo, but got {env!r:.80}. {remedy}."
    )
