"""The contract kit finds faults of random numbers."""

import pytest
from toy_contract import toy_failures
from toys import Correct

from arrayferry_gym import RandomFactory
from arrayferry_gym._random import HostRandom


def drawing(change=id, **fixed):
    """Return a plugin of the toy library, and what makes its random numbers, which are changed."""

    def make(self, seed, device):
        rng = HostRandom(Correct(), **{"seed": seed, "device": device, **fixed})
        change(rng)
        return rng

    factory = type("Drawing", (RandomFactory,), {"name": "toy", "make": make})
    return Correct(), {"arrayferry_random": factory()}


def too_high(rng):
    draw = rng.integers
    rng.integers = lambda shape, low, high, dtype="int32": draw(shape, low, high + 1, dtype)


def repeated(rng):
    drawn = rng.uniform((50, 40), -1.0, 2.0)
    rng.uniform = lambda *args: drawn


NUMBERS, DEVICES = "test_random_numbers", "test_random_numbers_are_on_the_requested_device"
CALLS = "of two seeds, and of two calls are the same:"
PLANTED = {
    "ignores the seed": (drawing(seed=7), NUMBERS, "make_rng(seed).uniform", f"{CALLS} [True, True, False]"),
    "draws too high": (drawing(too_high), NUMBERS, "make_rng(seed).integers", "(3.0, 7.0) instead of (3, 6)"),
    "repeats numbers": (drawing(repeated), NUMBERS, "make_rng(seed).uniform", f"{CALLS} [True, False, True]"),
    "draws elsewhere": (drawing(device="cpu"), DEVICES, "make_rng(1, 'toy:1')", "'cpu' instead of 'toy:1'"),
}  # fmt: skip


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_caught(fault):
    plugin, test, *words = PLANTED[fault]
    (message,) = map(str, toy_failures(plugin, test).values())
    assert [word for word in words if word not in message] == [], message


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("plugin", [Correct(), drawing()])
def test_a_correct_plugin_passes(plugin):
    assert toy_failures(plugin, NUMBERS) == toy_failures(plugin, DEVICES) == {}
