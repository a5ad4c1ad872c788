"""`to_gymnax`: an environment with the interface of gymnax, which trainers in JAX expect."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry._utilities.options import UNSET, limit_of, missing_package
from arrayferry.typing import AnyTree
from arrayferry_envs._contract.functional_env import FunctionalEnv, checked_env
from arrayferry_envs._contract.params import Params, StaticPart, completed, is_named, partitioned
from arrayferry_envs._engine.chains import chain_of
from arrayferry_envs._engine.engine import EnvState
from arrayferry_gym.extending import bounds_of
from arrayferry_gym.wrappers.kernels import Spaces

from .functions import Functions

SAME_STEP, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


class GymnaxParams:
    """The parameters and the step limit of an environment, as a pytree.

    Its leaves are the floats and arrays among the parameters. Other parameters and the step limit are static: `jit`
    compiles anew for each of their values. Each parameter is also an attribute.

    Args:
        static_part: the static part of the parameters.
        values: the leaves: floats and arrays.
        limit: the step limit, or None for no limit.
        pinned: for each parameter, whether `replace` has set it, so that the environment does not draw it at random. ()
            if the environment draws no parameters.
    """

    def __init__(
        self,
        static_part: StaticPart,
        values: Iterable[Any],
        limit: int | None,
        pinned: tuple[bool, ...],
    ) -> None:
        self._static_part = static_part
        self._values = tuple(values)
        self._limit = limit
        self._pinned = pinned

    @classmethod
    def of(
        cls,
        tree: AnyTree,
        defaults: Any,
        limit: int | None,
        pinned: tuple[bool, ...],
        names: Any = (),
    ) -> GymnaxParams:
        """Make the parameters from `tree`. A leaf is static unless its default in `defaults` is a float or an array."""
        default_leaves = af.flatten(defaults, everything=True)[0]
        leaves, layout = af.flatten(tree, everything=True, prefix="params")
        static_part, values = partitioned(layout, leaves, default_leaves)
        pairs = zip(layout.paths, pinned, strict=bool(pinned))
        pinned = tuple(is_pinned or is_named(path, names) for path, is_pinned in pairs)
        return cls(static_part, values, limit, pinned)

    @property
    def _prepared(self) -> Params:
        """The parameters as `Params`, the class that `Functions` accepts."""
        return Params(self._static_part, self._values, [False] * len(self._values), self._pinned)

    @property
    def tree(self) -> Any:
        """The parameters in the container that the environment's methods accept."""
        return self._static_part.join(self._values)

    @property
    def max_steps_in_episode(self) -> int:
        """The step limit, or 2**31 - 1 if there is no limit."""
        return 2**31 - 1 if self._limit is None else self._limit

    def replace(self, **fields: Any) -> GymnaxParams:
        """Return a copy with other values for some parameters, or for `max_steps_in_episode` (None for no limit).

        A value may be an array with additional leading axes, over which `vmap` maps.

        Raises:
            arrayferry.OptionError: there is no parameter of this name, or the value of a static parameter is
                invalid.
        """
        limit = limit_of(fields.pop("max_steps_in_episode", self._limit), None)
        tree = self.tree
        return GymnaxParams.of(completed(fields, tree), tree, limit, self._pinned, fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy.copy looks these names up before `self.tree` exists
            raise AttributeError(name)
        tree = self.tree
        return tree[name] if isinstance(tree, dict) and name in tree else getattr(tree, name)

    def __repr__(self) -> str:
        return f"GymnaxParams({self.tree!r}, max_steps_in_episode={self._limit})"


jax.tree_util.register_pytree_node(
    GymnaxParams,
    lambda params: (params._values, (params._static_part, params._limit, params._pinned)),
    lambda static, values: GymnaxParams(static[0], values, *static[1:]),
)


@dataclasses.dataclass(frozen=True, repr=False)
class GymnaxForm:
    """An environment with the methods of gymnax, as returned by `to_gymnax`. Instances with equal attributes are equal.

    Attributes:
        env: the `FunctionalEnv` to which the methods apply.
        max_episode_steps: the step limit in `default_params`, or None for no limit.
    """

    env: FunctionalEnv
    max_episode_steps: int | None

    @property
    def name(self) -> str:
        """The name of the environment's class, without wrappers."""
        return type(self.env.base).__name__

    @property
    def default_params(self) -> GymnaxParams:
        """The environment's default parameters and the step limit, as a pytree whose leaves are floats and arrays."""
        defaults = self.env.default_params
        leaves = af.flatten(defaults, everything=True)[0] if self.env._draws_params else ()
        pinned = (False,) * len(leaves)
        return GymnaxParams.of(defaults, defaults, self.max_episode_steps, pinned)

    def reset(self, key: Any, params: AnyTree = None) -> tuple[Any, EnvState]:
        """Begin an episode with a JAX key. Return the first observation and the state."""
        return _reset(self, key, self._params(params))  # type: ignore[no-any-return]

    reset_env = reset

    def step(
        self, key: Any, state: EnvState, action: AnyTree, params: AnyTree = None
    ) -> tuple[Any, ...]:
        """Take a step. If the step ends the episode, begin the next, as `reset_env(jax.random.split(key)[1])` does.

        Args:
            key: a JAX key, a different one for each step.
            state: the state from `reset` or from the previous step.
            action: the action, which is clipped to the action space.
            params: the parameters, by default `default_params`.

        Returns:
            (observation, state, reward, done, infos). Observation and state are those after the reset, if the episode
            has ended. The reward is a float of shape (). Done is a bool of shape (): whether the episode has ended.
        """
        return _step(self, SAME_STEP, key, state, action, self._params(params))  # type: ignore[no-any-return]

    def step_env(
        self, key: Any, state: EnvState, action: AnyTree, params: AnyTree = None
    ) -> tuple[Any, ...]:
        """Take a step without a reset. Arguments and results are as in `step`."""
        return _step(self, DISABLED, key, state, action, self._params(params))  # type: ignore[no-any-return]

    @property
    def num_actions(self) -> int:
        """The number of actions in a Discrete space, or the number of elements of an action in another space."""
        space: Any = self._spaces(None).action
        return int(space.n if isinstance(space, spaces.Discrete) else np.prod(space.shape))

    def observation_space(self, params: AnyTree = None) -> Any:
        """The space of observations, as a space of gymnax."""
        return _gymnax_space(self._spaces(params).observation)

    def action_space(self, params: AnyTree = None) -> Any:
        """The space of actions, as a space of gymnax."""
        return _gymnax_space(self._spaces(params).action)

    def _spaces(self, params: AnyTree) -> Spaces:
        return chain_of(self.env, self._params(params)._limit).outside

    def _functions(self, params: GymnaxParams, mode: Any) -> Functions:
        return Functions(self.env, autoreset_mode=mode, max_episode_steps=params._limit)

    def _params(self, params: AnyTree) -> GymnaxParams:
        if params is not None and not isinstance(params, GymnaxParams):
            raise af.OptionError(
                f"params={params!r:.80} is not a GymnaxParams",
                remedy="Pass env.default_params, or env.default_params.replace(...) with the fields that differ.",
            )
        return self.default_params if params is None else params

    def __repr__(self) -> str:
        return f"<to_gymnax({self.env!r})>"


def to_gymnax(env: FunctionalEnv, *, max_episode_steps: Any = UNSET) -> GymnaxForm:
    """Return an environment with the interface of gymnax, for trainers in JAX such as rejax and PureJaxRL.

    Its methods are pure functions of one environment, for `vmap`, `jit` and `scan`:

    - `reset(key, params)` returns an observation and a state.
    - `step(key, state, action, params)` returns observation, state, reward, done and infos. After the last step of an
      episode, observation and state are the first of the next episode.
    - `reset_env` is the same as `reset`; `step_env` is `step` without the reset at the end of an episode.
    - `default_params` is a pytree whose leaves are floats and arrays. Parameters of other types are static. `jit`
      accepts the pytree, and `vmap` can map its leaves. `params.replace(...)` returns a copy with new values, for
      example of `max_steps_in_episode`.
    - `observation_space(params)` and `action_space(params)` return spaces of gymnax, which must be installed.

    The infos of a step contain the environment's infos on the state before any reset. Further keys are "terminated",
    "truncated", "final_observation" (the observation before any reset), "discount" (0 if the episode has terminated,
    otherwise 1), and "next_info" (the environment's infos on the returned state, if it has infos).

    The results for a key are the same with and without `vmap`, except for keys of the generators "rbg" and
    "unsafe_rbg", whose random numbers depend on the batch. Under `vmap`, each step computes a reset of every
    environment, as in gymnax, even if no episode ends. Wrappers have separate statistics for each environment.
    Gradients flow through steps and resets.

    Args:
        env: the environment, which may have wrappers (see `wrap`).
        max_episode_steps: the number of steps after which an episode is truncated, or None for no limit. The default is
            the environment's limit.

    Raises:
        TypeError: `env` is not a `FunctionalEnv`.
        arrayferry.OptionError: the environment computes in another library than JAX, or an option is invalid.

    Examples:
        >>> import jax
        >>> from arrayferry_envs import CartPole, to_gymnax
        >>> env = to_gymnax(CartPole())
        >>> params = env.default_params.replace(gravity=9.0)
        >>> keys = jax.random.split(jax.random.key(0), 3)
        >>> observations, states = jax.vmap(env.reset, (0, None))(keys, params)
        >>> step = jax.vmap(env.step, (0, 0, 0, None))
        >>> observations, states, rewards, done, infos = step(keys, states, jax.numpy.ones(3, int), params)
        >>> rewards
        Array([1., 1., 1.], dtype=float32)
    """
    env = checked_env(env)
    form = GymnaxForm(env, limit_of(max_episode_steps, env.max_episode_steps))
    form._functions(form.default_params, SAME_STEP)._engine(1, None)
    return form


def _first(tree: AnyTree) -> Any:
    return jax.tree.map(lambda x: x[0], tree)


@functools.partial(jax.jit, static_argnums=0)
def _reset(form: GymnaxForm, key: Any, params: GymnaxParams) -> Any:
    functions = form._functions(params, DISABLED)
    env_state, observation = functions.reset(key, 1, params._prepared)
    return _first(observation), env_state


@functools.partial(jax.jit, static_argnums=(0, 1))
def _step(
    form: GymnaxForm, mode: Any, key: Any, state: EnvState, action: AnyTree, params: GymnaxParams
) -> Any:
    action = jax.tree.map(lambda x: jnp.asarray(x)[None], action)
    functions = form._functions(params, mode)
    state, outcome = functions.step(key, state, action, params._prepared)
    observation, reward, terminated, truncated = _first(outcome[:4])
    final_observation, final_info = outcome.observation, outcome.info
    if outcome.final_observation is not None:
        final_observation, final_info = outcome.final_observation, outcome.final_info or {}
    infos = {
        "discount": 1.0 - terminated.astype(jnp.float32),
        **_first(final_info),
        "terminated": terminated,
        "truncated": truncated,
        "final_observation": _first(final_observation),
    }
    if outcome.info:
        infos["next_info"] = _first(outcome.info)
    return observation, state, reward, terminated | truncated, infos


def _gymnax_space(space: Space[Any]) -> Any:
    """Convert a space to the corresponding space of gymnax.

    Raises:
        arrayferry.BackendUnavailableError: gymnax cannot be imported.
        arrayferry.OptionError: gymnax has no such space.
    """
    try:
        gymnax_spaces = importlib.import_module("gymnax.environments.spaces")
    except ImportError as error:
        raise missing_package("to_gymnax(...).action_space", "gymnax six", error) from error
    if isinstance(space, spaces.Dict):
        return gymnax_spaces.Dict({key: _gymnax_space(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return gymnax_spaces.Tuple([_gymnax_space(part) for part in space.spaces])
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return gymnax_spaces.Discrete(int(space.n))
    if not isinstance(space, (spaces.Box, spaces.MultiBinary, spaces.MultiDiscrete)):
        # only a Discrete with another start can occur here, since `CheckedEnv` refuses other types
        raise af.OptionError(
            f"gymnax has no space like {space}, since Discrete spaces of gymnax start at 0",
            remedy="Let the space start at 0.",
        )
    # bounds that are equal for all elements become numbers, so that the space can be hashed
    low, high = (
        x.flat[0].item() if (x == x.flat[0]).all() else x for x in map(np.asarray, bounds_of(space))
    )
    return gymnax_spaces.Box(low, high, tuple(space.shape or ()), jnp.dtype(space.dtype))
