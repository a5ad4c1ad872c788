"""Streams in PyTorch's data loader: each row once with any number of workers, a right length, and positions that survive a kill."""

from __future__ import annotations

import copy
import itertools
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import arrayferry as af
from arrayferry_plugins.torch_.data import Batches

pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork"),  # by JAX, which the workers do not use
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than cores
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata, PyTorch 2.13
]

LENGTH = 500


def made(num_workers=0, seed=0, length=LENGTH, part=(0, 1), **options):
    x = da.from_array(np.arange(length), chunks=13)
    options = {"shuffle": True, "seed": seed, "batch_size": 32, "block": 13, **options}
    if not options["shuffle"]:
        del options["seed"]
    return Batches(af.stream({"x": x, "y": x * 2}, "torch", **options).shard(*part), num_workers)


multiprocessing.set_forkserver_preload(["arrayferry_plugins.torch_.data", "dask.array"])


def loader_of(batches, kind=DataLoader, **options):
    """Return a loader, whose workers are not forked from this process, which has many threads."""
    if batches.num_workers:
        options = {"multiprocessing_context": "forkserver", **options}
    return kind(batches, batch_size=None, num_workers=batches.num_workers, **options)


def rows(loader):
    """Return the rows of an epoch, and check the length, which PyTorch warns of if it is too small."""
    count, batches = len(loader), list(loader)
    assert count == len(batches)
    assert all(torch.equal(batch["y"], 2 * batch["x"]) for batch in batches)
    return [row for batch in batches for row in batch["x"].tolist()]


# Each process that is started takes a second, since so much is loaded.
MORE = [
    (n, options) for n in (1, 2, 3) for options in ({}, {"shuffle": False}, {"drop_last": True})
]
MORE.remove((2, {}))


@pytest.mark.parametrize(
    ("workers", "options"),
    [
        (0, {}),
        (0, {"shuffle": False}),
        (0, {"drop_last": True}),
        (2, {}),
        *(pytest.param(*each, marks=pytest.mark.long) for each in MORE),
    ],
    ids=str,
)
def test_workers_read_each_row_once(workers, options):
    batches = made(workers, **options)
    loader = loader_of(batches)
    orders = []
    for epoch in (0, 1, 0):
        batches.set_epoch(epoch)
        orders.append(rows(loader))
        assert len(set(orders[-1])) == len(orders[-1])
        assert len(orders[-1]) == LENGTH or "drop_last" in options
    assert orders[0] == orders[2]
    assert (orders[0] != orders[1]) == ("shuffle" not in options)


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_the_length_depends_on_the_epoch(workers):
    """Blocks are not of one length, so a worker has more rows in one epoch than in another."""
    x = da.from_array(np.arange(60), chunks=((6, 4, 5) * 4,))
    batches = Batches(
        af.stream(x, "torch", shuffle=True, seed=0, batch_size=4, drop_last=True), workers
    )
    lengths = set()
    for epoch in range(20):
        batches.set_epoch(epoch)
        parts = [batches._stream.shard(index, workers) for index in range(workers)]
        assert len(batches) == sum(len(list(part)) for part in parts)
        lengths.add(len(batches))
    assert len(lengths) > 1


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_workers_that_persist_see_the_epoch(context):
    batches = made(2)
    batches = pickle.loads(pickle.dumps(copy.copy(batches)))
    loader = loader_of(batches, persistent_workers=True, multiprocessing_context=context)
    fresh = made(2)
    for epoch in (0, 1, 5):
        batches.set_epoch(epoch)
        fresh.set_epoch(epoch)
        assert rows(loader) == rows(loader_of(fresh))


def test_the_epoch_is_the_one_that_was_set():
    stream = af.stream(np.arange(40), "torch", shuffle=True, seed=0, block=4)
    batches = Batches(stream)
    first = [row for batch in batches for row in batch.tolist()]
    assert first == [row for batch in stream for row in batch.tolist()]
    assert first == [row for batch in batches for row in batch.tolist()]
    batches.set_epoch(1)
    second = [row for batch in batches for row in batch.tolist()]
    assert second == [row for batch in stream for row in batch.tolist()]
    with pytest.raises(af.OptionError, match="epoch=-1"):
        batches.set_epoch(-1)


