"""A library of arrays that only tests know, and correct plugins for it."""

import arrayferry as af


class Array:
    """An array of a toy library."""

    def __init__(self, values, device="cpu"):
        self.values = values
        self.device = device
        self.shape = values.shape
        self.dtype = values.dtype


class ToyDevices(af.Devices):
    def names(self):
        return ("cpu", "toy:1")

    def move(self, x, device):
        return Array(x.values.copy(), device)


Other = type("Other", (), {})


class Correct(af.Backend):
    """A correct plugin for it."""

    name = "toy"
    package = "toy_library"
    array_types = ("toy_library.Array",)
    to_numpy_shares = True
    from_numpy_shares = True
    devices = ToyDevices()

    def to_numpy(self, x):
        return x.values

    def from_numpy(self, x, device=None):
        return Array(x, device or "cpu")

    def copy(self, x):
        return Array(x.values.copy(), x.device)

    def device_of(self, x):
        return x.device


class CorrectImmutable(Correct):
    memory = "immutable"
    from_numpy_shares = False

    def to_numpy(self, x):
        view = x.values.view()
        view.flags.writeable = False
        return view

    def from_numpy(self, x, device=None):
        return Array(x.copy(), device or "cpu")


class OnlyDoubles(Correct):
    def dtypes(self):
        return {"float64"}


class OnlyIntegers(Correct):
    def dtypes(self):
        return {"int32"}


class CorrectLazy(CorrectImmutable):
    """A correct plugin of a library with lazy arrays."""

    memory = "lazy"
    to_numpy_shares = False

    def to_numpy(self, x):
        return x.values.copy()

    def compute(self, xs):
        return [x.values.copy() for x in xs]
