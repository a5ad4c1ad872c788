"""Detects values that JAX traces. They are invalid outside the traced function, so environments must not store them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import arrayferry as af
from arrayferry.typing import AnyTree

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # older versions of JAX have this function in jax.core
    from jax.core import get_opaque_trace_state


def trace_here() -> Any:
    """Return a comparable object that identifies the innermost function that JAX is tracing."""
    return get_opaque_trace_state(convention="flax")


def stages() -> bool:
    """Return whether JAX records all computations here, as in `jit` and `scan`, but not in `vmap` and `grad`."""
    with jax.transfer_guard("allow"):
        return isinstance(jnp.zeros(()), jax.core.Tracer)


def has_tracers(tree: AnyTree) -> bool:
    """Return whether a tree contains traced values."""
    if isinstance(tree, jax.Array) or (isinstance(tree, np.ndarray) and tree.dtype.kind != "O"):
        return isinstance(tree, jax.core.Tracer)
    return any(isinstance(leaf, jax.core.Tracer) for leaf in af.flatten(tree)[0])
