"""What `copy` means for each pair, checked by pointers and by writing."""

import gc
import itertools
import types

import dask.array as da
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from boxes import Box, BoxBackend
from refusals import refused

import arrayferry as af
from arrayferry._route.memory import decide

SIZES = (1, 16, 1024, 16 * 1024, 64 * 1024, 256 * 1024)


def floats(size: int, aligned: bool) -> np.ndarray:
    raw = np.zeros(size * 4 + 128, np.uint8)
    begin = -raw.ctypes.data % 64 + (0 if aligned else 4)
    found = raw[begin : begin + size * 4].view(np.float32)
    found[:] = np.arange(size) + 1
    return found


def jax_floats(size: int, aligned: bool) -> jax.Array:
    return jnp.array(floats(size, aligned), copy=True).block_until_ready()


MAKE = {
    "numpy": floats,
    "torch": lambda size, aligned: torch.from_numpy(floats(size, aligned)),
    "jax": jax_floats,
}
POINTER = {
    "numpy": lambda x: x.ctypes.data,
    "torch": lambda x: x.data_ptr(),
    "jax": lambda x: x.unsafe_buffer_pointer(),
}


def write(x) -> None:
    x[...] = -1


def values(x) -> np.ndarray:
    return np.array(x.numpy() if isinstance(x, torch.Tensor) else x)


CASES = [(size, aligned) for size in SIZES for aligned in (True, False)]
SHARES = {("numpy", "torch"), ("torch", "numpy"), ("jax", "numpy")}
PAIRS = [(s, t) for s in MAKE for t in MAKE if s != t]
WAYS = [(s, t, copy) for s in MAKE for t in MAKE for copy in (None, True) if s != t or copy]


@pytest.mark.parametrize(("source", "target", "copy"), WAYS)
@pytest.mark.parametrize(("size", "aligned"), CASES)
def test_what_is_shared_and_what_is_copied(source, target, copy, size, aligned):
    x = MAKE[source](size, aligned)
    expected, written = values(x), -np.ones(size)
    y = af.convert(x, target, copy=copy)
    shared = POINTER[source](x) == POINTER[target](y)
    assert shared == (copy is None and (source, target) in SHARES)
    if source != "jax":
        write(x)
    np.testing.assert_array_equal(values(y), written if shared and source != "jax" else expected)
    if shared and source == "jax":
        assert not y.flags.writeable
    elif target != "jax":
        write(y)
        np.testing.assert_array_equal(values(x), expected if source == "jax" else written)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize(("size", "aligned"), CASES)
def test_copy_false(source, target, size, aligned):
    x = MAKE[source](size, aligned)
    if (source, target) in SHARES:
        y = af.convert(x, target, copy=False)
        assert POINTER[source](x) == POINTER[target](y)
    else:
        words = r"memory cannot be shared.*Pass copy=None"
        refused(af.CopyRequiredError, words, x, target, copy=False)


@pytest.mark.parametrize("target", ["torch", "jax", "dask"])
def test_read_only_memory(target):
    x = floats(8, True)
    x.flags.writeable = False
    y = af.convert(x, target)
    if target == "torch":
        y.fill_(-1)
        refused(af.CopyRequiredError, "is read-only", x, target, copy=False)
    np.testing.assert_array_equal(x, np.arange(8) + 1)


def test_a_read_only_view_of_memory_that_others_write_to():
    x = floats(8, True)
    view = x.view()
    view.flags.writeable = False
    y, z = af.convert(view, "jax"), af.convert(view, "dask")
    write(x)
    np.testing.assert_array_equal(np.asarray(y), np.arange(8) + 1)
    np.testing.assert_array_equal(z.compute(), np.arange(8) + 1)


