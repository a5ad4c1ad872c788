"""Values that were once half converted, stripped or refused for a wrong reason."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import arrayferry as af

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def units():
    return pytest.importorskip("astropy.units")


def masked():
    return pytest.importorskip("astropy.utils.masked").Masked


def test_units_and_masks_of_dask_blocks_are_never_lost():
    da = pytest.importorskip("dask.array")
    metre = units().m
    measured = da.ones(3).map_blocks(lambda b: b * metre, dtype=float, meta=np.ones(0))
    hidden = da.ones(3).map_blocks(lambda b: masked()(b, mask=True), dtype=float, meta=np.ones(0))
    for to in ("numpy", "torch", "jax"):
        with pytest.raises(af.ConversionError, match=r"units, which would be lost.*at \['x'\]"):
            af.convert({"x": measured}, to)
        with pytest.raises(af.ConversionError, match="mask would be lost"):
            af.convert(hidden, to)


def test_masks_of_other_packages():
    with pytest.raises(af.ConversionError, match="mask would be lost"):
        af.convert(masked()(np.ones(2), mask=[True, False]), "torch")
    whole = masked()(np.ones(2), mask=[False, False])
    assert af.convert(whole, "torch").tolist() == [1, 1]


def test_a_column_without_units_has_none():
    table = pytest.importorskip("astropy.table")
    assert af.convert(table.Column([1, 2]), "torch").tolist() == [1, 2]
    with pytest.raises(af.ConversionError, match="units, which would be lost"):
        af.convert(table.Column([1, 2], unit="m"), "torch")


def test_a_sparse_column_does_not_teach_a_converter_to_take_dense_ones():
    pd = pytest.importorskip("pandas")
    to_torch = af.converter("torch", sparse="dense")
    thin, dense = pd.Series(pd.arrays.SparseArray([0, 0, 1])), pd.Series([1, 2, 3])
    for _ in range(4):
        assert to_torch([thin])[0].tolist() == [0, 0, 1]
    assert to_torch([dense])[0] is dense


def test_views_of_xarray_are_kept():
    xr = pytest.importorskip("xarray")
    data = xr.Dataset({"a": ("x", [1, 2])}, coords={"x": [1, 2]})
    for view in (data.coords, data.data_vars, data.a.coords):
        for to in ("numpy", "torch", "jax"):
            assert af.convert({"x": np.ones(1), "view": view}, to)["view"] is view


def test_trees_of_xarray():
    xr = pytest.importorskip("xarray")
    data = xr.Dataset({"a": ("x", np.float32([1, 2]))}, coords={"x": [1, 2]})
    tree = xr.DataTree.from_dict({"/": data, "/inner": data + 1}, name="tree")
    found = af.convert([tree], "jax")[0]
    assert type(found) is xr.DataTree
    assert found.name == "tree"
    assert af.backend_of(found["inner"].a.data).name == "jax"
    assert found["inner"].a.data.tolist() == [2, 3]
    assert af.convert(found, "numpy").equals(tree)
    with pytest.raises(af.ConversionError, match=r"cannot hold a torch.*\['/'\]\.dataset"):
        af.convert({"t": tree}, "torch")


def test_what_xarray_cannot_hold():
    xr = pytest.importorskip("xarray")
    data = xr.Dataset({"a": ("x", np.float32([1, 2]))}, coords={"x": [1, 2]})
    assert af.convert(data.x, "numpy").identical(data.x)
    for to in ("jax", "dask", "array_api_strict"):
        with pytest.raises(af.ConversionError, match="coordinate of a dimension cannot hold"):
            af.convert(data.x, to)
    with pytest.raises(af.ConversionError, match="DataArray of xarray cannot hold a torch"):
        af.convert({"a": data.a}, "torch")
    kept = data.a
    for _ in range(4):
        found = af.convert({"a": kept, "b": np.ones(1)}, "torch", unsupported="keep")
        assert found["a"] is kept
        assert torch.is_tensor(found["b"])


def test_sparse_blocks_of_dask():
    da, sparse = pytest.importorskip("dask.array"), pytest.importorskip("sparse")
    x = da.from_array(np.eye(3), chunks=3).map_blocks(sparse.COO.from_numpy)
    for options in ({}, {"sparse": "raise"}):
        for value in (x, [x]):
            with pytest.raises(af.ConversionError, match="is sparse"):
                af.convert(value, "torch", **options)
    np.testing.assert_array_equal(af.convert([x], "torch", sparse="dense")[0], np.eye(3))


def test_zarr_is_read_once_in_two_places():
    zarr = pytest.importorskip("zarr")
    reads = []

    class Store(zarr.storage.MemoryStore):
        async def get(self, key, *args, **options):
            if "c/" in key:
                reads.append(key)
            return await super().get(key, *args, **options)

    x = zarr.create_array(store=Store(), shape=(3,), chunks=(3,), dtype="f4")
    x[:] = 1
    reads.clear()
    a, b = af.convert([x, x], "torch", unknown="convert")
    assert len(reads) == 1
    a[0] = 5
    assert b.tolist() == [1, 1, 1]


def test_a_stream_is_not_used_up():
    pa = pytest.importorskip("pyarrow")
    reader = pa.table({"a": [1, 2]}).to_reader()
    with pytest.raises(af.ConversionError):
        af.convert(reader, "torch", unknown="convert")
    assert reader.read_all().num_rows == 2


def test_batches_of_graphs_share_no_places_with_the_original():
    geometric = pytest.importorskip("torch_geometric.data")
    graph = geometric.Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    batch = geometric.Batch.from_data_list([graph, graph])
    found = af.convert(batch, "torch", copy=True)
    found._slice_dict["x"][1] = 1
    assert batch._slice_dict["x"].tolist() == [0, 3, 6]
    back = af.convert(af.convert(batch, "numpy"), "torch")
    assert back[1].x.tolist() == graph.x.tolist()
    assert back[1].edge_index.tolist() == graph.edge_index.tolist()


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors is in prototype")
def test_masked_tensors():
    x = torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False]))
    with pytest.raises(af.ConversionError, match="mask would be lost"):
        af.convert([x], "numpy")
