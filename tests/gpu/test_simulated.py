"""Arrays of simulated GPUs: what is shared, copied and moved, in which order, and how often the host is asked."""

import contextlib
import gc
import itertools
import re
import time
import types
import warnings
import weakref
from functools import partial
from importlib.util import find_spec

import dask.array as da
import gymnasium as gym
import jax
import ml_dtypes
import numpy as np
import pytest
import simulated
import torch
from cases import crossed, params
from envs import begun
from refusals import refused

import arrayferry as af
import arrayferry_gym
import arrayferry_gym.wrappers
from arrayferry._route import queued

NAMES = ("cupy", "writing", "constant")
PAIRS = list(itertools.permutations(NAMES, 2))
SHARING = [("cupy", "writing"), ("writing", "cupy")]
COPYING = [pair for pair in PAIRS if pair not in SHARING]
KINDS = (simulated.Simulated, simulated.Telling)
VALUES = np.arange(6, dtype=np.float32)
NARROW = {"lacks": frozenset({"int64", "uint64", "float64", "complex128"})}


def test_the_simulation_bites(machine):
    """A copy by hand whose source is dropped reads what comes after it in the same memory."""
    x = machine.array("constant", np.full(4, 7.0))
    shown = machine.libraries["writing"].from_dlpack(x)
    y = shown.copy()
    del x, shown
    machine.reuse("constant")
    assert machine.values(y) == [-1, -1, -1, -1]


# What is shared.


@pytest.mark.parametrize(
    ("one", "two", "gpu", "options"),
    crossed(
        params(SHARING),
        [0, 1],
        [{}, {"device": "cuda:0"}, {"device": "gpu"}, {"copy": False}, {"copy": False, "device": "cuda:0"}],
    ),
    ids=str,
)  # fmt: skip
def test_memory_is_shared(machine, one, two, gpu, options):
    x = machine.array(one, VALUES, gpu)
    if "device" in options:
        options = {**options, "device": options["device"].replace("cuda:0", f"cuda:{gpu}")}
        if gpu and options["device"] == "gpu":
            options["device"] = "gpu:1"
    for _ in range(3):
        y = af.convert({"x": x}, two, **options)["x"]
        assert y.pointer == x.pointer
        assert y.device.id == gpu
    assert machine.counts.keys() == {"waits"}


@pytest.mark.parametrize(("one", "two"), SHARING)
def test_like_an_array_there(machine, one, two):
    like = machine.array(two, VALUES, 1)
    x = machine.array(one, VALUES, 1)
    assert af.convert(x, like=like).pointer == x.pointer
    y = af.convert(machine.array(one, VALUES, 0), like=like)
    assert y.device.id == 1
    assert machine.counts["between devices"] == 1
    assert machine.counts["to host"] == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gpu", [0, 1])
def test_within_a_library_an_array_stays(machine, name, gpu):
    x = machine.array(name, VALUES, gpu)
    for options in ({}, {"device": f"cuda:{gpu}"}, {"copy": False, "device": f"cuda:{gpu}"}):
        for _ in range(3):
            assert af.convert([x], name, **options)[0] is x
    y = af.convert(x, name, copy=True)
    assert y.device.id == gpu
    assert y.pointer != x.pointer
    assert machine.counts == {"copies": 1}
    with pytest.raises(af.CopyRequiredError, match=f"it is on cuda:{gpu}, not on cuda:{1 - gpu}"):
        af.convert(x, name, copy=False, device=f"cuda:{1 - gpu}")


def test_a_device_object_of_cupy(machine):
    x = machine.array("cupy", VALUES)
    assert af.convert(x, "cupy", device=machine.cupy.cuda.Device(0)) is x
    assert af.convert(x, "cupy", device=machine.cupy.cuda.Device(1)).device.id == 1
    y = af.convert(machine.array("writing", VALUES), "cupy", device=machine.cupy.cuda.Device(1))
    assert y.device.id == 1


# What is copied, once, on the device.


@pytest.mark.parametrize(
    ("one", "two", "copy", "gpu", "kind"),
    crossed(
        params([*((*pair, True) for pair in PAIRS), *((*pair, None) for pair in COPYING)]),
        [0, 1],
        KINDS,
    ),
)
def test_one_copy_on_the_device(make_machine, one, two, copy, gpu, kind):
    machine = make_machine(kind=kind)
    x = machine.array(one, VALUES, gpu)
    y = af.convert(x, two, copy=copy)
    assert (machine.values(y), y.device.id) == (VALUES.tolist(), gpu)
    assert y.pointer != x.pointer
    assert machine.counts["copies"] == 1
    assert not machine.counts.keys() & {"to host", "to device", "between devices"}


