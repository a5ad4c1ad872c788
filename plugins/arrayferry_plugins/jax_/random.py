"""Random numbers of JAX."""

from __future__ import annotations

import threading
from typing import Any

from arrayferry import Random
from arrayferry.adapting import check_integers

_drawing = threading.Lock()
"""Held while a key is taken, so that no two threads get the same one."""


class JaxRandom(Random):
    """Random numbers from a key, which is split at each use. It works inside `jit` too.

    Args:
        key: a key, as `jax.random.key` makes it.

    Attributes:
        used: whether a number was drawn.
    """

    def __init__(self, key: Any) -> None:
        self._keys = [key]
        self.used: bool = False

    def key(self) -> Any:
        import jax

        self.used = True
        with _drawing:
            if len(self._keys) == 1:  # splitting into several at once is cheaper
                self._keys = list(jax.random.split(self._keys[0], 4))
            return self._keys.pop()

    def getstate(self) -> Any:
        return tuple(self._keys), self.used

    def setstate(self, state: Any) -> None:
        keys, self.used = state
        self._keys = list(keys)

    def uniform(self, shape: Any, low: Any = 0.0, high: Any = 1.0, dtype: str = "float32") -> Any:
        import jax

        return jax.random.uniform(self.key(), tuple(shape), dtype, low, high)

    def normal(self, shape: Any, mean: Any = 0.0, std: Any = 1.0, dtype: str = "float32") -> Any:
        import jax

        values = jax.random.normal(self.key(), tuple(shape), dtype)
        return (values * std + mean).astype(dtype)

    def integers(self, shape: Any, low: Any, high: Any, dtype: str = "int32") -> Any:
        import jax
        import jax.numpy as jnp
        import numpy as np

        name = str(jax.dtypes.canonicalize_dtype(dtype))
        check_integers(_in_host_memory(low), _in_host_memory(high), name)
        shape, bits = tuple(shape), jnp.iinfo(name).bits
        most = jnp.iinfo(jax.dtypes.canonicalize_dtype(int)).max  # of Python's integers in JAX
        given = type(low) is type(high) is int and bits >= 32
        many = given and high - low > 2 ** (bits - 8)  # of which randint prefers the low ones
        if not given or (not many and -most - 1 <= low < high <= most):
            return jax.random.randint(self.key(), shape, low, high, dtype)
        # drawn as unsigned numbers from 0 on, and moved to the range
        unsigned, half = f"uint{bits}", bits // 2
        end = np.asarray(min(high - low, 2**bits - 1), unsigned)
        values = jax.random.randint(self.key(), shape, 0, end, unsigned)
        if many:  # two halves, each of a small range. Few are too large
            upper = jax.random.randint(self.key(), shape, 0, (high - low - 1 >> half) + 1, unsigned)
            both = upper << half | jax.random.bits(self.key(), shape, unsigned) >> half
            values = jnp.where(both > np.asarray(high - low - 1, unsigned), values, both)
        return jax.lax.bitcast_convert_type(values + np.asarray(low % 2**bits, unsigned), name)

    def categorical(self, shape: Any, logits: Any, dtype: str = "int32") -> Any:
        import jax

        return jax.random.categorical(self.key(), logits, shape=tuple(shape)).astype(dtype)


def _in_host_memory(bound: Any) -> Any:
    """Return a bound for integers as a NumPy array if its values are in host memory, unchanged otherwise."""
    import jax
    import numpy as np

    if not isinstance(bound, jax.Array) or isinstance(bound, jax.core.Tracer):
        return bound
    on_host = bound.is_fully_addressable and all(each.platform == "cpu" for each in bound.devices())
    return np.asarray(bound) if on_host else bound


def seed_number(seed: Any) -> int:
    """Return a seed that `jax.random.key` takes: numbers below 2**32 as they are."""
    import numpy as np

    if isinstance(seed, (int, np.integer)) and 0 <= seed < 2**32:
        return int(seed)
    return int(np.random.SeedSequence(seed).generate_state(1)[0])
