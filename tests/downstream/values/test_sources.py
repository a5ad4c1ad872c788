"""Columns, datasets and sparse matrices of the real packages, as they are read by the sources of the plugins."""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import dask.array as da
import h5py
import hypothesis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute
import pytest
import scipy.sparse
import torch
import zarr
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from refusals import refused

import arrayferry as af

with warnings.catch_warnings(action="ignore"):
    import awkward as ak
    import datasets
    import sparse

TARGETS = ("numpy", "torch", "jax", "dask")
DAY = np.array(["2020-01-01", "NaT"], "M8[D]")
NAN = np.array([1.5, np.nan, -0.0])
BIG = np.array([0, 2**53 + 1, 2**64 - 1], np.uint64)
GRID = np.arange(12, dtype=np.int16).reshape(3, 4)
RECORDS = np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")])
NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float32", "float64")


pytestmark = pytest.mark.filterwarnings(
    "ignore:.*was not converted, since objects of this class", "ignore:The data type:"
)  # Zarr has no specification for some


class Case(NamedTuple):
    """One object that is read: its package, how it is made, its values, and whether NumPy can share its memory."""

    package: str
    make: Callable[[], Any]
    values: np.ndarray
    shares: bool = True


class Refused(NamedTuple):
    """One object that is refused: its package, how it is made, words of the reason and of the remedy, and what that gives."""

    package: str
    make: Callable[[], Any]
    reason: str
    remedy: str
    values: list[Any] | None = None


def read(y: Any) -> np.ndarray:
    return np.asarray(y.compute() if hasattr(y, "compute") else y)


def same(found: Any, values: np.ndarray) -> None:
    found = read(found)
    assert (found.dtype, found.shape) == (values.dtype, values.shape)
    if values.dtype.kind == "f":
        assert np.array_equal(np.signbit(found), np.signbit(values))
    assert np.array_equal(found, values, equal_nan=values.dtype.kind in "fcmM")


def frozen(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.flags.writeable = False
    return values


def fixed_lists(values: np.ndarray) -> Any:
    """Make a pyarrow array of fixed-size lists of the shape of `values`."""
    x = pa.array(values.reshape(-1))
    for size in values.shape[:0:-1]:
        x = pa.FixedSizeListArray.from_arrays(x, size)
    return x


def permuted(order: Any = (1, 0), shape: Any = (2, 3)) -> Any:
    """Make a pyarrow tensor array of `GRID` whose elements are stored in one order, and seen in another."""
    kind = pa.fixed_shape_tensor(pa.int16(), list(shape), permutation=list(order))
    stored = fixed_lists(GRID.reshape(-1, int(np.prod(shape))))
    return pa.ExtensionArray.from_storage(kind, stored)


def bool_tensors() -> Any:
    stored = pa.array([[True, False], [False, False]], pa.list_(pa.bool_(), 2))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.bool_(), [2]), stored)


def in_zarr(values: np.ndarray, dtype: Any = None, **options: Any) -> Any:
    options = {"store": {}, "dtype": dtype or values.dtype, **options}
    x = zarr.create_array(shape=values.shape, **options)
    x[...] = values
    return x


def h5_file() -> Any:
    return h5py.File(str(uuid.uuid4()), "w", driver="core", backing_store=False)


def in_h5(values: Any, **options: Any) -> Any:
    return h5_file().create_dataset("x", data=values, **options)


def in_arrow(values: Any, dtype: Any = None) -> Any:
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values, dtype)))


PLAIN = {
    **{dtype: np.array([1, 0, 3], dtype) for dtype in NUMBERS},
    "uint64 beyond floats": BIG,
    "NaN": NAN,
    "empty": np.array([], "i1"),
    "half": NAN.astype("f2"),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "days": DAY[:1],
    "times": DAY[:1].astype("M8[us]"),
    "time spans": np.array([5], "m8[ms]"),
}
USUAL = [*NUMBERS, "uint64 beyond floats", "NaN", "empty"]
TIMES = ["times", "time spans"]
FEW = ["uint64 beyond floats", "half", "bool", "complex"]
FORMS: dict[str, tuple[Callable[[np.ndarray], Any], list[str], list[str]]] = {
    "pandas series": (lambda n: pd.Series(n.copy()), [*USUAL, "bool", "complex", *TIMES], []),
    "pandas Arrow": (in_arrow, [*FEW[:3], "NaN", "int8"], ["bool"]),
    "polars series": (pl.Series, [*USUAL, "half", "bool", "days", *TIMES], ["bool", "days"]),
    "pyarrow array": (pa.array, [*USUAL, "half", "days", *TIMES], ["days"]),
    "zarr array": (in_zarr, FEW, FEW),
    "h5py dataset": (in_h5, FEW, FEW),
    "awkward array": (ak.Array, [*USUAL[:-1], *FEW[1:]], []),
}
"""How an array is made of values, which of `PLAIN` it holds, and which of these are copied."""