@pytest.mark.parametrize(("one", "two", "copy"), crossed(params(PAIRS), [None, True]))
def test_one_transfer_to_another_device(machine, one, two, copy):
    x = machine.array(one, VALUES, 0)
    y = af.convert(x, two, copy=copy, device="cuda:1")
    assert (machine.values(y), y.device.id) == (VALUES.tolist(), 1)
    assert machine.counts["between devices"] == 1
    assert machine.counts["copies"] == (
        two == "constant"
    )  # which does not take over memory of others
    assert machine.stays_on_device()
    route = af.route(x, two, device="cuda:1")
    assert route.transfers == 1
    assert "cuda:1" in str(route)


@pytest.mark.parametrize(
    ("one", "two", "device"),
    [(*pair, "cuda:1") for pair in PAIRS] + [(*pair, None) for pair in COPYING],
)
def test_copy_false_where_memory_cannot_be_shared(machine, one, two, device):
    words = "never change|it is on cuda:0, not on cuda:1" if device else "never change"
    refused(af.CopyRequiredError, words, machine.array(one, VALUES), two, copy=False, device=device)
    assert machine.counts == {}


@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_the_route_says_what_happens(machine, one, two):
    x = machine.array(one, VALUES)
    word = "shared" if (one, two) in SHARING else "copied"
    assert str(af.route(x, two)) == f"{one} (cuda) -> {two} (cuda) {word} by DLPack"


# What no plugin knows.


@pytest.mark.parametrize(("target", "gpu"), crossed(params((name,) for name in NAMES), [0, 1]))
def test_memory_that_only_cuda_describes(machine, target, gpu):
    x = machine.array("writing", VALUES, gpu)
    described = simulated.Described(x)
    convert = af.converter(target, unknown="convert")
    for _ in range(3):
        for y in (convert(described), convert({"x": described})["x"]):
            assert y.device.id == gpu
            assert y.pointer != x.pointer
            assert machine.values(y) == VALUES.tolist()
    assert machine.counts["copies"] == 6
    moved = af.convert([described], target, unknown="convert", device="cuda:1")[0]
    assert (moved.device.id, machine.values(moved)) == (1, VALUES.tolist())
    assert machine.stays_on_device()
    assert af.convert([described], "cupy")[0] is described
    options = {"unknown": "convert", "copy": False}
    if target == "constant":
        refused(af.CopyRequiredError, "never change", described, target, **options)
    else:
        assert af.convert(described, target, **options).pointer == x.pointer
    on_host = af.convert(described, "numpy", unknown="convert")
    assert on_host.tolist() == VALUES.tolist()


def test_memory_that_only_cuda_describes_and_is_masked_or_has_units(machine):
    for name, value, words in (("mask", np.array([True]), "masked"), ("units", "m", "units")):
        described = simulated.Described(machine.array("writing", VALUES))
        setattr(described, name, value)
        refused(af.ConversionError, words, [described], "cupy", unknown="convert")


# The order of the work.


@pytest.mark.parametrize(
    ("one", "two", "device", "kind"), crossed(params(PAIRS), [None, "cuda:1"], KINDS)
)
def test_the_source_is_kept_until_it_is_copied(make_machine, one, two, device, kind):
    machine = make_machine(kind=kind)
    for _ in range(3):
        x = machine.array(one, np.full(4, 7.0))
        y = af.convert(x, two, copy=True, device=device)
        del x
        machine.reuse(one)
        assert machine.values(y) == [7, 7, 7, 7]
        del y


@pytest.mark.parametrize(
    ("one", "two", "device"),
    crossed(params(pair for pair in PAIRS if pair[0] != "constant"), [None, "cuda:1"]),
)
def test_a_source_that_is_changed_at_once(machine, one, two, device):
    x = machine.array(one, np.full(4, 7.0))
    y = af.convert(x, two, copy=True, device=device)
    x.fill(-1)
    x.stream.synchronize()
    assert machine.values(y) == [7, 7, 7, 7]


@pytest.mark.parametrize(("one", "two", "copy"), crossed(params(PAIRS), [None, True]))
def test_a_source_that_is_written_late(machine, one, two, copy):
    x = machine.array(one, np.zeros(4))
    x.fill(5)
    y = af.convert(x, two, copy=copy)
    y.stream.synchronize()
    assert y.values.tolist() == [5, 5, 5, 5]


def test_a_source_on_another_stream(machine):
    """CuPy's copies run on the current stream, while the memory belongs to another one."""
    x = machine.array("cupy", np.full(4, 7.0))
    with machine.cupy.cuda.Stream(non_blocking=True):
        y = af.convert(x, "cupy", copy=True)
        del x
    machine.reuse("cupy")
    assert machine.values(y) == [7, 7, 7, 7]


@pytest.mark.parametrize(
    ("one", "two", "options"),
    crossed(
        params([*zip(NAMES, NAMES, strict=True), ("constant", "writing")]),
        [{"copy": True}, {"copy": True, "device": "cuda:1"}],
    ),
    ids=str,
)
def test_what_is_kept_is_dropped_when_it_is_copied(machine, one, two, options):
    for _ in range(50):
        x = machine.array(one, VALUES)
        machine.settle()
        af.convert(x, two, **options)
    assert len(queued._kept) <= 2
    machine.settle()
    queued.release()
    assert not queued._kept


