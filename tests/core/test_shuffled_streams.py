"""Streams that shuffle, and those with batches: each row once an epoch, in an order that a seed repeats."""

from __future__ import annotations

import contextlib
import gc
import itertools
import pickle
import random
import signal
import sys
import threading
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import h5py
import numpy as np
import pytest
import torch
from chunks import mapped

import arrayferry as af


def rows(stream):
    return [x for result in stream for x in np.asarray(result).ravel().tolist()]


def chunks_of(length, rng):
    """Return chunks of random lengths, or of one length."""
    size = rng.randint(1, length)
    if rng.random() < 0.5:
        return size
    ends = sorted({*(rng.randint(1, length) for _ in range(rng.randint(0, 6))), length})
    return tuple(end - start for start, end in zip([0, *ends], ends, strict=False))


def combination(seed):
    """Return a stream of generated options over a tree, and how many rows it has."""
    rng = random.Random(seed)
    length = rng.randint(1, 60)
    x = np.arange(length, dtype=np.float32)
    options = {
        "shuffle": rng.random() < 0.8,
        "block": rng.choice([None, rng.randint(1, length + 3)]),
        "batch_size": rng.choice([None, rng.randint(1, length + 3)]),
        "prefetch": rng.choice([0, 0, 1, 3]),
    }
    if options["shuffle"]:
        options["seed"] = rng.choice([None, seed])
        options["buffer_size"] = rng.choice([None, rng.randint(1, 2 * length)])
    if options["batch_size"] is not None:
        options["drop_last"] = rng.random() < 0.3
    value = {
        "x": da.from_array(x, chunks=(chunks_of(length, rng),)),
        "y": da.from_array(np.stack([x, -x]), chunks=(2, chunks_of(length, rng))).T,
        "z": da.from_array(x * 2, chunks=(chunks_of(length, rng),))
        if rng.random() < 0.5
        else x * 2,
        "name": "text",
    }
    return af.stream(value, "numpy", **options), length, options, rng


def check(seed):
    stream, length, options, rng = combination(seed)
    size, orders = options["batch_size"], []
    for _ in range(2):  # epochs
        count = rng.choice([1, 1, 2, 3])
        seen = []
        for index in range(count):
            part = stream.shard(index, count) if count > 1 else stream
            results = list(part)
            lengths = [len(result["x"]) for result in results]
            assert len(results) == len(lengths)
            for result in results:
                np.testing.assert_array_equal(result["y"], np.stack([result["x"], -result["x"]], 1))
                np.testing.assert_array_equal(result["z"], 2 * result["x"])
                assert result["name"] == "text"
            if size is not None:
                assert set(lengths[:-1]) <= {size}
                assert all(0 < each <= size for each in lengths)
                assert not options["drop_last"] or set(lengths) <= {size}
            seen += [x for result in results for x in result["x"].tolist()]
        if options.get("drop_last"):
            assert len(set(seen)) == len(seen)
            assert len(seen) > length - size * count
        else:
            assert sorted(seen) == list(range(length)), (seed, options)
        if not options["shuffle"] and count == 1:
            assert seen == sorted(seen)
        orders.append(seen)
    return orders


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 10))]
)
def test_each_row_once_in_generated_combinations(first):
    with dask.config.set(scheduler="synchronous"):
        for seed in range(100 * first, 100 * first + 100):
            check(seed)


X = np.arange(1000)
MADE_OF = {"block": 60, "shuffle": True, "seed": 3, "batch_size": 70, "buffer_size": 250}


def test_lengths_of_results():
    for options, lengths in (
        ({"block": 300, "batch_size": 256}, [256, 256, 256, 232]),
        ({"block": 300, "batch_size": 256, "drop_last": True}, [256] * 3),
        ({"block": 300, "shuffle": True, "batch_size": 256}, [256, 256, 256, 232]),
        ({"block": 250, "shuffle": True}, [250] * 4),
        ({"batch_size": 5000}, [1000]),
        ({"batch_size": 5000, "drop_last": True}, []),
    ):
        stream = af.stream(X, "torch", **options)
        results = list(stream)
        assert [len(result) for result in results] == lengths
        assert len(stream) == len(lengths)
        assert all(type(result) is torch.Tensor for result in results)