# The first word of a name is the package.
GOOD = {
    **{
        f"{form} of {name}": (
            lambda make=make, name=name: make(PLAIN[name]),
            PLAIN[name],
            name not in copied,
        )
        for form, (make, names, copied) in FORMS.items()
        for name in names
    },
    # pandas
    "pandas strided": (lambda: pd.Series(GRID[0])[::2], GRID[0, ::2]),
    "pandas reversed": (lambda: pd.Series(GRID[0])[::-1], GRID[0, ::-1]),
    "pandas index": (lambda: pd.Index([3, 1], dtype="int16"), np.array([3, 1], "i2")),
    "pandas range": (lambda: pd.RangeIndex(2, 8, 3), np.array([2, 5])),
    "pandas index of dates": (lambda: pd.DatetimeIndex(DAY.astype("M8[s]")), DAY.astype("M8[s]")),
    **{
        f"pandas nullable {kind} of {dtype}": (
            lambda kind=kind, dtype=dtype: getattr(pd, kind)([1, 0, 3], dtype=dtype),
            np.array([1, 0, 3], dtype.lower()),
        )
        for kind in ("Series", "Index", "array")
        for dtype in ("Int8", "UInt16", "Int64", "Float32")
    },
    "pandas nullable UInt64": (lambda: pd.Series(BIG, dtype="UInt64"), BIG),
    "pandas nullable bool": (lambda: pd.array([True, False], "boolean"), np.array([True, False])),
    "pandas array of NumPy": (lambda: pd.arrays.NumpyExtensionArray(NAN.copy()), NAN),
    "pandas array of dates": (lambda: pd.array(DAY.astype("M8[s]")), DAY.astype("M8[s]")),
    "pandas Arrow chunks": (
        lambda: pd.concat([in_arrow([n], pa.int8()) for n in (1, 2)]),
        np.array([1, 2], "i1"),
        False,
    ),
    "pandas Arrow days": (lambda: in_arrow(DAY[:1], pa.date32()), DAY[:1].astype("M8[ms]"), False),
    # Polars
    "polars slice": (lambda: pl.Series(GRID[0])[1:3], GRID[0, 1:3]),
    "polars strided": (lambda: pl.Series(GRID[0])[::2], GRID[0, ::2]),
    "polars reversed": (lambda: pl.Series(GRID[0]).reverse(), GRID[0, ::-1]),
    "polars chunks": (
        lambda: pl.concat([pl.Series(GRID[0]), pl.Series(GRID[1])], rechunk=False),
        GRID[:2].reshape(-1),
        False,
    ),
    "polars rows sliced": (lambda: pl.Series(GRID)[1:], GRID[1:]),
    "polars blocks": (lambda: pl.Series(GRID.reshape(3, 2, 2)), GRID.reshape(3, 2, 2)),
    "polars no rows": (lambda: pl.Series([], dtype=pl.Array(pl.Int8, (3, 2))), np.zeros((0, 3, 2), "i1")),
    "polars empty rows": (lambda: pl.Series([[], []], dtype=pl.Array(pl.Int8, 0)), np.zeros((2, 0), "i1")),
    "polars rows of bools": (
        lambda: pl.Series([[True, False], [False, False]], dtype=pl.Array(pl.Boolean, 2)),
        np.array([[True, False], [False, False]]),
        False,
    ),
    # pyarrow
    "pyarrow slice": (lambda: pa.array(GRID[0])[1:3], GRID[0, 1:3]),
    "pyarrow bits": (lambda: pa.array([True, False, False] * 7)[3:20], np.array([True, False, False] * 7)[3:20], False),
    "pyarrow slice without nulls": (lambda: pa.array([None, 1, 2])[1:], np.array([1, 2])),
    "pyarrow one chunk": (lambda: pa.chunked_array([GRID[0]]), GRID[0]),
    "pyarrow chunks": (lambda: pa.chunked_array([GRID[0], GRID[1]])[1:], GRID[:2].reshape(-1)[1:], False),
    "pyarrow no chunks": (lambda: pa.chunked_array([], pa.int8()), np.array([], "i1")),
    "pyarrow lists sliced": (lambda: fixed_lists(GRID)[1:], GRID[1:]),
    "pyarrow lists of lists": (lambda: fixed_lists(GRID.reshape(3, 2, 2))[1:], GRID.reshape(3, 2, 2)[1:]),
    "pyarrow lists of bools": (
        lambda: pa.array([[True, False, True]] * 3, pa.list_(pa.bool_(), 3))[1:],
        np.array([[True, False, True]] * 2),
        False,
    ),
    "pyarrow empty lists": (lambda: pa.array([[], []], pa.list_(pa.int8(), 0)), np.zeros((2, 0), "i1")),
    **{
        f"pyarrow {name} of one length": (
            lambda kind=kind: pa.array(GRID.reshape(3, 2, 2).tolist(), kind(kind(pa.int16())))[1:],
            GRID.reshape(3, 2, 2)[1:],
        )
        for name, kind in {
            "lists": pa.list_, "large lists": pa.large_list, "views": pa.list_view, "large views": pa.large_list_view,
        }.items()
    },
    "pyarrow lists in fixed ones": (lambda: pa.array(GRID.reshape(3, 2, 2).tolist(), pa.list_(pa.list_(pa.int16()), 2))[::1][1:], GRID.reshape(3, 2, 2)[1:]),
    "pyarrow fixed lists in lists": (lambda: pa.array(GRID.reshape(3, 2, 2).tolist(), pa.list_(pa.list_(pa.int16(), 2)))[:2], GRID.reshape(3, 2, 2)[:2]),
    "pyarrow lists after a longer one": (lambda: pa.array([[9], None, *GRID.tolist(), [9]], pa.list_(pa.int16()))[2:5], GRID),
    "pyarrow lists of bits": (lambda: pa.array([[True, False, True]] * 4)[1:], np.array([[True, False, True]] * 3), False),
    "pyarrow lists of days": (lambda: pa.array([[datetime.date(2020, 1, 1)]]), DAY[:1].reshape(1, 1), False),
    "pyarrow no lists": (lambda: pa.array([], pa.list_(pa.list_(pa.int8()))), np.zeros((0, 0, 0), "i1")),
    "pyarrow lists of no lists": (lambda: pa.array([[], []], pa.list_(pa.list_(pa.int8()))), np.zeros((2, 0, 0), "i1")),
    "pyarrow chunks of lists": (lambda: pa.chunked_array([GRID[:1].tolist(), [], GRID[1:].tolist()], pa.list_(pa.int16())), GRID, False),
    "pyarrow chunk of lists": (lambda: pa.table({"a": pa.chunked_array([[], GRID.tolist()], pa.list_(pa.int16()))})["a"], GRID),
    "pyarrow no chunks of lists": (lambda: pa.chunked_array([], pa.list_(pa.int8(), 3)), np.zeros((0, 3), "i1")),
    "pyarrow no chunks of tensors": (lambda: pa.chunked_array([], permuted().type), np.zeros((0, 3, 2), "i2")),
    "pyarrow list column": (lambda: pa.table({"a": GRID.tolist()})["a"][1:], GRID[1:].astype("i8")),
    "datasets column of Arrow": (lambda: datasets.Dataset.from_dict({"a": GRID}).with_format("arrow")["a"][:], GRID),
    "pyarrow tensors": (
        lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(GRID.reshape(3, 2, 2))[1:],
        GRID.reshape(3, 2, 2)[1:],
    ),
    "pyarrow tensors permuted": (permuted, GRID.reshape(2, 2, 3).transpose(0, 2, 1)),
    "pyarrow tensors of bools": (bool_tensors, np.array([[True, False], [False, False]]), False),
    "pyarrow chunks of tensors": (
        lambda: pa.chunked_array([permuted()[1:], permuted()]),
        GRID.reshape(2, 2, 3).transpose(0, 2, 1)[[1, 0, 1]],
        False,
    ),
    "pyarrow tensor": (lambda: pa.Tensor.from_numpy(GRID.copy()), GRID),
    "pyarrow tensor transposed": (lambda: pa.Tensor.from_numpy(GRID.copy().T), GRID.T),
    "pyarrow tensor read-only": (lambda: pa.Tensor.from_numpy(frozen(GRID)), GRID),
    # Zarr
    "zarr": (lambda: in_zarr(GRID, chunks=(2, 3)), GRID, False),
    "zarr scalar": (lambda: in_zarr(np.array(3.5)), np.array(3.5), False),
    "zarr empty": (lambda: in_zarr(GRID[:0]), GRID[:0], False),
    "zarr big-endian": (lambda: in_zarr(GRID.astype(">i2")), GRID.astype(">i2"), False),
    "zarr dates": (lambda: in_zarr(DAY), DAY, False),
    "zarr records": (lambda: in_zarr(RECORDS), RECORDS, False),
    # h5py
    "h5py": (lambda: in_h5(GRID, chunks=(2, 3), compression="gzip"), GRID, False),
    "h5py scalar": (lambda: in_h5(3.5), np.array(3.5), False),
    "h5py no rows": (lambda: in_h5(GRID[:0]), GRID[:0], False),
    "h5py enum": (lambda: in_h5([1, 0], dtype=h5py.enum_dtype({"A": 0, "B": 1}, "i1")), np.array([1, 0], "i1"), False),
    "h5py as another dtype": (lambda: in_h5(GRID).astype("f4"), GRID.astype("f4"), False),
    "h5py field": (lambda: in_h5(np.array([(1, 2.5)], "i4,f8")).fields("f1"), np.array([2.5]), False),
    # Awkward
    "awkward dates": (lambda: ak.Array(DAY), DAY),
    "awkward regular": (lambda: ak.Array(GRID), GRID),
    "awkward lists": (lambda: ak.Array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]])),
    "awkward cut": (lambda: ak.Array([[1, 2], [3, 4, 5]])[:, :2], np.array([[1, 2], [3, 4]])),
    "awkward reversed": (lambda: ak.Array(GRID)[:, ::-1], GRID[:, ::-1]),
    "awkward optional": (lambda: ak.Array([1, None, 3])[[0, 2]], np.array([1, 3]), False),
    "awkward empty": (lambda: ak.Array(GRID[:0]), GRID[:0]),
    "awkward nothing": (lambda: ak.Array([]), np.array([])),
    "awkward empty lists": (lambda: ak.Array([[], []]), np.zeros((2, 0))),
}  # fmt: skip