def test_processes_with_workers():
    seen = [rows(loader_of(made(2, part=(rank, 2)))) for rank in range(2)]
    assert all(seen)
    assert sorted(itertools.chain(*seen)) == list(range(LENGTH))


def test_a_part_of_a_stream_without_a_seed_is_refused():
    stream = af.stream(np.arange(40), "torch", shuffle=True, block=4)
    assert len(Batches(stream)) == 10
    with pytest.raises(af.OptionError, match="Pass seed= to the stream, the same in every process"):
        Batches(stream.shard(0, 2))
    stream.load_state_dict({**stream.state_dict(), "seed": 5})
    assert len(Batches(stream.shard(0, 2))) == 5
    assert len(Batches(af.stream(np.arange(40), "torch", block=4).shard(0, 2))) == 5


def test_an_array_is_no_stream():
    with pytest.raises(TypeError, match=r"a ndarray is not a stream: .*af\.stream\(array"):
        Batches(np.arange(20))


def test_batches_show_their_stream():
    shown = repr(made(2, part=(0, 2)))
    assert shown.startswith("<Batches of <Stream of 8 shuffled batches of 32, ")
    assert shown.endswith(", part 0 of 2, to torch>, for num_workers=2>")


@pytest.mark.parametrize("worker", [None, SimpleNamespace(id=0, num_workers=2)])
def test_another_number_of_workers_is_refused(worker, monkeypatch):
    monkeypatch.setattr("arrayferry_plugins.torch_.data.get_worker_info", lambda: worker)
    where = "outside the workers" if worker is None else "by 2 workers"
    with pytest.raises(af.OptionError, match=f"num_workers=3 is used {where}.*Pass the same"):
        iter(made(3))
    with pytest.raises(af.OptionError, match="StatefulDataLoader"):
        made(3).state_dict()
    for wrong in (-1, 1.5, None, True):
        with pytest.raises(af.OptionError, match=f"num_workers={wrong}"):
            made(wrong)


def test_a_stream_that_begins_elsewhere_is_refused():
    stream = af.stream(np.arange(8), "torch", block=2)
    stream.load_state_dict({**stream.state_dict(), "position": 2})
    with pytest.raises(af.OptionError, match="begins at result 2"):
        Batches(stream)


def test_states_without_workers():
    batches, whole = made(), rows(loader_of(made()))
    assert batches.state_dict()["position"] == 0
    seen = [row for batch in itertools.islice(batches, 5) for row in batch["x"].tolist()]
    state = json.loads(json.dumps(batches.state_dict()))
    for epochs in ([], [0], [1, 0]):
        again = made()
        for epoch in epochs[:1]:
            again.set_epoch(epoch)
        again.load_state_dict(state)
        for epoch in epochs[1:]:
            again.set_epoch(epoch)
        assert again.state_dict() == state
        rest = [row for batch in again for row in batch["x"].tolist()]
        assert seen + rest == whole
        assert again.state_dict()["position"] == len(again)
        assert rows(loader_of(again)) == whole or epochs == [1]
    again.load_state_dict(state)
    again.set_epoch(1)  # not where it was
    assert again.state_dict() == {**state, "epoch": 1, "position": 0}
    assert len(rows(loader_of(again))) == LENGTH


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 1}, "seed is 0, here it is 1.*the same.*seed="),
        ({"length": 400}, "length is 500, here it is 400"),
        ({"batch_size": 8}, "batch_size is 32, here it is 8"),
        ({"part": (1, 2)}, "part is 0, here it is 1"),
    ],
)
def test_states_of_others_are_refused(other, message):
    with pytest.raises(af.OptionError, match=message):
        made(**other).load_state_dict(made().state_dict())


@pytest.mark.parametrize("state", [None, {}, {"num_workers": 0}, {"num_workers": 2}])
def test_states_that_are_none_are_refused(state):
    with pytest.raises(af.OptionError, match="does not belong here"):
        made().load_state_dict(state)


def stateful(batches, **options):
    kind = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    return loader_of(batches, kind, **options)


