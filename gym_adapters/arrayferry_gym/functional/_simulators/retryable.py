"""Random numbers that a failed step does not use up."""

from __future__ import annotations

from typing import Any

import arrayferry as af


class RetryableRandom(af.Random):
    """Random numbers that can go back to where the last step or reset that succeeded left them.

    Their state is recorded at the first draw, so nothing is recorded where nothing is drawn.

    Args:
        rng: the random numbers.

    Attributes:
        before: their state before the first draw since the last success, None if there was none. Set it to None when
            a step succeeds.
    """

    def __init__(self, rng: af.Random) -> None:
        self._rng = rng
        self.before: Any = None

    def retry(self) -> None:
        """Go back there, if `before` is not None."""
        self._rng.setstate(self.before)
        self.before = None

    def uniform(self, shape: Any, low: Any = 0.0, high: Any = 1.0, dtype: str = "float32") -> Any:
        if self.before is None:
            self.before = self._rng.getstate()
        return self._rng.uniform(shape, low, high, dtype)

    def normal(self, shape: Any, mean: Any = 0.0, std: Any = 1.0, dtype: str = "float32") -> Any:
        if self.before is None:
            self.before = self._rng.getstate()
        return self._rng.normal(shape, mean, std, dtype)

    def integers(self, shape: Any, low: Any, high: Any, dtype: str = "int32") -> Any:
        if self.before is None:
            self.before = self._rng.getstate()
        return self._rng.integers(shape, low, high, dtype)

    def categorical(self, shape: Any, logits: Any, dtype: str = "int32") -> Any:
        if self.before is None:
            self.before = self._rng.getstate()
        return self._rng.categorical(shape, logits, dtype)

    def key(self) -> Any:
        if self.before is None:
            self.before = self._rng.getstate()
        return self._rng.key()

    def getstate(self) -> Any:
        return self._rng.getstate()

    def setstate(self, state: Any) -> None:
        self._rng.setstate(state)

    def __repr__(self) -> str:
        return repr(self._rng)
