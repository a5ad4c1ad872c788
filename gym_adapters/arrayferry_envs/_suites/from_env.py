"""`from_env`: converts environments of other projects."""

from __future__ import annotations

import textwrap
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from arrayferry.extending import resolve_type
from arrayferry.typing import AnyTree
from arrayferry_envs._contract.functional_env import FunctionalEnv
from arrayferry_gym.extending import autoreset_mode_of

from .around import around
from .ids import all_suites


def from_env(env: Any, params: AnyTree = None, **options: Any) -> Any:
    """Convert an environment of another project to a `FunctionalEnv`, or a batch such as EnvPool's to a `VectorEnv`.

    Environments are recognized by their classes. The supported projects are gymnax, Craftax, Kinetix, Brax, MuJoCo
    Playground, pgx, Jumanji, navix, EnvPool, mjlab, Gymnasium's `FuncEnv`, and the suites of other plugins. A functional
    environment in JAX can be served to agents of any library. A `FunctionalEnv` contains a copy of `env`, so later
    changes to `env` have no effect. arrayferry resets this copy, applies step limits and forms batches. So the last
    observation of an episode shows the last state, and an episode that reaches the limit is truncated.

    Args:
        env: an environment of a suite, or a batch of environments.
        params: the parameters of the environment, for gymnax, Craftax, Kinetix and `FuncEnv`. None uses the environment's
            defaults. The parameters become `default_params` of the result.
        **options: options of the suite. For Brax and MuJoCo Playground, `randomization_fn(model, keys) -> (models, axes)`,
            as for their trainers, draws the physical model of each new episode; the drawn values become parameters. For
            EnvPool and mjlab, `autoreset_mode` is an option.

    Returns:
        A `FunctionalEnv`, for `make_vec`, `make`, `rollout`, `Functions`, `wrap` and so on, or a `VectorEnv`.

    Raises:
        TypeError: `env` is not an environment of a suite.
        arrayferry.OptionError: the library of `env` does not run with the installed JAX, or the suite does
            not accept an option.

    Examples:
        >>> import jax
        >>> from gymnasium.envs.phys2d.cartpole import CartPoleFunctional
        >>> from arrayferry_envs import from_env
        >>> envs = from_env(CartPoleFunctional()).make_vec(3, xp="torch", max_episode_steps=500)
        >>> envs.reset(seed=1)[0].shape
        torch.Size([3, 4])
    """
    by_type = {path: suite for suite in all_suites().values() for path in suite.env_types or ()}
    by_type |= {resolve_type(path): suite for path, suite in by_type.items()}
    for cls in type(env).__mro__:
        suite = by_type.get(cls, by_type.get(f"{cls.__module__}.{cls.__qualname__}"))
        if suite is not None:
            arguments = options if params is None else {"params": params, **options}
            if (mode := arguments.get("autoreset_mode")) is not None:
                arguments["autoreset_mode"] = autoreset_mode_of(mode)
            suite._check_options(suite.adapt, 1, arguments, _name(env))
            envs = suite.adapt(env, **arguments)
            return envs if isinstance(envs, FunctionalEnv) else around(envs, target_xp="numpy")
    raise TypeError(f"from_env was given {_shown(env)}. {_meant(env)}")


def _shown(env: Any) -> str:
    if isinstance(env, (type, str)):
        return textwrap.shorten(repr(env), 80, placeholder="...")
    return f"({', '.join(map(_name, env))})" if isinstance(env, tuple) else _name(env)


def _name(env: Any) -> str:
    return f"{type(env).__module__}.{type(env).__qualname__}"


def _meant(env: Any) -> str:
    """Return advice on what to pass instead of `env`."""
    if isinstance(env, FunctionalEnv):
        return "It is a FunctionalEnv already, so use it without from_env"
    if isinstance(env, (gym.Env, VectorEnv)):
        return (
            "For an environment of Gymnasium, write ArrayConversion(env). Inside jit, step it by callbacks, as in "
            "examples/host_callbacks.py"
        )
    if isinstance(env, tuple) and env:
        return "Pass the environment, and its parameters as params=: from_env(*gymnax.make(name))"
    if isinstance(env, type):
        return "Pass an object, not its class"
    packages = {cls.__module__.partition(".")[0] for cls in type(env).__mro__}
    if "jaxmarl" in packages:
        return (
            "Each agent of JaxMARL has its own observations and rewards. Write a pettingzoo.ParallelEnv around reset and "
            "step_env, for arrayferry_gym.pettingzoo.ParallelConversion"
        )
    suites = {name: suite for name, suite in all_suites().items() if suite.env_types}
    if packages & {suite.package for suite in suites.values()}:
        return "Its library is supported, but not this class. If it is a wrapper, pass the environment inside"
    return (
        f"from_env converts environments of {', '.join(suites) or 'no suite'}, of Craftax and Kinetix, and "
        "Gymnasium's FuncEnv. "
        'For an id, use make_functional. For other environments, write a FunctionalEnv with library = "jax", or a suite'
    )
