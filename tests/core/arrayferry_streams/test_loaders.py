"""Streams in the data loaders of PyTorch, torchdata and Grain: each row once, with workers and after a kill."""

import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys

import dask.array as da
import numpy as np
import pytest
from torch.utils.data import DataLoader, DistributedSampler

import arrayferry as af

pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork"),  # by JAX, which the workers do not use
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than cores
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata, PyTorch 2.13
]

multiprocessing.set_forkserver_preload(["torch", "dask.array", "arrayferry"])


def sources(tmp_path):
    """Return the same rows as a Dask array, in memory, and in a file that is mapped."""
    rows = np.arange(500)
    np.save(tmp_path / "rows.npy", rows)
    return da.from_array(rows, chunks=50), rows, np.load(tmp_path / "rows.npy", mmap_mode="r")


@pytest.mark.long
@pytest.mark.parametrize("context", ["fork", "forkserver", "spawn"])
def test_workers_read_each_block_once(context, tmp_path):
    for x in sources(tmp_path):
        stream = af.stream({"x": x, "y": x * 2}, "torch", block=50)
        stream[0], next(iter(stream))  # which leaves nothing behind for the workers
        loader = DataLoader(
            stream, batch_size=None, shuffle=True, num_workers=2, multiprocessing_context=context
        )
        assert len(loader) == 10
        blocks = list(loader)
        assert all(block["y"].equal(block["x"] * 2) for block in blocks)
        starts = [block["x"][0].item() for block in blocks]
        assert sorted(starts) == list(range(0, 500, 50)) != starts


def test_a_distributed_sampler_pads():
    stream = af.stream(da.arange(1000, chunks=100), "torch")
    ranks = [DistributedSampler(stream, 3, rank, shuffle=False) for rank in range(3)]
    loaders = [DataLoader(stream, batch_size=None, sampler=sampler) for sampler in ranks]
    assert sum(len(block) for loader in loaders for block in loader) == 1200
    parts = [stream[rank::3] for rank in range(3)]
    rows = [row for part in parts for block in DataLoader(part, batch_size=None) for row in block]
    assert sorted(map(int, rows)) == list(range(1000))


@pytest.mark.long
def test_workers_of_grain_go_on_where_they_were(run_python):
    pytest.importorskip("grain")
    script = """
import itertools, os, sys
import absl.flags, dask.array as da, grain, numpy as np
import arrayferry as af

if __name__ == "__main__":
    absl.flags.FLAGS.mark_as_parsed()  # as absl.app.run does
    stream = af.stream(da.arange(300, chunks=10), "numpy")
    dataset = grain.MapDataset.source(stream).shuffle(seed=0)
    dataset = dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=2))
    dataset = dataset.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=2))
    iterator = iter(dataset)
    seen = list(itertools.islice(iterator, 7))
    state = iterator.get_state()
    next(iterator)
    iterator = iter(dataset)
    iterator.set_state(state)
    seen += iterator
    assert sorted(np.concatenate(seen).tolist()) == list(range(300))
    print("each row once", flush=True)
    os._exit(0)  # Grain's shared memory raises errors as the process ends
"""
    assert run_python(script, timeout=500) == "each row once\n"


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_a_loader_does_not_go_on_with_other_rows(workers):
    pytest.importorskip("torchdata")
    from torchdata.stateful_dataloader import StatefulDataLoader

    def loader(length):
        stream = af.stream(da.arange(length, chunks=3), "torch")
        return StatefulDataLoader(stream, batch_size=None, num_workers=workers)

    first = loader(12)
    next(iter(first))
    state = first.state_dict()
    same, other = loader(12), loader(11)
    same.load_state_dict(state)
    assert [int(block[0]) for block in same] == [3, 6, 9]
    other.load_state_dict(state)
    words = r"has 4 blocks, 12 rows where this stream has 4 blocks, 11 rows"
    with pytest.raises(af.OptionError, match=words):
        next(iter(other))


SAVING = """
import os, pickle

import arrayferry as af
import dask.array as da
import numpy as np


def saved():
    return pickle.load(open("saved", "rb")) if os.path.exists("saved") else (None, 0, [])


def save(*training):
    with open("new", "wb") as file:
        pickle.dump(training, file)
    os.replace("new", "saved")
    print(len(training[-1]), flush=True)


def end(seen):
    np.save("rows.npy", seen)
    print(len(seen), "rows,", len(set(seen)), "of them different")
"""
TRAININGS = {
    "torchdata": """
import torch
from torchdata.stateful_dataloader import StatefulDataLoader


def mixed(blocks):
    rows = torch.cat(blocks)
    return rows[torch.randperm(len(rows))]


if __name__ == "__main__":
    stream = af.stream(da.arange(2000, chunks=25), "torch")
    loader = StatefulDataLoader(stream, batch_size=4, shuffle=True, num_workers=2, collate_fn=mixed)
    state, epoch, seen = saved()
    if state:
        loader.load_state_dict(state)
    for epoch in range(epoch, 3):
        for rows in loader:
            seen += rows.tolist()
            save(loader.state_dict(), epoch, seen)
    end(seen)
""",
    "grain": """
import grain


def mixed(rows, rng):
    return rng.permutation(rows)


if __name__ == "__main__":
    stream = af.stream(da.arange(2000, chunks=25), "numpy")
    dataset = grain.MapDataset.source(stream).seed(0).shuffle().repeat(3)
    dataset = dataset.batch(4, batch_fn=np.concatenate).random_map(mixed)
    options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=2)
    iterator = iter(dataset.to_iter_dataset(options))
    state, _, seen = saved()
    if state:
        iterator.set_state(state)
    for rows in iterator:
        seen += rows.tolist()
        save(iterator.get_state(), 0, seen)
    end(seen)
""",
}


@pytest.mark.long
@pytest.mark.parametrize("package", TRAININGS)
def test_trainings_are_killed_and_resumed(package, tmp_path):
    """Each row once an epoch, wherever it is killed, also between two epochs and while a state is saved."""
    pytest.importorskip(package)
    rng, kills = random.Random(0), 20
    steps = [rng.randint(1, 3) for _ in range(kills)]
    for number in itertools.count():
        process = subprocess.Popen(
            [sys.executable, "-c", SAVING + TRAININGS[package]], stdout=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True
        )  # fmt: skip
        with process, process.stdout:
            for _ in itertools.islice(process.stdout, steps[number] if number < kills else None):
                pass
            if number < kills:  # it may have taken more steps meanwhile, or all
                os.killpg(process.pid, signal.SIGKILL)
        if not process.returncode:
            break
        assert process.returncode == -signal.SIGKILL
    assert number > 5
    epochs = np.load(tmp_path / "rows.npy").reshape(3, 2000)
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(2000))
    assert (epochs[0] != epochs[1]).any()
