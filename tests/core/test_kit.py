"""The contract kit finds faults: `PLANTED` names the test that must find each planted one."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import types
from typing import ClassVar

import numpy as np
import pytest
from distributions import write_distribution

import arrayferry as af
from arrayferry.testing import BackendContract, SourceContract


class Array:
    """An array of a toy library."""

    def __init__(self, values, device="cpu"):
        self.values = values
        self.device = device
        self.shape = values.shape
        self.dtype = values.dtype


class Promise:
    """A value that is computed to an array."""

    def __init__(self, values):
        self.values = values


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


class MissingTypes(Correct):
    array_types = ("toy_library.Missing", "toy_library.not_there.Array", "not_there.Array")


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


class Raises(Correct):
    def to_numpy(self, x):
        return x.values.view("no dtype")


class CannotTakeScalars(Correct):
    def from_numpy(self, x, device=None):
        x[0]
        return Array(x, device or "cpu")


class LosesOne(Correct):
    def to_numpy_many(self, xs):
        return [self.to_numpy(x) for x in xs[1:]]


class NamesNoDevice(Correct):
    def devices(self):
        return ()


class DeviceObjects(Correct):
    def devices(self):
        return (1,)


class MovesWhenCopied(Correct):
    def copy(self, x):
        return Array(x.values.copy(), "cpu")


class MovesNothing(Correct):
    def to_device(self, x, device):
        return Array(x.values.copy(), x.device)


class MisspeltDtype(Correct):
    def dtypes(self):
        return {"float32", "flaot64"}


class TextOfDtypes(Correct):
    def dtypes(self):
        return "float32"


class NoDtypes(Correct):
    def dtypes(self):
        return ()


class NarrowsSilently(Correct):
    from_numpy_shares = None

    def from_numpy(self, x, device=None):
        with np.errstate(over="ignore"):
            x = x.astype(np.float32) if x.dtype == np.float64 else x
        return Array(x, device or "cpu")

    def to_numpy(self, x):
        return x.values.astype(np.float64) if x.values.dtype == np.float32 else x.values

    to_numpy_shares = None


class WrongNumbers(Correct):
    def number_dtype(self, kind):
        return "float"


class NotSparse(Correct):
    def is_sparse(self, x):
        return None


class SparseOnly(Correct):
    def is_sparse(self, x):
        return True

    def to_dense(self, x):
        return x


class NoItem(Correct):
    item_types = ("toy_library.Array",)


class NoDLPack(Correct):
    dlpack_devices = ("cpu",)


class WrongAddress(Correct):
    def address(self, x):
        return x.values.ctypes.data + 4


class RepeatsNumbers(Correct):
    def random(self, seed=None, device=None):
        rng = super().random(seed, device)
        drawn = rng.uniform((50, 4), -1.0, 2.0)
        rng.uniform = lambda *args: drawn
        return rng


class ReadOnlyCopies(CorrectImmutable):
    to_numpy_shares = False


class LosesTheMemory(Correct):
    """`from_numpy` keeps an address, and not the memory."""

    from_numpy_shares = True

    def from_numpy(self, x, device=None):
        memory = x.copy()
        return Array(x if x.size < 300_000 else np.zeros_like(memory), device or "cpu")


class CopyNarrows(Correct):
    def copy(self, x):
        return Array(x.values.astype(np.float32), x.device)


class CopyAddsAnAxis(Correct):
    def copy(self, x):
        return Array(np.atleast_1d(x.values.copy()), x.device)


class MovesZeros(Correct):
    def to_device(self, x, device):
        return Array(np.zeros_like(x.values), device)


class ReadsZerosElsewhere(Correct):
    def to_numpy(self, x):
        return x.values if x.device == "cpu" else x.values * 0


class ReturnsASubclass(Correct):
    def to_numpy(self, x):
        return x.values.view(np.recarray)


class NoDeviceAtAll(Correct):
    def from_numpy(self, x, device=None):
        return Array(x, str(device))


class OtherDefault(Correct):
    def default_device(self):
        return "toy:1"


class ReadsIntoOneBuffer(Correct):
    to_numpy_shares = None
    buffers: ClassVar[dict] = {}

    def to_numpy(self, x):
        buffer = self.buffers.setdefault((x.shape, x.dtype), np.empty_like(x.values))
        buffer[...] = x.values
        return buffer


class WritesIntoOneBuffer(Correct):
    from_numpy_shares = None
    buffers: ClassVar[dict] = {}

    def from_numpy(self, x, device=None):
        buffer = self.buffers.setdefault((x.shape, x.dtype), np.empty_like(x))
        buffer[...] = x
        return Array(buffer, device or "cpu")


class PlaceIsUnknown(Correct):
    def place_of(self, x):
        raise KeyError("place")


class PlaceIsWrong(Correct):
    def place_of(self, x):
        return "cpu"


class FenceOfNoKind(Correct):
    def fence(self, x):
        return True


class NoContext(Correct):
    def use_device(self, device):
        return None


class AlwaysOutOfMemory(Correct):
    def is_out_of_memory(self, error):
        return True


class FailsOutOfMemory(Correct):
    def is_out_of_memory(self, error):
        return error.code


class HintOfNoKind(Correct):
    def dtype_hint(self, dtype):
        return 3


class DrawsElsewhere(Correct):
    def random(self, seed=None, device=None):
        return super().random(seed, "cpu")


class AddressOfNoKind(Correct):
    to_numpy_shares = None

    def address(self, x):
        return float(x.values.ctypes.data)


class AllDtypesButText(Correct):
    def dtypes(self):
        return None

    def from_numpy(self, x, device=None):
        if x.dtype.kind == "U":
            raise TypeError("no text")
        return Array(x, device or "cpu")


class ClaimsToShareWhatIsConstant(CorrectImmutable):
    def to_numpy(self, x):
        copy = x.values.copy()
        copy.flags.writeable = False
        return copy


class MakesNothing(Correct):
    def from_numpy(self, x, device=None):
        return None


class MakesNumPyArrays(Correct):
    def from_numpy(self, x, device=None):
        return x


class OnlyIntegers(Correct):
    def dtypes(self):
        return {"int32"}


class OnlyDoubles(Correct):
    def dtypes(self):
        return {"float64"}


class CorrectLazy(CorrectImmutable):
    """A correct plugin of a library with lazy arrays and promises of arrays."""

    memory = "lazy"
    to_numpy_shares = False
    deferred_types = ("toy_library.Promise",)

    def to_numpy(self, x):
        return x.values.copy()

    def compute(self, xs):
        return [x.values.copy() for x in xs]

    def blocks(self, xs, axis, *, block=None, client=None):
        lengths = [af.even_lengths(x.values.shape, 4, axis, wanted=block or 2) for x in xs]
        return ToyBlocks([x.values for x in xs], axis, lengths)


class ToyBlocks(af.Slices):
    def read(self, array, block):
        return super().read(array, block).copy()


class ComputesInAnyOrder(CorrectLazy):
    def compute(self, xs):
        return super().compute(xs)[::-1]


class ComputesTooFew(CorrectLazy):
    def compute(self, xs):
        return super().compute(xs)[1:]


class ComputesNothing(CorrectLazy):
    def compute(self, xs):
        return [x.values.tolist() for x in xs]


class ComputesInPlace(CorrectLazy):
    def compute(self, xs):
        return [x.values for x in xs]


class ComputesByRaising(CorrectLazy):
    def compute(self, xs):
        raise KeyError("lost")


class DefersWithoutCompute(CorrectLazy):
    compute = af.Backend.compute


class DefersAnother(CorrectLazy):
    deferred_types = ("toy_library.Other",)


class BlocksOfWritableArrays(Correct):
    blocks = CorrectLazy.blocks


class BlocksOfNoKind(CorrectLazy):
    def blocks(self, xs, axis, *, block=None, client=None):
        return [x.values for x in xs]


class BlocksThatRaise(CorrectLazy):
    def blocks(self, xs, axis):
        return None


class BlocksTooShort(CorrectLazy):
    def blocks(self, xs, axis, *, block=None, client=None):
        return ToyBlocks([x.values for x in xs], axis, [[2]] * len(xs))


class BlocksWithoutLengths(CorrectLazy):
    def blocks(self, xs, axis, *, block=None, client=None):
        class Unknown(af.Blocks):
            def read(self, array, block):
                return xs[array].values

        return Unknown()


class BlocksOfAnotherAxis(CorrectLazy):
    def blocks(self, xs, axis, *, block=None, client=None):
        blocks = super().blocks(xs, axis, block=block)
        blocks._axis = 0
        return blocks


class BlocksThatAreViews(CorrectLazy):
    def blocks(self, xs, axis, *, block=None, client=None):
        blocks = super().blocks(xs, axis, block=block)
        return af.Slices([x.values for x in xs], axis, blocks.lengths)


class BlocksThatFail(CorrectLazy):
    def blocks(self, xs, axis, *, block=None, client=None):
        blocks = super().blocks(xs, axis, block=block)
        blocks.read = lambda array, block: 1 // 0
        return blocks


class BlocksInAnyOrder(CorrectLazy):
    def blocks(self, xs, axis, *, block=None, client=None):
        class Swapped(af.Reader):
            def read(self, step):
                return super().read(step)[::-1]

        blocks = super().blocks(xs, axis, block=block)
        blocks.open = lambda steps: Swapped(blocks, steps)
        return blocks


class BlocksWithoutReader(CorrectLazy):
    def blocks(self, xs, axis, *, block=None, client=None):
        blocks = super().blocks(xs, axis, block=block)
        blocks.open = lambda steps: None
        return blocks


PLANTED = {
    IgnoresTheSeed: ("test_random_numbers", "random(seed).uniform", "use the seed"),
    DrawsTooHigh: (
        "test_random_numbers",
        "Change integers() of what random() returns",
        "without 7",
    ),
    RepeatsNumbers: (
        "test_random_numbers",
        "Change uniform() of what random() returns",
        "advance its state",
    ),
    SharesWhatIsLarge: ("test_sharing_is_as_stated", "from_numpy_shares", "set it to None or True"),
    DropsSign: ("test_to_numpy", "Return from to_numpy(x) a numpy.ndarray with the values"),
    DropsSignOfZero: ("test_special_values_are_kept", "from_numpy(x)", "sign of zero"),
    SharesWhenAskedToCopy: ("test_copy_true_copies", "Set from_numpy_shares to None or True"),
    CopyShares: ("test_copy_true_copies", "Return from copy(x) an array in memory of its own"),
    ClaimsNotToShare: ("test_sharing_is_as_stated", "to_numpy_shares", "set it to None or True"),
    LosesDtype: (
        "test_from_numpy",
        "dtype float32 instead of float64",
        "from_numpy(x)",
        "dtypes()",
    ),
    LosesShape: ("test_to_numpy", "shape (1,) instead of ()", "to_numpy(x)"),
    MutatesItsSource: ("test_sources_are_not_changed", "Change to_numpy() so that it leaves"),
    MutatesItsArgument: ("test_sources_are_not_changed", "Change from_numpy()", "x.copy()"),
    ForgetsDevice: (
        "test_arrays_are_on_the_requested_device",
        "Put the array on the device in from_numpy(x, device)",
    ),
    MisnamesDevice: (
        "test_arrays_are_on_the_requested_device",
        "return its name from device_of(x)",
    ),
    MovesWhenCopied: ("test_arrays_are_on_the_requested_device", "from copy(x)", "device of x"),
    MovesNothing: (
        "test_arrays_are_on_the_requested_device",
        "return from to_device(x, device) an array",
    ),
    NamesNoDevice: (
        "test_arrays_are_on_the_requested_device",
        'Return from devices() names such as ("cpu"',
    ),
    DeviceObjects: (
        "test_arrays_are_on_the_requested_device",
        'Return from devices() names such as ("cpu"',
    ),
    WritableViewOfImmutable: (
        "test_sharing_is_as_stated",
        "return a read-only view",
        "to_numpy_shares",
    ),
    ImmutableThatShares: (
        "test_immutable_arrays_never_change",
        "Copy in from_numpy()",
        "from_numpy_shares",
    ),
    NotAnArray: (
        "test_to_numpy",
        "to_numpy(), for an array of dtype bool and shape (), returned a bool",
        "numpy.ndarray",
    ),
    Raises: (
        "test_to_numpy",
        "to_numpy(), for an array of dtype bool and shape (), raised TypeError",
        "dtype bool",
        "Return from to_numpy(x)",
    ),
    CannotTakeScalars: ("test_from_numpy", "from_numpy(), for an array", "raised IndexError"),
    ClaimsToShare: (
        "test_sharing_is_as_stated",
        "from_numpy_shares is True",
        "set it to None or False",
    ),
    LosesTheMemory: (
        "test_results_outlive_their_sources",
        "Copy in from_numpy(), or keep a reference",
    ),
    ReadOnlyCopies: (
        "test_copy_true_copies",
        "Set to_numpy_shares to None or True",
        "writable copy",
    ),
    ReordersMany: ("test_to_numpy_many_matches_to_numpy", "to_numpy_many(xs)", "in the same order"),
    LosesOne: (
        "test_to_numpy_many_matches_to_numpy",
        "returned 7 for 8 arrays",
        "to_numpy_many(xs)",
    ),
    CopyNarrows: ("test_copy", "copy(), for an array of dtype", "Return from copy(x)"),
    CopyAddsAnAxis: ("test_copy", "shape (1,) instead of ()", "Return from copy(x)"),
    MovesZeros: (
        "test_arrays_are_on_the_requested_device",
        "to_device(x, 'cpu'), for an array on toy:1: 0.0",
    ),
    ReadsZerosElsewhere: (
        "test_arrays_are_on_the_requested_device",
        "to_numpy(), for an array on toy:1: ",
    ),
    ReturnsASubclass: (
        "test_to_numpy",
        "returned a numpy.recarray",
        "a numpy.ndarray with the values",
    ),
    NoDeviceAtAll: (
        "test_arrays_are_on_the_requested_device",
        "device_of() returned 'None'",
        "if device is None",
    ),
    OtherDefault: (
        "test_arrays_are_on_the_requested_device",
        "default_device() 'toy:1'",
        "return another one",
    ),
    ReadsIntoOneBuffer: ("test_results_are_independent", "Return new memory from to_numpy()"),
    WritesIntoOneBuffer: ("test_results_are_independent", "Return new memory from from_numpy()"),
    PlaceIsUnknown: (
        "test_arrays_are_on_the_requested_device",
        "place_of(), for an array on cpu, raised KeyError",
    ),
    PlaceIsWrong: ("test_arrays_are_on_the_requested_device", "Return from place_of(x)"),
    FenceOfNoKind: ("test_arrays_are_on_the_requested_device", "Return from fence(x) a function"),
    NoContext: (
        "test_arrays_are_on_the_requested_device",
        "use_device('cpu') returned None",
        "a context manager",
    ),
    AlwaysOutOfMemory: ("test_running_out_of_memory", "returned True for a ValueError"),
    FailsOutOfMemory: ("test_running_out_of_memory", "raised AttributeError", "without raising"),
    HintOfNoKind: ("test_hints_on_dtypes", "dtype_hint('float64') returned an int", "a sentence"),
    DrawsElsewhere: ("test_random_numbers", "random(1, 'toy:1') drew numbers on cpu"),
    AddressOfNoKind: ("test_addresses", "address() returned a float", "a whole number"),
    AllDtypesButText: ("test_text_is_refused_or_kept", "no text", "dtypes() is None"),
    ClaimsToShareWhatIsConstant: (
        "test_sharing_is_as_stated",
        "to_numpy_shares is True, but each call returns",
    ),
    MakesNothing: (
        "test_from_numpy",
        "from_numpy() returned None",
        "Return from from_numpy() an array of toy_library",
    ),
    MakesNumPyArrays: (
        "test_from_numpy",
        "recognised as an array of numpy",
        "Return from from_numpy() an array of",
    ),
    MissingTypes: (
        "test_array_types_exist",
        "no such type in toy_library",
        "('toy_library.Array',)",
    ),
    WrongType: ("test_its_arrays_are_recognised", "array_types", f"'{__name__}.Array'"),
    AlwaysTraced: ("test_arrays_are_not_traced", "Return False from is_traced(x)"),
    Warns: ("test_conversions_do_not_warn", "UserWarning: look out", "Change to_numpy()"),
    MisspeltDtype: ("test_dtypes_are_known", "dtypes() names flaot64", "numpy.dtype(x).name"),
    TextOfDtypes: ("test_dtypes_are_known", "Return a set of names, such as {'float32'}"),
    NoDtypes: ("test_dtypes_are_known", "dtypes() is empty", "{'float32'}"),
    NarrowsSilently: ("test_missing_dtypes_follow_the_narrowing_rule", "'float64' out of dtypes()"),
    WrongNumbers: ("test_default_dtypes_of_numbers", "number_dtype('bool')", "such as 'bool'"),
    NotSparse: ("test_sparse_arrays", "Return True or False from is_sparse(x)"),
    SparseOnly: ("test_sparse_arrays", "to_dense(x)", "not sparse"),
    NoItem: ("test_one_number", "item()", "out of item_types"),
    NoDLPack: (
        "test_dlpack",
        "__dlpack__ and __dlpack_device__",
        "take 'cpu' out of dlpack_devices",
    ),
    WrongAddress: ("test_addresses", "address(x)", "or None"),
    ComputesInAnyOrder: ("test_computing_together", "compute(xs)", "in the same order"),
    ComputesTooFew: ("test_computing_together", "returned 3 for 4 values", "one entry for each"),
    ComputesNothing: ("test_computing_together", "a list is not an array", "Return an array"),
    ComputesInPlace: ("test_computing_together", "was written to", "memory that nobody else holds"),
    ComputesByRaising: (
        "test_computing_together",
        "compute() raised KeyError: 'lost'",
        "compute(xs)",
    ),
    DefersWithoutCompute: (
        "test_deferred_values_are_computed",
        "no compute()",
        "deferred_types to ()",
    ),
    DefersAnother: (
        "test_deferred_values_are_computed",
        "Set deferred_types, which is ('toy_library.Other',)",
        "Promise',)",
    ),
    BlocksOfWritableArrays: ("test_blocks", "Set memory to 'lazy', or remove blocks()"),
    BlocksOfNoKind: ("test_blocks", "blocks() returned a list", "arrayferry.Blocks", "Slices(xs"),
    BlocksThatRaise: ("test_blocks", "blocks() raised TypeError", "blocks(xs, axis, block=None"),
    BlocksTooShort: (
        "test_blocks",
        "lengths of what blocks() returned is [[2], [2]]",
        "even_lengths()",
    ),
    BlocksWithoutLengths: ("test_blocks", "is None", "Set lengths of what blocks() returns"),
    BlocksOfAnotherAxis: ("test_blocks", "Return from read(array, block)", "along the axis"),
    BlocksThatAreViews: ("test_blocks", "memory that nobody else writes to"),
    BlocksThatFail: ("test_blocks", "raised ZeroDivisionError", "Return from read(array, block)"),
    BlocksInAnyOrder: ("test_blocks", "Return from open(steps)", "in the same order"),
    BlocksWithoutReader: ("test_blocks", "open() returned a NoneType", "a Reader"),
}
"""The test that finds a fault, and words of its message."""


@pytest.fixture
def toy(monkeypatch):
    module = types.ModuleType("toy_library")
    module.Array = Array
    module.Promise = Promise
    module.Other = type("Other", (), {})
    monkeypatch.setitem(sys.modules, "toy_library", module)


def failures(plugin: af.Backend, only: str = "test_") -> dict[str, BaseException]:
    """Run every test of the kit on a plugin, or one, and return the failures."""

    class Contract(BackendContract):
        backend = plugin
        others = ("numpy", "torch", "jax")

        def make(self, values):
            return Array(values.copy())

        def read(self, array):
            return array.values.copy()

        def write(self, array, value):
            array.values[...] = value

        def deferred(self, values):
            return [Promise(values.copy())]

    af.registry.register(plugin)
    found = {}
    try:
        for name, test in inspect.getmembers(Contract(), inspect.ismethod):
            if name.startswith("test_") and only in ("test_", name):
                try:
                    test()
                except BaseException as error:
                    found[name] = error
    finally:
        af.registry.unregister(plugin)
    return found


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    "plugin", [Correct, CorrectImmutable, CorrectLazy, OnlyIntegers, OnlyDoubles]
)
def test_a_correct_plugin_passes(plugin):
    assert failures(plugin()) == {}


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("plugin", PLANTED)
def test_a_planted_fault_is_caught(plugin):
    test, *words = PLANTED[plugin]
    found = failures(plugin(), test)
    assert test in found, found
    message = str(found[test])
    assert [word for word in words if word not in message] == [], message


def test_the_kit_names_the_method_to_fill_in():
    class Empty(BackendContract):
        backend = "numpy"

    with pytest.raises(
        NotImplementedError, match=r"Empty must say how an .* Write make\(self, values"
    ):
        Empty().test_to_numpy()

    class Nameless(BackendContract):
        def make(self, values):
            return values

    with pytest.raises(NotImplementedError, match=r'Nameless must name the .* backend = "mylib"'):
        Nameless().test_to_numpy()


def test_the_kit_asks_for_deferred_values():
    class Test(BackendContract):
        backend = "dask"

    with pytest.raises(pytest.skip.Exception, match=r"Write deferred\(self, values\) in the test"):
        Test().test_deferred_values_are_computed()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda: np.ones(2), "Raise arrayferry.ConversionError"),
        (lambda: np.ma.array([1, 2], mask=[0, 1]), "Change the reason of the ConversionError"),
    ],
)
def test_the_kit_tells_how_to_refuse(value, words):
    class Test(BackendContract):
        backend = "numpy"

        def unportable(self):
            return [(value(), "units")]

    test = Test()
    test.backend = "torch" if words.startswith("Raise") else "numpy"
    with pytest.raises(AssertionError, match=words):
        test.test_arrays_with_more_than_values_are_refused()


@pytest.mark.usefixtures("toy")
def test_others_are_those_that_are_named():
    class Test(BackendContract):
        backend = Correct()
        others: tuple[str, ...] = ()

    assert Test()._others() == []
    Test.others = ("jnp", "numpy", "cupy")
    assert {backend.name for backend in Test()._others()} >= {"jax", "numpy"}
    Test.others = ("troch",)
    with pytest.raises(af.UnknownBackendError, match="Did you mean 'torch'"):
        Test()._others()


ODD = """
import arrayferry as af