def soon(condition):
    end = time.monotonic() + 5
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return condition()


@pytest.mark.parametrize(
    ("one", "two", "device"),
    crossed(params(itertools.product(NAMES, NAMES)), [None, "cuda:1"]),
)
def test_a_source_is_let_go_without_another_conversion(machine, one, two, device):
    sources = []
    for _ in range(20):
        x = machine.array(one, VALUES)
        af.convert(x, two, copy=True, device=device)
        sources.append(weakref.ref(x))
        del x
    machine.settle()
    assert soon(lambda: gc.collect() + 1 and not any(x() for x in sources))
    assert not queued._kept


def test_the_thread_that_drops_sources_ends_and_starts_again(machine, monkeypatch):
    monkeypatch.setattr(queued, "LINGER", 1)
    for _ in range(3):
        assert soon(lambda: not (queued._watcher and queued._watcher.is_alive()))
        x = machine.array("cupy", VALUES)
        af.convert(x, "cupy", copy=True)
        assert queued._watcher.is_alive()
        machine.settle()
        assert soon(lambda: not queued._kept)


@pytest.fixture
def unwatched(machine, monkeypatch):
    """No thread drops sources. Who waits lets all streams do their work; return how many sources were kept then."""
    waits = []
    monkeypatch.setattr(queued, "LINGER", 0)
    assert soon(lambda: not (queued._watcher and queued._watcher.is_alive()))
    monkeypatch.setattr(queued, "_watcher", types.SimpleNamespace(is_alive=lambda: True))

    def sleep(seconds):
        waits.append(len(queued._kept))
        machine.settle()

    monkeypatch.setattr(queued, "time", types.SimpleNamespace(sleep=sleep))
    return waits


def test_what_is_queued_is_bounded(machine, monkeypatch, unwatched):
    monkeypatch.setattr(queued, "MOST", 100)
    for _ in range(10):
        x = machine.cupy.array(VALUES)
        y = af.convert(x, "cupy", copy=True)
        assert len(queued._kept) <= 4
    assert unwatched[::2] == [5, 5]
    assert machine.values(y) == VALUES.tolist()
    monkeypatch.setattr(queued, "MOST", 1)
    af.convert(machine.cupy.array(VALUES), "cupy", copy=True)
    assert len(queued._kept) == 1


@pytest.mark.parametrize(
    ("one", "two"), [("cupy", "cupy"), ("writing", "cupy"), ("cupy", "constant")]
)
def test_out_of_memory_lets_go_and_tries_once_more(machine, monkeypatch, unwatched, one, two):
    library = machine.libraries[two if two == "constant" else one]
    queue, tries, held = library.queue, [], machine.array("cupy", VALUES)
    x = machine.libraries[one].array(VALUES)
    af.convert(held, "cupy", copy=True)

    def full(*args):
        tries.append(len(queued._kept))
        if queued._kept:
            raise MemoryError("none left on the device")
        return queue(*args)

    monkeypatch.setattr(library, "queue", full)
    assert machine.values(af.convert([x], two, copy=True)[0]) == VALUES.tolist()
    assert tries[:2] == [1, 0]

    def empty(*args):
        raise MemoryError("none left on the device")

    monkeypatch.setattr(library, "queue", empty)
    refused(MemoryError, "none left", x, two, copy=True)


def test_out_of_memory_in_a_tree_that_goes_together(machine, monkeypatch, unwatched):
    held, array = machine.array("cupy", VALUES), machine.cupy.array
    af.convert(held, "cupy", copy=True)

    def full(*args):
        if queued._kept:
            raise MemoryError("none left on the device")
        return array(*args)

    monkeypatch.setattr(machine.cupy, "array", full)
    for y in af.convert([VALUES, VALUES], "cupy"):
        assert machine.values(y) == VALUES.tolist()


@pytest.mark.parametrize("two", ["cupy", "writing"])
@pytest.mark.parametrize("cut", [np.s_[:], np.s_[:0]], ids=str)
def test_a_constant_array_may_be_donated_at_once(machine, two, cut):
    x = machine.array("constant", np.full(4, 7.0))
    part = x[cut]
    y = af.convert(part, two)
    assert not queued._kept
    if part.size:
        assert gc.get_referrers(part) == []  # and no view of its memory is left
        queue = x.stream.queue
        x.fill(-1)  # as a function does that the array was donated to
        while queue:
            x.stream.step()
        assert machine.values(y) == [7, 7, 7, 7]


