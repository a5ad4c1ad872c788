"""Functions that examine, copy and refuse JAX arrays, such as sparse, traced and deleted arrays."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from arrayferry.typing import AnyArray
from arrayferry_plugins._sources import refused

from .identity import owned
from .placement import keeping_dtype, staying, without_mesh


def is_sparse(x: AnyArray) -> bool:
    """Return whether an array is sparse."""
    return isinstance(x, getattr(sys.modules.get("jax.experimental.sparse"), "JAXSparse", ()))


def is_traced(x: AnyArray) -> bool:
    """Return whether an array is traced. A sparse array is traced if one of its `parts` is traced."""
    import jax

    if is_sparse(x):
        return any(map(is_traced, parts(x)))
    return isinstance(x, jax.core.Tracer)


def parts(x: AnyArray) -> Sequence[Any]:
    """Return the arrays that a sparse array consists of, such as its data and its indices."""
    import jax

    return list(jax.tree.leaves(x))


def dense(x: AnyArray) -> Any:
    """Return a sparse array as a dense array on the same device."""
    with staying(parts(x)[0]):
        return x.todense()


def copied(x: AnyArray) -> Any:
    """Return a copy of an array on the same devices. Copy each of the `parts` of a sparse array."""
    import jax
    import jax.numpy as jnp

    if is_sparse(x):
        return jax.tree.map(copied, x)
    refuse(x)
    with jax.debug_nans(False), jax.debug_infs(False), without_mesh(), keeping_dtype(x), staying(x):
        try:
            y = jnp.array(x, copy=True)
        except ValueError:  # the type of x names a mesh that x is no longer on
            import numpy as np

            y = jax.device_put(owned(np.asarray(x)), x.sharding)
    if x.committed and not y.sharding.is_equivalent_to(x.sharding, x.ndim):
        # jnp.array() may put copies of empty arrays, or of arrays in host memory, on another device
        y = jax.device_put(y, x.sharding)
    return y


def refuse(x: AnyArray) -> None:
    """Raise an error for a `jax.Ref` or a deleted array."""
    import jax

    if isinstance(x, getattr(jax, "Ref", ())):
        reason = ", since its values may change"
        raise refused("a jax.Ref", why=reason, remedy="Pass ref[...], the values that it has now.")
    if x.is_deleted():
        reason = ": it was deleted, or donated to a jitted function"
        remedy = "Convert it before it is deleted, or do not donate it."
        raise refused("a deleted JAX array", why=reason, remedy=remedy)


def refuse_unreduced(x: AnyArray) -> None:
    """Raise an error for an array whose values are sums over its devices that JAX has not computed yet."""
    if getattr(getattr(getattr(x, "sharding", None), "spec", None), "unreduced", None):
        noun = "a JAX array that is not summed up over its devices yet"
        raise refused(noun, "jax.reshard(x, jax.P())", why=f": {x.sharding.spec}")
