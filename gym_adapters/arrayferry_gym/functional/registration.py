"""Ids for environments, so that `gymnasium.make` and `make_vec` find them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

import arrayferry as af
from arrayferry_gym.functional._served.base import FunctionalEnv
from arrayferry_gym.functional._served.single import FunctionalSingleEnv
from arrayferry_gym.functional._served.vector import FunctionalVectorEnv
from arrayferry_gym.functional.tabular.blackjack import Blackjack
from arrayferry_gym.functional.tabular.cliff_walking import CliffWalking, CliffWalkingSlippery
from arrayferry_gym.functional.tabular.frozen_lake import FrozenLake, FrozenLake8x8
from arrayferry_gym.functional.tabular.taxi import Taxi

from .classic import Acrobot, CartPole, MountainCar, MountainCarContinuous, Pendulum

__all__ = ["register"]


def register(env_id: str, env: type[FunctionalEnv] | str, **options: Any) -> None:
    """Register an environment under an id, for `gymnasium.make` and `gymnasium.make_vec`.

    Args:
        env_id: the id, "mine/Walk-v0".
        env: the class, or its path: "package.module:Class", which is imported only when an environment is made.
        **options: options of `FunctionalVectorEnv`, except `num_envs`, to use as defaults. Options that a single
            environment does not have apply to vector environments only.

    Raises:
        arrayferry.OptionError: `env` is not a subclass of `FunctionalEnv`, or `num_envs` is an option.

    Examples:
        >>> import gymnasium as gym
        >>> from arrayferry_gym.functional import CartPole, register
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
            remedy="Pass it to gymnasium.make_vec, which would not override it.",
        )
    limit = options.get("max_episode_steps", getattr(env, "max_episode_steps", None))
    if limit is not None:
        options.pop("max_episode_steps", None)
    single = "_single" if limit is None else "_unlimited"
    gym.register(
        env_id,
        entry_point=f"arrayferry_gym.functional.registration:{single}",
        vector_entry_point="arrayferry_gym.functional.registration:_vector",
        max_episode_steps=limit,
        order_enforce=False,
        disable_env_checker=True,
        kwargs={"functional": _named(env), **options},
    )


def _named(env: Any) -> Any:
    """Return the path of a class, which a spec can store as JSON, or the class if it cannot be imported."""
    if isinstance(env, str):
        return env
    place = f"{env.__module__}:{env.__qualname__}"
    try:
        return place if _loaded(place) is env else env
    except (ImportError, AttributeError):
        return env


def _loaded(env: Any) -> Any:
    return gym.envs.registration.load_env_creator(env) if isinstance(env, str) else env


def _single(functional: Any, **options: Any) -> Any:
    options.pop("autoreset_mode", None)
    return FunctionalSingleEnv(_loaded(functional), **options)


def _unlimited(functional: Any, **options: Any) -> Any:
    """Make a single environment whose steps Gymnasium limits."""
    return _single(functional, max_episode_steps=None, **options)


for _entry in (_single, _unlimited):  # gymnasium.make adds the modes "human" and "rgb_array_list"
    _entry.metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # type: ignore[attr-defined]


def _vector(functional: Any, num_envs: int = 1, **options: Any) -> Any:
    return FunctionalVectorEnv(_loaded(functional), num_envs, **options)


def register_all() -> None:
    """Register the reference environments."""
    for env in REFERENCE:
        register(f"arrayferry/{env.__name__}-v0", env)


REFERENCE: tuple[type[FunctionalEnv], ...] = (
    Acrobot,
    Blackjack,
    CartPole,
    CliffWalking,
    CliffWalkingSlippery,
    FrozenLake,
    FrozenLake8x8,
    MountainCar,
    MountainCarContinuous,
    Pendulum,
    Taxi,
)
