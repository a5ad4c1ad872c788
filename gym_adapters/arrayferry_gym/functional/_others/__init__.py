"""`from_env`: functional environments of other libraries."""

from __future__ import annotations

import textwrap
from importlib import import_module
from typing import Any

import arrayferry as af
from arrayferry_gym.functional._contract.errors import usable

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


def from_env(env: Any, params: Any = None, *, randomization_fn: Any = None) -> Any:
    """Turn a functional environment of another library into a `FunctionalEnv`.

    Environments of gymnax, Craftax, Kinetix, Brax, MuJoCo Playground, pgx, Jumanji and navix are supported, and
    Gymnasium's `FuncEnv`. They compute in JAX, and serve agents of any library. The result holds a copy: later
    changes to `env` have no effect. arrayferry does resets, step limits and batching. The environment's own are not
    used, so that final observations are those of the last state, and limits are truncations.

    Args:
        env: the environment.
        params: its parameters, for gymnax, Craftax, Kinetix and `FuncEnv`. None uses its own. They become
            `default_params`.
        randomization_fn: for Brax and MuJoCo Playground: `randomization_fn(model, keys) -> (models, axes)`, as for their
            trainers. It draws the physical model of each new episode. The values that it draws are parameters.

    Returns:
        The environment, for `make_vec`, `make`, `rollout`, `Functions`, `wrap` and so on.

    Raises:
        TypeError: it is not an environment of a supported library.
        arrayferry.OptionError: its library does not run with the installed JAX, or has no parameters.

    Examples:
        >>> import jax
        >>> from gymnasium.envs.phys2d.cartpole import CartPoleFunctional
        >>> from arrayferry_gym.functional import from_env
        >>> envs = from_env(CartPoleFunctional()).make_vec(3, xp="torch", max_episode_steps=500)
        >>> envs.reset(seed=1)[0].shape
        torch.Size([3, 4])
    """
    for cls in type(env).__mro__:
        if cls.__module__.partition(".")[0] == "jaxmarl":
            raise TypeError(
                f"{_name(env)} is of JaxMARL, whose agents have observations and rewards of their own. Use "
                "arrayferry_gym.pettingzoo.from_jaxmarl, which makes a parallel environment of PettingZoo"
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
    make = getattr(import_module(f"{__name__}.{module}"), name)
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

    from arrayferry_gym.functional._contract.dynamics import Dynamics

    if isinstance(env, Dynamics):
        return "It is a FunctionalEnv already"
    if isinstance(env, (gym.Env, VectorEnv)):
        return "For an environment of Gymnasium write ArrayConversion(env), or HostFunctions(envs) inside jit"
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
