"""Dask's other collections: DataFrames, bags, and xarray's objects over Dask."""

import re
import threading

import dask
import dask.array as da
import dask.bag as bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from refusals import refused

import arrayferry as af
from arrayferry_plugins.dask_ import to_dask

pytestmark = pytest.mark.filterwarnings("ignore:.*was not converted, since objects of this class")


def frame():
    return dd.from_pandas(pd.DataFrame({"a": [1.0, 2, 3], "b": [4.0, 5, 6]}), npartitions=2)


LENGTHS = "x.to_dask_array().compute_chunk_sizes()"
COLLECTIONS = {
    "DataFrame": (frame, LENGTHS, [[1, 4], [2, 5], [3, 6]]),
    "Series": (lambda: frame().a, LENGTHS, [1, 2, 3]),
    "Index": (lambda: frame().index, LENGTHS, [0, 1, 2]),
    "Scalar": (lambda: frame().a.sum(), "x.compute()", 6),
    "Bag": (lambda: bag.from_sequence([1, 2, 3], npartitions=2), "x.compute()", [1, 2, 3]),
    "Item": (lambda: bag.from_sequence([1, 2, 3]).sum(), "x.compute()", 6),
    "Delayed": (lambda: dask.delayed(sum)([1, 2]), "x.compute()", 3),
}


@pytest.mark.parametrize("to", ["numpy", "torch", "dask"])
@pytest.mark.parametrize("name", COLLECTIONS)
def test_a_collection_is_refused_and_the_remedy_works(name, to):
    make, remedy, values = COLLECTIONS[name]
    x = make()
    for options in ({}, {"copy": False}, {"unsupported": "keep"}):
        words = rf"a Dask {name} cannot be converted, from dask\."
        assert remedy in refused(af.ConversionError, words, x, to, **options).remedy
    assert af.convert([x, 1], to)[0] is x
    refused(af.NotAnArrayError, r"at \['k'\]", {"k": x}, to, unknown="raise")
    refused(af.ConversionError, rf"a Dask {name} .*at \['k'\]", {"k": x}, to, unknown="convert")
    with pytest.raises(af.ConversionError, match=rf"{name} cannot .*\['k'\].*{re.escape(remedy)}"):
        af.stream({"k": x}, to)
    found = af.convert(eval(remedy, {"x": x}), "torch")
    assert (found.tolist() if isinstance(found, torch.Tensor) else found) == values


@pytest.fixture
def counted():
    """Return a dataset of two variables over one Dask array, and how often its two blocks ran."""
    lock, runs = threading.Lock(), []

    def block(x):
        with lock:
            runs.append(1)
        return x

    shared = da.ones((4, 2), chunks=(2, 2)).map_blocks(block, dtype=float, meta=np.ones((0, 0)))
    variables = {"u": (("x", "y"), shared + 1), "v": (("x", "y"), shared * 2)}
    return xr.Dataset(variables, coords={"x": np.arange(4)}), runs


@pytest.mark.parametrize("to", ["numpy", "jax"])
def test_a_dataset_is_computed_in_one_graph(counted, to):
    data, runs = counted
    for _ in range(4):
        runs.clear()
        found = af.convert({"d": data, "u": data.u}, to)
        assert len(runs) == 2
        assert af.backend_of(found["d"].v.data).name == to
        assert found["d"].u.dims == ("x", "y")
        assert float(found["d"].v.sum()) == float(found["u"].sum()) == 16


def test_a_dataset_stays_lazy(counted):
    data, runs = counted
    for _ in range(4):
        assert isinstance(af.convert(data, "dask").u.data, da.Array)
    found = to_dask(data, 1, blocks="jax")
    assert found.u.data.chunks == ((1, 1, 1, 1), (2,))
    assert found.u.dims == ("x", "y")
    assert runs == []
    assert af.backend_of(found.u.data.blocks[0].compute()).name == "jax"
    assert len(runs) == 1