@pytest.mark.parametrize(
    ("workers", "options", "loader_options"),
    [
        (0, {}, {}),
        (2, {}, {"persistent_workers": True}),
        pytest.param(2, {}, {}, marks=pytest.mark.long),
        pytest.param(2, {"shuffle": False}, {"snapshot_every_n_steps": 3}, marks=pytest.mark.long),
        pytest.param(2, {}, {"multiprocessing_context": "spawn"}, marks=pytest.mark.long),
        pytest.param(1, {"shuffle": False}, {"prefetch_factor": 5}, marks=pytest.mark.long),
    ],
)
def test_a_stateful_loader_goes_on_where_it_was(workers, options, loader_options):
    epochs = []
    for epoch in range(3):
        batches = made(workers, **options)
        batches.set_epoch(epoch)
        epochs.append(rows(loader_of(batches)))
    count = len(batches)
    for taken in (1, 4, count) if not loader_options or not workers else (4,):
        batches = made(workers, **options)
        loader = stateful(batches, **loader_options)
        batches.set_epoch(1)
        seen = [row for batch in itertools.islice(loader, taken) for row in batch["x"].tolist()]
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        again = made(workers, **options)
        loader = stateful(again, **loader_options)
        loader.load_state_dict(state)
        again.set_epoch(1)
        seen += [row for batch in loader for row in batch["x"].tolist()]
        assert seen == epochs[1]
        again.set_epoch(2)
        assert rows(loader) == epochs[2]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_the_state_at_the_end_of_an_epoch(workers):
    batches = made(workers)
    loader = stateful(batches)
    rows(loader)
    again = made(workers)
    continued = stateful(again)
    continued.load_state_dict(loader.state_dict())
    for one in (batches, again):
        one.set_epoch(1)
    assert rows(continued) == rows(loader)


def test_the_state_of_another_number_of_workers_is_refused(monkeypatch):
    def worker_of(count):
        worker = SimpleNamespace(id=0, num_workers=count)
        monkeypatch.setattr("arrayferry_plugins.torch_.data.get_worker_info", lambda: worker)
        return made(count)

    state = worker_of(2).state_dict()
    with pytest.raises(af.OptionError, match="num_workers is 2, here it is 3"):
        worker_of(3).load_state_dict(state)


TRAINING = """
import pathlib, sys
import dask.array as da, numpy as np, torch
from torchdata.stateful_dataloader import StatefulDataLoader
import arrayferry as af
from arrayferry_plugins.torch_.data import Batches

if __name__ == "__main__":
    saved = pathlib.Path("saved")
    stream = af.stream(
        da.arange(600, chunks=20), "torch", shuffle=True, seed=3, batch_size=8, buffer_size=40
    )
    batches = Batches(stream, num_workers=2)
    loader = StatefulDataLoader(batches, batch_size=None, num_workers=2)
    start, rows = 0, []
    if saved.exists():
        state = torch.load(saved)
        loader.load_state_dict(state["loader"])
        start, rows = state["epoch"], state["rows"]
    for epoch in range(start, 3):
        batches.set_epoch(epoch)
        for number, batch in enumerate(loader):
            rows += [(epoch, row) for row in batch.tolist()]
            if number % 5 == 4:
                torch.save({"loader": loader.state_dict(), "epoch": epoch, "rows": rows}, "new")
                pathlib.Path("new").rename(saved)
            print(len(rows), flush=True)
    torch.save(rows, "finished")
"""


def test_training_on_two_workers_goes_on_after_a_kill(tmp_path, monkeypatch):
    pytest.importorskip("torchdata")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def train(until):
        """Train until so many rows were seen, and kill the process and its workers."""
        process = subprocess.Popen(
            [sys.executable, "-W", "error:Length", "-c", TRAINING], stdout=subprocess.PIPE, text=True,
            cwd=tmp_path, start_new_session=True,
        )  # fmt: skip
        with process, process.stdout:
            for line in process.stdout:
                if int(line) >= until:
                    os.killpg(process.pid, signal.SIGKILL)
                    break
        return process.returncode

    for until in (250, 1000):  # in the first epoch, and in the second
        assert train(until) == -signal.SIGKILL
    assert train(10**6) == 0
    seen = torch.load(tmp_path / "finished")
    assert sorted(seen) == [(epoch, row) for epoch in range(3) for row in range(600)]
    stream = af.stream(
        np.arange(600), "torch", block=20, shuffle=True, seed=3, batch_size=8, buffer_size=40
    )
    batches = Batches(stream, num_workers=2)
    batches.set_epoch(2)
    whole = [row for batch in loader_of(batches) for row in batch.tolist()]
    assert [row for epoch, row in seen if epoch == 2] == whole