PADDING = "ak.fill_none(ak.pad_none(x, n, clip=True), 0)"
DAYS = ["2020-01-01", "2020-01-02"]
FRAME = {"a": [1, 2], "b": [1.5, 2.5]}
NULLS: tuple[Any, ...] = ([1, None], [[1, None]], [None, [1, 2]])
REFUSED = {
    # pandas
    "pandas frame": (lambda: pd.DataFrame(FRAME), "frame", "x.to_numpy(), or select a column: x[name]", [1, 2]),
    "pandas levels": (lambda: pd.MultiIndex.from_tuples([(1, 2)]), "levels", "x.get_level_values(0)", [1]),
    "pandas nulls": (lambda: pd.Series([1, None], dtype="Int64"), "missing", "x.fillna(0)", [1, 0]),
    "pandas bool nulls": (lambda: pd.array([True, None], "boolean"), "missing", "x.fillna(False)", [True, False]),
    "pandas index nulls": (lambda: pd.Index([1.5, None], dtype="Float32"), "missing", "x.dropna()", [1.5]),
    "pandas Arrow nulls": (lambda: in_arrow([1.5, None]), "missing", "x.fillna(0)", [1.5, 0]),
    "pandas text": (lambda: pd.Series(["a"]), "dtype str", "pandas.to_numeric(x)"),
    "pandas index of text": (lambda: pd.Index(["a"]), "dtype str", "pandas.to_numeric(x)"),
    "pandas objects": (lambda: pd.Series([1, 2], dtype="object"), "object", "x.astype(dtype)", [1, 2]),
    "pandas categories": (lambda: pd.Series([1, 2], dtype="category"), "category", "x.cat.codes", [0, 1]),
    "pandas index of categories": (lambda: pd.CategoricalIndex([1]), "category", "x.codes", [0]),
    "pandas intervals": (lambda: pd.Series(pd.interval_range(0, 2)), "interval", "pandas.IntervalIndex(x).left", [0, 1]),
    "pandas periods": (lambda: pd.period_range("2020", periods=2, freq="D"), "period", "pandas.PeriodIndex(x).to_timestamp()", DAYS),
    "pandas time zone": (lambda: pd.Series(pd.date_range("2020", periods=2, tz="UTC")), "UTC", "x.dt.tz_convert(None)", DAYS),
    "pandas index with a time zone": (lambda: pd.date_range("2020", periods=2, tz="UTC"), "UTC", "x.tz_convert(None)", DAYS),
    "pandas Arrow time zone": (lambda: pd.Series([0], dtype="timestamp[s, tz=UTC][pyarrow]"), "UTC", "x.dt.tz_convert(None)", ["1970-01-01"]),
    "pandas Arrow text": (lambda: in_arrow(["a"]), "string", "x.astype(dtype)"),
    "pandas decimals": (lambda: in_arrow([decimal.Decimal(1)]), "decimal", "x.astype(dtype)", [1]),
    # Polars
    "polars frame": (lambda: pl.DataFrame(FRAME), "frame", "x.to_numpy(), or select a column: x[name]", [1, 2]),
    "polars lazy frame": (lambda: pl.LazyFrame(FRAME), "not computed", "x.collect()"),
    "polars nulls": (lambda: pl.Series([1, None]), "missing", "x.fill_null(0)", [1, 0]),
    "polars bool nulls": (lambda: pl.Series([True, None]), "missing", "x.drop_nulls()", [True]),
    "polars nulls in rows": (lambda: pl.Series(NULLS[1], dtype=pl.Array(pl.Int8, 2)), "missing", "x.reshape((-1,)).fill_null(0).reshape((-1, *x.dtype.shape))", [[1, 0]]),
    "polars missing rows": (lambda: pl.Series(NULLS[2], dtype=pl.Array(pl.Float32, 2)), "missing", "x.drop_nulls()", [[1, 2]]),
    "polars missing empty rows": (lambda: pl.Series([None, []], dtype=pl.Array(pl.Int8, 0)), "missing", "x.drop_nulls()"),
    "polars text": (lambda: pl.Series(["a"]), "String", "x.cast(polars.Float64)"),
    "polars binary": (lambda: pl.Series([b"a"]), "Binary", "x.cast"),
    "polars categories": (lambda: pl.Series(["a"], dtype=pl.Categorical), "Categorical", "x.to_physical()", [0]),
    "polars enum": (lambda: pl.Series(["a"], dtype=pl.Enum(["a"])), "Enum", "x.to_physical()", [0]),
    "polars lists": (lambda: pl.Series([[1], [2]]), "List", "x.list.to_array(n)", [[1], [2]]),
    "polars structs": (lambda: pl.Series([{"a": 1}]), "Struct", "x.struct.field(name)", [1]),
    "polars decimals": (lambda: pl.Series([decimal.Decimal("1.5")]), "Decimal", "x.cast(polars.Float64)", [1.5]),
    "polars objects": (lambda: pl.Series([object()], dtype=pl.Object), "Object", "x.cast"),
    "polars time of day": (lambda: pl.Series([datetime.time(1)]), "Time", "x.to_physical()", [3_600_000_000_000]),
    "polars wide integers": (lambda: pl.Series([1], dtype=pl.Int128), "Int128", "x.cast(polars.Int64)", [1]),
    "polars nothing": (lambda: pl.Series([None]), "Null", "x.cast"),
    "polars time zone": (lambda: pl.Series(DAY[:1].astype("M8[ms]")).dt.replace_time_zone("UTC"),
        "UTC",
        "x.dt.convert_time_zone('UTC').dt.replace_time_zone(None)",
        ["2020-01-01"],
    ),
    "polars rows of text": (lambda: pl.Series([["a"]], dtype=pl.Array(pl.String, 1)), "String", "x.cast(polars.Array(polars.Float64, x.dtype.shape))"),
    # pyarrow
    "pyarrow table": (lambda: pa.table(FRAME), "frame", "x[name]", [1, 2]),
    "pyarrow batch": (lambda: pa.record_batch(FRAME), "frame", "x[name]", [1, 2]),
    "pyarrow nulls": (lambda: pa.array([1, None]), "missing", "x.fill_null(0)", [1, 0]),
    "pyarrow nulls in a chunk": (lambda: pa.chunked_array([[1], [None]]), "missing", "x.drop_null()", [1]),
    "pyarrow nulls in lists": (lambda: pa.array(NULLS[1], pa.list_(pa.int8(), 2)), "missing", "pyarrow.compute.list_flatten(x).fill_null(0)", [1, 0]),
    "pyarrow missing lists": (lambda: pa.array(NULLS[2], pa.list_(pa.int8(), 2)), "missing", "x.drop_null()", [[1, 2]]),
    "pyarrow nulls in tensors": (lambda: pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.int8(), [2]), pa.array(NULLS[1], pa.list_(pa.int8(), 2))
        ),
        "missing",
        "pyarrow.compute.list_flatten(x.cast(x.type.storage_type)).fill_null(0)",
        [1, 0],
    ),
    "pyarrow text": (lambda: pa.array(["a"]), "string", "x.cast('float64')"),
    "pyarrow binary": (lambda: pa.array([b"a"]), "binary", "x.cast"),
    "pyarrow dictionary": (lambda: pa.array([1, 2]).dictionary_encode(), "dictionary", "x.cast(x.type.value_type)", [1, 2]),
    "pyarrow lists of any length": (lambda: pa.array([[1], [2, 3]]), "different lengths", "pyarrow.compute.list_flatten(x)", [1, 2, 3]),
    "pyarrow lists of any length inside": (lambda: pa.array([[[1], [2, 3]]]), "different lengths", "pyarrow.compute.list_flatten(x)"),
    "pyarrow chunks of other lengths": (lambda: pa.chunked_array([[[1]], [[2, 3]]]), "different lengths", "pyarrow.compute.list_flatten(x)", [1, 2, 3]),
    "pyarrow missing lists of one length": (lambda: pa.array(NULLS[2]), "missing", "x.drop_null()", [[1, 2]]),
    "pyarrow missing lists inside": (lambda: pa.array([[None, [1]]]), "missing", "pyarrow.compute.list_flatten(x).drop_null()", [[1]]),
    "pyarrow nulls in lists of one length": (lambda: pa.array([[[1], [None]]]), "missing", "pyarrow.compute.list_flatten(pyarrow.compute.list_flatten(x)).fill_null(0)", [1, 0]),
    "pyarrow missing bools in lists": (lambda: pa.array([[True, None]]), "missing", "pyarrow.compute.list_flatten(x).fill_null(False)", [True, False]),
    "pyarrow missing days in lists": (lambda: pa.array([[datetime.date(1970, 1, 1), None]]), "missing", "pyarrow.compute.list_flatten(x).drop_null()", ["1970-01-01"]),
    "pyarrow lists of categories": (lambda: pa.array([[1], [2]], pa.list_(pa.dictionary(pa.int8(), pa.int64()))), "dictionary", "pyarrow.compute.list_flatten(x)"),
    "pyarrow lists of text": (lambda: pa.array([["a"]]), "string", "pyarrow.compute.list_flatten(x)"),
    "pyarrow map": (lambda: pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8())), "map", "x.cast"),
    "datasets column": (lambda: datasets.Dataset.from_dict({"a": [1]})["a"], "a Hugging Face Column", "dataset.with_format('arrow')[name][:]"),
    "datasets iterable": (lambda: datasets.Dataset.from_dict({"a": [1]}).to_iterable_dataset(), "a Hugging Face IterableDataset", "dataset.with_format('torch').iter(batch_size=1000)"),
    "datasets iterable column": (lambda: datasets.Dataset.from_dict({"a": [1]}).to_iterable_dataset()["a"], "a Hugging Face IterableColumn", "dataset.with_format('torch').iter(batch_size=1000)"),
    "datasets": (lambda: datasets.Dataset.from_dict({"a": [1]}), "a Hugging Face Dataset", "dataset[name][:]"),
    "pyarrow structs": (lambda: pa.array([{"a": 1}]), "struct", "pyarrow.compute.struct_field(x, name)", [1]),
    "pyarrow decimals": (lambda: pa.array([decimal.Decimal("1.5")]), "decimal", "x.cast('float64')", [1.5]),
    "pyarrow runs": (lambda: pa.RunEndEncodedArray.from_arrays([2], pa.array([1])), "run_end", "pyarrow.compute.run_end_decode(x)", [1, 1]),
    "pyarrow time zone": (lambda: pa.array([0], pa.timestamp("s", tz="UTC")), "UTC", "x.cast(pyarrow.timestamp(x.type.unit))", ["1970-01-01"]),
    "pyarrow time of day": (lambda: pa.array([0], pa.time32("s")), "time32", "x.cast('int32')", [0]),
    "pyarrow nothing": (lambda: pa.array([None]), "null", "x.cast"),
    "pyarrow tensors turned round": (lambda: permuted([1, 2, 0], [2, 3, 2]), "[1, 2, 0]", "x.cast(x.type.storage_type)", [list(range(12))]),
    "pyarrow extension": (lambda: pa.ExtensionArray.from_storage(pa.uuid(), pa.array([uuid.uuid4().bytes], pa.binary(16))), "uuid", "x.cast(x.type.storage_type)"),
    # Zarr and h5py
    "zarr text": (lambda: in_zarr(np.array(["a", "b"]), dtype=str), "text", "x[...]"),
    "h5py text": (lambda: in_h5("hello"), "text", "x.asstr()[()]"),
    "h5py bytes": (lambda: in_h5(np.array([b"ab"])), "text", "x.asstr()[()]"),
    "h5py text view": (lambda: in_h5("hello").asstr(), "text", "x[()]"),
    "h5py rows of any length": (lambda: h5_file().create_dataset("x", (2,), h5py.vlen_dtype("i4")), "objects", "x[()]"),
    "h5py references": (lambda: h5_file().create_dataset("x", (2,), h5py.ref_dtype), "objects", "x[()]"),
    "h5py empty": (lambda: in_h5(h5py.Empty("f4")), "no values", "x.shape is None"),
    # Awkward
    "awkward ragged": (lambda: ak.Array([[1, 2], [3]]), "ragged", PADDING, [[1], [3]]),
    "awkward ragged inside": (lambda: ak.Array([[[1], [2, 3]]]), "ragged", PADDING),
    "awkward missing": (lambda: ak.Array([1, None]), "missing", "ak.fill_none(x, 0)", [1, 0]),
    "awkward missing inside": (lambda: ak.Array([[1, None]]), "missing", "ak.drop_none(x)"),
    "awkward missing list": (lambda: ak.Array([[1, 2], None]), "missing", "ak.drop_none(x)", [[1, 2]]),
    "awkward text": (lambda: ak.Array(["a", "b"]), "text", "ak.strings_astype(x, float)"),
    "awkward bytes": (lambda: ak.Array([b"a"]), "text", "ak.strings_astype(x, float)"),
    "awkward records": (lambda: ak.Array([{"a": 1}]), "records", "x[name]", [1]),
    "awkward records inside": (lambda: ak.Array([[{"a": 1}]]), "records", "x[name]"),
    "awkward union": (lambda: ak.Array([1, "a"]), "several types", "ak.enforce_type(x, type)"),
    "awkward categories": (lambda: ak.Array(ak.contents.IndexedArray(
            ak.index.Index64([0, 0]), ak.contents.NumpyArray([1]), parameters={"__array__": "categorical"}
        )),
        "categories",
        "ak.from_categorical(x)",
        [1, 1],
    ),
    "awkward without values": (lambda: ak.to_backend(ak.Array([1]), "typetracer"), "no values", "outside"),
}  # fmt: skip

