"""Environments of Brax and of MuJoCo Playground."""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import arrayferry as af
from arrayferry.typing import AnyTree, Namespace
from arrayferry_envs import JaxEnv

WRAPPERS = {"EpisodeWrapper", "AutoResetWrapper", "VmapWrapper", "BraxAutoResetWrapper"}
"""The names of wrappers that are removed, since arrayferry itself limits, resets and batches environments."""
REFUSED = WRAPPERS | {
    "EvalWrapper", "DomainRandomizationVmapWrapper", "BraxDomainRandomizationVmapWrapper"
}  # fmt: skip


class BraxEnv(JaxEnv):
    """An environment of Brax or MuJoCo Playground.

    Wrappers for step limits, resets and batches are removed. The step limit becomes `max_episode_steps`. Episodes that
    the environment itself truncates (`info["truncation"]`) count as truncated, not as terminated. Infos are the
    `metrics` of Brax's state.

    Args:
        env: the environment of Brax or MuJoCo Playground.
        randomization_fn: draws physical models, as in `brax.training`, or None to use one model in all episodes. The
            drawn values are the parameters, named by their paths in the model.

    Raises:
        arrayferry.OptionError: a wrapper repeats actions, or a wrapper that resets or batches cannot be removed.
    """

    def __init__(self, env: Any, randomization_fn: Any = None) -> None:
        limit = None
        while type(env).__name__ in WRAPPERS and hasattr(env, "env"):
            if getattr(env, "action_repeat", 1) != 1:
                raise af.OptionError(
                    f"{env!r:.80} repeats actions {env.action_repeat} times",
                    remedy="Leave action_repeat out, and use repeat_action(from_env(env), n).",
                )
            limit = vars(env).get("episode_length", limit)
            env = env.env
        _check_inside(env)
        self.randomization_fn = randomization_fn
        params = None
        if randomization_fn is not None:
            model = _model(env)
            drawn_values = _drawn(randomization_fn, model, jax.random.key(0))
            params = {path: x for path, x in _by_path(model).items() if path in drawn_values}
        super().__init__(env, params)
        config = vars(self.env).get("_config")
        if limit is None and config is not None:  # MuJoCo Playground has the limit in this config
            limit = config.get("episode_length", None)
        self.max_episode_steps = None if limit is None else int(limit)
        if hasattr(self.env, "render") and hasattr(self.env, "dt"):
            self.metadata = {"render_modes": ["rgb_array"], "render_fps": float(1 / self.env.dt)}

    def actions(self, example: AnyTree) -> Any:
        """Return the space of actions: the range of the actuators if actions reach them unchanged, otherwise -1 to 1.

        Most environments of Brax and MuJoCo Playground scale actions from -1 to 1 to the range of the actuators.
        """
        action_size = int(self.env.action_size)
        unit_box = spaces.Box(-1.0, 1.0, (action_size,), np.float32)
        actuators = getattr(getattr(self.env, "sys", None), "actuator", None)
        limits = np.asarray(getattr(actuators, "ctrl_range", np.zeros((0, 2))), np.float32)
        if limits.shape != (action_size, 2):
            return unit_box
        own_box = spaces.Box(limits[:, 0], limits[:, 1], dtype=np.float32)
        return own_box if own_box == unit_box or _passes_on(self.env, example, limits) else unit_box

    def shared(self, example: AnyTree) -> frozenset[int]:
        """Return the indices of arrays in the state without an axis of environments, such as MuJoCo Warp's contacts."""
        keys = jax.random.split(jax.random.PRNGKey(0), 2)
        batched_leaves = jax.tree.leaves(jax.eval_shape(jax.vmap(self.env.reset), keys))
        pairs = zip(jax.tree.leaves(example), batched_leaves, strict=True)
        return frozenset(i for i, (leaf, batched) in enumerate(pairs) if leaf.ndim == batched.ndim)

    @property
    def _draws_params(self) -> bool:
        return self.randomization_fn is not None

    def sample_params(self, xp: Namespace, rng: Any, n: int, params: AnyTree) -> Any:
        """Draw the randomized values of the physical models, for `n` new episodes."""

        def draw_one(key: Any, params: AnyTree) -> Any:
            return _drawn(self.randomization_fn, _model(self._with(params)), key)

        return self._mapped(draw_one, params, jax.random.split(rng.key(), n))

    def _with(self, params: AnyTree) -> Any:
        """Return the environment, with these parameters in its model."""
        if not params:
            return self.env
        model = jax.tree_util.tree_map_with_path(
            lambda path, x: params.get(_path(path), x), _model(self.env)
        )
        return _replaced(self.env, _model_name(self.env), model)

    def begin(self, key: Any, params: AnyTree) -> Any:
        """Return the state at the start of an episode."""
        return self._with(params).reset(jax.random.key_data(key))

    def advance(
        self, key: Any, kept: Any, action: AnyTree, params: AnyTree
    ) -> tuple[Any, Any, Any, Any]:
        """Take a step."""
        state = self._with(params).step(kept, action)
        done = state.done > 0.5
        truncated = jnp.asarray(state.info.get("truncation", False)) > 0.5
        return state, state.reward, done & ~truncated, truncated

    def observation_of(self, kept: Any, params: AnyTree) -> Any:
        """Return the observation."""
        return kept.obs

    def info_of(self, kept: Any, params: AnyTree) -> dict[str, Any]:
        """Return the metrics of the state."""
        return kept.metrics  # type: ignore[no-any-return]

    def image_of(self, kept: Any) -> Any:
        """Render the state with MuJoCo, which needs OpenGL. The environment variable `MUJOCO_GL` configures OpenGL."""
        return self.env.render([getattr(kept, "pipeline_state", kept)])[0]


