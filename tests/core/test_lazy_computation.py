"""Lazy arrays are computed at most once, and not at all if they are refused."""

from __future__ import annotations

import threading

import dask
import dask.array as da
import jax
import numpy as np
import pytest
import torch
from boxes import Box, BoxBackend

import arrayferry as af


class Counted:
    """Dask arrays, and how often their blocks were computed."""

    def __init__(self):
        self.times = 0
        self.lock = threading.Lock()

    def array(self, dtype=np.float32, fails=False):
        def block(values):
            with self.lock:
                self.times += 1
            if fails:
                raise ValueError("this block fails")
            return values.astype(dtype)

        return da.ones(4, chunks=4).map_blocks(block, dtype=dtype, meta=np.ones(0, dtype))


@pytest.fixture
def counted():
    return Counted()


TARGETS = ["numpy", "torch", "jax", "array_api_strict"]
TREES = {
    "alone": lambda make: make(),
    "two": lambda make: [make(), make()],
    "wide and narrow": lambda make: {"a": make(np.float64), "b": make(np.int32)},
    "with other libraries": lambda make: [make(np.float64), np.ones(2), torch.ones(2)],
    "the same twice": lambda make: [make()] * 2,
}


@pytest.mark.parametrize("options", [{}, {"copy": True}, {"device": "cpu"}], ids=str)
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("target", TARGETS)
def test_a_graph_runs_once_in_each_call(counted, target, tree, options):
    if target == "array_api_strict" and options.get("device"):
        pytest.skip("it has its own devices")
    conversion = af.converter(target, **options)
    for _ in range(6):
        counted.times = 0
        value = TREES[tree](counted.array)
        arrays = {id(x) for x in af.flatten(value)[0] if isinstance(x, da.Array)}
        conversion(value)
        assert counted.times == len(arrays)


@pytest.mark.parametrize("target", TARGETS)
def test_a_graph_that_fails_runs_once(counted, target):
    conversion = af.converter(target)
    for value in (counted.array(), [counted.array(), np.ones(1)]):
        for _ in range(4):
            conversion(value)
    for wrap in (lambda x: x, lambda x: [x, np.ones(1)], lambda x: {"new": (x,)}):
        for _ in range(4):
            counted.times = 0
            with pytest.raises(af.ConversionError, match="this block fails"):
                conversion(wrap(counted.array(fails=True)))
            assert counted.times == 1


REFUSED = {
    "no sharing": ({"copy": False}, np.float32, af.CopyRequiredError),
    "no narrowing": ({"narrowing": "forbid"}, np.float64, af.NarrowingError),
    "no such dtype": ({}, "U1", af.UnsupportedDtypeError),
}


@pytest.mark.parametrize("why", REFUSED)
@pytest.mark.parametrize("target", ["jax", "torch"])
def test_what_is_refused_is_not_computed(counted, target, why):
    options, dtype, error = REFUSED[why]
    if target == "torch" and why == "no narrowing":
        pytest.skip("PyTorch has float64")
    conversion = af.converter(target, **options)
    for _ in range(4):
        for wrap in (lambda x: x, lambda x: {"a": counted.array(), "b": x}):
            with pytest.raises(error) as caught:
                conversion(wrap(counted.array(dtype)))
            assert caught.value.source == "dask"
            assert caught.value.target == target
    assert counted.times == 0


def test_another_leaf_is_refused_before_anything_is_computed(counted):
    for value in ([counted.array(), np.array(["text"])], [counted.array(), jax.random.key(0)]):
        for _ in range(4):
            with pytest.raises(af.ConversionError, match=r"at \[1\]"):
                af.convert(value, "torch")
    assert counted.times == 0


def test_what_is_kept_is_not_computed(counted):
    for options in ({}, {"copy": False}, {"copy": True}):
        for _ in range(4):
            x = counted.array("U1")
            assert af.convert(x, "torch", unsupported="keep", **options) is x
    assert counted.times == 0
    found = af.convert([x, counted.array()], "torch", unsupported="keep")
    assert found[0] is x
    assert isinstance(found[1], torch.Tensor)
    assert counted.times == 1


class Lazy(BoxBackend):
    """A lazy library whose plugin counts, and may return too few."""

    memory = "lazy"
    read = missing = 0

    def to_numpy(self, x):
        return self.to_numpy_many([x])[0]

    def to_numpy_many(self, xs):
        self.read += len(xs)
        return [x.values for x in xs][self.missing :]


