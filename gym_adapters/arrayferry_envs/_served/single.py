"""`FunctionalSingleEnv`: a `FunctionalEnv` as a single Gymnasium environment, in any library."""

from __future__ import annotations

from typing import Any, Generic

import gymnasium as gym
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode

from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import UNSET, seed_of
from arrayferry.typing import AnyArray, AnyTree, Device, Target
from arrayferry_envs._contract.functional_env import FunctionalEnv
from arrayferry_envs._engine.numpy_stepper import map_results
from arrayferry_envs._engine.stepper import unmasked
from arrayferry_gym.extending import build, leaves, split
from arrayferry_gym.typing import ActT, CheckActions, ObsT

from .serving import Served


@uncompiled
class FunctionalSingleEnv(Served, gym.Env[ObsT, ActT], Generic[ObsT, ActT]):
    """One functional environment, served in the agent's library.

    Rewards without dimensions are Python floats in every library, unless `differentiable` is True. In NumPy, Discrete
    observations and infos without dimensions are Python numbers too, as in Gymnasium's environments.

    Args:
        env: the environment, or its class.
        xp: the library of observations and actions, as a name ("torch") or namespace.
        device: the device of the arrays, or None for the library's default.
        max_episode_steps: the number of steps after which an episode is truncated, or None for no limit. The default is
            the environment's limit.
        params: parameters, or a dict of the parameters that differ from the defaults.
        render_mode: "rgb_array" to render images.
        check_actions: as for `arrayferry_gym.ArrayConversion`, but actions outside the space are clipped to it unless the
            check is "strict". Extra keys of a dict are ignored. Other actions that do not fit raise an error.
        differentiable: whether gradients flow through steps in PyTorch, also to the rewards.
        translate: as in `FunctionalVectorEnv`.

    Attributes:
        functional: the environment.

    Raises:
        arrayferry.ArrayFerryError: an option is invalid, or the library is not usable here.

    Examples:
        >>> from arrayferry_envs import FunctionalSingleEnv, Pendulum
        >>> env = FunctionalSingleEnv(Pendulum(), xp="torch")
        >>> observation, info = env.reset(seed=1)
        >>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        >>> observation.shape, type(reward)
        (torch.Size([3]), <class 'float'>)
    """

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]

    def __init__(
        self,
        env: FunctionalEnv | type[FunctionalEnv],
        *,
        xp: Target = "numpy",
        device: Device = None,
        max_episode_steps: Any = UNSET,
        params: AnyTree = None,
        render_mode: str | None = None,
        check_actions: CheckActions = "fit",
        differentiable: bool = False,
        translate: bool = False,
    ) -> None:
        shown = self._set_up(
            env, 1, AutoresetMode.DISABLED, xp, device,
            max_episode_steps=max_episode_steps, params=params, render_mode=render_mode,
            check_actions=check_actions, differentiable=differentiable, translate=translate,
        )  # fmt: skip
        observation_space, action_space, _ = self._chain.outside
        self.observation_space = shown(observation_space)
        self.action_space = shown(action_space)
        self._in_numpy = self._to_agent.target.name == "numpy"
        self._discrete = self._in_numpy and any(
            isinstance(leaf, spaces.Discrete) for leaf, _ in leaves(self.observation_space)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsT, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: an integer. Episodes with the same seed are equal in the same library. With None, the random sequence
                continues.
            options: "params" for other parameters, which apply until the next change; "state" for the initial state, as
                in the attribute `state`.
        """
        observation, infos = self._reset_batch(seed, options)
        agent_results = self._for_agent(self._stepper.first((observation, unmasked(infos))))
        result = self._plain(*agent_results)
        seeds = seed_of(seed, 1)
        gym.Env.reset(self, seed=seeds[0] if isinstance(seeds, list) else seeds)
        return result

    def step(self, action: AnyTree) -> tuple[ObsT, Any, bool, bool, dict[str, Any]]:
        """Take a step, with an action of any library."""
        action_row = self._actions.discrete_row(action) if self._begun else None
        if action_row is None:
            action_row = self._fitted(action)
        result, added = self._stepper.step_one(action_row, self._params)
        observation, reward, terminated, truncated, info = result
        if added:
            told_infos: dict[str, Any] = {}
            self._tell(told_infos, added)
            info = {**info, **self._stepper.first(unmasked(told_infos))}
        if not reward.ndim and not self._differentiable:
            reward = float(reward)
        if self._converts:
            observation, reward, info = self._to_agent((observation, reward, info))
        observation, info = self._plain(observation, info)
        return observation, reward, bool(terminated), bool(truncated), info

    def _plain(self, observation: AnyTree, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return an observation and an info. In NumPy, Discrete observations and 0-d infos become Python numbers."""
        if self._discrete:
            observation = _numbered(self.observation_space, observation)
        return observation, map_results(_number, info) if info and self._in_numpy else info

    def render(self) -> Any:
        """Return an image, or None without a render mode."""
        return None if self.render_mode is None else self._image(0)

    def close(self) -> None:
        """Discard the state."""
        self._forget()


def _numbered(space: Space[Any], observation: AnyTree) -> Any:
    """Return an observation whose Discrete parts are Python integers."""
    pairs = zip(leaves(space), split(space, observation), strict=True)
    return build(
        space, (x.item() if isinstance(leaf, spaces.Discrete) else x for (leaf, _), x in pairs)
    )


def _number(x: AnyArray) -> Any:
    """Return an array without dimensions as a Python number, and other arrays unchanged."""
    return x.item() if not x.ndim and x.dtype.kind in "biufc" else x