good = pytest.mark.parametrize(
    "case", [Case(name.split()[0], *case) for name, case in GOOD.items()], ids=GOOD
)
bad = pytest.mark.parametrize(
    "case", [Refused(name.split()[0], *case) for name, case in REFUSED.items()], ids=REFUSED
)


@pytest.fixture(params=TARGETS)
def to(request):
    """The library to which it is converted."""
    return request.param


def outcome(convert: Callable[[], Any]) -> Any:
    """Return the result of a conversion, or the type of its error."""
    try:
        return convert()
    except af.ConversionError as error:
        return type(error)


def test_tensors_are_as_pyarrow_sees_them():
    for order in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 1, 0]):
        x = permuted(order, [2, 3, 2])
        same(af.convert(x, "numpy"), x.to_numpy_ndarray())


@good
def test_it_becomes_what_a_numpy_array_of_its_values_becomes(case, to):
    x = case.make()
    expected = outcome(lambda: af.convert(case.values, to))
    found = outcome(lambda: af.convert(x, to))
    if isinstance(expected, type):
        assert found is expected
        if expected is af.UnsupportedDtypeError:
            assert af.convert(x, to, unsupported="keep") is x
    else:
        assert af.backend_of(found).name == to
        assert found.dtype == expected.dtype
        same(found, read(expected))


