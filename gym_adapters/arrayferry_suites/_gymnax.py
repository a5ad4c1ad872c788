"""Environments of gymnax, and of Craftax and Kinetix, which have the same methods."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import arrayferry as af
from arrayferry._utilities.options import is_whole
from arrayferry.typing import AnyTree
from arrayferry_envs import JaxEnv
from arrayferry_gym.extending import gymnasium_space, space_of

LIMITS = ("max_steps_in_episode", "max_timesteps")
"""The names of parameters that are step limits."""
UNLIMITED = 2**31 - 2
WRONG_BOUNDS = {"GaussianBandit-misc", "MemoryChain-bsuite", "MetaMaze-misc"}
"""The environments of gymnax 1.0.1 whose observations exceed their declared bounds."""


class GymnaxEnv(JaxEnv):
    """An environment of gymnax, Craftax or Kinetix.

    `step_env` computes the steps. The step limit in the parameters becomes `max_episode_steps`, so it truncates
    episodes instead of terminating them. Episodes that gymnax itself truncates are also truncated.

    Args:
        env: the environment of gymnax, Craftax or Kinetix.
        params: the parameters of the environment, or None for the defaults.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, env: Any, params: AnyTree = None) -> None:
        params = env.default_params if params is None else params
        self._limit = next((name for name in LIMITS if is_whole(getattr(params, name, None))), None)
        if self._limit is not None:
            self.max_episode_steps = int(getattr(params, self._limit))
            params = dataclasses.replace(params, **{self._limit: self.max_episode_steps})
        # `reset_env` of Kinetix has a third parameter, an initial state
        self._resets = len(inspect.signature(env.reset_env).parameters)
        super().__init__(env, params)

    def actions(self, example: AnyTree) -> Any:
        """Return the declared space."""
        return gymnasium_space(self.env.action_space(self.default_params))

    def observations(self, example: AnyTree) -> Any:
        """Return the declared space if the example fits it, or else a space computed from the example."""
        if getattr(self.env, "name", None) in WRONG_BOUNDS:
            return space_of(example)
        try:
            stated_space = gymnasium_space(self.env.observation_space(self.default_params), example)
        except Exception:  # environments that declare no space raise different errors
            return space_of(example)
        shapes = {tuple(x.shape) for x in jax.tree.leaves(example)}
        shape_fits = isinstance(example, dict) or not shapes - {tuple(stated_space.shape or ())}
        return stated_space if shape_fits else space_of(example)

    def _check(self, params: AnyTree) -> None:
        """Refuse parameters whose step limit differs from `max_episode_steps`."""
        if self._limit is not None and getattr(params, self._limit) != self.max_episode_steps:
            raise af.OptionError(
                f"params.{self._limit} is {getattr(params, self._limit)!r}, but the step limit of {self!r} is "
                f"max_episode_steps={self.max_episode_steps}",
                remedy="Pass max_episode_steps= instead, or pass the parameters to from_env.",
            )

    def begin(self, key: Any, params: AnyTree) -> Any:
        """Return observation, state and infos. Infos are zeros, since resets of gymnax return no infos."""
        self._check(params)
        observation, state = self.env.reset_env(key, params, *[None] * (self._resets - 2))
        action = self.env.action_space(params).sample(jax.random.key(0))
        info_shapes = jax.eval_shape(lambda: self._step(key, state, action, params))[0][1]
        info = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), info_shapes)
        return observation, state, info

    def _step(self, key: Any, state: AnyTree, action: AnyTree, params: AnyTree) -> Any:
        """Take a step. Return (observation, infos), the state, the reward, terminated and truncated.

        Observation and infos are computed with the step limit, since they may show the remaining time or results of the
        whole episode. Everything else is computed without the limit.
        """

        def take_step(params: AnyTree) -> Any:
            observation, after, reward, ended, info = self.env.step_env(key, state, action, params)
            truncated: Any = False
            if hasattr(self.env, "is_truncated"):  # gymnax has `is_truncated` since version 1.0
                truncated = self.env.is_truncated(after, params)
            infos = {str(name): x for name, x in info.items() if _is_numbers(x)}
            return (observation, infos), after, reward, ended, truncated

        if self._limit is None:
            return take_step(params)
        # in one vmap over both limits, operations that do not depend on the limit are computed only
        # once
        field: str = self._limit
        limits = jnp.asarray([getattr(params, field), UNLIMITED])
        run_both = jax.vmap(lambda limit: take_step(dataclasses.replace(params, **{field: limit})))
        both_shown, *both_others = run_both(limits)
        return jax.tree.map(lambda x: x[0], both_shown), *jax.tree.map(lambda x: x[1], both_others)

    def advance(
        self, key: Any, kept: Any, action: AnyTree, params: AnyTree
    ) -> tuple[Any, Any, Any, Any]:
        """Take a step. The step limit affects only the observation and infos."""
        self._check(params)
        (observation, info), state, reward, *flags = self._step(key, kept[1], action, params)
        return (observation, state, info), jnp.asarray(reward), *map(jnp.asarray, flags)

    def observation_of(self, kept: Any, params: AnyTree) -> Any:
        """Return the observation."""
        return kept[0]

    def info_of(self, kept: Any, params: AnyTree) -> dict[str, Any]:
        """Return the infos of the step."""
        return kept[2]  # type: ignore[no-any-return]

    def image_of(self, kept: Any) -> Any:
        """Render the state with Craftax, or with gymnax's `Visualizer`, which needs matplotlib and seaborn."""
        package, *modules = type(self.env).__module__.split(".")
        if package == "craftax":
            return _craftax_renderer(f"craftax.{modules[0]}.renderer")(kept[1]).astype(np.uint8)
        from matplotlib import pyplot

        visualizer = import_module("gymnax.visualize").Visualizer(
            self.env, self.default_params, [kept[1]]
        )
        try:
            visualizer.init()
            visualizer.fig.canvas.draw()
            image = np.array(visualizer.fig.canvas.buffer_rgba())
        finally:
            pyplot.close(visualizer.fig)
        if not hasattr(visualizer, "im"):
            raise NotImplementedError(
                f"{self!r} cannot be rendered, since gymnax's Visualizer does not support it. Leave out render_mode"
            )
        return image


@functools.cache
def _craftax_renderer(module: str) -> Any:
    return jax.jit(import_module(module).make_craftax_pixel_renderer(16))


def _is_numbers(value: AnyTree) -> bool:
    return all(isinstance(x, (int, float)) or hasattr(x, "dtype") for x in jax.tree.leaves(value))


CRAFTAX = [
    f"Craftax{game}-{view}-v1" for game in ("", "-Classic") for view in ("Symbolic", "Pixels")
]


def ids() -> list[str]:
    """Return the names that gymnax lists, and those of Craftax, if Craftax is installed."""
    return [*import_module("gymnax").registered_envs, *(CRAFTAX if find_spec("craftax") else ())]


def load(name: str, **options: Any) -> Any:
    """Make an environment with its default parameters."""
    if name in CRAFTAX:
        make = import_module("craftax.craftax_env").make_craftax_env_from_name
        return adapt(make(name, auto_reset=False, **options))
    return adapt(*import_module("gymnax").make(name, **options))


adapt = GymnaxEnv
