"""Functional environments of other libraries, as a `FunctionalEnv` of arrayferry_envs."""

from __future__ import annotations

import textwrap
from importlib import import_module
from typing import Any

import arrayferry as af
from arrayferry_envs.extending import usable

__all__ = ["adapt"]

_CRAFTAX = "craftax.environment_base.environment_bases"
_ADAPTERS = {
    ("gymnax.environments.environment", "Environment"): ("gymnax", "GymnaxEnv"),
    (_CRAFTAX, "EnvironmentAutoReset"): ("gymnax", "GymnaxEnv"),
    (_CRAFTAX, "EnvironmentNoAutoReset"): ("gymnax", "GymnaxEnv"),
    ("brax.envs.base", "Env"): ("brax", "BraxEnv"),
    ("mujoco_playground._src.mjx_env", "MjxEnv"): ("brax", "BraxEnv"),
    ("pgx.core", "Env"): ("pgx", "PgxEnv"),
    ("jumanji.env", "Environment"): ("jumanji", "JumanjiEnv"),
    ("navix.environments.environment", "Environment"): ("navix", "NavixEnv"),
    ("gymnasium.experimental.functional", "FuncEnv"): ("func_env", "FuncEnvAdapter"),
}
"""The module and class of the adapter for each base class of environments. Kinetix uses that of gymnax."""
_LIBRARIES = {module.partition(".")[0] for module, _ in _ADAPTERS} - {"gymnasium"}
_TAKE_PARAMS = {"gymnax", "func_env"}


def adapt(env: Any, params: Any = None, randomization_fn: Any = None) -> Any:
    """Turn a functional environment of another library into a `FunctionalEnv`, as `arrayferry_envs.from_env` does."""
    for cls in type(env).__mro__:
        if cls.__module__.partition(".")[0] == "jaxmarl":
            raise TypeError(
                f"{_name(env)} is of JaxMARL, whose agents have observations and rewards of their own. Write a "
                "pettingzoo.ParallelEnv around its reset and step_env, for arrayferry_gym.pettingzoo.ParallelConversion"
            )
        found = _ADAPTERS.get((cls.__module__, cls.__qualname__))
        if found is not None:
            return _adapted(env, params, randomization_fn, *found)
    given = f"({', '.join(map(_name, env))})" if isinstance(env, tuple) else _name(env)
    if isinstance(env, (type, str)):
        given = textwrap.shorten(repr(env), 80, placeholder="...")
    raise TypeError(f"from_env was given {given}. {_meant(env)}")


def _adapted(env: Any, params: Any, randomization_fn: Any, module: str, name: str) -> Any:
    usable(af.registry.backend("jax"))
    if params is not None and module not in _TAKE_PARAMS:
        raise af.OptionError(
            f"params were passed, but {_name(env)} has none", remedy="Leave them out."
        )
    if randomization_fn is not None and module != "brax":
        raise af.OptionError(
            f"randomization_fn was passed, but {_name(env)} has no physical model",
            remedy="Leave it out. wrap and sample_params of a FunctionalEnv draw parameters.",
        )
    options = [x for x in (params, randomization_fn) if x is not None]  # at most one
    make = getattr(import_module(f"{__name__}._{module}"), name)
    try:
        return make(env, *options)
    except af.ArrayFerryError:
        raise
    except Exception as error:
        import jax

        text = textwrap.shorten(str(error), 200, placeholder="...")
        raise af.OptionError(
            f"{_name(env)} fails with JAX {jax.__version__} ({type(error).__name__}: {text})",
            remedy="If the fault is not in the environment or its parameters, install the versions that its library "
            "asks for, or a newer release of it.",
        ) from error


def _name(env: Any) -> str:
    return f"{type(env).__module__}.{type(env).__qualname__}"


def _meant(env: Any) -> str:
    """Return advice on what to pass instead."""
    import gymnasium as gym
    from gymnasium.vector import VectorEnv

    from arrayferry_envs import FunctionalEnv

    if isinstance(env, FunctionalEnv):
        return "It is a FunctionalEnv already"
    if isinstance(env, (gym.Env, VectorEnv)):
        return (
            "For an environment of Gymnasium write ArrayConversion(env), or inside jit step it by callbacks, as "
            "examples/host_callbacks.py does"
        )
    if isinstance(env, tuple) and env:
        return "Pass the environment, and its parameters as params=: from_env(*gymnax.make(name))"
    if isinstance(env, type):
        return "Pass an object, not its class"
    if any(cls.__module__.partition(".")[0] in _LIBRARIES for cls in type(env).__mro__):
        return "Its library is known, but this is not one of its environments. If it is a wrapper, pass the environment inside"
    return (
        "It takes environments of gymnax, Craftax, Kinetix, Brax, MuJoCo Playground, pgx, Jumanji and navix, and the FuncEnv "
        'of Gymnasium. For others write a FunctionalEnv with library = "jax"'
    )
