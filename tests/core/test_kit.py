"""The contract kit finds faults: `PLANTED` names the test that must find each planted one."""

from __future__ import annotations

import inspect
import sys
import types

import numpy as np
import pytest

import arrayferry as af
from arrayferry.testing import BackendContract


class Array:
    """An array of a toy library."""

    def __init__(self, values, device="cpu"):
        self.values = values
        self.device = device


class Correct(af.Backend):
    """A correct plugin for it."""

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


class CorrectImmutable(Correct):
    memory = "immutable"
    from_numpy_shares = False

    def to_numpy(self, x):
        view = x.values.view()
        view.flags.writeable = False
        return view

    def from_numpy(self, x, device=None):
        return Array(x.copy(), device or "cpu")


class DropsSign(Correct):
    def to_numpy(self, x):
        return np.abs(x.values) if x.values.dtype.kind in "if" else x.values


class DropsSignOfZero(Correct):
    def from_numpy(self, x, device=None):
        return Array(x + np.zeros((), x.dtype) if x.dtype.kind == "f" else x, device or "cpu")

    from_numpy_shares = None


class SharesWhenAskedToCopy(Correct):
    from_numpy_shares = False


class CopyShares(Correct):
    def copy(self, x):
        return Array(x.values, x.device)


class ClaimsNotToShare(Correct):
    to_numpy_shares = False


class LosesDtype(Correct):
    def from_numpy(self, x, device=None):
        return Array(x.astype(np.float32) if x.dtype == np.float64 else x, device or "cpu")


class LosesShape(Correct):
    def to_numpy(self, x):
        return np.atleast_1d(x.values)


class MutatesItsSource(Correct):
    def to_numpy(self, x):
        out = x.values.copy()
        x.values[...] = 0
        return out

    to_numpy_shares = False


class MutatesItsArgument(Correct):
    def from_numpy(self, x, device=None):
        new = x.copy()
        if x.flags.writeable:
            x[...] = 0
        return Array(new, device or "cpu")

    from_numpy_shares = False


class ForgetsDevice(Correct):
    def from_numpy(self, x, device=None):
        return Array(x, "cpu")

    def to_device(self, x, device):
        return x


class MisnamesDevice(Correct):
    def device_of(self, x):
        return "cpu"


class WritableViewOfImmutable(CorrectImmutable):
    def to_numpy(self, x):
        return x.values


class ImmutableThatShares(CorrectImmutable):
    def from_numpy(self, x, device=None):
        return Array(x, device or "cpu")


class NotAnArray(Correct):
    def to_numpy(self, x):
        return x.values.tolist()


class ClaimsToShare(Correct):
    def from_numpy(self, x, device=None):
        return Array(x.copy(), device or "cpu")


class ReordersMany(Correct):
    def to_numpy_many(self, xs):
        return [self.to_numpy(x) for x in reversed(xs)]


class WrongType(Correct):
    array_types = ("toy_library.Other",)


class AlwaysTraced(Correct):
    def is_traced(self, x):
        return True


class Warns(Correct):
    def to_numpy(self, x):
        import warnings

        warnings.warn("look out", stacklevel=1)
        return x.values


class SharesWhatIsLarge(CorrectImmutable):
    def from_numpy(self, x, device=None):
        return Array(x if x.nbytes > 2**21 else x.copy(), device or "cpu")


class IgnoresTheSeed(Correct):
    def random(self, seed=None, device=None):
        return super().random(7, device)


class DrawsTooHigh(Correct):
    def random(self, seed=None, device=None):
        rng = super().random(seed, device)
        draw = rng.integers
        rng.integers = lambda shape, low, high, dtype="int32": draw(shape, low, high + 1, dtype)
        return rng


PLANTED = {
    IgnoresTheSeed: "test_random_numbers",
    DrawsTooHigh: "test_random_numbers",
    SharesWhatIsLarge: "test_sharing_is_as_stated",
    DropsSign: "test_to_numpy",
    DropsSignOfZero: "test_special_values_are_kept",
    SharesWhenAskedToCopy: "test_copy_true_copies",
    CopyShares: "test_copy_true_copies",
    ClaimsNotToShare: "test_sharing_is_as_stated",
    LosesDtype: "test_from_numpy",
    LosesShape: "test_to_numpy",
    MutatesItsSource: "test_sources_are_not_changed",
    MutatesItsArgument: "test_sources_are_not_changed",
    ForgetsDevice: "test_arrays_are_on_the_requested_device",
    MisnamesDevice: "test_arrays_are_on_the_requested_device",
    WritableViewOfImmutable: "test_sharing_is_as_stated",
    ImmutableThatShares: "test_immutable_arrays_never_change",
    NotAnArray: "test_to_numpy",
    ClaimsToShare: "test_sharing_is_as_stated",
    ReordersMany: "test_to_numpy_many_matches_to_numpy",
    WrongType: "test_its_arrays_are_recognised",
    AlwaysTraced: "test_arrays_are_not_traced",
    Warns: "test_conversions_do_not_warn",
}


@pytest.fixture
def toy(monkeypatch):
    module = types.ModuleType("toy_library")
    module.Array = Array
    module.Other = type("Other", (), {})
    monkeypatch.setitem(sys.modules, "toy_library", module)