@good
def test_memory_of_its_own(case):
    x = case.make()
    found = af.convert(x, "numpy", copy=True)
    same(found, case.values)
    found.fill(0)
    same(af.convert(x, "numpy"), case.values)


@good
def test_shared_with_numpy(case):
    x = case.make()
    if case.shares:
        found = af.convert(x, "numpy", copy=False)
        same(found, case.values)
        at = {y.ctypes.data for y in (found, af.convert(x, "numpy"), af.convert(x, "numpy"))}
        assert len(at) == 1 or found.size == 0
    else:
        refused(af.CopyRequiredError, "shared", x, "numpy", copy=False)
        found, again = af.convert(x, "numpy"), af.convert(x, "numpy")
        assert found.size == 0 or not np.shares_memory(found, again)


@good
@pytest.mark.parametrize("copy", [None, False])
def test_what_others_hold_is_never_written_to(case, copy):
    x = case.make()
    lent = case.package == "pyarrow" and type(x).__name__ == "Tensor" and x.is_mutable
    for to in ("numpy", "torch"):
        found = outcome(lambda to=to: af.convert(x, to, copy=copy))
        if isinstance(found, np.ndarray) and found.flags.writeable:
            assert lent or not case.shares or found.size == 0
            found.fill(0)
        elif isinstance(found, torch.Tensor):
            assert copy is None or lent or found.numel() == 0
            found.zero_()
    same(af.convert(x, "numpy"), np.zeros_like(case.values) if lent else case.values)


