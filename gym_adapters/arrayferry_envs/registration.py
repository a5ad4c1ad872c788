"""Ids for environments, so that `gymnasium.make` and `make_vec` find them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

import arrayferry as af

from ._contract.functional_env import FunctionalEnv
from ._ids import register_id
from ._served.single import FunctionalSingleEnv
from ._served.vector import FunctionalVectorEnv
from ._suites.door import make, make_vec


def register(env_id: str, env: type[FunctionalEnv] | str, **options: Any) -> None:
    """Register an environment under an id, for `gymnasium.make` and `gymnasium.make_vec`.

    Args:
        env_id: the id, such as "mine/Walk-v0".
        env: the class, or its path "package.module:Class", which is imported when an environment is made.
        **options: default options of `FunctionalVectorEnv`, except `num_envs`. Options that a single environment does not
            have apply to vector environments only.

    Raises:
        arrayferry.OptionError: `env` is not a subclass of `FunctionalEnv`, or `options` contains `num_envs`.

    Examples:
        >>> import gymnasium as gym
        >>> from arrayferry_envs import CartPole, register
        >>> class Moon(CartPole):
        ...     default_params = CartPole.default_params._replace(gravity=1.6)
        >>> register("mine/MoonCart-v0", Moon)
        >>> envs = gym.make_vec("mine/MoonCart-v0", num_envs=2, xp="torch")
        >>> envs.params.gravity
        1.6
    """
    if not isinstance(env, str) and not (isinstance(env, type) and issubclass(env, FunctionalEnv)):
        raise af.OptionError(
            f"register() was given {env!r:.80} as the environment",
            remedy='Pass a subclass of FunctionalEnv, or its path: "package.module:Class".',
        )
    if "num_envs" in options:
        raise af.OptionError(
            "num_envs cannot be registered",
            remedy="Pass it to gymnasium.make_vec, which could not override a registered num_envs.",
        )
    limit = options.get("max_episode_steps", getattr(env, "max_episode_steps", None))
    if limit is not None:
        options.pop("max_episode_steps", None)
    register_id(env_id, _named(env), limit, **options)


def _named(env: Any) -> Any:
    """Return the path of a class, since JSON has no classes. If the path cannot be imported, return the class."""
    if isinstance(env, str):
        return env
    path = f"{env.__module__}:{env.__qualname__}"
    try:
        return path if _loaded(path) is env else env
    except (ImportError, AttributeError):
        return env


def _loaded(env: Any) -> Any:
    return gym.envs.registration.load_env_creator(env) if isinstance(env, str) else env


def _single(functional: Any, **options: Any) -> Any:
    options.pop("autoreset_mode", None)
    return FunctionalSingleEnv(_loaded(functional), **options)


def _unlimited(functional: Any, **options: Any) -> Any:
    """Make a single environment without a step limit, since Gymnasium adds a TimeLimit."""
    return _single(functional, max_episode_steps=None, **options)


# gymnasium.make adds the modes "human" and "rgb_array_list" to these render modes
for _entry in (_single, _unlimited):
    _entry.metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # type: ignore[attr-defined]


def _of_suite(name: str, **options: Any) -> Any:
    return make(name, **options)


def _batch_of_suite(name: str, num_envs: int = 1, **options: Any) -> Any:
    return make_vec(name, num_envs, **options)


def _vector(functional: Any, num_envs: int = 1, **options: Any) -> Any:
    return FunctionalVectorEnv(_loaded(functional), num_envs, **options)
