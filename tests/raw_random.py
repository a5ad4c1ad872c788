"""Random numbers as exported files draw them."""

import numpy as np

from arrayferry_gym import Random


class Fed(Random):
    """Random numbers of NumPy from raw ones, by the formulas of files."""

    def __init__(self, raw):
        self.raw = list(raw)

    def uniform(self, shape, low=0.0, high=1.0, dtype="float32"):
        low, high = (x if np.asarray(x).dtype.kind == "f" else np.float64(x) for x in (low, high))
        u = self.raw.pop(0)
        assert u.shape == tuple(shape)
        return (low + u * (high - low)).astype(dtype)

    def normal(self, shape, mean=0.0, std=1.0, dtype="float32"):
        return (mean + self.raw.pop(0) * std).astype(dtype)

    def integers(self, shape, low, high, dtype="int32"):
        u = self.raw.pop(0)
        low, high = (np.broadcast_to(np.asarray(x).astype(object), u.shape) for x in (low, high))
        pairs = zip(u.flat, low.flat, high.flat, strict=True)
        numbers = [a + min(int(x * (b - a)), b - a - 1) for x, a, b in pairs]  # with all digits
        return np.array(numbers, dtype).reshape(u.shape)

    def categorical(self, shape, logits, dtype="int32"):
        waits = -np.log1p(-self.raw.pop(0).astype(np.float64)) + 1e-300
        return (np.float64(logits) - np.log(waits)).argmax(-1).astype(dtype)