def test_a_fence_that_fails(machine, monkeypatch):
    def fence(self, x):
        raise RuntimeError("no event")

    monkeypatch.setattr(simulated.TellingDevices, "fence", fence)
    x = machine.array("writing", np.full(4, 7.0))
    with pytest.warns(af.PluginWarning) as told:
        y = af.convert(x, "constant")
    assert all("devices.fence() of the backend" in str(each.message) for each in told)
    assert all("raised RuntimeError: no event" in str(each.message) for each in told)
    assert machine.values(y) == [7, 7, 7, 7]


@pytest.mark.parametrize(("one", "two"), COPYING)
def test_a_result_that_is_dropped_while_it_is_read(machine, one, two):
    """The memory of a copy belongs to the library that reads it, and is not used again before."""
    for device in (None, "cuda:1"):
        x = machine.array(one, np.full(4, 7.0))
        y = af.convert(x, two, device=device)
        reading = machine.libraries[two].array(y, y.device.id)  # which is queued
        del y
        for gpu in (0, 1):
            machine.reuse(one, gpu)
        assert machine.values(reading) == [7, 7, 7, 7]


@pytest.mark.parametrize("target", ["writing", "constant"])
@pytest.mark.parametrize("current", [0, 1])
def test_cupy_on_a_gpu_that_is_not_the_current_one(machine, target, current):
    x = machine.array("cupy", np.zeros(4), 1)
    with machine.cupy.cuda.Device(current):
        x.fill(5)
        y = af.convert(x, target)
    assert y.device.id == 1
    y.stream.synchronize()
    assert y.values.tolist() == [5, 5, 5, 5]


@pytest.mark.parametrize("cut", [np.s_[::2], np.s_[::-1]], ids=str)
@pytest.mark.parametrize("target", NAMES)
def test_strides_to_another_gpu(machine, target, cut):
    x = machine.array("cupy", np.zeros(6, np.float32))
    x.fill(5)
    y = af.convert(x[cut], target, device="cuda:1")
    y.stream.synchronize()
    assert y.values.tolist() == [5] * len(y.values)


def test_an_array_that_goes_through_the_host_keeps_its_gpu(machine):
    def refuse(x):
        raise BufferError("no")

    machine.libraries["cupy"].from_dlpack = machine.cupy.from_dlpack = lambda x: refuse(x)
    for gpu in (0, 1):
        with machine.cupy.cuda.Device(1 - gpu), pytest.warns(af.PluginWarning, match="host memory"):
            assert af.convert(machine.array("writing", VALUES, gpu), "cupy").device.id == gpu


# What cannot be handed over as it is.


@pytest.mark.parametrize(
    ("target", "cut", "options"),
    crossed(
        ["writing", "constant"],
        [np.s_[::-1], np.s_[4:1:-1], np.s_[::2], np.s_[1::3]],
        [{}, {"copy": True}, {"device": "cuda:0"}],
    ),
    ids=str,
)
def test_strides_are_mended_on_the_device(machine, target, cut, options):
    x = machine.array("cupy", VALUES)[cut]
    y = af.convert(x, target, **options)
    assert machine.values(y) == VALUES[cut].tolist()
    assert machine.stays_on_device()
    assert machine.counts["copies"] <= 2


def test_strides_and_copy_false(machine):
    x = machine.array("cupy", VALUES)
    assert af.convert(x[::2], "writing", copy=False).pointer == x.pointer
    refused(af.CopyRequiredError, "negative strides", x[::-1], "writing", copy=False)


@pytest.mark.parametrize(
    ("target", "cut", "options"),
    crossed(["writing", "constant"], [np.s_[:], np.s_[::-1]], [{}, {"copy": True}, {"device": "cuda:1"}]),
    ids=str,
)  # fmt: skip
def test_managed_memory_as_the_allocator_stays_on_the_device(machine, target, cut, options):
    ordinary = machine.array("cupy", VALUES)[cut]
    with machine.cupy.cuda.using_allocator("managed"):
        managed = machine.array("cupy", VALUES)[cut]
        assert managed.managed
        for x in (managed, ordinary):
            for _ in range(3):
                y = af.convert(x, target, **options)
                assert machine.values(y) == VALUES[cut].tolist()
        assert af.convert(managed, "cupy", copy=True).managed
    assert machine.stays_on_device()


@pytest.mark.parametrize("target", ["writing", "constant"])
def test_managed_memory_stays_on_the_device(machine, target):
    x = machine.array("cupy", VALUES)
    x.managed = True
    assert machine.values(af.convert(x, target)) == VALUES.tolist()
    assert machine.stays_on_device()
    if target == "writing":
        words = r"refused it .BufferError: Unsupported device_type"
        refused(af.CopyRequiredError, words, x, target, copy=False)


def test_a_copy_where_sharing_was_asked_for(machine, monkeypatch):
    shared = simulated.SimulatedDLPack.load
    monkeypatch.setattr(
        simulated.SimulatedDLPack, "load", lambda self, x, device=None: shared(self, x).copy()
    )
    with pytest.raises(af.CopyRequiredError, match="writing copied the values"):
        af.convert(machine.array("cupy", VALUES), "writing", copy=False)


