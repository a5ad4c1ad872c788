"""Random numbers of JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arrayferry import (
    Random,
)

if TYPE_CHECKING:
    pass


__all__ = ["JaxRandom", "seed_number"]


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

        return jax.random.randint(self.key(), tuple(shape), low, high, dtype)

    def categorical(self, shape: Any, logits: Any, dtype: str = "int32") -> Any:
        import jax

        return jax.random.categorical(self.key(), logits, shape=tuple(shape)).astype(dtype)


def seed_number(seed: Any) -> int:
    """Return a seed that `jax.random.key` takes: numbers below 2**32 as they are."""
    import numpy as np

    if isinstance(seed, (int, np.integer)) and 0 <= seed < 2**32:
        return int(seed)
    return int(np.random.SeedSequence(seed).generate_state(1)[0])