def failures(plugin: af.Backend) -> dict[str, BaseException]:
    """Run every test of the kit on a plugin, and return the failures."""

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
@pytest.mark.parametrize("plugin", [Correct, CorrectImmutable])
def test_a_correct_plugin_passes(plugin):
    assert failures(plugin()) == {}


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("plugin", PLANTED)
def test_a_planted_fault_is_caught(plugin):
    found = failures(plugin())
    assert PLANTED[plugin] in found, found
    assert str(found[PLANTED[plugin]]), "the message is empty"


def test_the_kit_names_the_method_to_fill_in():
    class Empty(BackendContract):
        backend = "numpy"

    with pytest.raises(NotImplementedError, match="Empty must say how an array is made"):
        Empty().test_to_numpy()


class Settable(Array):
    def __setitem__(self, key, value):
        self.values[key] = value


@pytest.mark.parametrize(
    ("array", "says", "remedy"),
    [(Array, "writable", "set it to 'immutable'"), (Settable, "immutable", "set it to 'writable'")],
)
def test_a_wrong_memory_is_caught(array, says, remedy):
    class Backend(Correct):
        memory = says

    class Test(BackendContract):
        backend = Backend()

        def make(self, values):
            return array(values)

    with pytest.raises(AssertionError, match=remedy):
        Test().test_memory_is_as_stated()


class Lossy(af.Converter):
    """A direct converter whose `bind_many` differs from its `convert`."""

    source, target = "toy", "numpy"

    def convert(self, x, device=None, copy=None):
        return x.values.copy()

    def bind_many(self, options):
        return lambda xs: [x.values.round(-1) for x in xs]


class IgnoresCopy(af.Converter):
    """A direct converter between the toy library and PyTorch that never copies."""

    source, target, cost = "toy", "torch", "share"

    def convert(self, x, device=None, copy=None):
        import torch

        return torch.from_numpy(x.values)


class IgnoresCopyBack(af.Converter):
    source, target, cost = "torch", "toy", "share"

    def convert(self, x, device=None, copy=None):
        return Array(x.numpy())


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("converter", [IgnoresCopy, IgnoresCopyBack])
def test_a_direct_converter_that_ignores_copy_is_caught(converter):
    part = converter()
    af.registry.register(part)
    try:
        found = failures(Correct())
    finally:
        af.registry.unregister(part)
    message = str(found["test_direct_converters_match_the_general_path"])
    assert "ignores copy=True" in message


@pytest.mark.usefixtures("toy")
def test_a_conversion_does_not_use_a_converter_that_ignores_copy():
    import torch

    backend, parts = Correct(), [IgnoresCopy(), IgnoresCopyBack()]
    for part in (backend, *parts):
        af.registry.register(part)
    try:
        for source, target in ((Array(np.ones(3)), "torch"), (torch.ones(3), "toy")):
            conversion = af.converter(target, copy=True)
            with pytest.warns(af.PluginWarning, match="ignores copy=True, so it is not used"):
                found = conversion([source])
            with pytest.warns(af.PluginWarning):
                assert af.convert(source, target, copy=True) is not None
            values = found[0].values if target == "toy" else found[0].numpy()
            values[:] = -1
            original = source.values if target == "torch" else source.numpy()
            assert original.tolist() == [1, 1, 1]
    finally:
        for part in (*parts, backend):
            af.registry.unregister(part)


@pytest.mark.usefixtures("toy")
def test_others_are_the_built_in_backends():
    class Test(BackendContract):
        backend = Correct()

    class Failing(Correct):
        name, array_types = "failing_third_party", ("toy_library.Other",)

        def from_numpy(self, x, device=None):
            raise ZeroDivisionError

    part = Failing()
    af.registry.register(part)
    try:
        names = {backend.name for backend in Test()._others()}
    finally:
        af.registry.unregister(part)
    assert names >= {"numpy", "torch", "jax", "dask"}
    assert not names & {"failing_third_party", "sparse", "tensorflow", "mlx"}


@pytest.mark.usefixtures("toy")
def test_a_direct_converter_that_differs_is_caught():
    part = Lossy()
    af.registry.register(part)
    try:
        found = failures(Correct())
    finally:
        af.registry.unregister(part)
    assert "toy -> numpy" in str(found["test_direct_converters_match_the_general_path"])


def _without_gradient(autodiff, crossing, arrays):
    return crossing.run(arrays)


def _doubled(autodiff, crossing, arrays):
    return [2 * y for y in autodiff.call(crossing, arrays)]


@pytest.mark.parametrize("fault", [_without_gradient, _doubled])
def test_planted_faults_of_gradients_are_caught(fault, monkeypatch):
    import torch

    from arrayferry_plugins.torch_ import TorchBackend

    correct = TorchBackend.autodiff

    class Faulty(type(correct)):
        def call(self, crossing, arrays):
            return fault(correct, crossing, arrays)

    class Test(BackendContract):
        backend = "torch"

        def make(self, values):
            return torch.from_numpy(values.copy())

    Test().test_gradients_cross()
    monkeypatch.setattr(TorchBackend, "autodiff", Faulty())
    with pytest.raises((AssertionError, RuntimeError)):
        Test().test_gradients_cross()