def test_orders_differ_between_epochs_and_repeat_with_the_seed():
    one, other, third = (
        af.stream(X, "numpy", block=50, shuffle=True, seed=seed) for seed in (1, 1, 2)
    )
    first, second = rows(one), rows(one)
    assert first != second
    assert [rows(other), rows(other)] == [first, second]
    assert rows(third) != first
    other.set_epoch(0)
    assert rows(other) == first
    copy = pickle.loads(pickle.dumps(one))  # which is at its third epoch
    assert rows(copy) == rows(one) not in (first, second)
    unseeded, another = (af.stream(X, "numpy", block=50, shuffle=True) for _ in range(2))
    order = rows(pickle.loads(pickle.dumps(unseeded)))
    assert order == rows(unseeded)
    assert order != rows(another)


def test_rows_of_one_buffer_are_mixed_and_blocks_too():
    order = rows(af.stream(X, "numpy", block=10, shuffle=True, seed=0, buffer_size=100))
    blocks = [{x // 10 for x in order[start : start + 100]} for start in range(0, 1000, 100)]
    assert all(len(each) == 10 for each in blocks)  # ten whole blocks in each buffer
    assert any(max(each) - min(each) > 50 for each in blocks)
    assert order != sorted(order)
    everything = rows(af.stream(X, "numpy", block=10, shuffle=True, seed=0, buffer_size=1000))
    places = np.argsort(everything)
    # uniform: the mean distance of neighbours is a third of the length; the error rate of this bound is below 1e-6
    assert abs(np.abs(np.diff(places)).mean() - 1000 / 3) < 5 * 1000 / np.sqrt(18 * 999) * 1.5


def test_each_permutation_of_rows_is_as_likely():
    counts = {}
    stream = af.stream(np.arange(3), "numpy", block=1, shuffle=True, seed=4, buffer_size=3)
    for _ in range(1200):
        order = tuple(rows(stream))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    statistic = sum((count - 200) ** 2 / 200 for count in counts.values())
    assert statistic < 41  # chi-squared of 5 degrees exceeds this once in ten million


def test_one_reader_of_each_chunk():
    computed = []

    def noted(x, block_id=None):
        computed.append(block_id)
        return x

    x = da.from_array(np.arange(120), chunks=12).map_blocks(noted, dtype=int)
    with dask.config.set(scheduler="synchronous"):
        for block in (None, 6, 5, 24, 30, 7):
            computed.clear()
            assert sorted(rows(af.stream(x, "numpy", block=block, shuffle=True))) == list(
                range(120)
            )
            assert sorted(computed) == [(number,) for number in range(10)], block


def test_what_blocks_share_is_computed_once():
    computed = []

    def noted(x):
        computed.extend(x.tolist())
        return x

    x = mapped(noted, 40, 5)
    shared = x - x.mean()
    once = list(range(40))
    with dask.config.set(scheduler="synchronous"):
        for _ in range(2):
            computed.clear()
            seen = rows(af.stream(shared, "numpy", shuffle=True))
            assert sorted(seen) == (np.arange(40) - 19.5).tolist()
            assert sorted(computed) == once


def test_resuming():
    for options in (
        {"shuffle": True, "seed": 3, "batch_size": 70, "buffer_size": 250},
        {"shuffle": True},
        {"batch_size": 64},
        {},
    ):
        stream = af.stream(X, "numpy", block=60, **options)
        list(stream)
        whole = [result.tolist() for result in stream]
        for position in (0, 1, 5, len(whole) - 1, len(whole)):
            stream.set_epoch(1)
            iteration = iter(stream)
            for _ in range(position):
                next(iteration)
            state = stream.state_dict()
            iteration.close()
            assert all(type(value) is int for value in state.values())
            other = af.stream(X, "numpy", block=60, **options)
            other.load_state_dict(state)
            assert other.state_dict() == state
            assert [result.tolist() for result in other] == whole[position:]
            stream.set_epoch(2)
            assert rows(other) == rows(stream)  # the epoch after
    with pytest.raises(af.OptionError, match="length is 1000, here it is 999"):
        af.stream(X[1:], "numpy", block=60).load_state_dict(state)


@pytest.mark.parametrize("position", [None, -1, "a", 2.0, True, 18])
def test_positions_that_are_none(position):
    stream = af.stream(X, "numpy", block=60)
    state = {**stream.state_dict(), "position": position}
    with pytest.raises(af.OptionError, match=f"{position}.*Pass what state_dict"):
        stream.load_state_dict(state)
    for nonsense in ({}, {"epoch": 1, "position": 1}, None, 3):
        with pytest.raises(af.OptionError, match="no state of a stream"):
            stream.load_state_dict(nonsense)
    assert rows(stream) == X.tolist()
    stream.load_state_dict({**stream.state_dict(), "epoch": np.int64(2), "position": np.array(16)})
    assert rows(stream) == X[960:].tolist()


@pytest.mark.parametrize(
    "other",
    [
        {"batch_size": 71},
        {"batch_size": None},
        {"buffer_size": 300},
        {"buffer_size": None},
        {"block": 50},
        {"shuffle": False, "seed": None, "buffer_size": None},
        {"drop_last": True},
        lambda stream: stream.shard(0, 2),
        lambda stream: af.stream(da.from_array(X, chunks=90), "numpy", **MADE_OF),
    ],
)
def test_states_of_other_streams_are_refused(other, monkeypatch):
    monkeypatch.setattr("arrayferry._stream.order.SMALL_BYTES", 0)
    stream = af.stream(X, "numpy", **MADE_OF)
    next(iter(stream))
    if isinstance(other, dict):
        another = af.stream(X, "numpy", **{**MADE_OF, **other})
    else:
        with warnings.catch_warnings(action="ignore"):
            another = other(af.stream(X, "numpy", **MADE_OF))
    before = another.state_dict()
    for one, state in ((another, stream.state_dict()), (stream, before)):
        with pytest.raises(af.OptionError, match="of another stream: its"):
            one.load_state_dict(state)
    assert another.state_dict() == before


def test_a_state_means_nothing_for_a_part():
    for options in ({"block": 60}, {"block": 60, "shuffle": True}, {"batch_size": 30}):
        stream = af.stream(X, "numpy", **options)
        iteration = iter(stream)
        next(iteration), next(iteration)
        stream.load_state_dict(stream.state_dict())
        with pytest.raises(af.OptionError, match="begins at result 2"):
            stream.shard(0, 2)
        stream.set_epoch(0)
        assert sorted(rows(stream.shard(0, 2)) + rows(stream.shard(1, 2))) == X.tolist()
    stream = af.stream(X, "numpy", block=60)
    stream.load_state_dict({**stream.state_dict(), "position": 3})
    with pytest.raises(af.OptionError, match="begins at result 3"):
        stream[2:]
    assert stream[0].tolist() == X[:60].tolist()  # one block is no part
    assert stream.state_dict()["position"] == 3
    state = {**af.stream(X, "numpy", block=60)[:8].state_dict(), "position": 1}
    with pytest.raises(af.OptionError, match="its blocks or chunks are cut in other places"):
        af.stream(X, "numpy", block=60)[1::2].load_state_dict(state)


def test_the_state_after_set_epoch_is_that_of_the_next_iteration():
    stream = af.stream(X, "numpy", block=60, shuffle=True, seed=3)
    next(iter(stream))
    stream.set_epoch(4)
    state = stream.state_dict()
    assert (state["epoch"], state["position"]) == (4, 0)
    other = af.stream(X, "numpy", block=60, shuffle=True, seed=3)
    other.load_state_dict(state)
    assert rows(other) == rows(stream)


@pytest.mark.parametrize("options", [{}, {"batch_size": 7}, {"shuffle": True, "buffer_size": 10}])
def test_resuming_computes_only_what_follows(options):
    computed = []

    def noted(x, block_id=None):
        computed.append(block_id[0])
        return x

    x = mapped(noted, 1000, 10, int)
    with dask.config.set(scheduler="synchronous"):
        stream = af.stream(x, "numpy", prefetch=0, **options)
        count = len(stream)
        stream.load_state_dict({**stream.state_dict(), "position": count - 5})
        assert len(rows(stream)) <= 50
        assert len(computed) <= 6


@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_prefetching_changes_no_order(prefetch):
    options = {"block": 60, "shuffle": True, "seed": 3}
    assert rows(af.stream(X, "numpy", prefetch=prefetch, **options)) == rows(
        af.stream(X, "numpy", **options)
    )


def test_single_blocks_keep_nothing():
    computed = []
    x = mapped(lambda x: computed.append(x[0]) or x, 40, 10, int)
    before = set(threading.enumerate())
    stream = af.stream(x, "numpy")
    with dask.config.set(scheduler="synchronous"):
        assert [stream[i][0] for i in (0, 1, 1, -1)] == computed == [0, 10, 10, 30]
    assert set(threading.enumerate()) == before


def test_an_array_of_few_chunks_does_not_hinder_shuffling(monkeypatch):
    x = da.random.default_rng(0).normal(size=(1000, 4), chunks=(10, 4))
    tree = {"x": x, "label": da.from_array(X, chunks=500), "row": da.arange(1000, chunks=10)}
    stream = af.stream(tree, "numpy", shuffle=True, seed=0)
    assert "runs" not in repr(stream)
    results = list(stream)
    labels = np.concatenate([result["label"] for result in results])
    np.testing.assert_array_equal(labels, np.concatenate([result["row"] for result in results]))
    assert abs(np.corrcoef(labels, X)[0, 1]) < 0.5
    monkeypatch.setattr("arrayferry._stream.order.KEPT_BYTES", 0)
    with pytest.warns(
        UserWarning, match="1000 rows are hardly shuffled: 100 blocks .* 2 runs"
    ) as told:
        stream = af.stream(tree, "numpy", shuffle=True, seed=0)
    assert told[0].filename == __file__
    assert "1000 of 1000, in 2 independent runs, to" in repr(stream)
    af.stream(tree, "numpy", shuffle=True, seed=0, buffer_size=1000)  # all are permuted together
    one = da.from_array(X, chunks=1000)  # which is in memory as a whole
    assert abs(np.corrcoef(rows(af.stream(one, "numpy", block=10, shuffle=True)), X)[0, 1]) < 0.5


@pytest.mark.parametrize(
    "options", [{"block": 7}, {"block": 7, "shuffle": True}, {"batch_size": 7}]
)
def test_objects_in_memory_are_cut(options):
    texts = np.array([f"row {n}" for n in X], dtype=object)
    mixed = np.array([None, 1.5, np.float32(2), "text"] * 250, dtype=object)
    tree = {
        "text": texts,
        "mixed": mixed,
        "number": da.from_array(X, chunks=90),
        "one": texts[:1].reshape(()),
    }
    results = list(af.stream(tree, "torch", **options))
    for result in results:
        assert result["text"].tolist() == [f"row {n}" for n in result["number"].tolist()]
        assert len(result["mixed"]) == len(result["number"])
        assert result["one"] == texts[:1].reshape(())
    assert sum(len(result["text"]) for result in results) == 1000
    results[0]["text"][:] = "changed"
    assert "changed" not in texts
    with pytest.raises(af.StructureError, match=r"lengths: 1000, but 999 at \['text'\]"):
        af.stream({**tree, "text": texts[1:]}, "numpy")


def test_objects_that_hold_arrays_are_trees():
    tree = np.empty(2, object)
    tree[:] = [da.from_array(X, chunks=90), X]
    for start, result in zip(range(0, 1000, 60), af.stream(tree, "numpy", block=60), strict=True):
        assert [x.tolist() for x in result] == [X[start : start + 60].tolist()] * 2


def test_threads_that_begin_at_the_same_moment():
    stream = af.stream(X[:4], "numpy", block=2, shuffle=True, seed=0)
    begun = threading.Barrier(8)

    def begin(_):
        begun.wait()
        return [iter(stream)._progress.epoch for _ in range(300)]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            epochs = [epoch for found in pool.map(begin, range(8)) for epoch in found]
    finally:
        sys.setswitchinterval(interval)
    assert sorted(epochs) == list(range(2400))


def test_a_fork_while_others_read(run_forked):
    stream = af.stream(X, "numpy", block=10)
    iteration, ended = iter(stream), threading.Event()

    def read():
        while not ended.is_set():
            stream[3], stream.state_dict(), next(iter(stream))

    def child():
        signal.alarm(20)  # which ends a process that hangs
        assert stream[3][0] == 30
        assert next(iteration)[0] == 0
        assert len(rows(stream)) == 1000

    with ThreadPoolExecutor(3) as pool:
        reading = [pool.submit(read) for _ in range(3)]
        try:
            for _ in range(20):
                run_forked(child)
        finally:
            ended.set()
    for each in reading:
        each.result()


@pytest.mark.parametrize(
    "options",
    [{"block": 2}, {"block": 2, "batch_size": 3, "shuffle": True, "seed": 1, "buffer_size": 2}],
)
def test_an_interruption_at_any_line_loses_no_row(options):
    x = X[:4]
    whole = rows(af.stream(x, "numpy", prefetch=0, **options))

    def interrupted(line):
        """Return whether the iteration was interrupted, and check that another goes on where it was."""
        stream, seen = af.stream(x, "numpy", prefetch=0, **options), []

        def trace(frame, event, argument):
            nonlocal line
            if "/_stream/" not in frame.f_code.co_filename or frame.f_code.co_name == "__del__":
                return None
            line -= event == "line"
            if not line:
                raise KeyboardInterrupt
            return trace

        iteration = iter(stream)
        with contextlib.suppress(KeyboardInterrupt):
            sys.settrace(trace)
            for result in iteration:
                seen += result.tolist()
        sys.settrace(None)
        state, more = stream.state_dict(), rows(iteration)
        assert not more or seen + more == whole, line  # it goes on rightly, or not at all
        stream.load_state_dict(state)
        assert seen + rows(stream) == whole, line
        return line <= 0

    with ThreadPoolExecutor(1) as pool:  # what a trace function raises is left behind in its thread
        assert [*itertools.takewhile(bool, pool.map(interrupted, range(1, 400)))][100:]


def test_a_part_goes_on_where_it_was():
    part = af.stream(X, "numpy", block=60, shuffle=True, seed=3).shard(1, 3)
    whole = [result.tolist() for result in part]
    part.set_epoch(0)
    iteration = iter(part)
    next(iteration)
    other = pickle.loads(
        pickle.dumps(af.stream(X, "numpy", block=60, shuffle=True, seed=3).shard(1, 3))
    )
    other.load_state_dict(part.state_dict())
    assert [result.tolist() for result in other] == whole[1:]


@pytest.mark.parametrize("options", [{"shuffle": True, "seed": 1}, {"batch_size": 70}])
def test_a_part_is_divided_again(options):
    stream = af.stream(X, "numpy", block=60, **options)
    of_one = rows(stream.shard(1, 2))
    parts = [rows(stream.shard(1, 2).shard(index, 3)) for index in range(3)]
    assert all(parts)
    assert sorted(itertools.chain(*parts)) == sorted(of_one)


def test_files_and_other_axes(tmp_path):
    values = np.arange(2 * 90 * 3, dtype="float32").reshape(2, 90, 3)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(2, 8, 3))
        stream = af.stream(
            {"x": file["x"], "row": np.arange(90)[None]},
            "torch",
            axis=1,
            block=20,
            shuffle=True,
            batch_size=32,
        )
        for _ in range(2):
            seen = []
            for batch in stream:
                chosen = batch["row"][0].tolist()
                np.testing.assert_array_equal(batch["x"], values[:, chosen])
                seen += chosen
            assert sorted(seen) == list(range(90))


def test_masks_libraries_and_own_memory():
    masked = np.ma.masked_less(np.arange(30), 10)
    seen = list(af.stream(da.from_array(masked, chunks=7), "numpy", shuffle=True))
    assert sum(np.ma.getmaskarray(x).sum() for x in seen) == 10
    x = torch.arange(30)
    for batch in af.stream(x, "torch", block=7, shuffle=True, batch_size=4):
        batch += 1000
    assert x.tolist() == list(range(30))
    import jax.numpy as jnp

    assert sorted(rows(af.stream(jnp.arange(30), "jax", block=7, shuffle=True))) == list(range(30))


MEGABYTE = 100
"""Rows of the arrays whose memory is measured."""


def most_memory(x, **options):
    """Return how much memory a stream needs at most, in megabytes."""
    stream = af.stream(x, "numpy", **options)
    next(iter(stream))  # what is imported at first
    gc.collect()
    tracemalloc.start()
    try:
        for _ in stream:
            pass
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("buffer_size", "blocks"), [(None, 4), (250, 2), (800, 8)])
def test_memory(buffer_size, blocks):
    """The buffer, as many rows that are read ahead, the block that is copied into the buffer, and results."""
    x = da.zeros((30 * MEGABYTE, 1250), chunks=(MEGABYTE, 1250))
    options = {"shuffle": True, "prefetch": 2, "buffer_size": buffer_size}
    most = most_memory(x, batch_size=MEGABYTE, **options)
    assert blocks < most < 2 * blocks + 3.5
    most = most_memory(x, batch_size=130, **options)  # put together from two windows
    assert most < 2 * blocks + 1 + 3 * 1.3 + 0.3
    most = most_memory(x, batch_size=130, **{**options, "prefetch": 0})
    assert most < blocks + 1 + 3 * 1.3 + 0.3