def test_out_of_memory_is_raised(machine):
    def refuse(x):
        raise MemoryError("none left on the device")

    machine.backends["writing"].refuses = refuse
    refused(MemoryError, "none left on the device", machine.array("cupy", VALUES), "writing")
    assert machine.counts == {"waits": 1}


@pytest.mark.parametrize(
    "error",
    [
        NotImplementedError("no"),
        BufferError("invalid device"),
        RuntimeError("CUDA error: invalid device"),
    ],
    ids=repr,
)
def test_what_is_refused_twice_goes_through_the_host(machine, error):
    def refuse(x):
        raise error

    machine.backends["writing"].refuses = refuse
    x = machine.array("cupy", VALUES)
    with warnings.catch_warnings(record=True, action="always") as told:
        y = af.convert(x, "writing")
    assert machine.values(y) == VALUES.tolist()
    assert (machine.counts["to host"], machine.counts["to device"]) == (1, 1)
    if isinstance(error, NotImplementedError):
        assert not told
    else:
        (warning,) = told
        assert "invalid device" in str(warning.message)
        assert "through host memory" in str(warning.message)


# Narrowing.


@pytest.mark.parametrize("dtype", ["int64", "float64", "complex128", "uint64"])
def test_narrowing_on_the_device(machine, dtype):
    vars(machine.backends["constant"]).update(NARROW)
    x = machine.array("writing", np.array([1, 2, 3]).astype(dtype))
    y = af.convert(x, "constant")
    assert y.dtype.itemsize * 2 == x.dtype.itemsize
    assert machine.values(y) == [1, 2, 3]
    assert machine.counts["flags"] == 1
    assert machine.stays_on_device()
    y = af.convert(x, "constant", narrowing="allow")
    assert machine.values(y) == [1, 2, 3]
    assert machine.counts["flags"] == 1
    refused(af.NarrowingError, "forbidden", x, "constant", narrowing="forbid")
    refused(af.CopyRequiredError, "shared", x, "constant", copy=False)


def test_narrowing_that_the_library_cannot_do_on_the_device(machine, monkeypatch):
    vars(machine.backends["constant"]).update(NARROW)

    def astype(self, x, dtype):
        raise TypeError("no cast")

    monkeypatch.setattr(simulated.Namespace, "astype", astype)
    x = machine.array("writing", np.array([1, 2, 3]))
    words = "constant has no int64 here, and writing could not cast the array.*through host memory"
    with pytest.warns(af.PluginWarning, match=words):
        assert machine.values(af.convert(x, "constant")) == [1, 2, 3]


@pytest.mark.parametrize("big", [np.array([1, 2**40]), np.array([0.5, 1e300]), np.array([1, 1e300j]),
                                 np.array([2**63], "uint64")], ids=lambda x: str(x.dtype))  # fmt: skip
def test_numbers_that_do_not_fit(machine, big):
    vars(machine.backends["constant"]).update(NARROW)
    x = machine.array("writing", big)
    text = f"constant has no {big.dtype} here, and {big[-1].item()} does not fit"
    caught = refused(af.NarrowingError, re.escape(text), {"x": x}, "constant")
    assert "['x']" in str(caught)
    machine.settle()
    on_host = machine.libraries["writing"].asnumpy(x)
    refused(af.NarrowingError, re.escape(text), {"x": on_host}, "constant")


@pytest.mark.parametrize(
    "odd", [np.array([np.nan, np.inf, -np.inf, 1e-300]), np.zeros(0), np.array(2.5)], ids=str
)
def test_odd_numbers_are_narrowed_as_by_numpy(machine, odd):
    vars(machine.backends["constant"]).update(NARROW)
    y = af.convert(machine.array("writing", odd), "constant")
    machine.settle()
    np.testing.assert_array_equal(y.values, odd.astype(np.float32))
    assert machine.counts["to host"] == 0


# Trees of small arrays.


def leaves(count=32):
    return {str(i): np.full((i % 3, 2) if i % 4 else (), i, np.float32) for i in range(count)}


@pytest.mark.parametrize("options", [{}, {"device": "cuda:1"}, {"copy": True}], ids=str)
def test_one_transfer_for_each_dtype(machine, options):
    tree = leaves()
    mixed = tree | {"flag": np.array([True, False]), "other": np.array(False)}
    for _ in range(4):  # without a plan, and with one
        for value, transfers in ((tree, 1), (list(tree.values()), 1), (mixed, 2)):
            machine.counts.clear()
            found = af.convert(value, "cupy", **options)
            assert machine.counts["to device"] == transfers
            machine.settle()
            for x, y in zip(af.flatten(value)[0], af.flatten(found)[0], strict=True):
                assert (y.dtype, y.shape, y.values.tolist()) == (x.dtype, x.shape, x.tolist())
                assert y.device.id == ("device" in options)
                assert not x.size or y.pointer % 4 == 0