@bad
def test_refused(case, to):
    x = case.make()
    lazy = case.package in ("zarr", "h5py") and to != "numpy"
    for _ in range(3):
        with pytest.raises(af.ConversionError) as caught:
            af.convert(x, to)
        text = str(caught.value)
        assert type(caught.value) is not af.NotAnArrayError
        if not (lazy and isinstance(caught.value, af.UnsupportedDtypeError)):
            assert case.reason in text
            assert case.remedy in text
            assert caught.value.remedy
        assert caught.value.source == case.package
        assert caught.value.target == to
        assert "\n" not in text


@pytest.mark.parametrize(
    "name", [name for name, entry in REFUSED.items() if isinstance(entry[-1], list)]
)
def test_remedies(name):
    """What the message says to call is run as it stands there."""
    case = Refused(name.split()[0], *REFUSED[name])
    names = {"x": case.make(), "n": 1, "name": "a", "dtype": "float64"}
    modules = {"ak": ak, "numpy": np, "pandas": pd, "polars": pl, "pyarrow": pa}
    code = case.remedy.rpartition(", or select a column: ")[2]
    found = af.convert(eval(code, {**names, **modules}), "numpy")
    expected = found.astype("M8[D]").astype(str) if found.dtype.kind == "M" else found
    assert expected.tolist() == case.values


@bad
def test_refused_in_a_tree(case):
    x = case.make()
    assert af.convert({"a": [x]}, "torch")["a"][0] is x
    words = re.escape(case.reason)
    caught = refused(af.ConversionError, words, {"a": [x]}, "numpy", unknown="convert")
    assert caught.path == "['a'][0]"


@good
@pytest.mark.parametrize("times", [1, 4])
def test_in_trees(case, times):
    x = case.make()
    tree = {"a": [x, np.ones(2)], "b": "text"}
    keep, convert = af.converter("numpy"), af.converter("numpy", unknown="convert")
    for _ in range(times):
        assert keep(tree)["a"][0] is x
        found = convert(tree)
        same(found["a"][0], case.values)
        assert found["b"] == "text"
        caught = refused(af.NotAnArrayError, r"at \['a'\]", tree, "numpy", unknown="raise")
        assert caught.path == "['a'][0]"


def damaged_h5(path):
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", data=GRID, chunks=(1, 4), compression="gzip")
        start, size = x.id.get_chunk_info(1)[2:]
    with open(path, "r+b") as stored:
        stored.seek(start)
        stored.write(bytes(size))
    return h5py.File(path, "r")["x"]


def damaged_zarr(path):
    zarr.create_array(path, data=GRID, chunks=(1, 4))
    (path / "c" / "1" / "0").write_bytes(b"garbage")
    return zarr.open_array(path)


def cut_zarr(path):
    zarr.create_array(path, data=GRID, chunks=(1, 4), compressors=None)
    (path / "c" / "1" / "0").write_bytes(b"")
    return zarr.open_array(path)


@pytest.mark.parametrize("damaged", [damaged_h5, damaged_zarr, cut_zarr])
def test_damaged_values_are_not_the_fault_of_a_plugin(damaged, to, tmp_path):
    x = damaged(tmp_path / "x")
    for value, options in ((x, {}), ([x], {"unknown": "convert"})):
        caught = refused(af.ConversionError, "could not be read", value, to, **options)
        assert type(caught) is af.ConversionError
        assert "is damaged or out of reach" in caught.remedy
        assert type(caught.__cause__).__name__ in str(caught)
    with pytest.raises(af.BlockError, match=r"block 1 .*could not be computed or read"):
        list(af.stream(x, to, block=1))
    assert read(af.stream(x, to, block=1)[2]).tolist() == GRID[2:].tolist()


@pytest.mark.parametrize(
    "package", ["pandas", "polars", "pyarrow", "zarr", "h5py", "scipy", "awkward"]
)
def test_routes(package, to):
    assert str(af.route(package, to)).startswith(f"{package} (cpu) -> ")
    with pytest.raises(af.UnknownBackendError, match=f"only read from {package}"):
        af.converter(package)


SEQUENCES = {
    "pandas": (pd.Series, lambda: pd.Series([1, None], dtype="Int64")),
    "pandas nullable": (lambda n: pd.Series(n).convert_dtypes(), lambda: pd.Series([1, None], dtype="Int64")),
    "polars": (pl.Series, lambda: pl.Series([1, None])),
    "pyarrow": (pa.array, lambda: pa.array([1, None])),
    "pyarrow chunked": (lambda n: pa.chunked_array([n[:1], n[1:]]), lambda: pa.chunked_array([[1], [None]])),
    "zarr": (in_zarr, lambda: in_zarr(np.array(["a"]), dtype=str)),
    "h5py": (in_h5, lambda: in_h5("text")),
    "awkward": (ak.Array, lambda: ak.Array([[1], [2, 3]])),
}  # fmt: skip


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("inside", [False, True])
def test_one_converter_for_changing_values(name, to, inside):
    make, bad = SEQUENCES[name]
    convert = af.converter(to, unknown="convert")
    wrap = (lambda x: {"a": (x,)}) if inside else (lambda x: x)
    unwrap = (lambda y: y["a"][0]) if inside else (lambda y: y)
    arrays = [np.array([1, 2, 3]), np.array([4, 5]), np.array([6, 7, 8]), np.array([2, 1, 9])]
    arrays += [np.array([1.5, 0.25]), np.array([], "i4"), np.array([True, False])]
    for n in arrays:
        x = make(n)
        found = unwrap(convert(wrap(x)))
        expected = af.convert(n if "nullable" not in name else af.convert(x, "numpy"), to)
        assert found.dtype == expected.dtype
        same(found, read(expected))
    for _ in range(3):
        with pytest.raises(af.ConversionError):
            convert(wrap(bad()))
        same(unwrap(convert(wrap(make(arrays[0])))), read(af.convert(arrays[0], to)))


