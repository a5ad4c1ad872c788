"""Where arrays go if nobody says so, with a library whose default device is an accelerator."""

import numpy as np
import pytest
import torch
from subtle_plugins import devices
from toys import Array, Correct

import arrayferry as af

VALUES = np.arange(3, dtype=np.float32)


class Accelerated(Correct):
    """Like JAX on a machine with two GPUs; arrays remember what they were told."""

    name, package, array_types = "accelerated", "numpy", ("toys.Array",)
    to_numpy_shares = from_numpy_shares = False
    devices = devices(names=lambda self: ("cuda:0", "cuda:1", "cpu"))

    def to_numpy(self, x):
        return x.values.copy()

    def from_numpy(self, x, device=None):
        y = Array(x.copy(), device or "cuda:0")
        y.told = device
        return y


@pytest.fixture
def library(register):
    return register(Accelerated())


@pytest.mark.parametrize("value", [VALUES, torch.tensor(VALUES), np.float32(1)], ids=type)
def test_from_host_memory_to_the_default_device(library, value):
    to_library = af.converter("accelerated")
    for _ in range(4):
        for y in (to_library(value), to_library([value])[0]):
            assert y.device == "cuda:0"
            assert y.told is None  # its own choice, which a device that is named is not
        for device in ("cpu", "cuda:1", "gpu"):
            y = af.convert(value, "accelerated", device=device)
            assert y.told == y.device == {"gpu": "cuda:0"}.get(device, device)


def test_the_route_tells(library):
    assert str(af.route("numpy", "accelerated")) == "numpy (cpu) -> accelerated (cuda) transferred"
    assert str(af.route(VALUES, "accelerated", device="cpu")).endswith("accelerated (cpu) copied")


def test_within_the_library_an_array_stays(library):
    for place in library.devices.names():
        x = Array(VALUES, place)
        assert af.convert(x, "accelerated") is x
        assert af.convert(x, "accelerated", copy=True).device == place
        assert str(af.route(x, "accelerated")).endswith("already there")


def test_to_a_library_of_the_host(library):
    for place in library.devices.names():
        assert af.convert(Array(VALUES, place), "torch").tolist() == [0, 1, 2]
