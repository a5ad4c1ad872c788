"""Makes the chain of kernels around an environment."""

from __future__ import annotations

import sys
from typing import Any

import arrayferry as af
from arrayferry._utilities.caller import authors_line
from arrayferry_envs._contract.errors import EnvResultError
from arrayferry_envs._contract.functional_env import FunctionalEnv
from arrayferry_envs._contract.mistakes import line_of
from arrayferry_gym.extending import Chain
from arrayferry_gym.wrappers.kernels import Kernel, Spaces


def chain_of(env: FunctionalEnv, limit: int | None, refuse: Any = None) -> Chain:
    """Return the chain of an environment's kernels around its spaces, for episodes with a step limit.

    Args:
        env: the environment with the kernels.
        limit: the step limit, or None for no limit.
        refuse: as for `Chain`. By default, `refuse_untraceable`.
    """
    base = env.base
    inner_spaces = Spaces(base.observation_space, base.action_space, base._limited(limit))
    return Chain(env.kernels, inner_spaces, refuse or refuse_untraceable)


def refuse_untraceable(kernel: Kernel, error: Exception) -> None:
    """Explain an error that a kernel raised because JAX cannot trace the kernel. Other errors have no effect.

    Raises:
        EnvResultError: the error means that JAX cannot trace the kernel.
    """
    jax = sys.modules.get("jax")
    tracing_errors = () if jax is None else (jax.errors.JAXTypeError, jax.errors.JAXIndexError)
    if isinstance(error, (af.TracedValueError, *tracing_errors)):
        line = authors_line(error) or line_of(type(kernel).step)
        raise EnvResultError(
            f"the kernel {kernel!r:.80} cannot be compiled by JAX, because of {line}: {str(error).partition(chr(10))[0]}",
            remedy="Write the kernel with functions of xp, without branches on values. Or leave it out of wrap(), and "
            "apply it without compilation, by KernelVectorWrapper(envs, kernel).",
        ) from error
