"""Tests of devices, and of random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .arrays import ArrayTests
from .base import Given, convert
from .checks import FIX_DEVICE, Values, noting, same
from .samples import CUBE, sample

_DRAWS = {
    "uniform": ("float32", (-1.0, 2.0)),
    "integers": ("int32", (3, 7)),
    "normal": ("float32", (0.0, 1.0)),
}
"""The default dtype of each method of `Random`, and the arguments to try."""


class DeviceTests(ArrayTests):
    """The tests of devices and random numbers."""

    # Devices.

    def test_arrays_are_on_the_requested_device(self) -> None:
        """Arrays can be put on each of `devices()`, and `device_of` names that device."""
        values = np.asfortranarray(sample(self._usual(), CUBE))
        devices, default = list(self._ask("devices")), self._ask("default_device")
        assert default in devices, (
            f"default_device() returned {default!r}, which is not one of devices() {devices}. {self._fix('default_device')}"
        )
        made = self._call("from_numpy", Given(values.copy(), values, "without a device"))
        actual = self._ask("device_of", made, case="for an array that was made without a device")
        assert actual == default, (
            f"from_numpy(x) was called without a device, but device_of() returned {actual!r}, and default_device() "
            f"{default!r}. Put the array on that device if device is None, or return another one from default_device()"
        )
        missing: list[str] = []
        for device in devices:
            with noting(missing, device):
                self._check_device(device, devices[0], values)
        if missing:
            pytest.skip(
                f"not tested: devices() names what cannot be used here: {'; '.join(missing)}. Leave it out of devices() where "
                "that is so"
            )

    def _check_device(self, device: str, first: str, values: Values) -> None:
        """Check arrays on one device, and moved from it to the first and back."""
        mine, case = self._backend, f"for an array on {device}"
        array = convert(values, mine, device=device)
        fix = f"{self._fix('from_numpy')} {FIX_DEVICE}"
        self._check_at(array, device, values, f"from_numpy(x, {device!r})", fix)
        self._gives("to_numpy", Given(array, values, case))
        self._check_place(array, device, case)
        moved = convert(array, mine, device=first)
        self._check_at(moved, first, values, f"to_device(x, {first!r}), {case}", FIX_DEVICE)
        back = convert(moved, mine, device=device)
        self._check_at(back, device, values, f"to_device(x, {device!r})", FIX_DEVICE)
        copied = convert(array, mine, copy=True)
        fix = f"{self._fix('copy')} It is on the device of x."
        self._check_at(copied, device, values, f"copy(), {case}", fix)

    def _check_at(self, array: Any, device: str, values: Values, what: str, fix: str) -> None:
        """Check the device and the values of an array."""
        actual = self._ask("device_of", array, case=f"after {what}")
        assert actual == device, f"{what}: device_of() returned {actual!r}. {fix}"
        same(self.read(array), values, what, fix)

    def _check_place(self, array: Any, device: str, case: str) -> None:
        """Check the other methods for the place of an array."""
        place = self._ask("place_of", array, case=case)
        beside = self._backend.device_of(convert(sample(self._usual(), (3,)), like=array))
        assert beside == device, (
            f"place_of(), {case}, returned a place for which from_numpy() puts arrays on {beside}. {self._fix('place_of')}"
        )
        if not isinstance(place, str):
            self._ask("is_on", array, place, case=f"{case} and what place_of() returned")
        self._ask("fence", array, case=case)
        with self._ask("use_device", device):
            pass

    # Random numbers.

    def test_random_numbers(self) -> None:
        """Random numbers depend only on the seed, and have the shape, the dtype and the range asked for."""
        mine = self._backend
        names = [name for name, (dtype, _) in _DRAWS.items() if self._has(dtype)]
        for name in names:
            self._check_draws(name, *_DRAWS[name])
        for device in mine.devices() if names else ():
            with noting([], device):  # the test of devices reports it
                rng = self._ask("random", 1, device)
                on = mine.device_of(getattr(rng, names[0])((3,), *_DRAWS[names[0]][1]))
                assert on == device, (
                    f"random(1, {device!r}) drew numbers on {on}. {self._fix('random')}"
                )
        if {"integers", "normal"} <= set(names):
            logits = mine.from_numpy(np.array([0.0, 3.0, -100.0], np.float32))
            indices = np.asarray(mine.to_numpy(mine.random(1).categorical((500,), logits)))
            chosen, share = sorted(set(indices.tolist())), (indices == 1).mean()
            is_right = chosen == [0, 1] and 0.85 < share < 1.0
            assert is_right, (
                f"random(seed).categorical((500,), [0, 3, -100]) gives {chosen}, and 1 in {share:.0%} instead of 95%. "
                "Change categorical() of what random() returns: draw indices with probabilities proportional to exp(logits)"
            )

    def _check_draws(self, name: str, dtype: str, bounds: tuple[float, float]) -> None:
        """Check the numbers that a method of `Random` draws, twice for each seed."""
        first, again, other = (self._drawn(name, seed, bounds) for seed in (1, 1, 2))
        shape, drawn = first[0].shape, first[0].dtype
        equal = np.array_equal
        for is_right, found, fix in (
            (equal(first, again), "gives other numbers for the same seed", "use the seed alone"),
            (not equal(first, other), "gives the same numbers for two seeds", "use the seed"),
            (not equal(*first), "gives the same numbers twice in a row", "advance its state"),
            (shape == (50, 4), f"has the shape {shape}", "return that shape"),
            (drawn == dtype, f"has the dtype {drawn}", f"return {dtype} where no dtype is given"),
            _distribution(name, first, *bounds),
        ):
            call = f"random(seed).{name}((50, 4), {bounds[0]}, {bounds[1]})"
            assert is_right, f"{call} {found}. Change {name}() of what random() returns: {fix}"

    def _drawn(self, name: str, seed: int, bounds: tuple[float, float]) -> Values:
        draw = getattr(self._ask("random", seed), name)
        both = [self._backend.to_numpy(draw((50, 4), *bounds)) for _ in range(2)]
        return np.stack([np.asarray(x) for x in both])


def _distribution(name: str, drawn: Values, low: float, high: float) -> tuple[bool, str, str]:
    """Return whether numbers have the right distribution, a description of theirs, and the remedy."""
    if name == "normal":
        mean, deviation = drawn.mean(), drawn.std()
        found = f"gives a mean of {mean:.3g} and a deviation of {deviation:.3g}"
        is_right = abs(mean) < 0.3 and 0.8 < deviation < 1.2
        return is_right, found, f"use the mean {low:g} and the deviation {high:g}"
    least, most, tenth = drawn.min(), drawn.max(), 0.1 * (high - low)
    last = high - 1 if name == "integers" else high  # a float32 may be rounded up to the bound
    is_right = low <= least < low + tenth and high - 3 * tenth < most <= last
    fix = f"draw numbers from {low:g} up to, but not including, {high:g}"
    return is_right, f"gives numbers from {least:g} to {most:g}", fix
