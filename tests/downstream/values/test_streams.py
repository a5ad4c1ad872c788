"""Streams of arrays in Zarr stores, and trees of them with others."""

import dask.array as da
import numpy as np
import pytest
import torch
import xarray
import zarr

import arrayferry as af

VALUES = np.random.default_rng(0).normal(size=(101, 7)).astype("float32")


@pytest.fixture(params=[(10, 7), (13, 3), (101, 7), (1, 1)], ids=["rows", "both", "one", "ones"])
def array(request, tmp_path):
    made = zarr.create_array(
        tmp_path / "x.zarr", shape=VALUES.shape, dtype="f4", chunks=request.param
    )
    made[:] = VALUES
    return made


@pytest.mark.parametrize("target", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("block", [None, 4, 10, 26, 200])
def test_every_row_once_and_in_order(array, target, block):
    stream = af.stream({"x": array, "index": np.arange(101)}, target, block=block)
    blocks = list(stream)
    assert len(blocks) == (1 if block is None else -(-101 // block))
    np.testing.assert_array_equal(np.concatenate([np.asarray(b["x"]) for b in blocks]), VALUES)
    np.testing.assert_array_equal(
        np.concatenate([np.asarray(b["index"]) for b in blocks]), np.arange(101)
    )


def test_other_axes(array):
    blocks = list(af.stream(array, "torch", axis=-1, block=2))
    np.testing.assert_array_equal(torch.cat(blocks, 1), VALUES)


class Counted(zarr.storage.MemoryStore):
    """Counts how often each chunk is read."""

    def __init__(self):
        super().__init__()
        self.reads = {}

    async def get(self, key, prototype, byte_range=None):
        if "/c/" in f"/{key}":
            self.reads[key] = self.reads.get(key, 0) + 1
        return await super().get(key, prototype, byte_range)


@pytest.mark.parametrize("shards", [None, (20, 7)])
@pytest.mark.parametrize("block", [None, 3, 10, 15, 64])
def test_each_chunk_is_read_once(block, shards):
    store = Counted()
    made = zarr.create_array(store, shape=(100, 7), dtype="f4", chunks=(10, 7), shards=shards)
    made[:] = VALUES[:100]
    store.reads.clear()
    np.testing.assert_array_equal(
        torch.cat(list(af.stream(made, "torch", block=block))), VALUES[:100]
    )
    parts = 5 if shards else 10
    assert len(store.reads) == parts
    if not shards:  # of a shard, the index and the parts are read one by one
        assert set(store.reads.values()) == {1}


def test_text_is_refused_at_once(tmp_path):
    made = zarr.create_array(tmp_path / "t.zarr", shape=(3,), dtype=str)
    with pytest.raises(af.UnsupportedDtypeError, match=r"text or objects, at \['t'\]"):
        af.stream({"t": made}, "torch")


def test_xarray_over_dask():
    x = xarray.Dataset({"a": ("n", da.arange(20, chunks=5)), "b": ("n", da.ones(20, chunks=4))})
    blocks = list(af.stream({name: x[name].data for name in x}, "torch"))
    assert torch.cat([b["a"] for b in blocks]).tolist() == list(range(20))
    assert len(blocks) == 5