def test_each_has_memory_of_its_own(machine):
    xs = [np.zeros(3, np.float32) for _ in range(8)]
    ys = af.convert(xs, "cupy")
    ys[2].fill(1)
    xs[3][:] = 5
    assert [machine.values(y)[0] for y in ys] == [0, 0, 1, 0, 0, 0, 0, 0]


def test_odd_arrays_among_them(machine):
    odd = {
        "big-endian": np.arange(5, dtype=">i4"),
        "backwards": np.arange(5, dtype="i4")[::-1],
        "strided": np.arange(24, dtype="i4").reshape(4, 6)[1::2, ::3],
        "transposed": np.arange(6, dtype="i4").reshape(2, 3).T,
        "constant": np.broadcast_to(np.int32(7), (2, 3)),
        "empty": np.zeros((0, 3), "i4"),
        "large": np.arange(2**19, dtype="i4"),
        "float": np.arange(3.0),
    }
    for _ in range(3):
        machine.counts.clear()
        found = af.convert(odd, "cupy")
        assert machine.counts["to device"] == 3  # the large one, and the only float, go alone
        machine.settle()
        for name, x in odd.items():
            np.testing.assert_array_equal(found[name].values, x)
            assert found[name].dtype == x.dtype.newbyteorder("=")


def test_an_array_that_does_not_fit_is_named(machine):
    value = {**leaves(), "who": np.array(["text"])}
    refused(af.UnsupportedDtypeError, r"\['who'\]", value, "cupy")
    kept = af.convert(value, "cupy", unsupported="keep")
    assert kept["who"] is value["who"]
    refused(af.CopyRequiredError, r"\['0'\]", leaves(), "cupy", copy=False)


class Astray(af.Converter):
    """A converter of a third party that puts arrays where it likes."""

    source, target, cost, target_device = "numpy", "writing", "transfer", "cuda"
    result = staticmethod(lambda library, x: library.array(x, 0))

    def __init__(self, library):
        self.library = library

    def convert(self, x, device=None, copy=None):
        return self.result(self.library, x)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (Astray.result, "does not put arrays on cuda:1"),
        (lambda library, x: None, "is not an array of the target"),
        (lambda library, x: 3, "is not an array of the target"),
    ],
    ids=["astray", "None", "3"],
)
def test_a_converter_that_ignores_the_device(machine, register, result, why):
    converter = Astray(machine.libraries["writing"])
    converter.result = result
    register(converter)
    for value in (VALUES, [VALUES, VALUES]):
        conversion = af.converter("writing", device="cuda:1")
        with pytest.warns(af.PluginWarning, match=f"{why}, so it is not used"):  # noqa: PT031
            for _ in range(4):
                y = conversion(value)
                y = y if value is VALUES else y[1]
                assert (y.device.id, machine.values(y)) == (1, VALUES.tolist())


# Questions to the driver.


def test_the_driver_is_asked_once_and_not_in_a_forked_process(machine, run_forked):
    x = machine.array("writing", VALUES)

    def ask():
        for _ in range(5):
            af.convert(x, "cupy", device="cuda:1")
            af.convert([VALUES, VALUES], "cupy")
            af.convert(VALUES, "dask")
            assert af.convert(VALUES, "torch").tolist() == VALUES.tolist()
            assert af.backends()["cupy"].devices.names() == ("cuda:0", "cuda:1")
            assert af.backends()["cupy"].problem() is None
        assert machine.questions == 1

    ask()
    run_forked(ask)


# Dask.


def test_dask_reads_what_is_written(machine):
    with machine.cupy.cuda.Stream(non_blocking=True):
        x = machine.libraries["cupy"].array(np.zeros(4))
        x.fill(3)
        lazy = af.convert(x, "dask")
        blocks = list(lazy.dask.values())
        (block,) = [part for part in blocks if isinstance(part, machine.cupy.ndarray)]
        assert block.values.tolist() == [3, 3, 3, 3]


def test_dask_waits_for_its_threads(machine):

    def late(block):
        made = machine.libraries["cupy"].array(np.zeros(4))
        made.fill(5)
        return made

    meta = machine.array("cupy", np.zeros(0))
    lazy = da.from_array(np.zeros(4), chunks=4).map_blocks(late, dtype="f8", meta=meta)
    with machine.cupy.cuda.Stream(non_blocking=True):
        y = af.convert(lazy, "cupy")
    assert y.values.tolist() == [5, 5, 5, 5]
    assert machine.counts["to host"] == 0


def test_a_dask_graph_whose_meta_is_wrong_is_computed_once(machine):

    calls = []

    def on_host(block):
        calls.append(1)
        return np.ones(4)

    meta = machine.array("cupy", np.zeros(0))
    lazy = da.from_array(np.zeros(4), chunks=4).map_blocks(on_host, dtype="f8", meta=meta)
    assert machine.values(af.convert(lazy, "cupy")) == [1, 1, 1, 1]
    assert len(calls) == 1


