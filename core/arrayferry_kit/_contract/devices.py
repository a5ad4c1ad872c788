"""Tests of devices, and of random numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .arrays import BackendTests
from .calls import Given, convert
from .checks import Values, equal, every, same
from .samples import CUBE, case_of, sample

_LOGITS = np.array([0.0, 3.0, -100.0], np.float32)
_DRAWS: dict[str, tuple[str, tuple[Any, ...], tuple[float, float], tuple[float, float]]] = {
    "uniform": ("float32", (-1.0, 2.0), (-1.0, 2.0), (0.5, 0.866)),
    "integers": ("int32", (3, 7), (3, 6), (4.5, 1.118)),
    "normal": ("float32", (0.0, 1.0), (-np.inf, np.inf), (0.0, 1.0)),
    "categorical": ("int32", (_LOGITS,), (0, 1), (0.953, 0.213)),
}
"""Methods of `Random`: the default dtype, arguments, the range of the numbers, their mean and deviation."""
_SHAPE = (50, 40)


class DeviceTests(BackendTests):
    """The tests of devices and random numbers."""

    def test_arrays_are_on_the_requested_device(self) -> None:
        """Arrays can be put on each of `devices()`, and `device_of` names that device."""
        values = np.asfortranarray(sample(self._usual(), CUBE))
        devices, default = list(self.ask("devices")), self.ask("default_device")
        assert default in devices, f"default_device(): {default!r} instead of one of {devices}"
        given = Given(values, values, case_of(values))
        (made,) = self.run(self._call("from_numpy"), given)
        on = self.ask("device_of", made, case="an array that was made without a device")
        equal(on, default, "from_numpy(x) without a device: device_of(), and not default_device()")
        every(partial(self._check_device, device, devices[0], values) for device in devices)

    def _check_device(self, device: str, first: str, values: Values) -> None:
        """Check arrays on one device, moved from it to the first and back, and copied."""
        x: Any = values
        for name, options, place in (
            (f"from_numpy(x, {device!r})", {"device": device}, device),
            (f"to_device(x, {first!r}), for an array on {device}", {"device": first}, first),
            (f"to_device(x, {device!r}), for an array on {first}", {"device": device}, device),
            (f"copy(), for an array on {device}", {"copy": True}, device),
        ):
            x = convert(x, self.tested, **options)
            on = self.ask("device_of", x, case=f"the result of {name}")
            equal(on, place, f"{name}: device_of()")
            same(self.values_of(self.tested, x), values, name)
            self.run(self._call("to_numpy"), Given(x, values, f"an array on {place}"))
            self._check_place(x, place, f"an array on {place}")

    def _check_place(self, array: Any, device: str, case: str) -> None:
        """Check the other methods that say where an array is."""
        place = self.ask("place_of", array, case=case)
        beside = self.tested.device_of(convert(sample(self._usual(), (3,)), like=array))
        equal(
            beside, device, f"place_of(), for {case}: the device of another array that is put there"
        )
        if not isinstance(place, str):
            self.ask("is_on", array, place, case=f"{case} and the result of place_of()")
        self.ask("fence", array, case=case)
        with self.ask("use_device", device):
            pass
        if self._has("float32"):
            drawn = self.ask("random", 1, device).uniform((3,), 0.0, 1.0)
            equal(self.tested.device_of(drawn), device, f"random(1, {device!r}): device_of()")

    # Random numbers.

    def test_random_numbers(self) -> None:
        """Random numbers depend only on the seed, and have the shape, the dtype and the range asked for."""
        for name, (dtype, arguments, bounds, moments) in _DRAWS.items():
            if self._has(dtype) and self._has("float32"):
                first, again, other = (self._drawn(name, seed) for seed in (1, 1, 2))
                call = f"random(seed).{name}({', '.join(map(str, (_SHAPE, *arguments)))})"
                equal(first[0].shape, _SHAPE, f"{call}: shape")
                equal(first.dtype.name, dtype, f"{call}: dtype")
                pairs = (first, again), (first, other), (first[0], first[1])
                same = [np.array_equal(x, y) for x, y in pairs]
                which = "of one seed, of two seeds, and of two calls"
                equal(same, [True, False, False], f"{call}: whether numbers {which} are the same")
                found = float(first.min()), float(first.max())
                is_right = bounds[0] <= found[0] <= found[1] <= bounds[1]
                assert is_right, f"{call}: from {found} instead of {bounds}"
                found = float(first.mean()), float(first.std())
                is_right = np.allclose(found, moments, atol=0.06, rtol=0)
                assert is_right, f"{call}: mean and deviation {found} instead of {moments}"

    def _drawn(self, name: str, seed: int) -> Values:
        mine, draw = self.tested, getattr(self.ask("random", seed), name)
        given = [mine.from_numpy(x) if x is _LOGITS else x for x in _DRAWS[name][1]]
        return np.stack([np.asarray(mine.to_numpy(draw(_SHAPE, *given))) for _ in range(2)])
