"""The contract kit catches faults: for each kind that is planted, the test that must find it is named."""

from __future__ import annotations

import inspect
import sys
import types

import numpy as np
import pytest

import arrayferry as af
from arrayferry.testing import BackendContract


class Array:
    """An array of a small library, with memory of its own."""

    def __init__(self, values, device="cpu"):
        self.values = values
        self.device = device


class Sound(af.Backend):
    """Its plugin, with no fault."""

    name = "toy"
    package = "toy_library"
    array_types = ("toy_library.Array",)
    to_numpy_shares = True
    from_numpy_shares = True

    def to_numpy(self, x):
        return x.values

    def from_numpy(self, x, device=None):
        return Array(x, device or "cpu")

    def copy(self, x):
        return Array(x.values.copy(), x.device)

    def to_device(self, x, device):
        return Array(x.values.copy(), device)

    def devices(self):
        return ("cpu", "toy:1")

    def device_of(self, x):
        return x.device


class SoundImmutable(Sound):
    memory = "immutable"
    from_numpy_shares = False

    def to_numpy(self, x):
        view = x.values.view()
        view.flags.writeable = False
        return view

    def from_numpy(self, x, device=None):
        return Array(x.copy(), device or "cpu")


class DropsSign(Sound):
    def to_numpy(self, x):
        return np.abs(x.values) if x.values.dtype.kind in "if" else x.values


class DropsSignOfZero(Sound):
    def from_numpy(self, x, device=None):
        return Array(x + np.zeros((), x.dtype) if x.dtype.kind == "f" else x, device or "cpu")

    from_numpy_shares = None


class SharesWhenToldToCopy(Sound):
    from_numpy_shares = False


class CopySharesToo(Sound):
    def copy(self, x):
        return Array(x.values, x.device)


class ClaimsNotToShareOut(Sound):
    to_numpy_shares = False


class LosesDtype(Sound):
    def from_numpy(self, x, device=None):
        return Array(x.astype(np.float32) if x.dtype == np.float64 else x, device or "cpu")


class LosesShape(Sound):
    def to_numpy(self, x):
        return np.atleast_1d(x.values)


class MutatesItsSource(Sound):
    def to_numpy(self, x):
        out = x.values.copy()
        x.values[...] = 0
        return out

    to_numpy_shares = False


class MutatesWhatItIsHanded(Sound):
    def from_numpy(self, x, device=None):
        new = x.copy()
        if x.flags.writeable:
            x[...] = 0
        return Array(new, device or "cpu")

    from_numpy_shares = False


class ForgetsDevice(Sound):
    def from_numpy(self, x, device=None):
        return Array(x, "cpu")

    def to_device(self, x, device):
        return x


class MisnamesDevice(Sound):
    def device_of(self, x):
        return "cpu"


class WritableViewOfTheImmutable(SoundImmutable):
    def to_numpy(self, x):
        return x.values


class ImmutableThatShares(SoundImmutable):
    def from_numpy(self, x, device=None):
        return Array(x, device or "cpu")


class NotAnArray(Sound):
    def to_numpy(self, x):
        return x.values.tolist()


class ClaimsToShare(Sound):
    def from_numpy(self, x, device=None):
        return Array(x.copy(), device or "cpu")


class MixesUpMany(Sound):
    def to_numpy_many(self, xs):
        return [self.to_numpy(x) for x in reversed(xs)]


class WrongType(Sound):
    array_types = ("toy_library.Other",)


class AlwaysTraced(Sound):
    def is_traced(self, x):
        return True


class Warns(Sound):
    def to_numpy(self, x):
        import warnings

        warnings.warn("look out", stacklevel=1)
        return x.values


PLANTED = {
    DropsSign: "test_values_leave",
    DropsSignOfZero: "test_special_values_survive",
    SharesWhenToldToCopy: "test_copy_true_gives_memory_of_its_own",
    CopySharesToo: "test_copy_true_gives_memory_of_its_own",
    ClaimsNotToShareOut: "test_sharing_is_as_stated",
    LosesDtype: "test_values_enter",
    LosesShape: "test_values_leave",
    MutatesItsSource: "test_sources_are_left_alone",
    MutatesWhatItIsHanded: "test_sources_are_left_alone",
    ForgetsDevice: "test_arrays_lie_where_they_were_put",
    MisnamesDevice: "test_arrays_lie_where_they_were_put",
    WritableViewOfTheImmutable: "test_sharing_is_as_stated",
    ImmutableThatShares: "test_what_is_promised_constant_never_changes",
    NotAnArray: "test_values_leave",
    ClaimsToShare: "test_sharing_is_as_stated",
    MixesUpMany: "test_many_at_once_are_as_one_by_one",
    WrongType: "test_its_arrays_are_recognised",
    AlwaysTraced: "test_arrays_are_not_traced",
    Warns: "test_nothing_is_warned_of",
}


@pytest.fixture
def toy(monkeypatch):
    module = types.ModuleType("toy_library")
    module.Array = Array
    module.Other = type("Other", (), {})
    monkeypatch.setitem(sys.modules, "toy_library", module)


def failures(plugin: af.Backend) -> dict[str, BaseException]:
    """Run every test of the kit on a plugin, and give those that failed."""

    class Contract(BackendContract):
        backend = plugin
        others = ("numpy", "torch", "jax")

        def make(self, values):
            return Array(values.copy())

        def read(self, array):
            return array.values.copy()

        def write(self, array, value):
            array.values[...] = value

    af.registry.register(plugin)
    found = {}
    try:
        for name, test in inspect.getmembers(Contract(), inspect.ismethod):
            if name.startswith("test_"):
                try:
                    test()
                except BaseException as error:
                    found[name] = error
    finally:
        af.registry.unregister(plugin)
    return found


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("plugin", [Sound, SoundImmutable])
def test_a_sound_plugin_passes(plugin):
    assert failures(plugin()) == {}


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("plugin", PLANTED)
def test_a_planted_fault_is_caught(plugin):
    found = failures(plugin())
    assert PLANTED[plugin] in found, found
    assert str(found[PLANTED[plugin]]), "the message is empty"


def test_the_kit_names_the_method_that_must_be_filled_in():
    class Empty(BackendContract):
        backend = "numpy"

    with pytest.raises(NotImplementedError, match="Empty must say how an array is made"):
        Empty().test_values_leave()


class Lossy(af.Converter):
    """A direct crossing whose way for many differs from the one for one."""

    source, target = "toy", "numpy"

    def convert(self, x, device=None, copy=None):
        return x.values.copy()

    def bind_many(self, options):
        return lambda xs: [x.values.round(-1) for x in xs]


@pytest.mark.usefixtures("toy")
def test_a_direct_crossing_that_differs_is_caught():
    part = Lossy()
    af.registry.register(part)
    try:
        found = failures(Sound())
    finally:
        af.registry.unregister(part)
    assert "toy -> numpy" in str(found["test_direct_converters_are_as_the_general_way"])