# bfloat16.


@pytest.mark.parametrize(
    ("version", "has"), [("13.6.0", False), ("14.1.0", True), ("15.0.0a1", True)]
)
def test_bfloat16_with_cupy(make_machine, version, has):

    machine = make_machine(version=version)
    x = machine.array("writing", np.array([1, 2], ml_dtypes.bfloat16))
    y = af.convert(x, "cupy")
    assert y.dtype.name == ("bfloat16" if has else "float32")
    assert machine.values(y) == [1, 2]
    assert machine.counts["to host"] == 0
    assert machine.counts.keys() <= {"waits"} if has else True


# Parts of the real plugins that need no GPU.


def test_trees_go_to_pytorch_together():

    from arrayferry_plugins.torch_ import NumpyToCuda

    sent = []

    class Unpinned(NumpyToCuda):
        def staging(self, size, dtype):
            memory = torch.empty(size * dtype.itemsize, dtype=torch.uint8)
            return memory.numpy().view(dtype), memory

        def transfer(self, staged, dtype, device):
            sent.append(staged.nbytes)
            return super().transfer(staged, dtype, device)

    many = Unpinned().bind_many(af.Options(device="cpu"))
    tree = [
        *leaves().values(),
        np.array([1, 2], ml_dtypes.bfloat16),
        np.array(3, ml_dtypes.bfloat16),
        np.array([1, 2], ml_dtypes.float8_e4m3fn),
        np.array(3, ml_dtypes.float8_e4m3fn),
    ]
    found = many(tree)
    assert len(sent) == 3
    for x, y in zip(tree, found, strict=True):
        assert tuple(y.shape) == x.shape
        assert str(y.dtype) == f"torch.{x.dtype.name}"
        np.testing.assert_array_equal(af.convert(y, "numpy"), x)
        assert y.data_ptr() % y.itemsize == 0
    found[4].fill_(7)
    assert tree[4].max() == 4
    assert found[5].max() == 5


def test_pinned_memory_whatever_the_default_device_is(monkeypatch):
    from arrayferry_plugins.torch_ import NumpyToCuda

    empty = torch.empty
    with torch.device("meta"):
        assert empty(1).is_meta  # PyTorch looks up now which functions have a default device

    def unpinned(*shape, pin_memory, **options):
        assert pin_memory
        return empty(*shape, **options)

    monkeypatch.setattr(torch, "empty", unpinned)  # which needs a GPU to pin memory
    with torch.device("meta"):
        many = NumpyToCuda().bind_many(af.Options(device="cpu"))
        tree = list(leaves().values())
        for x, y in zip(tree, many(tree), strict=True):
            np.testing.assert_array_equal(y.numpy(), x)
        y = af.convert({"x": VALUES, "y": [VALUES]}, "torch")["y"][0]
        assert y.tolist() == VALUES.tolist()


def test_streams_that_pytorch_does_not_wait_for_by_itself(monkeypatch):
    from arrayferry_plugins.torch_ import backend

    waits = []

    class Stream:
        def __init__(self, name):
            self.name = name

        def wait_stream(self, other):
            waits.append((self.name, other.name))

    as_tensor = torch.as_tensor
    for name, value in (
        ("ExternalStream", Stream),
        ("default_stream", partial(Stream, "default")),
        ("current_stream", partial(Stream, "current")),
        ("device", contextlib.nullcontext),
    ):
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch, "as_tensor", lambda x, device: as_tensor(x.values))
    x = torch.tensor(VALUES)
    assert backend._Exported(x).__dlpack__(stream=2)  # CuPy's default stream of this thread
    assert waits == [(2, "current")]
    for stream, after in ((None, []), (1, ["default"]), (2, [2]), (64, [64])):
        waits.clear()
        interface = {"data": (0, False), "stream": stream}
        described = types.SimpleNamespace(values=VALUES, __cuda_array_interface__=interface)
        assert backend.BACKEND.dlpack.load(described).tolist() == VALUES.tolist()
        assert waits == [("current", name) for name in after]


def test_pytorch_protects_its_own_memory(monkeypatch):
    from arrayferry_plugins.torch_ import backend

    devices, recorded = backend.BACKEND.devices, []
    own, foreign = torch.ones(3), torch.from_numpy(VALUES.copy())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    for x, capturing, allocator, protected in (
        (own, False, "native", True),
        (own[1:], False, "cudaMallocAsync", True),
        (foreign, False, "native", False),
        (own, True, "native", False),
        (own, False, "pluggable", False),
    ):
        on_gpu = types.SimpleNamespace(
            is_cuda=True,
            device="cuda:0",
            untyped_storage=x.untyped_storage,
            record_stream=recorded.append,
        )
        monkeypatch.setattr(backend, "is_capturing", partial(bool, capturing))
        monkeypatch.setattr(torch.cuda, "get_allocator_backend", partial(str, allocator))
        assert devices.protect(on_gpu) is protected
        assert recorded == ["stream of cuda:0"] * protected
        recorded.clear()
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    assert not devices.protect(own)  # it is in host memory


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint32", "float16", "bfloat16", "float32", "complex64"]
)
def test_jax_waits_for_an_element_of_any_array(dtype):
    dlpack = af.backends()["jax"].dlpack
    x = torch.ones((2, 3), dtype=getattr(torch, dtype))
    for y in (x, x.T, x[0], x[0, 0]):
        first = y[(0,) * (y.ndim - 1) + (slice(0, 1),)] if y.ndim else y
        assert dlpack.wait(first)
    assert jax.jit(lambda a: a + dlpack.wait(x[0, :1]))(1) == 2


