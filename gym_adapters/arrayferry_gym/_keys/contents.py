"""Keys of objects of other libraries by all that they hold, including arrays of JAX. This module imports JAX."""

from __future__ import annotations

import copyreg
from collections.abc import Hashable
from typing import Any

import jax
import numpy as np

from .keys import parts_of


def parts_of_other(value: Any) -> Hashable | None:
    """Return the parts of a value that is compared by all that it holds, as `parts_of` does."""
    if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
        is_key = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
        data = np.asarray(jax.random.key_data(value) if is_key else value)
        return str(value.dtype), value.weak_type, value.sharding, data
    own = parts_of(value)
    cls: Any = type(value)
    if own is None and cls.__eq__ is object.__eq__:
        try:
            made: Any = object.__reduce_ex__(value, 2)
        except TypeError:  # only C code can read its state, such as that of a function
            return None
        if made[:2] == (getattr(copyreg, "__newobj__"), (cls,)):  # noqa: B009
            # It is all attributes, which a copy may have although they are not pickled.
            return made[2], object.__getstate__(value) if hasattr(cls, "__deepcopy__") else None
    return own
