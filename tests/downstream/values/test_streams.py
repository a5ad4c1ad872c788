"""Streams of arrays in Zarr stores and Parquet files, and trees of them with others."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
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


X, Y = np.arange(60.0).reshape(20, 3), np.arange(20)


def dataset():
    return xarray.Dataset(
        {"a": (("n", "c"), X), "b": ("n", Y)}, coords={"n": np.arange(20) * 2, "c": ["r", "g", "b"]}
    )


def over_dask(path):
    return dataset().chunk({"n": 4})


def over_zarr(path):
    dataset().chunk({"n": 4}).to_zarr(path / "d.zarr", zarr_format=2, consolidated=False)
    return xarray.open_zarr(path / "d.zarr", chunks=None, consolidated=False)


def over_dask_and_zarr(path):
    over_zarr(path)
    return xarray.open_zarr(path / "d.zarr", chunks={}, consolidated=False)


def in_memory(path):
    return dataset()


OVER = [over_dask, over_zarr, over_dask_and_zarr, in_memory]


@pytest.mark.parametrize("block", [None, 3, 4, 7])
@pytest.mark.parametrize("target", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("over", OVER)
def test_xarray(over, target, block, tmp_path):
    data = over(tmp_path)
    tree = xarray.DataTree.from_dict({"/": None, "/deep": data})
    value = {
        "array": data.a,
        "variable": data.b.variable,
        "dataset": data,
        "tree": [tree],
        "index": np.arange(20),
    }
    blocks = list(af.stream(value, target, block=block))
    assert len(blocks) == {None: 5 if "dask" in over.__name__ else 1}.get(
        block, -(-20 // (block or 20))
    )
    for take, expected in (
        (lambda part: part["array"], X),
        (lambda part: part["variable"], Y),
        (lambda part: part["dataset"]["a"], X),
        (lambda part: part["dataset"]["b"], Y),
        (lambda part: part["tree"][0]["/deep"]["a"], X),
        (lambda part: part["index"], Y),
    ):
        assert {af.backend_of(take(part)).name for part in blocks} == {target}
        found = np.concatenate([np.asarray(take(part)) for part in blocks])
        np.testing.assert_array_equal(found, expected)
    assert [type(key) for key in blocks[0]["dataset"]] == [str, str]
    assert len(list(af.stream(data.a, target, block=2, axis=-1))) == 2


def test_xarray_over_zarr_is_never_read_as_a_whole(tmp_path):
    data = over_zarr(tmp_path)
    stream = af.stream(data, "torch", block=4)
    assert not data.a.variable._in_memory
    blocks = iter(stream)
    assert next(blocks)["a"].shape == (4, 3)
    blocks.close()
    assert not data.a.variable._in_memory
    broken = xarray.open_zarr(tmp_path / "d.zarr", chunks=None, consolidated=False)
    (tmp_path / "d.zarr" / "a" / "0.0").write_bytes(b"broken")
    with pytest.raises(af.BlockError, match=r"block 0 .*at .*\['a'\]"):
        list(af.stream(broken, "torch", block=4))


def test_text_in_xarray_is_refused_at_once(tmp_path):
    data = xarray.Dataset({"t": ("n", np.array(["a", "b"], object))})
    data.to_zarr(tmp_path / "t.zarr", zarr_format=2, consolidated=False)
    stored = xarray.open_zarr(tmp_path / "t.zarr", chunks=None, consolidated=False)
    with pytest.raises(af.UnsupportedDtypeError, match=r"at \['t'\]"):
        af.stream(stored, "torch")


def test_a_group_of_zarr_is_told_what_to_pass(tmp_path):
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("x", data=VALUES)
    with pytest.raises(af.ConversionError, match=r"Group cannot be converted.*group.arrays\(\)"):
        af.convert(group, "torch")
    with pytest.raises(
        af.ConversionError, match=r"Group cannot be converted.*\['k'\].*group.arrays"
    ):
        af.stream({"k": group}, "torch")
    assert af.convert([group], "torch") == [group]
    assert af.convert(dict(group.arrays()), "torch", unknown="convert")["x"].shape == (101, 7)
    assert torch.cat([b["x"] for b in af.stream(dict(group.arrays()), "torch")]).shape == (101, 7)


@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame")  # Dask uses it
@pytest.mark.parametrize("what", ["DataFrame", "Series", "Index"])
def test_the_advice_for_frames_works_on_parquet(what, tmp_path):
    frame = pd.DataFrame({"a": np.arange(10.0), "b": np.ones(10)})
    dd.from_pandas(frame, npartitions=3).to_parquet(tmp_path / "p")
    read = dd.read_parquet(tmp_path / "p")
    x = {"DataFrame": read, "Series": read.a, "Index": read.index}[what]
    rows = af.stream(x.to_dask_array().compute_chunk_sizes(), "torch")
    assert sum(map(len, rows)) == 10


COLUMNS = {"a": np.arange(5), "b": np.ones(5)}
TABLES = [pd.DataFrame(COLUMNS), pl.DataFrame(COLUMNS), pa.table(COLUMNS)]


@pytest.mark.parametrize("table", [*TABLES, pl.LazyFrame(COLUMNS)], ids=lambda x: type(x).__name__)
def test_tables_are_told_what_to_pass(table):
    with pytest.raises(
        af.ConversionError, match=r"at \['k'\], from \w+ to torch.*(column|collect)"
    ):
        af.stream({"k": table}, "torch")


@pytest.mark.parametrize("table", TABLES, ids=type)
def test_columns_are_streamed(table):
    blocks = list(af.stream({"a": table["a"], "x": np.arange(5)}, "torch", block=2))
    assert [block["a"].tolist() for block in blocks] == [[0, 1], [2, 3], [4]]


def test_an_array_without_axes_is_part_of_every_block():
    scale = zarr.create_array(shape=(), store={}, dtype="f8", fill_value=2.5)
    blocks = list(af.stream({"x": np.arange(4), "scale": scale}, "torch", block=2))
    assert [(b["x"].tolist(), b["scale"].item()) for b in blocks] == [([0, 1], 2.5), ([2, 3], 2.5)]


def test_sparse_blocks_are_refused_at_the_call():
    sparse = pytest.importorskip("sparse")
    x = da.from_array(np.eye(4), chunks=2).map_blocks(sparse.COO)
    for value in (x, sparse.COO.from_numpy(np.eye(4))):
        with pytest.raises(af.ConversionError) as converted:
            af.convert([value], "torch")
        with pytest.raises(af.ConversionError) as caught:
            af.stream([value], "torch")
        assert str(caught.value) == str(converted.value)
        blocks = list(af.stream(value, "torch", block=2, sparse="dense"))
        assert np.array_equal(torch.cat(blocks), np.eye(4))


def test_tensors_without_a_chunk():
    kind = pa.fixed_shape_tensor(pa.int16(), [2, 3], permutation=[1, 0])
    for x in (pa.chunked_array([], kind), pa.table({"x": pa.chunked_array([], kind)})["x"]):
        found = af.convert(x, "torch")
        assert (found.shape, found.dtype) == ((0, 3, 2), torch.int16)
        assert list(af.stream([x], "torch")) == []