@pytest.mark.parametrize("device", [None, "cpu"])
def test_what_jax_takes_by_dlpack_is_committed(device):
    assert af.backends()["jax"].dlpack.load(torch.ones(3), device).committed


QUESTIONS = """
import sys
import numpy as np, torch, dask.array as da, jax, gymnasium as gym
import arrayferry as af, arrayferry_gym

class Finder:
    def find_spec(self, name, path=None, target=None):
        assert name.partition(".")[0] not in ("cupy", "cupy_backends"), f"somebody looks for {name}"

assert "cupy" not in sys.modules
torch.cuda.is_available = torch.cuda.device_count = torch._C._cuda_getDeviceCount = None  # they cannot be called
sys.meta_path.insert(0, Finder())
x = np.arange(3, dtype=np.float32)
for target in ("torch", "dask", "jax", "numpy"):
    for value in (x, torch.tensor(x), jax.numpy.asarray(x), da.from_array(x), {"x": [x, 1.0]}):
        for _ in range(3):
            af.convert(value, target, scalars="convert")
            af.convert(value, target, copy=True)
env = arrayferry_gym.NumpyToTorch(gym.make("CartPole-v1"))
observation, _ = env.reset(seed=0)
for _ in range(5):
    observation, *_ = env.step(torch.tensor(1))
assert type(observation) is torch.Tensor
print("ok")
"""


@pytest.mark.long
@pytest.mark.skipif(
    find_spec("cupy") is not None, reason="CuPy is installed, and other packages import it"
)
def test_host_memory_asks_nothing_about_gpus(run_python):
    assert run_python(QUESTIONS) == "ok\n"


def test_pytorch_is_asked_once(monkeypatch, run_forked):

    from arrayferry_plugins.torch_ import backend

    asked, count = [], torch.cuda.device_count
    monkeypatch.setattr(torch.cuda, "device_count", lambda: asked.append(1) or count())
    monkeypatch.setattr(torch.cuda, "is_available", None)
    backend._names.cache_clear()

    def child():
        assert af.backends()["torch"].devices.names()[0] == "cpu"
        for _ in range(5):
            assert af.convert(np.ones(3), "torch", device="cpu").sum() == 3
        assert len(asked) == 1

    child()
    run_forked(child)


def test_nothing_is_asked_while_a_graph_is_captured(monkeypatch):

    from arrayferry_plugins._direct import unless_capturing

    asked = []
    done = unless_capturing(lambda: asked.append(1) or True)
    assert done()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    for capturing in (True, False):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", partial(bool, capturing))
        assert done() is not capturing
    assert len(asked) == 2


SENSORS = {f"sensor{i}": np.full(3, i / 10, np.float32) for i in range(8)}


def test_observations_of_an_environment_go_together(machine):
    space = gym.spaces.Dict(dict.fromkeys(SENSORS, gym.spaces.Box(-1, 1, (3,))))
    env = gym.wrappers.TransformObservation(gym.make("CartPole-v1"), lambda _: SENSORS, space)
    env = begun(arrayferry_gym.ArrayConversion(env, env_xp="numpy", target_xp="cupy"), 0)
    for _ in range(5):
        machine.counts.clear()
        observation, reward, *_ = env.step(0)
        assert machine.counts["to device"] == 1 + isinstance(reward, machine.cupy.ndarray)
        for name, x in SENSORS.items():
            assert machine.values(observation[name]) == x.tolist()


def test_a_mask_on_a_gpu(machine):
    class Resetting(gym.vector.VectorWrapper):
        def reset(self, *, seed=None, options=None):
            return self.env.reset(seed=seed, options=af.convert(options, "numpy"))

    make = partial(gym.make, "CartPole-v1")
    envs = Resetting(gym.vector.SyncVectorEnv([make] * 2, autoreset_mode="Disabled"))
    envs = begun(arrayferry_gym.wrappers.vector.RecordEpisodeStatistics(envs), 0)
    before = envs.episode_start_times.copy()
    mask = af.convert(np.array([False, True]), "cupy", device="cuda:0")
    envs.reset(options={"reset_mask": mask})
    assert (envs.episode_start_times != before).tolist() == [False, True]
