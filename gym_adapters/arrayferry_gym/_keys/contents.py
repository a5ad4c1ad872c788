"""Keys of values by all of their contents, including arrays of JAX. This module imports JAX."""

from __future__ import annotations

import copyreg
from collections.abc import Hashable, Iterable
from typing import Any

import jax
import numpy as np

from arrayferry.adapting import attributes, compares

from .identity import EnvironmentKeys, Key, digest_of


def key_of_contents(value: Any) -> Key:
    """Return the key of the contents of a value that does not change. It does not keep the value alive."""
    return Key(_ContentKeys().of(value))


class _ContentKeys(EnvironmentKeys):
    """Keys of environments by their contents. An object whose contents cannot be read equals only itself."""

    def array(self, x: Any) -> Hashable:
        """Compare arrays of JAX by their contents, too."""
        if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
            return super().array(x)
        data = jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        digest = digest_of(np.asarray(data).tobytes())
        return str(x.dtype), x.shape, x.weak_type, x.sharding, digest

    def parts(self, value: Any, cls: type) -> Iterable[tuple[str, Any]] | None:
        """Take the attributes of objects of Python classes that hold nothing else."""
        if not compares(cls) and _is_plain(value, cls):
            return [(f".{name}", part) for name, part in attributes(value)]
        return super().parts(value, cls)


def _is_plain(value: Any, cls: type) -> bool:
    """Tell whether an object consists only of its attributes."""
    try:
        made: Any = object.__reduce_ex__(value, 2)
    except Exception:  # it has state that only C code can read
        return False
    return isinstance(made, tuple) and made[:2] == (getattr(copyreg, "__newobj__"), (cls,))  # noqa: B009