@pytest.fixture
def lazy(register, boxlib):
    return register(Lazy())


def test_a_lazy_library_of_a_plugin(lazy):
    for count in range(1, 5):
        lazy.read = 0
        found = af.convert([Box(np.array([1.5])), Box(np.array([2.5]))][:count], "jax")
        assert [float(y[0]) for y in found] == [1.5, 2.5][:count]
        assert lazy.read == min(count, 2)


def test_a_plugin_that_returns_too_few(lazy):
    lazy.missing = 1
    with pytest.raises(
        af.ConversionError,
        match=r"to_numpy_many\(\) of the backend 'boxes' returned 1 for 2 arrays",
    ):
        af.convert([Box(np.ones(1)), Box(np.ones(1))], "torch")


@pytest.mark.parametrize(
    "tree", [lambda x: x, lambda x: [x], lambda x: [x] * 20], ids=["alone", "list", "long"]
)
def test_a_failure_after_a_plan_was_written_computes_once_too(counted, tree):
    conversion = af.converter("jax")
    for _ in range(4):
        conversion(tree(np.ones(2, np.float32)))
    assert conversion._compiled.plans
    with pytest.raises(af.NarrowingError):
        conversion(tree(counted.array(np.int64) * 2**40))
    assert counted.times == 1


class Stored(np.lib.mixins.NDArrayOperatorsMixin):
    """A dataset in a file, which counts how often it is read."""

    def __init__(self, values):
        self.values = values
        self.reads = 0

    @property
    def dtype(self):
        if self.values is None:
            raise ValueError("the file is closed")
        return self.values.dtype


class Stores(af.Source):
    name = "stores"
    package = "numpy"
    array_types = (f"{__name__}.Stored",)
    memory = "lazy"
    to_numpy_shares = False

    def to_numpy(self, x):
        x.reads += 1
        if x.values is None:
            raise ValueError("the file is closed")
        if x.dtype.kind == "U":
            raise af.UnsupportedDtypeError("it holds text")
        x.read = x.values.copy()
        return x.read


@pytest.fixture
def stores(register):
    return register(Stores())


def test_what_is_read_for_us_is_not_copied_again(stores):
    for copy in (None, True):
        x = Stored(np.ones(3))
        y = af.convert(x, "torch", copy=copy)
        assert y.data_ptr() == x.read.ctypes.data
        assert x.reads == 1


def test_a_source_that_is_closed_is_an_error_in_words(stores):
    with pytest.raises(
        af.ConversionError, match=r"to_numpy.*of the source 'stores'.*the file is closed"
    ):
        af.convert(Stored(None), "torch")


def test_unsupported_lazy_sources_are_kept_alone(stores):
    text, numbers = Stored(np.array(["a"])), Stored(np.ones(2))
    given = [text, numbers, da.ones(2), text]
    options = {"unknown": "convert", "unsupported": "keep"}
    for _ in range(4):
        found = af.convert(given, "numpy", **options)
        assert found[0] is found[3] is text
        assert found[1].tolist() == found[2].tolist() == [1, 1]
    assert af.convert(text, "numpy", unsupported="keep") is text
    with pytest.raises(af.UnsupportedDtypeError, match=r"at \[0\]"):
        af.convert([text], "numpy", unknown="convert")


def test_nothing_is_computed_if_another_lazy_library_is_refused(counted, stores):
    text, numbers = Stored(np.array(["a"])), Stored(np.ones(2, "i4"))
    failing = dask.delayed(lambda: 1 / 0)()
    for value in ([failing, counted.array(), text], [text, counted.array()]):
        with pytest.raises(af.UnsupportedDtypeError, match="from stores to torch"):
            af.convert(value, "torch", unknown="convert")
    for value in ([numbers, counted.array()], [counted.array(), numbers]):
        value.append(counted.array("U1"))
        with pytest.raises(af.UnsupportedDtypeError, match="from dask to torch"):
            af.convert(value, "torch", unknown="convert")
    assert counted.times == text.reads == numbers.reads == 0


def test_refused_before_it_is_read(stores):
    x = Stored(np.array([2**40]))
    for options in ({"copy": False}, {"narrowing": "forbid"}):
        with pytest.raises(af.ConversionError):
            af.convert(x, "jax", **options)
    assert x.reads == 0
