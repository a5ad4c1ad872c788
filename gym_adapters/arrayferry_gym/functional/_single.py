"""`FunctionalSingleEnv`: a `FunctionalEnv` as an ordinary Gymnasium environment, in any library."""

from __future__ import annotations

from typing import Any, Generic

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from arrayferry.adapting import never_raises
from arrayferry_gym._libraries import Libraries, Target
from arrayferry_gym._types import ActT, ObsT

from ._base import FunctionalEnv
from ._driver import Served, served_space
from ._limits import UNSET

__all__ = ["FunctionalSingleEnv"]


class FunctionalSingleEnv(Served, gym.Env[ObsT, ActT], Generic[ObsT, ActT]):
    """One environment that belongs to no library, in the library of the agent.

    Args:
        env: the environment, or its class.
        xp: the library of observations and actions, as a name ("torch") or namespace.
        device: their device, None for the library's own choice.
        max_episode_steps: after how many steps an episode is truncated, None for never. The default is
            that of the environment.
        params: parameters, or a dict of those that differ from the defaults.
        render_mode: "rgb_array" if images are wanted.
        validate: whether `step` raises for an action that is not in the space. If not, it is clipped to it.
        differentiable: in PyTorch, whether gradients flow through steps, to the rewards too.

    Attributes:
        functional: the environment.

    Raises:
        arrayferry.ArrayFerryError: an option is wrong, or the library is not usable here.

    Example:
        >>> from arrayferry_gym.functional import FunctionalSingleEnv, Pendulum
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
        device: Any = None,
        max_episode_steps: Any = UNSET,
        params: Any = None,
        render_mode: str | None = None,
        validate: bool = False,
        differentiable: bool = False,
    ) -> None:
        self._set_up(
            env, 1, AutoresetMode.DISABLED, xp, device, render_mode,
            max_episode_steps=max_episode_steps, params=params, validate=validate,
            differentiable=differentiable,
        )  # fmt: skip

    def _set_spaces(self, libraries: Libraries | None) -> None:
        env = self.functional
        self.observation_space = served_space(env.observation_space, libraries, True)
        self.action_space = served_space(env.action_space, libraries, False)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsT, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: a whole number: the same one gives the same episode in the same library.
            options: "params" for other parameters, which stay until they are changed again.
        """
        super().reset(seed=seed)
        observation, info = self._driver.reset_one(seed, options)
        return observation, info

    def step(self, action: Any) -> tuple[ObsT, Any, bool, bool, dict[str, Any]]:
        """Take a step, with an action of any library."""
        return self._driver.step_one(action)

    def render(self) -> Any:
        """Return an image, None without a render mode."""
        return None if self.render_mode is None else self._driver.render(0)

    def close(self) -> None:
        """Forget the state."""
        self._driver.close()

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__}({self.functional!r}, xp={self.xp!r})>"
