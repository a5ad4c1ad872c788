"""Streams: every value once and in order, little memory, nothing computed twice, and errors that tell the block."""

import asyncio
import collections
import gc
import itertools
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import array_api_strict
import chunks
import dask
import dask.array as da
import dask.bag
import distributed
import h5py
import jax
import jax.experimental.sparse
import numpy as np
import pytest
import torch
from cases import crossed, quick_if
from chunks import CHUNK, ROWS, mapped
from clusters import local_cluster
from interrupts import interrupted
from memory import most_memory
from refusals import refused
from remote_workers import eventually

import arrayferry as af
from arrayferry import registry
from arrayferry_streams import Blocks, Reader, Slices, Streaming


@pytest.fixture(autouse=True)
def no_threads_left():
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("arrayferry-stream"):
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def cluster():
    with local_cluster(2, processes=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture(params=["threads", "client", pytest.param("address", marks=pytest.mark.long)])
def place(request):
    """What computes: nothing given, a client, or an address."""
    if request.param == "threads":
        return None
    client = request.getfixturevalue("client")
    return client if request.param == "client" else client.scheduler.address


def _loaded(directory):
    """Return how often chunks were made."""
    sizes = [os.path.getsize(os.path.join(directory, name)) for name in os.listdir(directory)]
    return dict(collections.Counter(sizes))


def _source(directory):
    load = dask.delayed(chunks.load, pure=True)
    directory = str(directory)
    parts = [load(directory, index) for index in range(ROWS // CHUNK)]
    return da.concatenate([da.from_delayed(part, (CHUNK, 4), float) for part in parts])


def _same(blocks, expected, axis=0):
    found = np.concatenate([np.asarray(block) for block in blocks], axis)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


# What is given.


@pytest.mark.parametrize(
    ("block", "target"), crossed([None, 1, 7, 10, 25, 60, 1000], ["numpy", "torch", "jax", "dask"])
)
def test_every_row_once_and_in_order(target, block):
    x = da.arange(ROWS * 2, chunks=(2 * CHUNK,), dtype="float32").reshape(ROWS, 2)
    stream = af.stream(x, target, block=block)
    blocks = list(stream)
    assert len(stream) == len(blocks) == -(-ROWS // min(block or CHUNK, ROWS))
    assert all(af.backend_of(part).name == target for part in blocks)
    _same(blocks, x.compute())
    _same(list(stream), x.compute())  # each iteration begins anew


ONES = da.ones(8, chunks=4)
NOT_WRITABLE = {
    "ones": ONES,
    "broadcast": da.broadcast_to(da.ones(1, chunks=1), (8,), chunks=4),
    "inner": da.broadcast_to(ONES[:, None], (8, 3)),
    "read-only": ONES.map_blocks(chunks.read_only, meta=np.empty(0)),
    "expanded": ONES.map_blocks(chunks.expanded, meta=np.empty(0)),
    "strict": ONES.map_blocks(chunks.strict_read_only, meta=np.empty(0)),
    "masked": da.ma.masked_greater(ONES, 3),
}


@pytest.mark.parametrize(
    "to", ["numpy", "torch", array_api_strict], ids=["numpy", "torch", "strict"]
)
@pytest.mark.parametrize("kind", NOT_WRITABLE)
def test_blocks_are_ones_own(kind, to, place):
    """Whatever computes them: also those that are read-only, or one element that is expanded."""
    x = NOT_WRITABLE[kind]
    for value in ([x], [x, x]):
        stream = af.stream(value, to, client=place)
        for blocks in (stream[0], *stream):
            for number, block in enumerate(blocks):
                block[0, ...] = 5 + number
            for number, block in enumerate(blocks):
                values = np.asarray(block).reshape(4, -1)
                assert (values[0] == 5 + number).all()
                assert (values[1:] == 1).all()


def test_blocks_of_messages_are_not_copied(client):
    """A block is copied only if the client has not yet dropped it, which is rare. Small blocks are always copied."""
    x = da.random.default_rng(0).random((100_000, 3), chunks=(10_000, 3))
    for y, axis in ((x, 0), (x[None], 1), ((x, x + 1), 0)):
        blocks = af.flatten(list(af.stream(y, "numpy", axis=axis, client=client)))[0]
        assert sum(block.flags.owndata for block in blocks) < len(blocks) / 2


@pytest.mark.parametrize("persisted", [False, True])
@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_blocks_that_a_client_receives_twice_are_ones_own(to, persisted, client):
    """A client sends one request for results that several threads wait for, and gives all of them the same array."""
    x = da.full((40, 3000), 2, chunks=(2, 3000), dtype="float32") + np.float32(0)
    stream = af.stream(client.persist(x) if persisted else x, to, client=client)
    for _ in range(3):
        for first, second in zip(stream, stream, strict=True):
            first[...] = 0
            assert (second == 2).all()
            second[...] = 1
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(chunks.zeroed, [stream] * 8)) == [2 * x.size] * 8
        blocks = list(pool.map(stream.__getitem__, [0] * 16))
    assert len({np.asarray(block).ctypes.data for block in blocks}) == len(blocks)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_task_that_writes_to_blocks_does_not_change_results_of_its_worker(prefetch, client):
    x = client.persist(da.ones((8, 3), chunks=(2, 3)) + 1)
    stream = af.stream(x, "numpy", client=client, prefetch=prefetch)
    for _ in range(4):  # there are two workers
        assert client.submit(chunks.zeroed, stream, pure=False).result() == 48
    assert chunks.zeroed(stream) == 48


def test_blocks_of_scipy(place):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    x = da.eye(6, chunks=6).rechunk((2, 6))
    lazy = x.map_blocks(scipy_sparse.csr_array, dtype=float, meta=np.empty((0, 0)))
    _same(list(af.stream(lazy, "numpy", sparse="dense", client=place)), np.eye(6))
    with pytest.raises(af.ConversionError, match='sparse="dense"'):
        next(iter(af.stream(lazy, "numpy", client=place)))


@pytest.mark.parametrize("prefetch", [0, 1, 5, 100])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axes_and_chunks_along_the_others(axis, prefetch):
    x = da.random.default_rng(0).normal(size=(30, 40), chunks=((7, 23), (9, 21, 10)))
    for block in (None, 4, 30):
        stream = af.stream(x, "torch", axis=axis, block=block, prefetch=prefetch)
        _same(list(stream), x.compute(), axis)


def test_trees_of_different_arrays(tmp_path):
    rows = np.arange(ROWS)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["y"] = rows * 2.0
        file.create_dataset("z", data=(rows * 3)[:, None] + [0, 1, 2], chunks=(13, 2))
        tree = {
            "arrays": [da.arange(ROWS, chunks=CHUNK), file["y"], file["z"], rows * 4],
            "others": (torch.arange(ROWS) * 5, jax.numpy.arange(ROWS) * 6),
            "kept": (1, "text", None, np.float32(2)),
        }
        for block in (None, 7, 100):
            at = 0
            for part in af.stream(tree, "torch", block=block):
                start, at = at, at + len(part["arrays"][0])
                for factor, x in enumerate([*part["arrays"], *part["others"]], 1):
                    assert type(x) is torch.Tensor
                    first = x[:, 0] if factor == 3 else x
                    np.testing.assert_array_equal(first, rows[start:at] * factor)
                assert part["kept"] == (1, "text", None, torch.tensor(2.0))
            assert at == ROWS


def test_boundaries_are_those_of_the_array_with_most_chunks():
    tree = [da.zeros(60, chunks=60), da.zeros(60, chunks=(20, 20, 20)), np.zeros(60)]
    assert af.stream(tree, "numpy").bounds == [(0, 20), (20, 40), (40, 60)]


def test_slices_and_single_blocks():
    stream = af.stream(da.arange(55, chunks=10), "torch")
    assert repr(stream) == "<Stream of 6 blocks, 55 of 55, to torch>"
    assert stream[-1].tolist() == [50, 51, 52, 53, 54]
    assert stream[1].tolist() == stream[1:][0].tolist() == list(range(10, 20))
    assert [part[0].item() for part in stream[::2]] == [0, 20, 40]
    assert [part[0].item() for part in stream[::-1]] == [50, 40, 30, 20, 10, 0]
    assert repr(stream[4:]) == "<Stream of 2 blocks, 15 of 55, to torch>"
    assert list(stream[6:]) == []
    for index in (np.int64(2), np.int32(-4), np.uint8(2)):
        assert stream[index][0] == 20
    for index, error in ((6, IndexError), (-7, IndexError), ([0, 1], TypeError), (0.0, TypeError)):
        with pytest.raises(error):
            stream[index]


def test_no_rows():
    for x in (da.zeros((0, 3)), np.zeros((0, 3)), da.zeros((0, 3))[:, :0]):
        stream = af.stream(x, "torch")
        assert (len(stream), stream.length, list(stream)) == (0, 0, [])
    gaps = da.concatenate([da.zeros((0, 2)), da.ones((3, 2)), da.zeros((0, 2))])
    assert [part.shape for part in af.stream(gaps, "numpy")] == [(3, 2)]


def test_blocks_have_memory_of_their_own():
    memory = np.zeros(40)
    for block in (None, 3, 15):
        x = da.from_array(memory, chunks=10, name=False)
        for part in af.stream({"a": x, "b": x[::-1]}, "torch", block=block):
            assert part["a"].untyped_storage().nbytes() == part["a"].nbytes
            part["a"] += 1
            part["b"] += 1
    assert not memory.any()


@pytest.mark.parametrize("block", [None, 3])
def test_blocks_of_jax_can_be_written_to_in_numpy(block):
    memory = jax.numpy.zeros(8)
    lazy = da.from_array(np.zeros(8, np.float32), chunks=4).map_blocks(
        af.converter("jax"), dtype="float32"
    )
    tree = {"x": memory, "again": memory, "lazy": lazy, "number": memory[0], "text": "a"}
    stream = af.stream(tree, "numpy", block=block)
    for part in (stream[0], *stream):
        for name in ("x", "lazy", "number"):
            part[name] += 1
        assert part["again"].max() == 0
    assert not memory.any()
    assert not next(iter(af.stream(memory, "numpy", copy=False))).flags.writeable


def test_objects_in_memory_are_cut():
    texts = np.array([f"row {n}" for n in range(100)], dtype=object)
    mixed = np.array([None, 1.5, np.float32(2), "text"] * 25, dtype=object)
    one, numbers = texts[:1].reshape(()), da.arange(100, chunks=9)
    tree = {"text": texts, "mixed": mixed, "number": numbers, "one": one}
    results = list(af.stream(tree, "torch", block=7))
    for result in results:
        assert result["text"].tolist() == [f"row {n}" for n in result["number"].tolist()]
        assert len(result["mixed"]) == len(result["number"])
        assert result["one"] == one
    assert sum(len(result["text"]) for result in results) == 100
    results[0]["text"][:] = "changed"
    assert "changed" not in texts
    with pytest.raises(af.StructureError, match=r"lengths: 99 at \['text'\], but 100, at"):
        af.stream({**tree, "text": texts[1:]}, "numpy")


def test_objects_that_hold_arrays_are_trees():
    tree = np.empty(2, object)
    tree[:] = [da.arange(100, chunks=9), np.arange(100)]
    for start, result in zip(range(0, 100, 6), af.stream(tree, "numpy", block=6), strict=True):
        assert [x.tolist() for x in result] == [list(range(100)[start : start + 6])] * 2


def test_parts_of_one_tree_have_memory_of_their_own(place):
    x = da.arange(20, chunks=10, dtype=float)
    for part in af.stream({"x": x, "again": x, "view": x[:]}, "numpy", client=place):
        part["x"] += 100
        assert part["again"].max() < 20
        assert part["view"].max() < 20


def test_arrays_in_memory_are_copied_unless_sharing_is_asked_for():
    memory, number = np.zeros(4), np.array(5.0)
    tree = {"a": memory, "q": number, "t": torch.zeros(4), "d": da.ones(4, chunks=2)}
    for part in af.stream(tree, "torch"):
        for x in part.values():
            x += 1
        assert part["q"] == 6
    assert not memory.any()
    assert not tree["t"].any()
    for part in af.stream({"a": memory}, "torch", block=2, copy=False):
        part["a"] += 1
    assert memory.tolist() == [1, 1, 1, 1]


@pytest.mark.assumes_other("x64")
def test_narrowing_and_options():
    x = da.arange(20, chunks=10)
    (first, second) = af.stream(x, "jax")
    assert first.dtype == second.dtype == jax.numpy.int32
    with pytest.raises(af.NarrowingError, match="forbidden"):
        af.stream(x, "jax", narrowing="forbid")
    big = af.stream(x + 2**40 * (x > 12), "jax")
    found = iter(big)
    next(found)
    with pytest.raises(af.NarrowingError, match=r"block 1 \(10:20 along the axis of the stream\)"):
        next(found)
    like = af.stream(x, like=torch.ones(1))
    assert type(like[0]) is torch.Tensor


# Nothing twice, and little at a time.

SHARED = {
    "plain": lambda x: x + 1,
    "overlap": lambda x: x.map_overlap(chunks.shifted, depth={0: 2}, boundary="reflect"),
    "cumulative": lambda x: x.cumsum(axis=0),
    "standardized": lambda x: (x - x.mean(axis=0)) / x.std(axis=0),
    "transposed": lambda x: x.T.rechunk((1, -1)),
    "model": lambda x: x.map_blocks(lambda b, w: b * w, dask.delayed(len)("four"), dtype=float),
}


@pytest.mark.parametrize(("name", "block", "prefetch"), crossed(SHARED, [None, 3, 25], [0, 2, 20]))
def test_each_chunk_is_computed_once(name, block, prefetch, tmp_path):
    x = SHARED[name](_source(tmp_path))
    blocks = list(af.stream(x, "numpy", block=block, prefetch=prefetch))
    assert _loaded(tmp_path) == {1: ROWS // CHUNK}
    np.testing.assert_allclose(np.concatenate(blocks), x.compute(), rtol=1e-12)


@pytest.mark.parametrize("name", quick_if(SHARED, {"plain", "standardized"}.__contains__))
def test_each_chunk_is_computed_once_on_a_cluster(name, client, cluster, tmp_path):
    x = SHARED[name](_source(tmp_path))
    blocks = list(af.stream(x, "numpy", client=client))
    if name != "standardized":  # its mean needs all chunks before the first block
        assert _loaded(tmp_path) == {1: ROWS // CHUNK}
    np.testing.assert_allclose(np.concatenate(blocks), x.compute(), rtol=1e-12)
    eventually(lambda: gc.collect() >= 0 and not cluster.scheduler.tasks)


def test_arrays_of_one_tree_share_their_work(place, tmp_path):
    x = _source(tmp_path)
    tree = {"x": x, "again": x, "sum": x.sum(axis=1), "shifted": x * 2 + 1}
    expected = dask.compute(tree)[0]
    before = _loaded(tmp_path)
    blocks = list(af.stream(tree, "torch", client=place))
    assert before == {1: ROWS // CHUNK}
    assert _loaded(tmp_path) == {2: ROWS // CHUNK}
    for key, values in expected.items():
        _same([part[key] for part in blocks], values)


def test_what_is_too_large_to_keep_is_computed_again(tmp_path, monkeypatch):
    from arrayferry_plugins.dask_ import readers

    monkeypatch.setattr(readers, "KEPT_BYTES", 2 * CHUNK * 4 * 8)  # two chunks
    x = SHARED["standardized"](_source(tmp_path))
    blocks = list(af.stream(x, "numpy"))
    assert _loaded(tmp_path) == {1: 4, 2: 2}  # the first, the next two, and one that fits
    np.testing.assert_allclose(np.concatenate(blocks), x.compute(), rtol=1e-12)


MEGABYTE = 100
"""Rows of the arrays whose memory is measured."""


def megabytes(x, **options):
    """Return how much memory a stream needs at most."""
    stream = af.stream(x, "numpy", **options)
    with dask.config.set(scheduler="sync"):  # a thread may hold a result for a moment
        list(stream[:3])  # what is imported at first
        return most_memory(lambda: collections.deque(stream, 0))[0] / 1e6


@pytest.mark.parametrize(
    ("prefetch", "make"), crossed([0, 3], [da.zeros, da.random.default_rng(0).random])
)
def test_memory(make, prefetch):
    x = make((20 * MEGABYTE, 1250), chunks=(MEGABYTE, 1250))
    assert megabytes(x, prefetch=prefetch) < prefetch + 2.6  # with the graph
    cut = 4 if prefetch else 2  # chunks from which blocks are cut
    assert megabytes(x, prefetch=prefetch, block=30) < 0.3 * prefetch + cut + 2.6
    # A block of 2.4 chunks is put together, and two chunks are cut.
    assert megabytes(x, prefetch=prefetch, block=240) < 2.4 * (prefetch + 3) + 2.6


def test_blocks_of_files_without_a_length(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(100.0), chunks=(10,))
        file.create_dataset("large", shape=(100, 2**18), dtype="f8", chunks=(10, 2**10))
        assert af.stream(file["x"], "numpy").bounds == [(0, 100)]
        ends = [end for _, end in af.stream(file["large"], "numpy").bounds]
        assert ends == [30, 60, 90, 100]
        tree = {"x": file["x"], "d": da.arange(100, chunks=20)}
        assert len(af.stream(tree, "numpy")) == 5


def test_the_next_blocks_are_computed_meanwhile():
    made = []
    x = mapped(lambda x: made.append(1) or x, 100, 10)
    blocks = iter(af.stream(x, "torch", prefetch=3))
    assert made == []  # nothing before it is asked for
    next(blocks)
    eventually(lambda: len(made) >= 4)
    time.sleep(0.1)
    assert len(made) == 4
    blocks.close()


def test_leaving_early_cancels():
    made = []
    x = mapped(lambda x: made.append(1) or x, 1000, 1)
    for _ in af.stream(x, "torch", prefetch=4):
        break
    time.sleep(0.2)
    assert len(made) <= 6


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("on_a_cluster", [False, True])
def test_nothing_is_held_once_it_is_left(client, cluster, on_a_cluster, early):
    """The garbage collector may not come for minutes, and blocks would stay on workers as long."""
    x = da.arange(12, chunks=3 if early else 4)
    options = {}
    if on_a_cluster:
        x, options = client.persist(x), {"client": client}
    held = weakref.ref(x.dask)
    gc.collect()
    gc.disable()
    try:
        blocks = af.stream({"x": x}, "numpy", **options)
        for _ in blocks:
            if early:
                break
        del blocks, x
        eventually(lambda: held() is None and not cluster.scheduler.tasks)
    finally:
        gc.enable()


@pytest.mark.long
def test_leaving_early_takes_nothing_from_others(client):
    x = da.zeros(20, chunks=2).map_blocks(chunks.slow, dtype=float, meta=np.empty(0))
    kept = client.persist(x + 1)
    for _ in af.stream({"x": kept, "y": kept * 2}, "torch", client=client):
        break
    own = client.compute((x + 2).sum())
    first, second = (iter(af.stream(x + 2, "numpy", client=client)) for _ in range(2))
    next(first)
    next(second)
    first.close()
    assert len(list(second)) == 9
    assert own.result(timeout=60) == 40
    assert client.compute(kept.sum()).result(timeout=60) == 20


def test_the_time_of_a_block_does_not_grow_with_their_number():
    def steps(count):
        x = da.ones((count, 1), chunks=(1, 1))
        blocks = iter(af.stream(x.cumsum(axis=0), "numpy", prefetch=0))
        next(blocks)
        calls = 0

        def count_call(frame, event, arg):
            nonlocal calls
            calls += event == "line"
            return count_call

        before = sys.gettrace()
        sys.settrace(count_call)
        try:
            next(blocks)
        finally:
            sys.settrace(before)
            blocks.close()
        return calls

    with dask.config.set(scheduler="sync"):
        steps(10)
        assert steps(400) < 1.5 * steps(100)


# Where it is computed.


PIDS = da.zeros(4, chunks=2).map_blocks(chunks.add_process, dtype=float, meta=np.empty(0))
"""The number of the process that computes it."""


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler")  # by older versions
def test_the_current_client_is_used(cluster):
    assert next(iter(af.stream(PIDS, "numpy")))[0] == os.getpid()
    with distributed.Client(cluster) as client:
        seen = {part[0] for part in af.stream(PIDS, "numpy")}
        assert seen <= set(client.run(os.getpid).values())
        with dask.config.set(scheduler="sync"):
            assert af.stream(PIDS, "numpy")[0][0] == os.getpid()


def test_persisted_arrays(client):
    x = client.persist(da.arange(40, chunks=10))
    _same(list(af.stream({"x": x + 1}, "numpy"))[1:2][0].values(), np.arange(11, 21))
    _same(list(af.stream(x, "torch")), np.arange(40))
    _same(list(af.stream(x, "torch", client=client, block=7)), np.arange(40))


def test_inside_a_task(client):
    futures = client.map(chunks.streamed_sum, [100, 101, 102, 103])
    assert client.gather(futures) == [n * (n - 1) // 2 for n in (100, 101, 102, 103)]


@pytest.mark.long
def test_processes_compute():
    x = da.arange(30, chunks=10)
    with dask.config.set(scheduler="processes"):
        _same(list(af.stream((x - x.max()).cumsum(axis=0), "numpy")), (x - 29).cumsum(0).compute())


def test_many_at_once():
    x = da.random.default_rng(2).normal(size=(200, 3), chunks=(10, 3))
    x = (x - x.mean(axis=0)).cumsum(axis=0)
    stream = af.stream(x, "numpy")
    with ThreadPoolExecutor(6) as pool:
        for found in pool.map(list, [stream] * 6):
            np.testing.assert_array_equal(np.concatenate(found), x.compute())


def test_pickling(place):
    stream = af.stream({"x": da.arange(50, chunks=10)}, "torch", client=place, block=7)[1:]
    copy = pickle.loads(pickle.dumps(stream))
    assert repr(copy) == repr(stream)
    _same([part["x"] for part in copy], np.arange(7, 50))


@pytest.mark.long
@pytest.mark.parametrize("when", ["as the current one", "by name"])
def test_a_spawned_process_uses_the_same_cluster(cluster, when):
    with distributed.Client(cluster) as client:
        pids = set(client.run(os.getpid).values())
        stream = af.stream(PIDS, "numpy", client=client if when == "by name" else None)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            (found,) = pool.map(chunks.first_values, [stream[1:]])
            assert set(found) <= pids
        again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(stream))))
        assert set(chunks.first_values(again)) <= pids
    with distributed.Client(cluster) as client:  # a task does not wait for others
        future = client.submit(chunks.first_values, af.stream(PIDS, "numpy"), pure=False)
        assert len(future.result(timeout=60)) == 2


def test_a_stream_in_a_task_on_a_worker_with_one_thread():
    lazy = {"x": da.arange(6, chunks=2) + 1}.__getitem__  # so that Dask does not compute it
    with local_cluster(processes=True) as cluster, distributed.Client(cluster) as client:

        def read(address):
            first, second = (iter(af.stream(lazy("x"), "numpy", client=address)) for _ in "ab")
            begun = [int(next(each)[0]) for each in (first, second, first)]
            first.close()
            return begun + [int(block[0]) for block in second]

        for place in (cluster.scheduler_address, None):
            futures = [client.submit(read, place, pure=False) for _ in range(3)]
            assert client.gather(futures) == [[1, 1, 3, 3, 5]] * 3
        persisted = {"x": client.persist(lazy("x"))}.__getitem__
        future = client.submit(lambda: sum(map(np.sum, af.stream(persisted("x") * 2, "numpy"))))
        assert future.result(timeout=60) == 42


def test_a_stream_that_was_pickled_under_a_cluster_that_is_gone():
    with local_cluster(protocol="tcp") as gone, distributed.Client(gone):
        data = pickle.dumps(af.stream(PIDS, "numpy"))
    with dask.config.set(scheduler="sync"):
        assert set(chunks.first_values(pickle.loads(data))) == {os.getpid()}
    words = "threads of this process: no scheduler of Dask could be"
    soon = dask.config.set({"distributed.comm.timeouts.connect": "300ms"})
    with soon, pytest.warns(RuntimeWarning, match=words):
        assert set(chunks.first_values(pickle.loads(data))) == {os.getpid()}


def test_a_stream_that_is_pickled_under_a_cluster_within_this_process():
    with local_cluster() as inside, distributed.Client(inside):
        data = pickle.dumps(af.stream(da.arange(20, chunks=10), "numpy"))
    assert [part[0] for part in pickle.loads(data)] == [0, 10]


def test_an_iteration_does_not_go_on_after_a_fork(run_forked):
    blocks = iter(af.stream(da.arange(50, chunks=10), "torch"))
    next(blocks)

    def child():
        with pytest.raises(af.OptionError, match="forked"):
            next(blocks)

    run_forked(child)
    assert next(blocks).tolist() == list(range(10, 20))
    blocks.close()


def _run(script, *arguments):
    """Run a script that ends by itself without an error, and return the lines of its output."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_process_that_leaves_early_ends():
    code = (
        "import arrayferry as af, dask.array as da, time\n"
        "x = da.zeros(10, chunks=1).map_blocks(lambda b: time.sleep(0.05) or b, dtype=float)\n"
        "blocks = iter(af.stream(x, 'numpy'))\n"
        "print(next(blocks))\n"
    )
    assert _run(code) == ["[0.]"]


HANGS = """
import signal, sys, threading, time
import dask, dask.array as da, numpy as np
import arrayferry as af, arrayferry_streams as streams

def hang(block):
    if block.max() > 15:
        print("hangs", flush=True)
        time.sleep(1000)
    return block

class File:
    dtype, shape = np.dtype("float64"), (40,)

    def __getitem__(self, index):
        return hang(np.arange(40.0)[index])

sys.modules["files"] = sys.modules["__main__"]

class Files(af.Source):
    name, package, memory = "files", "files", "lazy"
    array_types = ("files.File",)

    def to_numpy(self, x):
        return x[:]

class Reads(streams.Streaming):
    name = "files"

    def blocks(self, xs, axis, *, block=None, client=None):
        return streams.Slices(xs, axis, [[10] * 4 for _ in xs])

af.registry.register(Files(), parts={"arrayferry_blocks": Reads()})

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    x = da.arange(40, chunks=10, dtype=float).map_blocks(hang, meta=np.empty(0))
    kind, prefetch, timeout = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    value = {"file": File(), "both": [x, File()]}.get(kind, x)
    with dask.config.set({} if kind in ("file", "both", "dask") else {"scheduler": kind}):
        blocks = iter(af.stream(value, "numpy", prefetch=prefetch, timeout=timeout))
        next(blocks)
        try:
            next(blocks)
        except (af.BlockTimeoutError, KeyboardInterrupt) as error:
            print(type(error).__name__, flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "prefetch"), [("dask", 0), ("threads", 2), ("sync", 2), ("both", 2)]
)
def test_a_process_ends_though_a_block_hangs(kind, prefetch):
    assert _run(HANGS, kind, str(prefetch), "0.3")[-1] == "BlockTimeoutError"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["dask", "file"])
def test_a_process_ends_after_ctrl_c(kind):
    with subprocess.Popen(
        [sys.executable, "-c", HANGS, kind, "0", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "hangs\n"
            told = False
            for _ in range(30):  # a signal is lost if it comes just before the main thread waits
                process.send_signal(signal.SIGINT)
                told, *_ = select.select([process.stdout], [], [], 2)
                if told:
                    break
            assert told
            assert process.stdout.readline() == "KeyboardInterrupt\n"
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


def test_several_threads_share_an_iteration():
    x = da.arange(200, chunks=2)
    blocks = iter(af.stream(x, "numpy"))
    with ThreadPoolExecutor(4) as pool:
        found = [part[0] for parts in pool.map(list, [blocks] * 4) for part in parts]
    assert sorted(found) == list(range(0, 200, 2))


def test_an_interruption_at_any_line_loses_no_block():
    x = np.arange(6)

    def holds(line):
        """Check what an iteration gives before and after an interrupt, and return whether there was one."""
        seen, iteration = [], iter(af.stream(x, "numpy", block=2, prefetch=0))
        came = interrupted(
            lambda: [seen.extend(block) for block in iteration], line, ["/arrayferry_streams/_"]
        )
        more = [row for block in iteration for row in block.tolist()]
        assert seen == list(range(len(seen)))
        assert not more or seen + more == x.tolist(), line  # it goes on rightly, or not at all
        return came

    with ThreadPoolExecutor(1) as pool:  # what a trace function raises is left behind in its thread
        assert [*itertools.takewhile(bool, pool.map(holds, range(1, 600)))][100:]


@pytest.mark.long
def test_a_fork_while_others_read(run_forked):
    stream = af.stream({"x": np.arange(100), "y": da.arange(100, chunks=10)}, "numpy", block=10)
    ended = threading.Event()

    def read():
        while not ended.is_set():
            stream[3], next(iter(stream))

    def child():
        signal.alarm(30)  # which ends a process that hangs
        assert stream[3]["y"][0] == 30
        assert sum(len(block["x"]) for block in stream) == 100

    with ThreadPoolExecutor(3) as pool:
        reading = [pool.submit(read) for _ in range(3)]
        try:
            for _ in range(20):
                run_forked(child)
        finally:
            ended.set()
    for each in reading:
        each.result()


# Single blocks.


def test_single_blocks_keep_nothing():
    computed = []
    x = mapped(lambda x: computed.append(x[0]) or x, 40, 10, int)
    before = set(threading.enumerate())
    stream = af.stream(x, "numpy")
    with dask.config.set(scheduler="synchronous"):
        assert [stream[i][0] for i in (0, 1, 1, -1)] == computed == [0, 10, 10, 30]
    assert set(threading.enumerate()) == before


FIRST = """
import threading, dask.array as da, numpy as np, arrayferry as af
from concurrent.futures import ThreadPoolExecutor

stream = af.stream({"x": da.arange(320, chunks=10), "y": np.arange(320)}, "numpy", block=10)
begun = threading.Barrier(16)

def read(number):
    begun.wait()
    block = stream[number]
    assert (block["x"] == block["y"]).all()
    return block["x"][0].item()

with ThreadPoolExecutor(16) as pool:
    print(*pool.map(read, range(16)))
"""


def test_threads_read_the_first_blocks_together():
    assert _run(FIRST) == [" ".join(map(str, range(0, 160, 10)))]


def _read_again(stream):
    """Read single blocks, two epochs, and return how many warnings came."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for number in [*range(len(stream)), *range(len(stream))[::-1]]:
            stream[number]
    assert all(each.filename == __file__ for each in told)
    return [str(each.message) for each in told]


def test_what_several_single_blocks_compute_is_told_once(tmp_path):
    x = da.random.default_rng(0).random((64, 2), chunks=(8, 2))
    (told,) = _read_again(af.stream(x - x.mean(axis=0), "numpy"))
    assert told.startswith("stream[2] computes or reads for the third time")
    (told,) = _read_again(af.stream(x, "numpy", block=1)[3:])
    assert told.startswith("stream[2]")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=np.arange(64.0), chunks=(8,))
        assert len(_read_again(af.stream(file["x"], "numpy", block=2))) == 1
        assert _read_again(af.stream(file["x"], "numpy", block=8)) == []


def test_whole_chunks_are_read_in_many_epochs_without_a_warning():
    x = da.random.default_rng(0).random((64, 2), chunks=(8, 2))
    mean = x.mean(axis=0).persist(scheduler="sync")
    held = da.from_array(np.arange(64), chunks=64)
    tree = {"x": x, "y": x * 2 + 1, "z": x - mean, "held": held, "memory": np.arange(64)}
    stream = af.stream(tree, "numpy")
    assert len(stream) == 8
    assert _read_again(stream) == _read_again(stream) == []
    assert _read_again(af.stream(x.persist(scheduler="sync"), "numpy", block=1)) == []


# Failure.


def test_errors_tell_the_block(place):
    x = mapped(chunks.fails, 40, 10, int)
    stream = af.stream({"kept": 1, "x": x}, "torch", client=place)
    blocks = iter(stream)
    assert [next(blocks)["x"][0].item() for _ in range(2)] == [0, 10]
    with pytest.raises(af.BlockError) as raised:
        next(blocks)
    error = raised.value
    assert (error.block, error.start, error.stop, error.path) == (2, 20, 30, "['x']")
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert str(error) == (
        "block 2 (20:30 along the axis of the stream) could not be computed or read (ZeroDivisionError: "
        "that one), at ['x'], to torch. The iteration ends here. stream[3:] has the blocks after this one."
    )
    assert list(blocks) == []
    assert pickle.loads(pickle.dumps(error)).block == 2


@pytest.mark.long
@pytest.mark.parametrize(("computes", "prefetch"), [("threads", 0), ("threads", 2), ("cluster", 2)])
def test_a_timeout_tells_the_block(computes, prefetch, request):
    client = request.getfixturevalue("client") if computes == "cluster" else None
    x = mapped(chunks.hangs, 40, 10, int)
    list(af.stream(x[:20], "torch", client=client))  # the first use takes longer
    blocks = iter(af.stream(x, "torch", client=client, timeout=3, prefetch=prefetch))
    assert [next(blocks)[0].item() for _ in range(2)] == [0, 10]
    with pytest.raises(af.BlockTimeoutError, match=r"block 2 .* within 3 seconds"):
        next(blocks)
    if client is not None:
        time.sleep(5)  # a task that runs cannot be stopped, and other tests need the workers


def test_blocks_of_another_shape_are_refused():
    wrong = da.from_delayed(dask.delayed(np.zeros)(7), (10,), float)
    for block in (None, 3):
        with pytest.raises(af.BlockError, match=r"shape \(7,\), but its length along"):
            list(af.stream({"x": wrong}, "torch", block=block))


def test_blocks_of_several_libraries():
    x = da.arange(6, chunks=2).map_blocks(
        lambda b: torch.asarray(b) if b[0] > 1 else b, meta=np.empty(0), dtype=int
    )
    _same(list(af.stream(x, "numpy")), np.arange(6))
    with pytest.raises(af.BlockError, match=r"block 0 .*at \['x'\]"):
        list(af.stream({"x": x}, "numpy", block=4))


def test_errors_of_several_arrays_and_of_slices():
    x = da.arange(40, chunks=10)
    bad = x.map_blocks(chunks.fails, dtype=int, meta=np.empty(0, int))
    stream = af.stream({"good": x, "bad": bad}, "torch")[::-1][1:]
    assert stream.bounds == [(20, 30), (10, 20), (0, 10)]
    with pytest.raises(af.BlockError, match=r"block 2 .*at \['good'\], \['bad'\].* stream\[1:\]"):
        list(stream)
    assert [part["good"][0].item() for part in stream[1:]] == [10, 0]


def test_masks_are_not_lost():
    x = da.ma.masked_greater(da.arange(40, chunks=10), 33)
    for block in (None, 7, 40):
        with pytest.raises(af.ConversionError, match="its mask would be lost"):
            list(af.stream(x, "torch", block=block))


@pytest.mark.long
def test_a_killed_worker_costs_no_block(tmp_path):
    with (
        local_cluster(2, processes=True) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        blocks, killed = [], False
        x = _source(tmp_path).map_blocks(chunks.slow, dtype=float).cumsum(axis=0)
        for part in af.stream(x, "numpy", client=client, prefetch=3):
            blocks.append(part)
            if not killed:
                killed = True
                os.kill(next(iter(client.run(os.getpid).values())), 9)
        _same(blocks, x.compute())


@pytest.mark.long
def test_a_scheduler_that_is_gone():
    with local_cluster(processes=True) as cluster:
        client = distributed.Client(cluster, set_as_default=False)
        x = mapped(chunks.slow, 40, 2)
        stream = af.stream(x, "torch", client=client)
        blocks = iter(stream)
        next(blocks)
        cluster.close()
        with pytest.raises(af.BlockError):
            list(blocks)
        client.close()
    with pytest.raises(af.OptionError, match="its status is 'closed'"):
        list(stream)


UNKNOWN = da.arange(9, chunks=3)[da.arange(9, chunks=3) > 4]
BAG = dask.bag.from_sequence([1, 2], npartitions=2)
REFUSED = {
    "a tree without arrays": ([1, "text"], {}, af.NotAnArrayError, "a value of type list contains no array"),
    "a path": ("data", {}, af.NotAnArrayError, r"str contains no array.*dask\.array\.from_zarr\(path\)"),
    "an iterator": (iter([np.ones(1)]), {}, af.NotAnArrayError, "list_iterator contains no array"),
    "a number": (np.float32(1), {}, af.NotAnArrayError, "no array with an axis"),
    "no dimensions": ({"x": da.ones(3).sum()}, {}, af.NotAnArrayError, r"without dimensions cannot be streamed.*\['x'\]"),
    **{
        f"{name}={value!r}": (da.ones(3), {name: value}, af.OptionError, f"{name}={value}{words}")
        for name, value, words in (
            ("axis", 1, " is not an axis"), ("axis", 0.0, " is not valid"), ("block", 0, ""), ("block", 2.5, ""),
            ("prefetch", -1, ""), ("timeout", True, ""), ("timeout", 0, ""), ("client", 3, " is not a client"),
        )
    },
    "a client for memory": (np.ones(3), {"client": "tcp://x:1"}, af.OptionError, "no cluster computes these arrays"),
    "lazy memory": (da.ones(3), {"copy": False}, af.CopyRequiredError, "cannot be shared"),
    "text": (da.ones(3).astype("U3"), {}, af.UnsupportedDtypeError, "no dtype for text"),
    "lengths": ([da.ones(3), da.ones(4)], {}, af.StructureError, r"arrays have different lengths: 3 at \[0\], but 4, at \[1\]"),
    "unknown lengths": ({"x": UNKNOWN}, {}, af.ConversionError, r"unknown sizes .*\['x'\].*compute_chunk_sizes"),
    "a bag": ([BAG], {}, af.ConversionError, r"Bag cannot be converted.*\[0\].*compute"),
    "an item": ([BAG.sum()], {}, af.ConversionError, r"Item cannot be converted.*\[0\].*compute"),
}  # fmt: skip


@pytest.mark.parametrize("timeout", [np.float32(60), np.int64(60), float("inf"), 1 << 70])
def test_numbers_of_any_type_are_options(timeout):
    options = {"axis": np.int64(0), "prefetch": np.int64(2), "block": np.int64(2)}
    blocks = af.stream(da.arange(4, chunks=2), "torch", timeout=timeout, **options)
    assert [block.tolist() for block in blocks] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("what", REFUSED)
def test_refused_at_once(what):
    value, options, error, words = REFUSED[what]
    with pytest.raises(error, match=words):
        af.stream(value, "torch", **options)


def deleted():
    x = jax.numpy.ones(3)
    x.delete()
    return x


def freed():
    x = torch.ones(3)
    x.untyped_storage().resize_(0)
    return x


SQUARE = torch.arange(4.0, dtype=torch.float32).reshape(2, 2)
SPECIAL = {
    "coo": lambda: SQUARE.to_sparse(),
    "csr": lambda: SQUARE.to_sparse_csr(),
    "bsr": lambda: SQUARE.to_sparse_bsr((2, 2)),
    "sparse scalar": lambda: torch.tensor(1.0).to_sparse(),
    "bcoo": lambda: jax.experimental.sparse.BCOO.fromdense(np.eye(3)),
    "nested": lambda: torch.nested.nested_tensor([SQUARE[0], SQUARE[1, :1]]),
    "jagged": lambda: torch.nested.nested_tensor([SQUARE[0], SQUARE[1, :1]], layout=torch.jagged),
    "quantised": lambda: torch.quantize_per_tensor(SQUARE, 0.1, 0, torch.quint8),
    "MKL": lambda: SQUARE.to_mkldnn(),
    "uninitialised": lambda: torch.nn.LazyLinear(2).weight,
    "meta": lambda: SQUARE.to("meta"),
    "freed": freed,
    "deleted": deleted,
    "keys": lambda: jax.random.split(jax.random.key(0), 3),
    "key": lambda: jax.random.key(0),
    "text": lambda: np.array(["a", "b"]),
    "lazy text": lambda: da.from_array(np.array(["a", "b", "c"])),
    "axes": lambda: torch.ones((3,) * 2 + (1,) * 64),
    "empty file": lambda: h5_file().create_dataset("x", data=h5py.Empty("f4")),
}


def h5_file():
    return h5py.File(f"{time.time_ns()}", "w", driver="core", backing_store=False)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("what", SPECIAL)
def test_special_arrays_are_refused_at_the_call_as_convert_does(what):
    x = SPECIAL[what]()
    for to in ("numpy", "torch", "jax"):
        of_its_own = getattr(registry.kind(x).backend, "name", "")
        if to == of_its_own or (to == "numpy" and "text" in what):
            continue
        with pytest.raises(af.ConversionError) as converted:
            af.convert(x, to)
        expected = converted.value
        for value, path in ((x, ""), ({"x": x, "y": np.ones(3)}, "['x']")):
            with pytest.raises(type(expected)) as caught:
                af.stream(value, to)
            assert not isinstance(caught.value, af.ContractError)
            assert str(caught.value).replace(f", at {path}", "") == str(expected)
            assert caught.value.path == path


def test_what_cannot_be_cut_is_refused_in_its_own_library():
    for x in (SQUARE.to_sparse(), freed(), deleted(), torch.nn.LazyLinear(2).weight):
        refused_by = af.backend_of(x).name
        words = r"cannot be (cut into blocks \(.*Convert it as a whole|converted.* at \['x'\])"
        with pytest.raises(af.ConversionError, match=words):
            af.stream({"x": x}, refused_by)


def test_a_fake_mode_of_pytorch():
    x = torch.arange(4)
    streams = [af.stream(x, to, block=2) for to in ("numpy", "torch")]
    with torch._subclasses.FakeTensorMode():
        for stream, to in zip(streams, ("numpy", "torch"), strict=True):
            with pytest.raises(af.TracedValueError, match="or the FakeTensorMode"):
                af.stream(x, to, block=2)
            with pytest.raises(
                af.BlockError, match=r"block 0 .*Please convert all Tensors to Fake"
            ):
                stream[0]


def test_a_transfer_guard_of_jax():
    x = jax.numpy.arange(4)
    stream = af.stream(x, "jax", block=2)
    lazy = da.arange(4, chunks=4).map_blocks(af.converter("jax"), dtype="int32")
    cut = af.stream({"x": lazy}, "numpy", block=2)
    with jax.transfer_guard("disallow"):
        for to in ("numpy", "torch"):
            assert [block.tolist() for block in af.stream(x, to, block=2)] == [[0, 1], [2, 3]]
        with pytest.raises(af.ConversionError, match=r"Disallowed .*forbids .*jax\.transfer_guard"):
            af.stream(x, "jax", block=2)
        with pytest.raises(af.BlockError, match=r"block 0 .*Disallowed host-to-device"):
            stream[0]
        with pytest.raises(af.BlockError, match=r"block 0 .*Disallowed host-to-device.*at \['x'\]"):
            cut[0]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse_arrays_are_streamed_as_dense_ones(layout):
    for to in ("numpy", "jax"):
        stream = af.stream({"x": SPECIAL[layout]()}, to, block=1, sparse="dense")
        for again in (stream, pickle.loads(pickle.dumps(stream))):
            blocks = [block["x"] for block in again]
            assert {af.backend_of(block).name for block in blocks} == {to}
            assert np.array_equal(np.concatenate(blocks), SQUARE)


def test_a_dataset_without_axes_is_part_of_every_block():
    scale = h5_file().create_dataset("x", data=2.5)
    stream = af.stream({"x": np.arange(4), "scale": scale}, "torch", block=2)
    assert [(b["x"].tolist(), b["scale"].item()) for b in stream] == [([0, 1], 2.5), ([2, 3], 2.5)]
    refused_alone = "there is no array with an axis that can be cut"
    with pytest.raises(af.NotAnArrayError, match=refused_alone):
        af.stream(scale, "torch")


SHARDED = r"""
import jax, numpy as np, pytest, arrayferry as af
mesh = jax.make_mesh((2,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
x = jax.device_put(np.arange(8.0), jax.sharding.NamedSharding(mesh, jax.P("a")))
for block in (None, 8, 4, 3):
    found = list(af.stream(x, "numpy", block=block))
    assert len(found) == -(-8 // (block or 8)) and np.concatenate(found).tolist() == list(range(8))
(whole,) = af.stream(x, "jax")
assert whole.sharding == x.sharding
with pytest.raises(af.ConversionError, match="cannot be cut into blocks .*Convert it as a whole"):
    af.stream(x, "jax", block=3)
"""


@pytest.mark.long
def test_explicit_shardings(run_python):
    run_python(SHARDED, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"})


def test_a_state_is_of_the_same_blocks_and_rows():
    def stream(rows, block=None):
        return af.stream(da.arange(rows, chunks=5), "numpy", block=block)

    state = stream(15).state_dict()
    assert state == {"data": ["3 blocks", "15 rows"]}
    for same in (stream(15), pickle.loads(pickle.dumps(stream(15)))):
        same.load_state_dict(state)
    for other, words in (
        (stream(10), "3 blocks, 15 rows where this stream has 2 blocks, 10 rows"),
        (stream(14), "3 blocks, 15 rows where this stream has 3 blocks, 14 rows"),
        (stream(15, block=4), "where this stream has 4 blocks, 15 rows"),
        (stream(20)[:3], r"where this stream has 3 blocks, those of range\(0, 3\), 20 rows"),
    ):
        with pytest.raises(af.OptionError, match=words):
            other.load_state_dict(state)


def test_files_are_refused_with_what_to_pass(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["g/y"] = np.arange(4.0), np.ones(4)
        for group, what in ((file, "File"), (file["g"], "Group")):
            words = rf"h5py {what} cannot be converted.*\['name'\]"
            refused(af.ConversionError, words, group, "torch")
            words = rf"h5py {what} cannot be converted.*\['k'\].*to torch. Pass"
            with pytest.raises(af.ConversionError, match=words):
                af.stream({"k": group}, "torch")
            assert af.convert([group], "torch")[0] is group
        datasets = {name: x for name, x in file.items() if isinstance(x, h5py.Dataset)}
        assert af.stream(datasets, "torch")[0]["x"].tolist() == [0, 1, 2, 3]
    np.savez(tmp_path / "x.npz", a=np.arange(4), b=np.ones(4))
    with np.load(tmp_path / "x.npz") as arrays:
        with pytest.raises(af.StructureError, match=r"NpzFile .*convert dict\(value\)"):
            af.stream({"k": arrays}, "torch")
        assert af.stream(dict(arrays), "torch")[0]["a"].tolist() == [0, 1, 2, 3]


def test_datasets_of_h5py_stay_in_their_process(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(4.0)
        # what is cast has a shape since 3.12
        cast = [file["x"].astype("f4")] if h5py.__version__ >= "3.12" else []
        for x in (file["x"], *cast, [da.ones(4), {"k": file["x"]}]):
            with pytest.raises(TypeError, match=r"stream of h5py datasets cannot be pickled.*Open"):
                pickle.dumps(af.stream(x, "torch"))  # asks for its portable_client


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler")  # by older versions
def test_an_asynchronous_client_is_told():
    async def use():
        async with (
            distributed.LocalCluster(
                n_workers=1, processes=False, asynchronous=True, dashboard_address=":0"
            ) as cluster,
            distributed.Client(cluster, asynchronous=True) as client,
        ):
            x = da.arange(4, chunks=2)
            kept = client.persist(x)
            for value in (x, [x, x + 1]):
                refused(af.ConversionError, "the current client is asynchronous", value, "torch")
            refused(af.ConversionError, "its client is asynchronous", kept, "torch")
            stream = af.stream(x, "torch")
            with pytest.raises(af.ConversionError, match="the current client is asynchronous"):
                next(iter(stream))
            pickle.loads(pickle.dumps(stream))
            with pytest.raises(af.OptionError, match="client= is asynchronous"):
                af.stream(x, "torch", client=client)
            for function in (lambda: af.convert(x, "torch"), lambda: torch.cat(list(stream))):
                assert (await asyncio.to_thread(function)).tolist() == [0, 1, 2, 3]
            with dask.config.set(scheduler="sync"):
                assert af.convert(x, "torch").tolist() == torch.cat(list(stream)).tolist()

    asyncio.run(use())


def test_an_unreachable_scheduler():
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "300ms"}),
        pytest.raises(af.ConversionError, match="no scheduler of Dask could be reached"),
    ):
        list(af.stream(da.ones(3), "torch", client="tcp://127.0.0.1:9"))


def test_closed_files(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["y"] = np.arange(30.0)
        closed, stream = file["y"], af.stream(file["y"], "torch", block=10)
    for read in (lambda: list(stream), lambda: stream[1]):
        with pytest.raises(af.BlockError, match="a dataset of a closed file cannot be converted"):
            read()
    with pytest.raises(af.ConversionError, match=r"a closed file .*at \['k'\], from h5py to torch"):
        af.stream({"k": closed}, "torch")


def test_blocks_of_a_tensordict():
    td = pytest.importorskip("tensordict")
    inner = td.TensorDict({"y": torch.ones(6, 3)}, [6, 3])
    value = td.TensorDict({"x": torch.arange(6), "inner": inner}, [6])
    last = af.stream(value, "torch", block=4)[1]
    assert (last.batch_size, last["inner"].batch_size) == ((2,), (2, 3))
    assert last["x"].tolist() == [4, 5]
    assert af.stream(value, "numpy", block=4)[1]["x"].tolist() == [4, 5]
    stack = td.LazyStackedTensorDict.lazy_stack([value, value + 10], 0)
    blocks = list(af.stream(stack, "torch", block=1))
    assert [block["x"].tolist() for block in blocks] == [
        [[0, 1, 2, 3, 4, 5]], [[10, 11, 12, 13, 14, 15]],
    ]  # fmt: skip
    other = td.LazyStackedTensorDict.lazy_stack([value, td.TensorDict({"z": torch.ones(6)}, [6])])
    with pytest.raises(af.ConversionError, match="differ in keys or shapes"):
        af.stream(other, "torch")


# Plugins.


class Rows:
    """Rows that are read from somewhere."""

    def __init__(self, lengths):
        self.lengths = lengths
        self.shape = (sum(lengths), 2)
        self.dtype = np.dtype("float32")


class RowsBlocks(Blocks):
    def __init__(self, xs):
        self.xs, self.lengths, self.reads = xs, [x.lengths for x in xs], []

    def read(self, array, block):
        self.reads.append((array, block))
        return np.full((self.lengths[array][block], 2), block, "float32")


class RowsSource(af.Source):
    name, package, memory = "rows", "numpy", "lazy"
    array_types = (f"{__name__}.Rows",)

    def to_numpy(self, x):
        return np.zeros(x.shape, x.dtype)


class RowsStreaming(Streaming):
    name = "rows"

    def __init__(self, **changes):
        self.changes = changes

    def blocks(self, xs, axis, *, block=None, client=None):
        self.made = RowsBlocks(xs)
        vars(self.made).update(self.changes)
        return self.made


def raising(error):
    def function(*args, **options):
        raise error

    return function


def test_what_it_says():
    slices = Slices([np.ones(3)], 0, [[1, 2]])
    assert repr(slices) == "<Slices of 2 blocks>"
    assert repr(slices.open([[(0, 0)]])) == "<Reader of 1 steps>"
    for cls in (Slices, Reader, af.Stream):
        assert repr(cls.__new__(cls)) == f"<{cls.__name__}, incomplete>"


def test_a_plugin_says_how_to_read(register):
    reads = RowsStreaming()
    register(RowsSource(), arrayferry_blocks=reads)
    stream = af.stream([Rows([2, 3, 1]), Rows([4, 2])], "torch", block=2)
    first, second = zip(*stream, strict=True)
    assert torch.cat(first)[:, 0].tolist() == [0, 0, 1, 1, 1, 2]
    assert torch.cat(second)[:, 0].tolist() == [0, 0, 0, 0, 1, 1]
    assert sorted(reads.made.reads) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


WRONG = {
    "raises": (RowsStreaming(read=raising(OSError("the disk"))), r"block 0 .*OSError: the disk"),
    "reads nothing": (RowsStreaming(read=lambda array, block: None), r"block 0 .*shape \(\)"),
    "exits": (RowsStreaming(read=raising(SystemExit(3))), r"block 0 .*SystemExit: 3"),
    "lengths of no kind": (RowsStreaming(lengths=[["two"]]), r"blocks\(\) of the source 'rows' raised ValueError: .*two"),
    "too short": (RowsStreaming(lengths=[[1]]), "blocks have a total length of 1 instead of 6"),
    "reads too little": (
        RowsStreaming(open=lambda steps: type("Short", (Reader,), {"read": lambda *_: []})(None, steps)),
        "TypeError: 0 blocks were read instead of 1",
    ),
    "opens nothing": (RowsStreaming(open=raising(OSError("no"))), r"RowsBlocks.open\(\) raised OSError: no"),
    "no blocks": (
        type("Failing", (RowsStreaming,), {"blocks": raising(KeyError("gone"))})(),
        r"blocks\(\) of the source 'rows' raised KeyError: 'gone', at \['rows'\]",
    ),
    "says nothing of blocks": (None, "rows does not say how to read"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_plugin_that_errs_is_named(wrong, register):
    part, words = WRONG[wrong]
    register(RowsSource(), **({"arrayferry_blocks": part} if part else {}))
    with pytest.raises(af.ConversionError, match=words):
        list(af.stream({"rows": Rows([2, 4])}, "torch"))


def spawned(value):
    """Pickle a value as for a process that is being spawned."""
    multiprocessing.context.set_spawning_popen(object())
    try:
        return pickle.dumps(value)
    finally:
        multiprocessing.context.set_spawning_popen(None)


def written(x):
    x = np.memmap(x.filename, x.dtype, "c", x.offset, x.shape)
    x[:] += 1
    return x


BY_NAME = {
    "whole": lambda x: x,
    "rows": lambda x: x[30:],
    "turned": lambda x: x.T,
    "in a tree": lambda x: {"a": x, "b": 1},
}
BY_VALUE = {
    "columns": lambda x: x[:, 3:],
    "computed": lambda x: x + 1,
    "written to a copy": written,
    "without a file": lambda x: os.remove(x.filename) or x,
    "shared": lambda x: x,
}


@pytest.mark.parametrize("what", [*BY_NAME, *BY_VALUE])
def test_memmaps_are_pickled_for_a_new_process_by_the_name_of_their_file(tmp_path, what):
    """Others, and those that may be read elsewhere or later, are pickled with their values."""
    np.save(tmp_path / "x.npy", np.arange(20_000.0).reshape(100, 200))
    x = {**BY_NAME, **BY_VALUE}[what](np.load(tmp_path / "x.npy", mmap_mode="r+"))
    stream = af.stream(x, "numpy", block=30, copy=False if what == "shared" else None)
    data = spawned(stream)
    assert (len(data) < 5_000) is (what in BY_NAME)
    assert len(pickle.dumps(stream)) > 5_000
    for again in (data, pickle.dumps(stream)):
        for block, expected in zip(pickle.loads(again), stream, strict=True):
            np.testing.assert_equal(block, expected)


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler:UserWarning")
def test_results_of_a_cluster_within_a_graph():
    with local_cluster(processes=True) as cluster, distributed.Client(cluster) as client:
        future = client.submit(np.ones, 3, pure=False)
        for value in (
            da.from_delayed(future, (3,), float) + 1,
            da.ones(3, chunks=1).map_blocks(lambda b, y: b + y[:1], future, dtype=float),
        ):
            assert np.concatenate([*af.stream(value, "numpy")]).tolist() == [2] * 3
        with pytest.raises(af.ConversionError, match=r"Dask Future cannot .*x\.result\(\)"):
            af.stream([future], "torch")
    with pytest.raises(af.ConversionError, match=r"Delayed\w* cannot .*\['d'\].*x\.compute\(\)"):
        af.stream({"d": dask.delayed(np.ones(2)), "x": np.ones(2)}, "torch")


def test_streams_are_counted():
    with af.trace() as t:
        list(af.stream(da.ones(8, chunks=2, dtype="float32"), "torch"))
    assert t.bytes == 8 * 4
    assert {row.target for row in t.rows} == {"torch"}


def test_nothing_is_computed(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("it was computed")

    stream = af.stream(da.ones(6, chunks=2), "torch")
    with monkeypatch.context() as patched, dask.config.set(scheduler=refuse):
        patched.setattr(da.Array, "__array__", refuse)
        assert repr(stream) == "<Stream of 3 blocks, 6 of 6, to torch>"