@pytest.mark.parametrize("make", [da.zeros, da.random.default_rng(0).random])
@pytest.mark.parametrize("prefetch", [0, 3])
def test_memory_without_shuffling(make, prefetch):
    x = make((20 * MEGABYTE, 1250), chunks=(MEGABYTE, 1250))
    assert most_memory(x, prefetch=prefetch) < prefetch + 2.3
    # A block of 2.4 chunks is put together, and two chunks are cut.
    assert most_memory(x, prefetch=prefetch, block=240) < 2.4 * (prefetch + 3) + 2.3


@pytest.mark.filterwarnings("ignore:.*hardly shuffled")
def test_memory_of_blocks_that_are_no_whole_chunks():
    x = da.zeros((30 * MEGABYTE, 1250), chunks=(MEGABYTE, 1250))
    most = most_memory(x, shuffle=True, seed=0, block=240, batch_size=240)
    assert most < 2.4 * (4 + 4 + 1 + 3) + 2.3


def test_errors_name_the_block():
    def failing(x, block_id=None):
        if block_id[0] == 3:
            raise ValueError("broken disk")
        return x

    x = mapped(failing, 100, 10, int)
    stream = af.stream(x, "numpy", shuffle=True, seed=0, batch_size=7)
    with pytest.raises(af.BlockError, match=r"block 3 \(30:40 .*broken disk") as failure:
        list(stream)
    assert (failure.value.block, failure.value.start, failure.value.stop) == (3, 30, 40)
    assert "stream[" not in str(failure.value)
    with pytest.raises(af.NarrowingError, match="result 0: "):
        list(af.stream(np.full(9, 1e300), "jax", block=2, shuffle=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": 1}, "shuffle=1"),
        ({"drop_last": "yes", "batch_size": 2}, "drop_last='yes'"),
        ({"drop_last": True}, "without batch_size"),
        ({"seed": 1}, "without shuffle=True"),
        ({"buffer_size": 4}, "without shuffle=True"),
        ({"shuffle": True, "seed": -1}, "seed=-1"),
        ({"shuffle": True, "buffer_size": 0}, "buffer_size=0"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"shuffle": True, "copy": False}, "rows are shuffled"),
    ],
)
def test_options_that_are_refused(options, message):
    with pytest.raises(af.ArrayFerryError, match=message):
        af.stream(X, "numpy", **options)


