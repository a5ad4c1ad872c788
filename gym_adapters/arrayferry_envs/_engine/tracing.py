"""Values that JAX traces. They are invalid outside the traced function, so no environment may keep them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import arrayferry as af
from arrayferry.typing import AnyTree

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # it moved after JAX 0.6
    from jax.core import get_opaque_trace_state


def trace_here() -> Any:
    """Return an object for the innermost function that is traced here. It can be compared."""
    return get_opaque_trace_state(convention="flax")


def stages() -> bool:
    """Tell whether everything that is computed here is recorded, as in `jit` and `scan`, but not in `vmap` and `grad`."""
    with jax.transfer_guard("allow"):
        return isinstance(jnp.zeros(()), jax.core.Tracer)


def has_tracers(tree: AnyTree) -> bool:
    """Tell whether a tree holds traced values."""
    if isinstance(tree, jax.Array) or (isinstance(tree, np.ndarray) and tree.dtype.kind != "O"):
        return isinstance(tree, jax.core.Tracer)
    return any(isinstance(leaf, jax.core.Tracer) for leaf in af.flatten(tree)[0])
