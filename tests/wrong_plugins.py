"""Wrong plugins: `PLANTED` names the test of the contract kit that must find the fault of each, and words of its message."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from toys import Array, Correct, CorrectImmutable, CorrectLazy, ToyBlocks

import arrayferry as af


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
        "not including, 7",
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
        "copy in from_numpy()",
        "from_numpy_shares",
    ),
    NotAnArray: (
        "test_to_numpy",
        "to_numpy(), for an array of dtype bool and shape (), returned True",
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
        "returned 7 arrays instead of 8",
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
    AlwaysOutOfMemory: ("test_running_out_of_memory", "for a ValueError, returned True"),
    FailsOutOfMemory: ("test_running_out_of_memory", "raised AttributeError", "without raising"),
    HintOfNoKind: ("test_hints_on_dtypes", "dtype_hint('float64') returned an int", "a sentence"),
    DrawsElsewhere: ("test_random_numbers", "random(1, 'toy:1') drew numbers on cpu"),
    AddressOfNoKind: ("test_addresses", "returned a float", "a whole number"),
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
    WrongType: ("test_its_arrays_are_recognised", "array_types", "'toys.Array'"),
    AlwaysTraced: ("test_arrays_are_not_traced", "Return False from is_traced(x)"),
    Warns: ("test_conversions_do_not_warn", "UserWarning: look out", "Change to_numpy()"),
    MisspeltDtype: ("test_dtypes_are_known", "dtypes() names flaot64", "numpy.dtype(x).name"),
    TextOfDtypes: ("test_dtypes_are_known", "returned 'float32'", "a set of names", "{'float32'}"),
    NoDtypes: ("test_dtypes_are_known", "dtypes() returned ()", "{'float32'}"),
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
    ComputesTooFew: (
        "test_computing_together",
        "returned 3 arrays instead of 4",
        "one entry for each",
    ),
    ComputesNothing: ("test_computing_together", "a list is not an array", "Return an array"),
    ComputesInPlace: ("test_computing_together", "was written to", "memory that nothing else uses"),
    ComputesByRaising: (
        "test_computing_together",
        "raised KeyError: 'lost'",
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
    BlocksOfNoKind: ("test_blocks", "returned a list", "arrayferry.Blocks", "Slices(xs"),
    BlocksThatRaise: ("test_blocks", "raised TypeError", "blocks(xs, axis, block=None"),
    BlocksTooShort: (
        "test_blocks",
        "lengths of what blocks() returned is [[2], [2]]",
        "even_lengths()",
    ),
    BlocksWithoutLengths: ("test_blocks", "is None", "Set lengths of what blocks() returns"),
    BlocksOfAnotherAxis: ("test_blocks", "Return from read(array, block)", "along the axis"),
    BlocksThatAreViews: ("test_blocks", "memory that nothing else writes to"),
    BlocksThatFail: ("test_blocks", "raised ZeroDivisionError", "Return from read(array, block)"),
    BlocksInAnyOrder: ("test_blocks", "Return from open(steps)", "in the same order"),
    BlocksWithoutReader: ("test_blocks", "returned None", "a Reader"),
}
"""The test that finds a fault, and words of its message."""
