"""Random numbers of JAX."""

from __future__ import annotations

import threading
from typing import Any

from arrayferry._utilities.compilers import uncompiled
from arrayferry.typing import AnyArray, AnyTree, Device
from arrayferry_gym import Random, RandomFactory, check_integers

from .placement import own_device

_drawing = threading.Lock()
"""The lock for splitting keys. Without it, two threads could get the same key."""


@uncompiled
class JaxRandom(Random):
    """Random numbers from a key. Each method splits the key, and draws with a new key. Methods work inside `jit` too.

    Args:
        key: a key, as `jax.random.key` returns it.

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
            if len(self._keys) == 1:  # one split into 4 takes less time than 3 splits into 2
                self._keys = list(jax.random.split(self._keys[0], 4))
            return self._keys.pop()

    def getstate(self) -> Any:
        return tuple(self._keys), self.used

    def setstate(self, state: AnyTree) -> None:
        keys, self.used = state
        self._keys = list(keys)

    def uniform(
        self, shape: Any, low: AnyArray = 0.0, high: AnyArray = 1.0, dtype: str = "float32"
    ) -> Any:
        import jax

        shape, dtype, low, high = self._checked("uniform", shape, dtype, low, high)
        return jax.random.uniform(self.key(), shape, dtype, low, high)

    def normal(
        self, shape: Any, mean: AnyArray = 0.0, std: AnyArray = 1.0, dtype: str = "float32"
    ) -> Any:
        import jax

        shape, dtype, mean, std = self._checked("normal", shape, dtype, mean, std)
        # for a 16-bit dtype, JAX would draw from few different numbers
        drawn = dtype if dtype == "float64" else "float32"
        values = jax.random.normal(self.key(), shape, drawn)
        mean, std = _spread(mean, shape), _spread(std, shape)
        return (values * std + mean).astype(dtype)

    def integers(self, shape: Any, low: AnyArray, high: AnyArray, dtype: str = "int32") -> Any:
        import jax
        import jax.numpy as jnp
        import numpy as np

        shape, dtype, low, high = self._checked("integers", shape, dtype, low, high)
        low, high = (int(x) if isinstance(x, np.integer) else x for x in (low, high))
        name = str(jax.dtypes.canonicalize_dtype(dtype))
        check_integers(_in_host_memory(low), _in_host_memory(high), name)
        low, high = _spread(low, shape), _spread(high, shape)
        bits = jnp.iinfo(name).bits
        # the largest Python integer that randint accepts
        most = jnp.iinfo(jax.dtypes.canonicalize_dtype(int)).max
        python_ints = type(low) is type(high) is int
        few = 2 ** (bits - 8)  # from larger ranges, randint draws with unequal probabilities
        small = python_ints and high - low <= few and -most - 1 <= low < high <= most
        if small or bits < 32:
            return jax.random.randint(self.key(), shape, low, high, dtype)
        # draw unsigned numbers from 0 to end - first - 1, and add `first` at the end
        unsigned, half = f"uint{bits}", bits // 2
        first, end = (
            jnp.asarray(np.asarray(x % 2**bits, unsigned) if type(x) is int else x).astype(unsigned)
            for x in (low, high)
        )
        # `key` is for randint, and the other keys for the halves of the bits below
        key, upper, lower = jax.random.split(self.key(), 3)
        last = end - first - 1
        if python_ints:
            numbers = jnp.maximum(last, last + 1)  # last + 1 is 0 if the range is the whole dtype
            values = jax.random.randint(key, shape, 0, numbers, unsigned)
        else:
            values = jax.random.randint(key, shape, low, high, name).astype(unsigned) - first
        # for a large range, draw the upper and lower halves of the bits, and replace the few
        # numbers that are out of range by numbers of randint
        both = jax.random.randint(upper, shape, 0, (last >> half) + 1, unsigned) << half
        both = both | jax.random.bits(lower, shape, unsigned) >> half
        many = (low < high) & (last >= few) & (both <= last)
        return jax.lax.bitcast_convert_type(jnp.where(many, both, values) + first, name)

    def categorical(self, shape: Any, logits: AnyArray, dtype: str = "int32") -> Any:
        import jax
        import jax.numpy as jnp

        shape, dtype, logits = self._checked("categorical", shape, dtype, logits)
        logits = jnp.asarray(logits, None if logits.dtype == "float64" else "float32")
        return jax.random.categorical(self.key(), logits, shape=shape).astype(dtype)


class JaxRandomFactory(RandomFactory):
    """Makes a `JaxRandom` from a seed, or from a key, which may be traced."""

    name = "jax"

    def make(self, seed: Any = None, device: Device = None) -> JaxRandom:
        import jax
        import numpy as np

        if hasattr(seed, "dtype") and jax.dtypes.issubdtype(seed.dtype, jax.dtypes.prng_key):
            return JaxRandom(seed)
        with jax.transfer_guard("allow"):  # users expect that making a key moves the seed
            if isinstance(seed, (int, np.integer)) and 0 <= seed < 2**32:
                key = jax.random.key(int(seed))
            else:  # jax.random.key uses only 32 bits of a seed, so hash other seeds
                first, second = map(int, np.random.SeedSequence(seed).generate_state(2))
                key = jax.random.fold_in(jax.random.key(first), second)
        return JaxRandom(key if device is None else jax.device_put(key, own_device(device)))


def _spread(x: AnyArray, shape: tuple[int, ...]) -> Any:
    """Return an array broadcast to the shape of the result, as the setting `jax_numpy_rank_promotion` may require."""
    import jax.numpy as jnp
    import numpy as np

    if not getattr(x, "ndim", 0):
        return x
    return (np if isinstance(x, np.ndarray) else jnp).broadcast_to(x, shape)


def _in_host_memory(bound: AnyArray) -> Any:
    """Return a bound for integers as a NumPy array if it has values in host memory. Return other bounds unchanged."""
    import jax
    import numpy as np

    if not isinstance(bound, jax.Array) or isinstance(bound, jax.core.Tracer):
        return bound
    on_host = bound.is_fully_addressable and all(each.platform == "cpu" for each in bound.devices())
    return np.asarray(bound) if on_host else bound
