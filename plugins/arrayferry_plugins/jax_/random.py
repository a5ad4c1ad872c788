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
        drawn_dtype = dtype if dtype == "float64" else "float32"
        values = jax.random.normal(self.key(), shape, drawn_dtype)
        mean, std = _spread(mean, shape), _spread(std, shape)
        return (values * std + mean).astype(dtype)

    def integers(self, shape: Any, low: AnyArray, high: AnyArray, dtype: str = "int32") -> Any:
        import jax
        import jax.numpy as jnp
        import numpy as np

        shape, dtype, low, high = self._checked("integers", shape, dtype, low, high)
        low, high = (int(end) if isinstance(end, np.integer) else end for end in (low, high))
        dtype_name = str(jax.dtypes.canonicalize_dtype(dtype))
        check_integers(_in_host_memory(low), _in_host_memory(high), dtype_name)
        low, high = _spread(low, shape), _spread(high, shape)
        bits = jnp.iinfo(dtype_name).bits
        # the largest Python integer that randint accepts
        max_int = jnp.iinfo(jax.dtypes.canonicalize_dtype(int)).max
        python_ints = type(low) is type(high) is int
        max_range = 2 ** (bits - 8)  # from larger ranges, randint draws with unequal probabilities
        is_small = python_ints and high - low <= max_range and -max_int - 1 <= low < high <= max_int
        if is_small or bits < 32:
            return jax.random.randint(self.key(), shape, low, high, dtype)
        # draw unsigned numbers from 0 to u_high - u_low - 1, and add `u_low` at the end
        u_dtype, shift = f"uint{bits}", bits // 2
        u_low, u_high = (
            jnp.asarray(np.asarray(x % 2**bits, u_dtype) if type(x) is int else x).astype(u_dtype)
            for x in (low, high)
        )
        # `key` is for randint, and the other keys for the halves of the bits below
        key, upper_key, lower_key = jax.random.split(self.key(), 3)
        span = u_high - u_low - 1
        if python_ints:
            count = jnp.maximum(span, span + 1)  # span + 1 is 0 if the range is the whole dtype
            values = jax.random.randint(key, shape, 0, count, u_dtype)
        else:
            values = jax.random.randint(key, shape, low, high, dtype_name).astype(u_dtype) - u_low
        # for a large range, draw the upper and lower halves of the bits, and replace the few
        # numbers that are out of range by numbers of randint
        joined = jax.random.randint(upper_key, shape, 0, (span >> shift) + 1, u_dtype) << shift
        joined = joined | jax.random.bits(lower_key, shape, u_dtype) >> shift
        mask = (low < high) & (span >= max_range) & (joined <= span)
        return jax.lax.bitcast_convert_type(jnp.where(mask, joined, values) + u_low, dtype_name)

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
                first_word, second_word = map(int, np.random.SeedSequence(seed).generate_state(2))
                key = jax.random.fold_in(jax.random.key(first_word), second_word)
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
