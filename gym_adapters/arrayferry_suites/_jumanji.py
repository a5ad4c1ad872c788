"""Environments of Jumanji."""

from __future__ import annotations

import copy
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Space, spaces

import arrayferry as af
from arrayferry._utilities.options import is_whole
from arrayferry.typing import AnyTree
from arrayferry_envs import JaxEnv
from arrayferry_gym.extending import space_of

LAST = 2
WRAPPERS = {"AutoResetWrapper", "VmapWrapper", "VmapAutoResetWrapper"}
UNLIMITED = 2**30


class JumanjiEnv(JaxEnv):
    """An environment of Jumanji.

    In Jumanji, an episode that reaches its step limit (`time_limit`) terminates. In this adapter, the episode is
    truncated if it would continue without the limit, or if its last discount is not 0. Observations are computed with
    the limit. Infos are the extras and the discount of the time step.

    Args:
        env: the environment of Jumanji.

    Raises:
        arrayferry.OptionError: a wrapper resets the environment, or makes batches.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, env: Any) -> None:
        _check(env)
        super().__init__(env)

    def actions(self, example: AnyTree) -> Any:
        """Return the declared space."""
        return _space(self.env.action_spec)

    def begin(self, key: Any, params: AnyTree) -> Any:
        """Return the first state and time step of an episode."""
        return self.env.reset(jax.random.key_data(key))

    def advance(
        self, key: Any, kept: Any, action: AnyTree, params: AnyTree
    ) -> tuple[Any, Any, Any, Any]:
        """Take a step. To detect whether the limit ended the episode, also compute the step without the limit."""
        state, timestep = self.env.step(kept[0], action)
        ended, terminated = timestep.step_type == LAST, timestep.discount == 0
        unlimited_env = _without_limit(self.env)
        if unlimited_env is not None:
            terminated &= unlimited_env.step(kept[0], action)[1].step_type == LAST
        terminated = jnp.all(terminated) & ended  # with several agents, all must have terminated
        return (state, timestep), timestep.reward, terminated, ended & ~terminated

    def observation_of(self, kept: Any, params: AnyTree) -> Any:
        """Return the observation."""
        return kept[1].observation

    def info_of(self, kept: Any, params: AnyTree) -> dict[str, Any]:
        """Return the extras and the discount of the time step."""
        return {**(kept[1].extras or {}), "discount": kept[1].discount}

    def image_of(self, kept: Any) -> Any:
        """Render the state with the viewer of the environment, which needs matplotlib."""
        viewer: Any = copy.copy(getattr(self.env.unwrapped, "_viewer", None))
        if not hasattr(viewer, "_display_rgb_array"):
            raise NotImplementedError(
                f"{self!r} cannot be rendered, since its viewer does not use matplotlib. Leave out render_mode"
            )
        # viewers may open windows, unless they draw into an array
        viewer._display = viewer._display_rgb_array
        viewer._get_fig_ax = functools.partial(viewer._get_fig_ax, show=False)
        return np.array(viewer.render(kept[0]))


def _check(env: Any) -> None:
    """Refuse wrappers that reset or make batches."""
    inner_env = env
    while inner_env is not None:
        if type(inner_env).__name__ in WRAPPERS:
            raise af.OptionError(
                f"{env!r:.80} is wrapped in {type(inner_env).__name__}, but arrayferry itself resets and batches "
                "environments",
                remedy="Pass the environment without the wrapper, such as env.unwrapped.",
            )
        inner_env = vars(inner_env).get("_env")


def _without_limit(env: Any) -> Any:
    """Return a copy of an environment without its step limit, or None if it has no limit."""
    unlimited_env = copy.copy(env)
    if is_whole(vars(env).get("time_limit")):
        unlimited_env.time_limit = UNLIMITED
        return unlimited_env
    if "_env" not in vars(env):
        return None
    unlimited_env._env = _without_limit(env._env)  # the environment inside a wrapper
    return None if unlimited_env._env is None else unlimited_env


def _space(spec: Any) -> Space[Any]:
    """Return the space of actions that a spec of Jumanji describes."""
    num_values = getattr(spec, "num_values", None)
    if num_values is not None and np.ndim(num_values) == 0:
        return spaces.Discrete(int(num_values))
    if num_values is not None:
        return spaces.MultiDiscrete(np.asarray(num_values, np.int64))
    if hasattr(spec, "dtype"):
        low, high = getattr(spec, "minimum", -np.inf), getattr(spec, "maximum", np.inf)
        return space_of(spec, np.asarray(low), np.asarray(high))
    return spaces.Dict({name: _space(member_spec) for name, member_spec in spec._specs.items()})


adapt = JumanjiEnv