@pytest.mark.parametrize("options", [{"shuffle": True}, {"batch_size": 10}])
def test_single_results_are_refused(options):
    stream = af.stream(X, "numpy", **options)
    for index in (0, slice(2)):
        with pytest.raises(af.OptionError, match=r"stream\.shard"):
            stream[index]
    for arguments in ((2, 2), (-1, 2), (0.5, 2)):
        with pytest.raises(af.OptionError, match="no such part"):
            stream.shard(*arguments)
    with pytest.raises(af.OptionError, match="epoch=-1"):
        stream.set_epoch(-1)


def test_what_is_shown():
    shuffled = af.stream(X, "torch", block=100, shuffle=True, batch_size=64)
    assert repr(shuffled) == "<Stream of 16 shuffled batches of 64, 1000 of 1000, to torch>"
    shown = "5 shuffled batches of 64, 300 of 1000, part 1 of 3, to torch"
    assert repr(shuffled.shard(1, 3)) == f"<Stream of {shown}>"
    plain = af.stream(X, "torch", batch_size=300)
    assert repr(plain) == "<Stream of 4 batches of 300, 1000 of 1000, to torch>"
    empty = af.stream(np.empty((0, 2)), "numpy", shuffle=True, batch_size=3)
    assert (len(empty), list(empty)) == (0, [])


