"""Wrong plugins: `PLANTED` has for each test of the contract kit the faults that it must find, and words of its message."""

from __future__ import annotations

import warnings

import numpy as np
from subtle_plugins import (
    backend,
    copying,
    into_one_buffer,
    making,
    read_only,
    reading,
    without_sign_of_zero,
)
from toys import Array, Correct, CorrectImmutable, CorrectLazy, ToyBlocks

import arrayferry as af


def drawing(change):
    """Return a backend whose random numbers are changed."""

    def random(self, seed=None, device=None):
        rng = Correct.random(self, seed, device)
        change(rng)
        return rng

    return backend(random=random)


def too_high(rng):
    draw = rng.integers
    rng.integers = lambda shape, low, high, dtype="int32": draw(shape, low, high + 1, dtype)


def repeated(rng):
    drawn = rng.uniform((50, 4), -1.0, 2.0)
    rng.uniform = lambda *args: drawn


def emptied(x):
    """Return the values of an array, and overwrite the array where that is allowed."""
    values = x.copy()
    if x.flags.writeable:
        x[...] = 0
    return values


def warning(x):
    warnings.warn("look out", stacklevel=1)
    return x


def without_text(x):
    if x.dtype.kind == "U":
        raise TypeError("no text")
    return x


class NarrowsSilently(Correct):
    from_numpy_shares = to_numpy_shares = None

    def from_numpy(self, x, device=None):
        with np.errstate(over="ignore"):
            x = x.astype(np.float32) if x.dtype == np.float64 else x
        return Array(x, device or "cpu")

    def to_numpy(self, x):
        return x.values.astype(np.float64) if x.values.dtype == np.float32 else x.values


def computing(function):
    """Return a lazy backend whose `compute` changes the list of results."""
    return backend(CorrectLazy, compute=lambda self, xs: function([x.values.copy() for x in xs]))


def with_blocks(change):
    """Return a lazy backend whose `blocks` changes what the correct one returns."""

    def blocks(self, xs, axis, *, block=None, client=None):
        return change(CorrectLazy.blocks(self, xs, axis, block=block), [x.values for x in xs], axis)

    return backend(CorrectLazy, blocks=blocks)


def with_attribute(name, value):
    """Return a lazy backend with another attribute of what `blocks` returns."""

    def change(blocks, xs, axis):
        setattr(blocks, name, value)
        return blocks

    return with_blocks(change)


class WithoutLengths(af.Blocks):
    def read(self, array, block):
        return np.zeros(2)


class Swapped(af.Reader):
    def read(self, step):
        return super().read(step)[::-1]


def in_any_order(blocks, xs, axis):
    blocks.open = lambda steps: Swapped(blocks, steps)
    return blocks