# What is lazy.


@pytest.fixture(params=[zarr.Array, h5py.Dataset])
def reads(request, monkeypatch):
    """Return how an array is made, of two chunks in Zarr, and what is read: calls, and chunks of Zarr."""
    found: dict[str, Any] = {"calls": 0, "chunks": []}
    original = request.param.__getitem__

    def counted(x, *args):
        found["calls"] += 1
        return original(x, *args)

    class Counting(zarr.storage.MemoryStore):
        async def get(self, key, *args, **options):
            if key.startswith("c/"):
                found["chunks"].append(key)
            return await super().get(key, *args, **options)

    def make(values: np.ndarray) -> Any:
        x = in_zarr(values, store=Counting(), chunks=(2,))
        found["chunks"].clear()
        return x

    monkeypatch.setattr(request.param, "__getitem__", counted)
    return make if request.param is zarr.Array else in_h5, found


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("inside", [False, True])
def test_it_is_read_once(reads, to, copy, inside):
    make, found = reads
    values = np.arange(4, dtype=np.float32)
    x = make(values)
    convert = af.converter(to, copy=copy, unknown="convert")
    for times in range(1, 6):
        y = convert([x, "text"])[0] if inside else convert(x)
        assert found["calls"] == times
        same(y, values)
    assert make is in_h5 or len(found["chunks"]) == 10


@pytest.mark.parametrize("make", [in_zarr, in_h5, scipy.sparse.csr_array])
def test_what_was_read_is_not_copied_again(make, monkeypatch):
    values = np.arange(4.0).reshape(2, 2)
    x = make(values)
    method = "toarray" if make is scipy.sparse.csr_array else "__getitem__"
    monkeypatch.setattr(type(x), method, lambda *_: values)
    found = af.convert(x, "torch", sparse="dense")
    assert isinstance(found, torch.Tensor)
    assert found.data_ptr() == values.ctypes.data


def test_it_is_read_once_to_narrow(reads):
    make, found = reads
    convert = af.converter("jax")
    same(convert(make(np.arange(4))), np.arange(4, dtype="i4"))
    with pytest.raises(af.NarrowingError):
        convert(make(np.array([2**40, 1, 2, 3])))
    assert found["calls"] == 2