@pytest.mark.parametrize(("size", "aligned"), CASES)
def test_dask(size, aligned):
    x = floats(size, aligned)
    expected = x.copy()
    y = af.convert(x, "dask")
    write(x)
    np.testing.assert_array_equal(y.compute(), expected)
    for target in ("numpy", "torch"):
        out = af.convert(y, target)
        write(out)
        np.testing.assert_array_equal(y.compute(), expected)
    refused(af.CopyRequiredError, "shared", y, "numpy", copy=False)


def test_within_one_library():
    for name, make in MAKE.items():
        x = make(8, True)
        assert af.convert(x, name) is x
        assert af.convert(x, name, copy=False) is x
        assert af.convert(x, name, device="cpu") is x
    d = da.ones(3)
    assert af.convert(d, "dask") is d


@pytest.mark.parametrize("source", MAKE)
@pytest.mark.parametrize("target", MAKE)
def test_results_outlive_their_sources(source, target):
    for size, aligned in CASES:
        x = MAKE[source](size, aligned)
        expected = values(x)
        y = af.convert({"x": x}, target)["x"]
        del x
        gc.collect()
        filler = [np.full(size, -7, np.float32) for _ in range(20)]
        np.testing.assert_array_equal(values(y), expected)
        del filler


def test_a_view_keeps_a_donated_jax_array_alive():
    x = jnp.arange(8.0)
    view = af.convert(x, "numpy")
    jax.jit(lambda a: a * 2, donate_argnums=0)(x)
    np.testing.assert_array_equal(view, np.arange(8.0))


def test_empty_arrays_can_always_be_shared():
    assert af.convert(np.ones((0, 3)), "torch", copy=False).shape == (0, 3)


def test_arrays_in_fortran_order_can_be_shared():
    x = np.arange(6.0).reshape(2, 3).T
    y = af.convert(x, "torch", copy=False)
    y[0, 0] = 9
    assert x[0, 0] == 9


KINDS = ("writable", "immutable", "lazy", "unknown", "numpy")
DECISIONS = {  # for the targets in the order of KINDS: "?" where one promises nothing, "!" where a promise would break
    "writable": "yes ! ! ? yes",
    "immutable": "! yes yes ! yes",
    "lazy": "! yes yes ! yes",
    "unknown": "? ! ! ? ?",
}


def library(memory):
    """Return a library of a kind of memory, "numpy" for NumPy."""
    return types.SimpleNamespace(name=memory, memory="writable" if memory == "numpy" else memory)


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("source", DECISIONS)
def test_each_decision(source, copy):
    for (target, shares), readonly, copied in itertools.product(
        zip(KINDS, DECISIONS[source].split(), strict=True), (False, True), ("", "it was copied")
    ):
        breaks = shares == "!" or (readonly and target in ("writable", "unknown"))
        arguments = {"readonly": readonly, "copied": copied}
        if copy is False and (breaks or copied):
            with pytest.raises(af.CopyRequiredError, match="memory cannot be shared"):
                decide(library(source), library(target), copy, **arguments)
            continue
        may = copied or copy is False or (copy is None and shares == "yes" and not breaks)
        found = decide(library(source), library(target), copy, **arguments)
        assert found == ("share" if may else "copy")


class FixedBox(Box):
    pass


class Fixed(BoxBackend):
    """Boxes that never change."""

    name, array_types, memory = "fixed", (f"{__name__}.FixedBox",), "immutable"

    def from_numpy(self, x, device=None):
        return FixedBox(x.copy())


class ToFixed(af.Converter):
    source, target, cost = "numpy", "fixed", "share"

    def convert(self, x, device=None, copy=None):
        return FixedBox(x.copy() if copy else x)


@pytest.mark.usefixtures("boxlib")
def test_a_converter_after_host_memory_shares_nothing_that_can_change(register):
    for part in (BoxBackend(), Fixed(), ToFixed()):
        register(part)
    x = Box(floats(4, True))
    y = af.convert(x, "fixed")
    write(x.values)
    assert y.values.tolist() == [1, 2, 3, 4]
    refused(af.CopyRequiredError, "fixed arrays never change", x, "fixed", copy=False)
