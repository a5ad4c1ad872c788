"""Functions that compute chunks on workers. They are here so that workers need not import the tests."""

import os
import time

import dask.array as da
import numpy as np

import arrayferry as af

ROWS, CHUNK = 60, 10


def mapped(function, length, chunks, dtype=float):
    """Return the array 0, 1, ... whose blocks go through a function that Dask does not try out."""
    x = da.arange(length, chunks=chunks, dtype=dtype)
    return x.map_blocks(function, dtype=dtype, meta=np.empty(0, dtype))


def load(directory, index):
    """Make a chunk, and note that it was made."""
    with open(os.path.join(directory, str(index)), "a") as file:
        file.write("x")
    return np.arange(CHUNK * 4, dtype=float).reshape(CHUNK, 4) + 100 * index


def shifted(block):
    return np.roll(block, 1, 0)


def slow(block):
    time.sleep(0.3)
    return block


def fails(block):
    if block.size and block.max() >= 25:
        raise ZeroDivisionError("that one")
    return block


def hangs(block):
    if block.size and block.max() >= 25:
        time.sleep(5)
    return block


def read_only(block):
    return np.frombuffer(block.tobytes())


def strict_read_only(block):
    import array_api_strict

    return array_api_strict.asarray(read_only(block), copy=False)


def expanded(block):
    import torch

    return torch.ones(1, dtype=torch.float64).expand(len(block))


def add_process(block):
    return block + os.getpid()


def first_values(stream):
    return [part[0].item() for part in stream]


def zeroed(stream):
    """Return the sum of all blocks, and write to the blocks."""
    total = 0.0
    for part in stream:
        total += part.sum().item()
        part[...] = 0
    return total


def streamed_sum(n):
    return sum(part.sum().item() for part in af.stream(da.arange(n, chunks=10), "numpy"))
