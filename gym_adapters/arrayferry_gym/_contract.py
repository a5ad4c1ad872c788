"""The tests that the random numbers of a plugin must pass. arrayferry_kit finds them by `RandomFactory.contract`."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from arrayferry import Backend

from ._random import Random, make_rng

_LOGITS = np.array([0.0, 3.0, -100.0], np.float32)
_DRAWS: dict[str, tuple[str, tuple[Any, ...], tuple[float, float], tuple[float, float]]] = {
    "uniform": ("float32", (-1.0, 2.0), (-1.0, 2.0), (0.5, 0.866)),
    "integers": ("int32", (3, 7), (3, 6), (4.5, 1.118)),
    "normal": ("float32", (0.0, 1.0), (-np.inf, np.inf), (0.0, 1.0)),
    "categorical": ("int32", (_LOGITS,), (0, 1), (0.953, 0.213)),
}
"""For each method of `Random`: its default dtype, the arguments of a call, the range of the numbers that this call
draws, and the mean and standard deviation of these numbers.
"""
_SHAPE = (50, 40)


class _Maker(NamedTuple):
    """An object whose method `make_rng` is for one library. `ask` in the tests calls methods of such objects."""

    backend: Backend

    def make_rng(self, *arguments: Any) -> Random:
        return make_rng(self.backend, *arguments)


class RandomTests:
    """The tests of random numbers."""

    def test_random_numbers(self: Any) -> None:
        """Random numbers depend only on the seed, and have the requested shape, dtype and range."""
        for name, (dtype, arguments, bounds, moments) in _DRAWS.items():
            if not isinstance(self.tested, Backend):
                return
            if self._has(dtype) and self._has("float32"):
                drawn, drawn_again, drawn_other = (self._drawn(name, seed) for seed in (1, 1, 2))
                call_text = f"make_rng(seed).{name}({', '.join(map(str, (_SHAPE, *arguments)))})"
                self.equal(drawn[0].shape, _SHAPE, f"the shape of {call_text}")
                self.equal(drawn.dtype.name, dtype, f"the dtype of {call_text}")
                draw_pairs = (drawn, drawn_again), (drawn, drawn_other), (drawn[0], drawn[1])
                are_equal = [np.array_equal(x, y) for x, y in draw_pairs]
                pairs_text = "of one seed, of two seeds, and of two calls"
                description = f"{call_text}: whether numbers {pairs_text} are the same"
                self.equal(are_equal, [True, False, False], description)
                measured = float(drawn.min()), float(drawn.max())
                is_right = bounds[0] <= measured[0] <= measured[1] <= bounds[1]
                assert is_right, (
                    f"the minimum and maximum of {call_text}: {measured} instead of {bounds}"
                )
                measured = float(drawn.mean()), float(drawn.std())
                is_right = np.allclose(measured, moments, atol=0.06, rtol=0)
                assert is_right, (
                    f"the mean and standard deviation of {call_text}: {measured} instead of {moments}"
                )

    def test_random_numbers_are_on_the_requested_device(self: Any) -> None:
        """Random numbers can be drawn on each device."""
        if isinstance(self.tested, Backend) and self._has("float32"):
            self.every(partial(self._draws_on, device) for device in self.ask("devices.names"))

    def _draws_on(self: Any, device: str) -> None:
        drawn = self._rng(1, device).uniform((3,), 0.0, 1.0)
        actual_device = self.tested.device_of(drawn)
        self.equal(actual_device, device, f"the device of numbers from make_rng(1, {device!r})")

    def _rng(self: Any, *arguments: Any) -> Any:
        maker, expected_type = _Maker(self.tested), ("an arrayferry_gym.Random", Random)
        return self.ask("make_rng", *arguments, of=maker, duty=expected_type)

    def _drawn(self: Any, name: str, seed: int) -> Any:
        tested, draw = self.tested, getattr(self._rng(seed), name)
        parameters = [tested.from_numpy(x) if x is _LOGITS else x for x in _DRAWS[name][1]]
        return np.stack([np.asarray(tested.to_numpy(draw(_SHAPE, *parameters))) for _ in range(2)])