@pytest.mark.parametrize(
    ("to", "values", "options", "error"),
    [
        ("numpy", np.arange(4), {"copy": False}, af.CopyRequiredError),
        ("torch", np.arange(4), {"copy": False}, af.CopyRequiredError),
        ("jax", np.arange(4), {"narrowing": "forbid"}, af.NarrowingError),
        ("torch", np.arange(4), {"device": "cuda:9"}, af.DeviceError),
        ("torch", np.zeros(4, "S2"), {}, af.UnsupportedDtypeError),
        ("numpy", np.zeros(4, "S2"), {}, af.UnsupportedDtypeError),
        ("torch", np.zeros(4, "i4,f8"), {}, af.UnsupportedDtypeError),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_it_is_refused_before_it_is_read(reads, to, values, options, error, inside):
    make, found = reads
    x = make(values)
    with pytest.raises(error):
        af.convert([x] if inside else x, to, unknown="convert", **options)
    assert found["calls"] == 0
    assert found["chunks"] == []


def test_it_is_kept_before_it_is_read(reads):
    make, found = reads
    x = make(np.arange(4))
    assert af.convert({"x": x}, "jax")["x"] is x
    refused(af.NotAnArrayError, r"at \['x'\]", {"x": x}, "jax", unknown="raise")
    assert found["calls"] == 0


def test_records_of_objects_are_refused():
    kind = np.dtype([("a", "i4"), ("b", h5py.string_dtype())])
    refused(af.UnsupportedDtypeError, "text or objects", in_h5(np.array([(1, "x")], kind)), "numpy")


@pytest.mark.parametrize("options", [{}, {"copy": False}, {"copy": True}])
@pytest.mark.parametrize("view", [False, True])
def test_a_closed_file(to, options, view):
    with h5_file() as file:
        x = file.create_dataset("x", data=GRID)
        x = x.astype("f4") if view else x
    for value in (x, [x]):
        with pytest.raises(af.ConversionError, match=r"closed file.* while the file is open"):
            af.convert(value, to, unknown="convert", **options)


def test_groups_are_no_arrays():
    for group in (zarr.create_group({}), h5_file()):
        assert af.convert([group], "numpy")[0] is group


# What is sparse.

CUBE = np.arange(24).reshape(2, 3, 4) % 3
GRIDS = {
    "int8": np.array([[0, -1, 0], [3, 0, 0]], "i1"),
    "uint64": np.array([[0, 2**64 - 1], [2**53 + 1, 0]], np.uint64),
    "bool": np.array([[True, False], [False, False]]),
    "float32": np.array([[0, np.nan], [np.inf, 0]], "f4"),
    "complex": np.array([[0, 1 + 2j]]),
    "int64": np.array([[0, 2**40]]),
    "nothing": np.zeros((0, 3)),
    "zeros": np.zeros((2, 3)),
}
FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
SPARSE = {
    **{
        f"{form}_{kind} of {name}": (getattr(scipy.sparse, f"{form}_{kind}"), values, "x.todense()")
        for form in FORMATS
        for kind in ("array", "matrix")
        for name, values in GRIDS.items()
    },
    "three dimensions": (scipy.sparse.coo_array, CUBE, "x.todense()"),
    "one dimension": (scipy.sparse.coo_array, CUBE[0, 0], "x.todense()"),
    "sums of one place": (
        lambda _: scipy.sparse.coo_array(([1, 2, 4], ([0, 0, 1], [1, 1, 0])), shape=(2, 2)),
        np.array([[0, 3], [4, 0]]),
        "x.todense()",
    ),
    **{
        f"{kind.__name__} of {values}": (
            lambda n, kind=kind: kind(pd.arrays.SparseArray(n)),
            np.array(values),
            "",
        )
        for kind in (pd.Series, pd.Index, pd.array)
        for values in ([0, 0, 3], [1, 2, 3], [True, False], [1.5, np.nan, 0.0], [])
    },
}
"""How each is made of dense values, these, and what the error says to call."""


@pytest.mark.parametrize("name", SPARSE)
def test_sparse(name, to):
    make, values, remedy = SPARSE[name]
    x = make(values)
    for value in (x, [x], {"x": (x,)}):
        refused(af.ConversionError, rf'sparse="dense".*{re.escape(remedy)}', value, to)
    refused(af.CopyRequiredError, "shared", x, to, sparse="dense", copy=False)
    expected = outcome(lambda: af.convert(values, to))
    convert = af.converter(to, sparse="dense")
    for value in (x, x, x, [x], [x], [x]):
        found = outcome(lambda value=value: convert(value))
        found = found[0] if isinstance(found, list) else found
        if isinstance(expected, type):
            assert found is expected
        else:
            assert found.dtype == expected.dtype
            same(found, read(expected))
            if to == "torch":  # it has memory of its own
                found.zero_()


# What each package promises.


def test_an_array_of_another_package_is_not_read():

    class Lengths(pd.api.extensions.ExtensionDtype):
        name, type, kind, na_value, _is_numeric = "metres", float, "f", np.nan, True

    class InMetres(pd.api.extensions.ExtensionArray):
        dtype = Lengths()

        def __len__(self):
            return 1

        def __getitem__(self, item):
            return 1.5

    Lengths.__module__ = InMetres.__module__ = "metres"
    refused(af.UnsupportedDtypeError, "metres", InMetres(), "numpy")


def test_text_is_kept_where_that_is_asked_for():
    row = {"name": pd.Series(["a", "b"]), "age": pd.Series([1, 2])}
    found = af.convert(row, "torch", unknown="convert", unsupported="keep")
    assert found["name"] is row["name"]
    assert torch.equal(found["age"], torch.tensor([1, 2]))


@pytest.mark.parametrize(
    ("package", "wrap"),
    [
        ("awkward", ak.Array),
        ("pyarrow", pa.Tensor.from_numpy),
        ("pandas", lambda n: pd.Series(n, copy=False)),
    ],
)
def test_what_never_changes_is_not_over_memory_that_does(package, wrap):
    memory = np.arange(4, dtype=np.float32)
    x = wrap(memory)
    shared = af.convert(x, "numpy")
    others = [af.convert(x, to) for to in ("jax", "dask")]
    memory[0] = 9
    assert shared[0] == 9
    assert [read(y)[0] for y in others] == [0, 0]
    for to in ("jax", "dask"):
        refused(af.CopyRequiredError, f"{package} array can be written to", x, to, copy=False)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (pl.Series([1, 2]), "polars arrays never change"),
        (pa.array([1, 2]), "pyarrow arrays never change"),
        (pa.Tensor.from_numpy(frozen(GRID)), "read-only"),
    ],
)
def test_what_never_changes_is_not_made_writable(x, words):
    refused(af.CopyRequiredError, words, x, "torch", copy=False)


views = pytest.mark.parametrize("make", [pd.Series, pl.Series, pa.array, ak.Array])


@views
def test_a_result_outlives_its_source(make):
    for _ in range(20):
        n = np.arange(50_000)
        found = af.convert(make(n), "numpy", copy=False)
        del n
        np.full(50_000, -1)
        assert np.array_equal(found, np.arange(50_000))


KINDS = [hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.boolean_dtypes()]
KINDS += [hnp.floating_dtypes(sizes=(32, 64))]
DTYPES = st.one_of(KINDS).map(lambda dtype: dtype.newbyteorder("="))


@views
@hypothesis.settings(max_examples=150, deadline=None, database=None)
@hypothesis.given(n=hnp.arrays(DTYPES, st.integers(0, 20)), data=st.data())
def test_slices(make, n, data):
    part = data.draw(st.slices(len(n)))
    if make is pa.array:  # slices of another step are taken, not views
        part = slice(part.start, part.stop, 1)
    if make is ak.Array:  # it takes no slice with a step that ends before it starts
        hypothesis.assume(n[part].size)
    x = make(n)
    found = af.convert((x.iloc if make is pd.Series else x)[part], "numpy")
    assert found.dtype == n.dtype
    assert found.shape == n[part].shape
    assert found.tobytes() == n[part].tobytes()


def test_a_sparse_column_does_not_teach_a_converter_to_take_dense_ones():
    to_torch = af.converter("torch", sparse="dense")
    thin, dense = pd.Series(pd.arrays.SparseArray([0, 0, 1])), pd.Series([1, 2, 3])
    for _ in range(4):
        assert to_torch([thin])[0].tolist() == [0, 0, 1]
    assert to_torch([dense])[0] is dense


def test_sparse_blocks_of_dask():
    x = da.from_array(np.eye(3), chunks=3).map_blocks(sparse.COO.from_numpy)
    for options in ({}, {"sparse": "raise"}):
        for value in (x, [x]):
            refused(af.ConversionError, "is sparse", value, "torch", **options)
    np.testing.assert_array_equal(af.convert([x], "torch", sparse="dense")[0], np.eye(3))


def test_it_is_read_once_in_two_places(reads):
    make, found = reads
    x = make(np.ones(2, np.float32))
    a, b = af.convert([x, x], "torch", unknown="convert")
    assert found["calls"] == 1
    a[0] = 5
    assert b.tolist() == [1, 1]


def test_a_stream_is_not_used_up():
    reader = pa.table({"a": [1, 2]}).to_reader()
    refused(af.ConversionError, "offers no array", reader, "torch", unknown="convert")
    assert reader.read_all().num_rows == 2