class Odd(af.Backend):
    name, package, array_types, replaces = "odd", "numpy", ("numpy.ndarray",), ("numpy",)
    def to_numpy(self, x):
        raise RuntimeError("odd")
    from_numpy = to_numpy

class OddWay(af.Converter):
    source, target, cost = "numpy", "toy", "share"
    def convert(self, x, device=None, copy=None):
        return 3

def arrayferry_backends():
    return [Odd()]

def arrayferry_converters():
    return [OddWay()]
"""
TOY = """
import numpy as np
import arrayferry as af

class Array:
    def __init__(self, values):
        self.values = values

class Toy(af.Backend):
    name, package, array_types = "toy", "toy_plugin", ("toy_plugin.Array",)
    def to_numpy(self, x):
        return x.values
    def from_numpy(self, x, device=None):
        return Array(x)

def arrayferry_backends():
    return [Toy()]
"""
TOY_TEST = """
from arrayferry.testing import BackendContract
from toy_plugin import Array

class TestToy(BackendContract):
    backend, others = "toy", ()
    def make(self, values):
        return Array(values.copy())
    def write(self, array, value):
        array.values[...] = value
"""


def run_kit(folder, *options):
    """Run the tests of the toy plugin in a process of its own."""
    (folder / "test_toy.py").write_text(TOY_TEST)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        *options,
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, env=env, cwd=folder, timeout=300
    )
    return done.stdout


def test_other_plugins_do_not_fail_the_one_under_test(tmp_path):
    write_distribution(tmp_path, "toy", TOY)
    write_distribution(tmp_path, "odd", ODD)
    write_distribution(tmp_path, "broken", "import sys; sys.exit(3)")
    output = run_kit(tmp_path)
    assert " passed" in output, output
    assert "failed" not in output, output
    assert "error" not in output.lower(), output


def test_a_plugin_that_was_left_out_is_told(tmp_path):
    write_distribution(tmp_path, "toy", TOY.replace("return [Toy()]", "return [Toy]"))
    output = run_kit(tmp_path, "-k", "test_to_numpy")
    assert "no array library is known as 'toy'" in output
    assert "arrayferry left out the plugin 'toy' of the distribution arrayferry-toy" in output
    assert "Return an instance, Toy()." in output


class Settable(Array):
    def __setitem__(self, key, value):
        self.values[key] = value


@pytest.mark.parametrize(
    ("array", "says", "remedy"),
    [
        (Array, "writable", "or set memory to 'immutable' if arrays never change"),
        (Settable, "immutable", "set it to 'writable'"),
    ],
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
    assert "Copy if copy is True, or return NotImplemented" in message


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
    message = str(found["test_direct_converters_match_the_general_path"])
    assert "bind_many() of <Converter toy -> numpy>" in message
    assert "Return the values, the shape and the dtype of the array" in message


class Refuses(Lossy):
    def convert(self, x, device=None, copy=None):
        raise RuntimeError("never")

    def bind_many(self, options):
        return None


class ReturnsAList(Lossy):
    def bind_many(self, options):
        return lambda xs: [x.values.tolist() for x in xs]


class ReturnsTooFew(Lossy):
    def bind_many(self, options):
        return lambda xs: [x.values for x in xs[1:]]


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("converter", "words"),
    [
        (
            Refuses,
            "raised RuntimeError: never for every ordinary array.*Handle arrays of dtype float32",
        ),
        (ReturnsAList, "returned a list, .* Return one of numpy, or NotImplemented"),
        (ReturnsTooFew, "returned 1 for 2 arrays. Return one for each"),
    ],
)
def test_a_direct_converter_that_is_wrong_is_told(converter, words, register):
    register(converter())
    name = "test_direct_converters_match_the_general_path"
    assert re.search(words, str(failures(Correct(), name)[name]))


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


class Column:
    def __init__(self, values):
        self.values = values
        self.shape, self.dtype = values.shape, values.dtype


class CorrectSource(af.Source):
    name, package, memory = "columns", "toy_library", "lazy"
    array_types = (f"{__name__}.Column",)
    to_numpy_shares = False

    def to_numpy(self, x):
        return x.values.copy()

    blocks = CorrectLazy.blocks


class FlatSource(CorrectSource):
    def to_numpy(self, x):
        return x.values.ravel()


class SharingSource(CorrectSource):
    def to_numpy(self, x):
        return x.values


class UnknownSource(CorrectSource):
    array_types = ("toy_library.Other",)


class BlocklessSource(CorrectSource):
    def blocks(self, xs, axis, *, block=None, client=None):
        return 3


def source_failures(part):
    class Contract(SourceContract):
        source = part

        def make(self, values):
            return Column(values.copy())

    af.registry.register(part)
    found = {}
    try:
        for name, test in inspect.getmembers(Contract(), inspect.ismethod):
            if name.startswith("test_"):
                try:
                    test()
                except Exception as error:
                    found[name] = str(error)
    finally:
        af.registry.unregister(part)
    return found


@pytest.mark.usefixtures("toy")
def test_a_correct_source_passes():
    assert source_failures(CorrectSource()) == {}


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("source", "test", "words"),
    [
        (FlatSource, "test_to_numpy", "Return from to_numpy(x) a numpy.ndarray"),
        (SharingSource, "test_memory_is_as_stated", "Set to_numpy_shares to None or True"),
        (UnknownSource, "test_its_objects_are_recognised", "Set array_types"),
        (BlocklessSource, "test_blocks", "Return from blocks(xs, axis"),
    ],
)
def test_a_fault_of_a_source_is_caught(source, test, words):
    assert words in source_failures(source())[test]


def test_the_kit_asks_for_the_source():
    class Empty(SourceContract):
        pass

    with pytest.raises(NotImplementedError, match="Empty must name the source under test"):
        Empty().test_blocks()
    with pytest.raises(NotImplementedError, match=r"Write make\(self, values\)"):
        Empty().test_to_numpy()