def test_an_error_holds_no_buffer():
    """Its traceback lasts as long as it does: in a notebook, until the next one."""

    def read(block, block_info=None):
        if block_info and block_info[0]["chunk-location"][0] == 2:
            raise ValueError("of the disk")
        return block

    x = da.ones((4, 1_000), chunks=(1, -1)).map_blocks(read, dtype=float, meta=np.empty((0, 0)))
    taken = []
    with pytest.raises(af.BlockError) as caught:
        taken.extend(
            af.stream({"x": x, "one": np.float32(1)}, "numpy", shuffle=True, seed=7, buffer_size=2)
        )
    gc.collect()
    held = [o for o in gc.get_objects() if type(o).__name__ == "_Buffer" and o._array is not None]
    assert not held
    assert caught.value.block == 2


def test_an_error_of_a_copy_keeps_its_type(monkeypatch):
    """An array that is a part of each result as it is, and not of its rows."""
    copies = []

    def copy(x):
        copies.append(x)
        if len(copies) > 2:  # two while blocks are read
            raise RuntimeError("of the device")
        return x.clone()

    monkeypatch.setattr(af.registry.backend("torch"), "copy", copy)
    x = {"x": np.arange(4), "rate": torch.tensor(0.1)}
    stream = af.stream(x, "torch", block=2, shuffle=True, seed=0)
    with pytest.raises(af.ContractError, match=r"copy\(\)"):
        next(iter(stream))
