"""`from_env`: functional environments of other libraries."""

from __future__ import annotations

from typing import Any


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
        >>> from arrayferry_envs import from_env
        >>> envs = from_env(CartPoleFunctional()).make_vec(3, xp="torch", max_episode_steps=500)
        >>> envs.reset(seed=1)[0].shape
        torch.Size([3, 4])
    """
    from arrayferry_suites import adapt

    return adapt(env, params, randomization_fn)