PLANTED = {
    "test_random_numbers": {
        "ignores the seed": (
            backend(random=lambda self, seed=None, device=None: Correct.random(self, 7, device)),
            "random(seed).uniform", "use the seed",
        ),
        "draws too high": (drawing(too_high), "Change integers() of what random() returns", "not including, 7"),
        "repeats numbers": (drawing(repeated), "Change uniform() of what random() returns", "advance its state"),
        "draws elsewhere": (
            backend(random=lambda self, seed=None, device=None: Correct.random(self, seed, "cpu")),
            "random(1, 'toy:1') drew numbers on cpu",
        ),
    },
    "test_sharing_is_as_stated": {
        "shares what is large": (
            making(lambda x: x if x.nbytes > 2**21 else x.copy(), base=CorrectImmutable, from_numpy_shares=False),
            "from_numpy_shares", "set it to None or True",
        ),
        "claims not to share": (backend(to_numpy_shares=False), "to_numpy_shares", "set it to None or True"),
        "a writable view of what is immutable": (
            backend(CorrectImmutable, to_numpy=lambda self, x: x.values), "return a read-only view", "to_numpy_shares",
        ),
        "claims to share": (
            making(np.copy, from_numpy_shares=True), "from_numpy_shares is True", "set it to None or False",
        ),
        "claims to share what is constant": (
            backend(CorrectImmutable, to_numpy=lambda self, x: read_only(x.values.copy())),
            "to_numpy_shares is True, but each call returns",
        ),
    },
    "test_to_numpy": {
        "drops the sign": (
            reading(lambda x: np.abs(x) if x.dtype.kind in "if" else x),
            "Return from to_numpy(x) a numpy.ndarray with the values",
        ),
        "loses the shape": (reading(np.atleast_1d), "shape (1,) instead of ()", "to_numpy(x)"),
        "not an array": (
            reading(lambda x: x.tolist()),
            "to_numpy(), for an array of dtype bool and shape (), returned True", "numpy.ndarray",
        ),
        "raises": (
            reading(lambda x: x.view("no dtype")),
            "to_numpy(), for an array of dtype bool and shape (), raised TypeError",
            "Make to_numpy(x) work for such an array, or leave 'bool' out of dtypes()",
        ),
        "a subclass": (
            reading(lambda x: x.view(np.recarray)), "returned a numpy.recarray", "a numpy.ndarray with the values",
        ),
    },
    "test_special_values_are_kept": {
        "drops the sign of zero": (making(without_sign_of_zero), "from_numpy(x)", "sign of zero"),
    },
    "test_copy_true_copies": {
        "shares when asked to copy": (backend(from_numpy_shares=False), "Set from_numpy_shares to None or True"),
        "a copy that shares": (copying(lambda x: x), "Return from copy(x) an array in memory of its own"),
        "read-only copies": (
            backend(CorrectImmutable, to_numpy_shares=False), "Set to_numpy_shares to None or True", "writable copy",
        ),
    },
    "test_from_numpy": {
        "loses the dtype": (
            making(lambda x: x.astype("f4") if x.dtype == "f8" else x),
            "dtype float32 instead of float64", "from_numpy(x)", "dtypes()",
        ),
        "cannot take scalars": (making(lambda x: x if x.ndim else x[0]), "from_numpy(), for an array", "raised IndexError"),
        "makes nothing": (
            backend(from_numpy=lambda self, x, device=None: None),
            "from_numpy() returned None", "Return from from_numpy() an array of toy_library",
        ),
        "makes NumPy arrays": (
            backend(from_numpy=lambda self, x, device=None: x),
            "recognised as an array of numpy", "Return from from_numpy() an array of",
        ),
    },
    "test_sources_are_not_changed": {
        "changes its source": (reading(emptied, to_numpy_shares=False), "Change to_numpy() so that it leaves"),
        "changes its argument": (making(emptied, from_numpy_shares=False), "Change from_numpy()", "x.copy()"),
    },
    "test_arrays_are_on_the_requested_device": {
        "forgets the device": (
            backend(from_numpy=lambda self, x, device=None: Array(x, "cpu"), to_device=lambda self, x, device: x),
            "Put the array on the device in from_numpy(x, device)",
        ),
        "misnames the device": (backend(device_of=lambda self, x: "cpu"), "return its name from device_of(x)"),
        "moves when copied": (
            backend(copy=lambda self, x: Array(x.values.copy(), "cpu")), "from copy(x)", "device of x",
        ),
        "moves nothing": (
            backend(to_device=lambda self, x, device: Array(x.values.copy(), x.device)),
            "return from to_device(x, device) an array",
        ),
        "names no device": (backend(devices=lambda self: ()), 'Return from devices() names such as ("cpu"'),
        "device objects": (backend(devices=lambda self: (1,)), 'Return from devices() names such as ("cpu"'),
        "moves zeros": (
            backend(to_device=lambda self, x, device: Array(np.zeros_like(x.values), device)),
            "to_device(x, 'cpu'), for an array on toy:1: 0.0",
        ),
        "reads zeros elsewhere": (
            backend(to_numpy=lambda self, x: x.values if x.device == "cpu" else x.values * 0),
            "to_numpy(), for an array on toy:1: ",
        ),
        "no device at all": (
            backend(from_numpy=lambda self, x, device=None: Array(x, str(device))),
            "device_of() returned 'None'", "if device is None",
        ),
        "another default": (
            backend(default_device=lambda self: "toy:1"), "default_device() 'toy:1'", "return another one",
        ),
        "a place that is unknown": (
            backend(place_of=lambda self, x: {}["place"]), "place_of(), for an array on cpu, raised KeyError",
        ),
        "a wrong place": (backend(place_of=lambda self, x: "cpu"), "Return from place_of(x)"),
        "a fence of no kind": (backend(fence=lambda self, x: True), "Return from fence(x) a function"),
        "no context": (
            backend(use_device=lambda self, device: None), "use_device('cpu') returned None", "a context manager",
        ),
    },
    "test_immutable_arrays_never_change": {
        "shares": (
            making(lambda x: x, base=CorrectImmutable, from_numpy_shares=False),
            "copy in from_numpy()", "from_numpy_shares",
        ),
    },
    "test_results_outlive_their_sources": {
        "keeps an address, and not the memory": (
            making(lambda x: x if x.size < 300_000 else np.zeros_like(x), from_numpy_shares=True),
            "Copy in from_numpy(), or keep a reference",
        ),
    },
    "test_to_numpy_many_matches_to_numpy": {
        "reorders many": (
            backend(to_numpy_many=lambda self, xs: [x.values for x in reversed(xs)]), "to_numpy_many(xs)", "in the same order",
        ),
        "loses one": (
            backend(to_numpy_many=lambda self, xs: [x.values for x in xs[1:]]),
            "returned 7 arrays instead of 8", "to_numpy_many(xs)",
        ),
    },
    "test_copy": {
        "a copy narrows": (copying(lambda x: x.astype("f4")), "copy(), for an array of dtype", "Return from copy(x)"),
        "a copy has one more axis": (
            copying(lambda x: np.atleast_1d(x.copy())), "shape (1,) instead of ()", "Return from copy(x)",
        ),
    },
    "test_results_are_independent": {
        "reads into one buffer": (reading(into_one_buffer()), "Return new memory from to_numpy()"),
        "makes arrays of one buffer": (making(into_one_buffer()), "Return new memory from from_numpy()"),
    },
    "test_running_out_of_memory": {
        "always out of memory": (backend(is_out_of_memory=lambda self, error: True), "for a ValueError, returned True"),
        "fails out of memory": (
            backend(is_out_of_memory=lambda self, error: error.code), "raised AttributeError", "without raising",
        ),
    },
    "test_hints_on_dtypes": {
        "a hint of no kind": (
            backend(dtype_hint=lambda self, dtype: 3), "dtype_hint('float64') returned an int", "a sentence",
        ),
    },
    "test_addresses": {
        "an address of no kind": (
            backend(to_numpy_shares=None, address=lambda self, x: float(x.values.ctypes.data)),
            "returned a float", "a whole number",
        ),
        "a wrong address": (backend(address=lambda self, x: x.values.ctypes.data + 4), "address(x)", "or None"),
    },
    "test_text_is_refused_or_kept": {
        "all dtypes but text": (
            making(without_text, from_numpy_shares=True, dtypes=lambda self: None), "no text", "dtypes() is None",
        ),
    },
    "test_array_types_exist": {
        "missing types": (
            backend(array_types=("toy_library.Missing", "toy_library.not_there.Array", "not_there.Array")),
            "no such type in toy_library", "('toy_library.Array',)",
        ),
    },
    "test_its_arrays_are_recognised": {
        "a wrong type": (backend(array_types=("toy_library.Other",)), "array_types", "'toys.Array'"),
    },
    "test_arrays_are_not_traced": {
        "always traced": (backend(is_traced=lambda self, x: True), "Return False from is_traced(x)"),
    },
    "test_conversions_do_not_warn": {
        "warns": (reading(warning, to_numpy_shares=True), "UserWarning: look out", "Change to_numpy()"),
    },
    "test_dtypes_are_known": {
        "a misspelt dtype": (
            backend(dtypes=lambda self: {"float32", "flaot64"}), "dtypes() names flaot64", "numpy.dtype(x).name",
        ),
        "a text of dtypes": (
            backend(dtypes=lambda self: "float32"), "returned 'float32'", "a set of names", "{'float32'}",
        ),
        "no dtypes": (backend(dtypes=lambda self: ()), "dtypes() returned ()", "{'float32'}"),
    },
    "test_missing_dtypes_follow_the_narrowing_rule": {
        "narrows silently": (NarrowsSilently(), "'float64' out of dtypes()"),
    },
    "test_default_dtypes_of_numbers": {
        "wrong numbers": (backend(number_dtype=lambda self, kind: "float"), "number_dtype('bool')", "such as 'bool'"),
    },
    "test_sparse_arrays": {
        "not sparse": (backend(is_sparse=lambda self, x: None), "Return True or False from is_sparse(x)"),
        "only sparse": (
            backend(is_sparse=lambda self, x: True, to_dense=lambda self, x: x), "to_dense(x)", "not sparse",
        ),
    },
    "test_one_number": {
        "no item": (backend(item_types=("toy_library.Array",)), "item()", "out of item_types"),
    },
    "test_dlpack": {
        "no DLPack": (
            backend(dlpack_devices=("cpu",)), "__dlpack__ and __dlpack_device__", "take 'cpu' out of dlpack_devices",
        ),
    },
    "test_dtypes_are_named": {
        "names the library": (
            backend(dlpack_devices=("cuda",), dtype_of=lambda self, x: "toy"), "dtype_of() returned 'toy'", "spelled as in dtypes()",
        ),
    },
    "test_computing_together": {
        "computes in any order": (computing(lambda found: found[::-1]), "compute(xs)", "in the same order"),
        "computes too few": (computing(lambda found: found[1:]), "returned 3 arrays instead of 4", "the values of each"),
        "computes nothing": (
            computing(lambda found: [x.tolist() for x in found]), "a list is not an array", "Return an array",
        ),
        "computes in place": (
            backend(CorrectLazy, compute=lambda self, xs: [x.values for x in xs]),
            "was written to", "memory that nothing else uses",
        ),
        "computes by raising": (computing(lambda found: {}["lost"]), "raised KeyError: 'lost'", "compute(xs)"),
    },
    "test_blocks": {
        "blocks of writable arrays": (
            backend(blocks=CorrectLazy.blocks), "Set memory to 'lazy', or remove blocks()",
        ),
        "blocks of no kind": (with_blocks(lambda blocks, xs, axis: xs), "returned a list", "arrayferry.Blocks", "Slices(xs"),
        "blocks that raise": (
            backend(CorrectLazy, blocks=lambda self, xs, axis: None), "raised TypeError", "blocks(xs, axis, block=None",
        ),
        "blocks that are too short": (
            with_blocks(lambda blocks, xs, axis: ToyBlocks(xs, axis, [[2]] * len(xs))),
            "lengths of what blocks() returned is [[2], [2]]", "even_lengths()",
        ),
        "blocks without lengths": (
            with_blocks(lambda blocks, xs, axis: WithoutLengths()), "is None", "Set lengths of what blocks() returns",
        ),
        "blocks of another axis": (with_attribute("_axis", 0), "Return from read(array, block)", "along the axis"),
        "blocks that are views": (
            with_blocks(lambda blocks, xs, axis: af.Slices(xs, axis, blocks.lengths)),
            "memory that nothing else writes to",
        ),
        "blocks that fail": (
            with_attribute("read", lambda array, block: 1 // 0), "raised ZeroDivisionError", "Return from read(array, block)",
        ),
        "blocks in any order": (with_blocks(in_any_order), "Return from open(steps)", "in the same order"),
        "blocks without a reader": (with_attribute("open", lambda steps: None), "returned None", "a Reader"),
    },
}  # fmt: skip
"""For each test of the kit, the plugins whose fault it finds, and words of its message."""
