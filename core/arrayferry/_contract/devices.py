"""Tests of devices, and of random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .arrays import ArrayTests
from .base import FIX_DEVICE, OWED, convert
from .lacking import lacking
from .same import describe_value, same
from .samples import CUBE, sample

__all__ = ["DeviceTests"]


class DeviceTests(ArrayTests):
    """The tests of devices and random numbers."""

    # Devices.

    def test_arrays_are_on_the_requested_device(self) -> None:
        """Arrays can be put on each of `devices()`, and `device_of` names that device."""
        values = np.asfortranarray(sample(self._usual(), CUBE))
        devices = list(self._backend.devices())
        fix = 'Return from devices() names such as ("cpu", "cuda:0"), the default first'
        assert devices, f"devices() is empty. {fix}"
        assert all(isinstance(device, str) for device in devices), (
            f"devices() returned {devices}. {fix}"
        )
        default = self._call("default_device", what="")
        assert default in devices, (
            f"default_device() returned {default!r}, which is not one of devices() {devices}. Return the device of new arrays"
        )
        made = self._from_numpy(values.copy(), "without a device")
        actual = self._call("device_of", made, what="for an array that was made without a device")
        assert actual == default, (
            f"from_numpy(x) was called without a device, but device_of() returned {actual!r}, and default_device() "
            f"{default!r}. Put the array on that device if device is None, or return another one from default_device()"
        )
        missing = {}
        for device in devices:
            try:
                self._check_device(device, devices[0], values)
            except (Exception, pytest.skip.Exception) as error:
                told = lacking(error)
                if not told:
                    raise
                missing[device] = told
        if missing:
            told = "; ".join(f"{device} ({why})" for device, why in missing.items())
            pytest.skip(
                f"not tested: devices() names what cannot be used here: {told}. Leave it out of devices() where that is so"
            )

    def _check_device(self, device: str, first: str, values: np.ndarray[Any, Any]) -> None:
        """Check arrays on one device, and moved from it to the first and back."""
        array = convert(values, self._backend, device=device)
        actual = self._call("device_of", array, what=f"for an array that was made on {device}")
        assert actual == device, (
            f"from_numpy(x, {device!r}) was called, but device_of() returned {actual!r}. {FIX_DEVICE}"
        )
        same(self.read(array), values, f"from_numpy(x, {device!r})", OWED["from_numpy"])
        case = f"for an array on {device}"
        same(self._to_numpy(array, case), values, f"to_numpy(), {case}", OWED["to_numpy"])
        self._check_place(array, device)
        moved = convert(array, self._backend, device=first)
        actual = self._backend.device_of(moved)
        assert actual == first, (
            f"an array was moved from {device} to {first}, but device_of() returned {actual!r}. {FIX_DEVICE}"
        )
        same(self.read(moved), values, f"to_device(x, {first!r}), {case}", FIX_DEVICE)
        back = convert(moved, self._backend, device=device)
        same(self.read(back), values, f"to_device(x, {device!r})", FIX_DEVICE)
        copied = convert(array, self._backend, copy=True)
        same(self.read(copied), values, f"copy(), {case}", OWED["copy"])
        actual = self._backend.device_of(copied)
        assert actual == device, (
            f"copy=True moved an array from {device} to {actual}. Return from copy(x) an array on the device of x"
        )

    def _check_place(self, array: Any, device: str) -> None:
        """Check the other methods that are about where an array is."""
        case = f"for an array on {device}"
        place = self._call("place_of", array, what=case)
        beside = convert(sample(self._usual(), (3,)), like=array)
        actual = self._backend.device_of(beside)
        assert actual == device, (
            f"place_of(), {case}, returned a place for which from_numpy() puts arrays on {actual}. {OWED['place_of']}"
        )
        if not isinstance(place, str):
            on = self._call("is_on", array, place, what=f"{case} and what place_of() returned")
            assert on is True, f"is_on(x, place_of(x)), {case}, returned {on!r}. {OWED['is_on']}"
        fence = self._call("fence", array, what=case)
        assert fence is None or callable(fence), (
            f"fence(), {case}, returned {describe_value(fence)}. {OWED['fence']}"
        )
        context = self._call("use_device", device, what=f"for {device!r}")
        assert hasattr(context, "__enter__"), (
            f"use_device({device!r}) returned {describe_value(context)}. {OWED['use_device']}"
        )
        with context:
            pass

    # Random numbers.

    def test_random_numbers(self) -> None:
        """Random numbers depend only on the seed, and have the shape, the dtype and the range asked for."""
        backend = self._backend
        held = backend.dtypes()
        bounds = {"uniform": (-1.0, 2.0), "integers": (3, 7), "normal": (0.0, 1.0)}
        dtypes = {"uniform": "float32", "integers": "int32", "normal": "float32"}
        names = [name for name in bounds if held is None or dtypes[name] in held]
        for name in names:
            drawn = []
            for seed in (1, 1, 2):
                rng = self._call("random", seed, what=f"for the seed {seed}")
                both = [getattr(rng, name)((50, 4), *bounds[name]) for _ in range(2)]
                drawn.append(np.stack([np.asarray(backend.to_numpy(x)) for x in both]))
            low, high = bounds[name]
            call = f"random(seed).{name}((50, 4), {low}, {high})"
            fix = f"Change {name}() of what random() returns"
            same(
                drawn[1],
                drawn[0],
                f"{call}, with the same seed twice",
                f"{fix}: use the seed alone.",
            )
            assert not np.array_equal(drawn[0], drawn[2]), (
                f"{call} gives the same numbers for two seeds. {fix}: use the seed"
            )
            assert not np.array_equal(drawn[0][0], drawn[0][1]), (
                f"{call} gives the same numbers twice in a row. {fix}: advance its state"
            )
            shape, dtype = drawn[0].shape[1:], drawn[0].dtype
            assert shape == (50, 4), f"{call} has the shape {shape}. {fix}: return that shape"
            assert dtype == dtypes[name], (
                f"{call} has the dtype {dtype}. {fix}: return {dtypes[name]} where no dtype is given"
            )
            self._check_range(name, drawn[0], low, high, f"{call} gives {{}}. {fix}: {{}}")
        for device in backend.devices() if names else ():
            try:
                rng = self._call("random", 1, device, what=f"for the device {device!r}")
                drawn_there = getattr(rng, names[0])((3,), *bounds[names[0]])
            except (Exception, pytest.skip.Exception) as error:
                if lacking(error):  # the test of devices reports it
                    continue
                raise
            drawn_on = backend.device_of(drawn_there)
            assert drawn_on == device, (
                f"random(1, {device!r}) drew numbers on {drawn_on}. Return from random(seed, device) one that draws on "
                "that device"
            )
        if {"integers", "normal"} <= set(names):
            logits = backend.from_numpy(np.array([0.0, 3.0, -100.0], np.float32))
            indices = np.asarray(backend.to_numpy(backend.random(1).categorical((500,), logits)))
            chosen = sorted(set(indices.tolist()))
            share = float((indices == 1).mean())
            text = (
                f"random(seed).categorical((500,), [0, 3, -100]) gives {chosen}, and 1 in {share:.0%} instead of 95%. "
                "Change categorical() of what random() returns: draw indices with probabilities proportional to exp(logits)"
            )
            assert chosen == [0, 1], text
            assert 0.85 < share < 1.0, text

    def _check_range(
        self, name: str, drawn: np.ndarray[Any, Any], low: float, high: float, text: str
    ) -> None:
        if name == "normal":
            mean, deviation = drawn.mean(), drawn.std()
            moments = f"a mean of {mean:.3g} and a deviation of {deviation:.3g}"
            text = text.format(moments, f"use the mean {low:g} and the deviation {high:g}")
            assert abs(mean) < 0.3, text
            assert 0.8 < deviation < 1.2, text
            return
        least, most = drawn.min(), drawn.max()
        text = text.format(
            f"numbers from {least:g} to {most:g}",
            f"draw numbers from {low:g} up to, but not including, {high:g}",
        )
        last = high - 1 if name == "integers" else high  # a float32 may be rounded up to the bound
        assert low <= least < low + 0.1 * (high - low), text
        assert high - 0.3 * (high - low) < most <= last, text