def _check_inside(env: Any) -> None:
    """Refuse wrappers that reset or batch environments and could not be removed."""
    while env is not None:
        if type(env).__name__ in REFUSED and hasattr(env, "env"):
            raise af.OptionError(
                f"this environment is wrapped in {type(env).__name__}, but arrayferry itself resets, limits and "
                "batches environments",
                remedy="Leave out the wrapper. For models that differ between environments, pass randomization_fn to "
                "from_env.",
            )
        env = vars(env).get("env")


class _Reached(Exception):  # noqa: N818
    """Raised when a step reaches the actuators. The argument is the array of controls."""


def _passes_on(env: Any, example: AnyTree, limits: Any) -> bool:
    """Return whether actions within the limits reach the actuators unchanged, or True if this is unknown."""

    def stop_step(state: AnyTree, action: AnyTree) -> None:
        raise _Reached(np.asarray(action))

    stopping_env = _replaced(env, "pipeline_step", stop_step)
    state = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), example)
    low, high = np.clip(limits, -2, 2).T
    for fraction in (0.3, 0.8):
        action = low + fraction * (high - low)
        try:
            with jax.disable_jit():
                stopping_env.step(state, jnp.asarray(action))
        except _Reached as reached:
            if not np.allclose(reached.args[0], action, atol=1e-6):
                return False
        except Exception:  # zeros are no valid state, so the step may raise any error
            return True
    return True


def _replaced(env: Any, name: str, value: AnyTree) -> Any:
    """Return a copy of an environment in which an attribute of the innermost environment has a new value."""
    env = copy.copy(env)
    if "env" in vars(env):
        env.env = _replaced(env.env, name, value)
    else:
        setattr(env, name, value)
    return env


def _model_name(env: Any) -> str:
    """Return the name of the attribute with the physical model: the system of Brax, or the MJX model of Playground."""
    return "sys" if hasattr(env, "sys") else "_mjx_model"


def _model(env: Any) -> Any:
    return getattr(env.unwrapped, _model_name(env))


def _path(keys: Any) -> str:
    return str(jax.tree_util.keystr(keys, simple=True, separator="."))


def _by_path(tree: AnyTree) -> dict[str, Any]:
    return {_path(path): x for path, x in jax.tree.leaves_with_path(tree)}


def _drawn(randomization_fn: Any, model: Any, key: Any) -> dict[str, Any]:
    """Return the values that a randomization function draws for one environment, as a dict by path in the model.

    Args:
        randomization_fn: a function (model, keys) -> (models, axes). `axes` has the axis of environments of each array,
            or None for arrays without this axis.
        model: the physical model of the environment.
        key: a JAX key that determines the values.
    """
    models, axes = randomization_fn(model, jax.random.key_data(key)[None])

    def take_first(axis: Any, part: Any) -> Any:
        return None if axis is None else jax.tree.map(lambda x: jnp.take(x, 0, axis), part)

    return _by_path(jax.tree.map(take_first, axes, models, is_leaf=lambda axis: axis is None))


def ids() -> list[str]:
    """Return the names that Brax lists."""
    return list(import_module("brax.envs")._envs)


def load(name: str, *, randomization_fn: Any = None, **options: Any) -> Any:
    """Make an environment."""
    return adapt(import_module("brax.envs").get_environment(name, **options), randomization_fn)


adapt = BraxEnv
