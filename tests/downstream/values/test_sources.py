"""Columns, datasets and sparse matrices of the real packages, as they are read by the sources of the plugins.

Each case is skipped where its package is not installed.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import arrayferry as af

TARGETS = ("numpy", "torch", "jax", "dask")
DAY = np.array(["2020-01-01", "NaT"], "M8[D]")
NAN = np.array([1.5, np.nan, -0.0])
BIG = np.array([0, 2**53 + 1, 2**64 - 1], np.uint64)
GRID = np.arange(12, dtype=np.int16).reshape(3, 4)
NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float32", "float64")


class Case(NamedTuple):
    """One object that is read: its package, how it is made, its values, and whether NumPy can share its memory."""

    package: str
    make: Callable[[Any], Any]
    values: np.ndarray
    shares: bool = True


class Refused(NamedTuple):
    """One object that is refused: its package, how it is made, words of the reason and of the remedy, and what that gives."""

    package: str
    make: Callable[[Any], Any]
    reason: str
    remedy: str
    values: list[Any] | None = None


def made(case: Case | Refused) -> Any:
    return case.make(pytest.importorskip(case.package))


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


def fixed_lists(pa: Any, values: np.ndarray) -> Any:
    """Make a pyarrow array of fixed-size lists of the shape of `values`."""
    x = pa.array(values.reshape(-1))
    for size in values.shape[:0:-1]:
        x = pa.FixedSizeListArray.from_arrays(x, size)
    return x


def permuted(pa: Any, order: Any = (1, 0), shape: Any = (2, 3)) -> Any:
    """Make a pyarrow tensor array of `GRID` whose elements are stored in one order, and seen in another."""
    kind = pa.fixed_shape_tensor(pa.int16(), list(shape), permutation=list(order))
    stored = fixed_lists(pa, GRID.reshape(-1, int(np.prod(shape))))
    return pa.ExtensionArray.from_storage(kind, stored)


def bool_tensors(pa: Any) -> Any:
    stored = pa.array([[True, False], [False, False]], pa.list_(pa.bool_(), 2))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.bool_(), [2]), stored)


def in_zarr(values: np.ndarray, dtype: Any = None, **options: Any) -> Callable[[Any], Any]:
    def make(zarr: Any) -> Any:
        x = zarr.create_array({}, shape=values.shape, dtype=dtype or values.dtype, **options)
        x[...] = values
        return x

    return make


def h5_file(h5py: Any) -> Any:
    return h5py.File(str(uuid.uuid4()), "w", driver="core", backing_store=False)


def in_h5(values: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda h5py: h5_file(h5py).create_dataset("x", data=values, **options)


def in_pandas(kind: str, dtype: str, values: Any) -> Callable[[Any], Any]:
    makers = {"series": "Series", "index": "Index", "array": "array"}
    return lambda pd: getattr(pd, makers[kind])(values, dtype=dtype)


def in_arrow(values: Any, dtype: str | None = None) -> Callable[[Any], Any]:
    def make(pd: Any) -> Any:
        pa = pytest.importorskip("pyarrow")
        kind = dtype and getattr(pa, dtype)()
        return pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values, kind)))

    return make


PLAIN = {
    **{dtype: np.array([1, 0, 3], dtype) for dtype in NUMBERS},
    "uint64 beyond floats": BIG,
    "NaN": NAN,
    "empty": np.array([], "i1"),
    "half": NAN.astype("f2"),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j]),
}
USUAL = [*NUMBERS, "uint64 beyond floats", "NaN", "empty"]
FEW = ["uint64 beyond floats", "half", "bool", "complex"]
FORMS: dict[str, tuple[Callable[[Any, np.ndarray], Any], list[str], list[str]]] = {
    "pandas series": (lambda pd, n: pd.Series(n.copy()), [*USUAL, "bool", "complex"], []),
    "pandas Arrow": (lambda pd, n: in_arrow(n)(pd), [*FEW[:3], "NaN"], ["bool"]),
    "polars series": (lambda pl, n: pl.Series(n), [*USUAL, "bool"], ["bool"]),
    "pyarrow array": (lambda pa, n: pa.array(n), [*USUAL, "half"], []),
    "zarr array": (lambda zarr, n: in_zarr(n)(zarr), FEW, FEW),
    "h5py dataset": (lambda h5py, n: in_h5(n)(h5py), FEW, FEW),
    "awkward array": (lambda ak, n: ak.Array(n), [*USUAL[:-1], *FEW[1:]], []),
}
"""How an array is made of values, which of `PLAIN` it holds, and which of these are copied."""

# The first word of a name is the package.
GOOD = {
    **{
        f"{form} of {name}": (
            lambda module, make=make, name=name: make(module, PLAIN[name]),
            PLAIN[name],
            name not in copied,
        )
        for form, (make, names, copied) in FORMS.items()
        for name in names
    },
    # pandas
    "pandas strided": (lambda pd: pd.Series(GRID[0])[::2], GRID[0, ::2]),
    "pandas reversed": (lambda pd: pd.Series(GRID[0])[::-1], GRID[0, ::-1]),
    "pandas column of a frame": (
        lambda pd: pd.DataFrame(GRID, columns=list("abcd"))["b"],
        GRID[:, 1],
    ),
    "pandas dates": (lambda pd: pd.Series(DAY.astype("M8[us]")), DAY.astype("M8[us]")),
    "pandas time spans": (
        lambda pd: pd.Series(np.array([5, 6], "m8[s]")),
        np.array([5, 6], "m8[s]"),
    ),
    "pandas index": (in_pandas("index", "int16", [3, 1]), np.array([3, 1], "i2")),
    "pandas range": (lambda pd: pd.RangeIndex(2, 8, 3), np.array([2, 5])),
    "pandas index of dates": (
        lambda pd: pd.DatetimeIndex(DAY.astype("M8[s]")),
        DAY.astype("M8[s]"),
    ),
    **{
        f"pandas nullable {kind} of {dtype}": (
            in_pandas(kind, dtype, [1, 0, 3]),
            np.array([1, 0, 3], dtype.lower()),
        )
        for kind in ("series", "index", "array")
        for dtype in ("Int8", "UInt16", "Int64", "Float32")
    },
    "pandas nullable UInt64": (in_pandas("series", "UInt64", BIG), BIG),
    "pandas nullable bool": (in_pandas("array", "boolean", [True, False]), np.array([True, False])),
    "pandas array of NumPy": (lambda pd: pd.arrays.NumpyExtensionArray(NAN.copy()), NAN),
    "pandas array of dates": (lambda pd: pd.array(DAY.astype("M8[s]")), DAY.astype("M8[s]")),
    "pandas Arrow int8": (in_arrow(dtype="int8", values=[1, 2]), np.array([1, 2], "i1")),
    "pandas Arrow chunks": (
        lambda pd: pd.concat([in_arrow(dtype="int8", values=[n])(pd) for n in (1, 2)]),
        np.array([1, 2], "i1"),
        False,
    ),
    "pandas Arrow days": (
        in_arrow(dtype="date32", values=DAY[:1]),
        DAY[:1].astype("M8[ms]"),
        False,
    ),
    # Polars
    "polars float16": (
        lambda pl: pl.Series([1.5, 2.0], dtype=pl.Float16),
        np.array([1.5, 2], "f2"),
    ),
    "polars slice": (lambda pl: pl.Series(GRID[0])[1:3], GRID[0, 1:3]),
    "polars strided": (lambda pl: pl.Series(GRID[0])[::2], GRID[0, ::2]),
    "polars reversed": (lambda pl: pl.Series(GRID[0]).reverse(), GRID[0, ::-1]),
    "polars chunks": (
        lambda pl: pl.concat([pl.Series(GRID[0]), pl.Series(GRID[1])], rechunk=False),
        GRID[:2].reshape(-1),
        False,
    ),
    "polars days": (lambda pl: pl.Series([datetime.date(2020, 1, 1)]), DAY[:1], False),
    "polars times": (lambda pl: pl.Series(DAY[:1].astype("M8[ms]")), DAY[:1].astype("M8[ms]")),
    "polars time spans": (lambda pl: pl.Series(np.array([5], "m8[us]")), np.array([5], "m8[us]")),
    "polars rows": (lambda pl: pl.Series(GRID), GRID),
    "polars rows sliced": (lambda pl: pl.Series(GRID)[1:], GRID[1:]),
    "polars blocks": (lambda pl: pl.Series(GRID.reshape(3, 2, 2)), GRID.reshape(3, 2, 2)),
    "polars no rows": (
        lambda pl: pl.Series([], dtype=pl.Array(pl.Int8, (3, 2))),
        np.zeros((0, 3, 2), "i1"),
    ),
    "polars empty rows": (
        lambda pl: pl.Series([[], []], dtype=pl.Array(pl.Int8, 0)),
        np.zeros((2, 0), "i1"),
    ),
    "polars rows of bools": (
        lambda pl: pl.Series([[True, False], [False, False]], dtype=pl.Array(pl.Boolean, 2)),
        np.array([[True, False], [False, False]]),
        False,
    ),
    # pyarrow
    "pyarrow slice": (lambda pa: pa.array(GRID[0])[1:3], GRID[0, 1:3]),
    "pyarrow bits": (
        lambda pa: pa.array([True, False, False] * 7)[3:20],
        np.array([True, False, False] * 7)[3:20],
        False,
    ),
    "pyarrow slice without nulls": (lambda pa: pa.array([None, 1, 2])[1:], np.array([1, 2])),
    "pyarrow days": (lambda pa: pa.array(DAY[:1]), DAY[:1], False),
    "pyarrow times": (lambda pa: pa.array(DAY[:1].astype("M8[us]")), DAY[:1].astype("M8[us]")),
    "pyarrow time spans": (lambda pa: pa.array(np.array([5], "m8[ms]")), np.array([5], "m8[ms]")),
    "pyarrow one chunk": (lambda pa: pa.chunked_array([GRID[0]]), GRID[0]),
    "pyarrow chunks": (
        lambda pa: pa.chunked_array([GRID[0], GRID[1]])[1:],
        GRID[:2].reshape(-1)[1:],
        False,
    ),
    "pyarrow no chunks": (lambda pa: pa.chunked_array([], pa.int8()), np.array([], "i1")),
    "pyarrow lists": (lambda pa: fixed_lists(pa, GRID), GRID),
    "pyarrow lists sliced": (lambda pa: fixed_lists(pa, GRID)[1:], GRID[1:]),
    "pyarrow lists of lists": (
        lambda pa: fixed_lists(pa, GRID.reshape(3, 2, 2))[1:],
        GRID.reshape(3, 2, 2)[1:],
    ),
    "pyarrow lists of bools": (
        lambda pa: pa.array([[True, False, True]] * 3, pa.list_(pa.bool_(), 3))[1:],
        np.array([[True, False, True]] * 2),
        False,
    ),
    "pyarrow empty lists": (
        lambda pa: pa.array([[], []], pa.list_(pa.int8(), 0)),
        np.zeros((2, 0), "i1"),
    ),
    "pyarrow chunks of lists": (
        lambda pa: pa.chunked_array([fixed_lists(pa, GRID)[1:], fixed_lists(pa, GRID)]),
        np.concatenate([GRID[1:], GRID]),
        False,
    ),
    "pyarrow tensors": (
        lambda pa: pa.FixedShapeTensorArray.from_numpy_ndarray(GRID.reshape(3, 2, 2))[1:],
        GRID.reshape(3, 2, 2)[1:],
    ),
    "pyarrow tensors permuted": (permuted, GRID.reshape(2, 2, 3).transpose(0, 2, 1)),
    "pyarrow tensors of bools": (bool_tensors, np.array([[True, False], [False, False]]), False),
    "pyarrow tensors of blocks permuted": (
        lambda pa: permuted(pa, [2, 1, 0], [2, 3, 2]),
        GRID.reshape(1, 2, 3, 2).transpose(0, 3, 2, 1),
    ),
    "pyarrow chunks of tensors": (
        lambda pa: pa.chunked_array([permuted(pa)[1:], permuted(pa)]),
        GRID.reshape(2, 2, 3).transpose(0, 2, 1)[[1, 0, 1]],
        False,
    ),
    "pyarrow tensor": (lambda pa: pa.Tensor.from_numpy(GRID.copy()), GRID),
    "pyarrow tensor transposed": (lambda pa: pa.Tensor.from_numpy(GRID.copy().T), GRID.T),
    "pyarrow tensor read-only": (lambda pa: pa.Tensor.from_numpy(frozen(GRID)), GRID),
    # Zarr
    "zarr": (in_zarr(GRID, chunks=(2, 3)), GRID, False),
    "zarr of version 2": (in_zarr(GRID, zarr_format=2, order="F"), GRID, False),
    "zarr uncompressed": (in_zarr(GRID, chunks=(3, 4), compressors=None), GRID, False),
    "zarr sharded": (in_zarr(GRID, chunks=(1, 2), shards=(3, 4)), GRID, False),
    "zarr scalar": (in_zarr(np.array(3.5)), np.array(3.5), False),
    "zarr empty": (in_zarr(GRID[:0]), GRID[:0], False),
    "zarr big-endian": (in_zarr(GRID.astype(">i2")), GRID.astype(">i2"), False),
    "zarr dates": (in_zarr(DAY), DAY, False),
    # h5py
    "h5py": (in_h5(GRID, chunks=(2, 3), compression="gzip"), GRID, False),
    "h5py scalar": (in_h5(3.5), np.array(3.5), False),
    "h5py no rows": (in_h5(GRID[:0]), GRID[:0], False),
    "h5py big-endian": (in_h5(GRID.astype(">i2")), GRID.astype(">i2"), False),
    "h5py enum": (
        lambda h5py: in_h5([1, 0], dtype=h5py.enum_dtype({"A": 0, "B": 1}, "i1"))(h5py),
        np.array([1, 0], "i1"),
        False,
    ),
    "h5py as another dtype": (
        lambda h5py: in_h5(GRID)(h5py).astype("f4"),
        GRID.astype("f4"),
        False,
    ),
    "h5py field": (
        lambda h5py: in_h5(np.array([(1, 2.5)], "i4,f8"))(h5py).fields("f1"),
        np.array([2.5]),
        False,
    ),
    # Awkward
    "awkward dates": (lambda ak: ak.Array(DAY), DAY),
    "awkward regular": (lambda ak: ak.Array(GRID), GRID),
    "awkward lists": (lambda ak: ak.Array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]])),
    "awkward part that is rectangular": (
        lambda ak: ak.Array([[1], [2, 3], [4, 5]])[1:],
        np.array([[2, 3], [4, 5]]),
    ),
    "awkward cut": (lambda ak: ak.Array([[1, 2], [3, 4, 5]])[:, :2], np.array([[1, 2], [3, 4]])),
    "awkward reversed": (lambda ak: ak.Array(GRID)[:, ::-1], GRID[:, ::-1]),
    "awkward optional": (lambda ak: ak.Array([1, None, 3])[[0, 2]], np.array([1, 3]), False),
    "awkward empty": (lambda ak: ak.Array(GRID[:0]), GRID[:0]),
    "awkward nothing": (lambda ak: ak.Array([]), np.array([])),
    "awkward empty lists": (lambda ak: ak.Array([[], []]), np.zeros((2, 0))),
}

PADDING = "ak.fill_none(ak.pad_none(x, n, clip=True), 0)"
DAYS = ["2020-01-01", "2020-01-02"]
FRAME = {"a": [1, 2], "b": [1.5, 2.5]}
NULLS: tuple[Any, ...] = ([1, None], [[1, None]], [None, [1, 2]])
REFUSED = {
    # pandas
    "pandas frame": (lambda pd: pd.DataFrame(FRAME), "frame", "x.to_numpy(), or take a column, x[name]", [1, 2]),
    "pandas levels": (lambda pd: pd.MultiIndex.from_tuples([(1, 2)]), "levels", "x.get_level_values(0)", [1]),
    "pandas nulls": (in_pandas("series", "Int64", [1, None]), "missing", "x.fillna(0)", [1, 0]),
    "pandas bool nulls": (in_pandas("array", "boolean", [True, None]), "missing", "x.fillna(False)", [True, False]),
    "pandas index nulls": (in_pandas("index", "Float32", [1.5, None]), "missing", "x.dropna()", [1.5]),
    "pandas Arrow nulls": (in_arrow(dtype="float64", values=[1.5, None]), "missing", "x.fillna(0)", [1.5, 0]),
    "pandas text": (lambda pd: pd.Series(["a"]), "dtype str", "pandas.to_numeric(x)"),
    "pandas index of text": (lambda pd: pd.Index(["a"]), "dtype str", "pandas.to_numeric(x)"),
    "pandas objects": (in_pandas("series", "object", [1, 2]), "object", "x.astype(dtype)", [1, 2]),
    "pandas categories": (in_pandas("series", "category", [1, 2]), "category", "x.cat.codes", [0, 1]),
    "pandas index of categories": (lambda pd: pd.CategoricalIndex([1]), "category", "x.codes", [0]),
    "pandas intervals": (lambda pd: pd.Series(pd.interval_range(0, 2)), "interval", "pandas.IntervalIndex(x).left", [0, 1]),
    "pandas periods": (lambda pd: pd.period_range("2020", periods=2, freq="D"), "period", "pandas.PeriodIndex(x).to_timestamp()", DAYS),
    "pandas time zone": (lambda pd: pd.Series(pd.date_range("2020", periods=2, tz="UTC")), "UTC", "x.dt.tz_convert(None)", DAYS),
    "pandas index with a time zone": (lambda pd: pd.date_range("2020", periods=2, tz="UTC"), "UTC", "x.tz_convert(None)", DAYS),
    "pandas Arrow time zone": (lambda pd: pd.Series([0], dtype=f"timestamp[s, tz=UTC][{pytest.importorskip('pyarrow').__name__}]"),
        "UTC",
        "x.dt.tz_convert(None)",
        ["1970-01-01"],
    ),
    "pandas Arrow text": (in_arrow(dtype="string", values=["a"]), "string", "x.astype(dtype)"),
    "pandas decimals": (lambda pd: pd.Series(pd.arrays.ArrowExtensionArray(pytest.importorskip("pyarrow").array([decimal.Decimal(1)]))),
        "decimal",
        "x.astype(dtype)",
        [1],
    ),
    # Polars
    "polars frame": (lambda pl: pl.DataFrame(FRAME), "frame", "x.to_numpy(), or take a column, x[name]", [1, 2]),
    "polars lazy frame": (lambda pl: pl.LazyFrame(FRAME), "not computed", "x.collect()"),
    "polars nulls": (lambda pl: pl.Series([1, None]), "missing", "x.fill_null(0)", [1, 0]),
    "polars bool nulls": (lambda pl: pl.Series([True, None]), "missing", "x.drop_nulls()", [True]),
    "polars nulls in rows": (lambda pl: pl.Series(NULLS[1], dtype=pl.Array(pl.Int8, 2)), "missing", "x.reshape((-1,)).fill_null(0).reshape((-1, *x.dtype.shape))", [[1, 0]]),
    "polars missing rows": (lambda pl: pl.Series(NULLS[2], dtype=pl.Array(pl.Float32, 2)), "missing", "x.drop_nulls()", [[1, 2]]),
    "polars missing empty rows": (lambda pl: pl.Series([None, []], dtype=pl.Array(pl.Int8, 0)), "missing", "x.drop_nulls()"
    ),
    "polars text": (lambda pl: pl.Series(["a"]), "String", "x.cast(polars.Float64)"),
    "polars binary": (lambda pl: pl.Series([b"a"]), "Binary", "x.cast"),
    "polars categories": (lambda pl: pl.Series(["a"], dtype=pl.Categorical), "Categorical", "x.to_physical()", [0]),
    "polars enum": (lambda pl: pl.Series(["a"], dtype=pl.Enum(["a"])), "Enum", "x.to_physical()", [0]),
    "polars lists": (lambda pl: pl.Series([[1], [2]]), "List", "x.list.to_array(n)", [[1], [2]]),
    "polars structs": (lambda pl: pl.Series([{"a": 1}]), "Struct", "x.struct.field(name)", [1]),
    "polars decimals": (lambda pl: pl.Series([decimal.Decimal("1.5")]), "Decimal", "x.cast(polars.Float64)", [1.5]),
    "polars objects": (lambda pl: pl.Series([object()], dtype=pl.Object), "Object", "x.cast"),
    "polars time of day": (lambda pl: pl.Series([datetime.time(1)]), "Time", "x.to_physical()", [3_600_000_000_000]),
    "polars wide integers": (lambda pl: pl.Series([1], dtype=pl.Int128), "Int128", "x.cast(polars.Int64)", [1]),
    "polars nothing": (lambda pl: pl.Series([None]), "Null", "x.cast"),
    "polars time zone": (lambda pl: pl.Series(DAY[:1].astype("M8[ms]")).dt.replace_time_zone("UTC"),
        "UTC",
        "x.dt.convert_time_zone('UTC').dt.replace_time_zone(None)",
        ["2020-01-01"],
    ),
    "polars rows of text": (lambda pl: pl.Series([["a"]], dtype=pl.Array(pl.String, 1)), "String", "x.cast(polars.Array(polars.Float64, x.dtype.shape))"
    ),
    # pyarrow
    "pyarrow table": (lambda pa: pa.table(FRAME), "frame", "x[name]", [1, 2]),
    "pyarrow batch": (lambda pa: pa.record_batch(FRAME), "frame", "x[name]", [1, 2]),
    "pyarrow nulls": (lambda pa: pa.array([1, None]), "missing", "x.fill_null(0)", [1, 0]),
    "pyarrow nulls in a chunk": (lambda pa: pa.chunked_array([[1], [None]]), "missing", "x.drop_null()", [1]),
    "pyarrow nulls in lists": (lambda pa: pa.array(NULLS[1], pa.list_(pa.int8(), 2)), "missing", "pyarrow.compute.list_flatten(x).fill_null(0)", [1, 0]),
    "pyarrow missing lists": (lambda pa: pa.array(NULLS[2], pa.list_(pa.int8(), 2)), "missing", "x.drop_null()", [[1, 2]]),
    "pyarrow nulls in tensors": (lambda pa: pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.int8(), [2]), pa.array(NULLS[1], pa.list_(pa.int8(), 2))
        ),
        "missing",
        "pyarrow.compute.list_flatten(x.cast(x.type.storage_type)).fill_null(0)",
        [1, 0],
    ),
    "pyarrow text": (lambda pa: pa.array(["a"]), "string", "x.cast('float64')"),
    "pyarrow binary": (lambda pa: pa.array([b"a"]), "binary", "x.cast"),
    "pyarrow dictionary": (lambda pa: pa.array([1, 2]).dictionary_encode(), "dictionary", "x.cast(x.type.value_type)", [1, 2]),
    "pyarrow lists of any length": (lambda pa: pa.array([[1], [2]]), "list", "numpy.array(x.to_pylist())", [[1], [2]]),
    "pyarrow lists of lists": (lambda pa: pa.array([[[1]], [[2]]]), "list", "numpy.array(x.to_pylist())", [[[1]], [[2]]]),
    "datasets column": (lambda ds: ds.Dataset.from_dict({"a": [1]})["a"], "a Hugging Face Column", "dataset.with_format('torch')[name][:]"),
    "datasets": (lambda ds: ds.Dataset.from_dict({"a": [1]}), "a Hugging Face Dataset", "dataset[name][:]"),
    "pyarrow structs": (lambda pa: pa.array([{"a": 1}]), "struct", "pyarrow.compute.struct_field(x, name)", [1]),
    "pyarrow decimals": (lambda pa: pa.array([decimal.Decimal("1.5")]), "decimal", "x.cast('float64')", [1.5]),
    "pyarrow runs": (lambda pa: pa.RunEndEncodedArray.from_arrays([2], pa.array([1])), "run_end", "pyarrow.compute.run_end_decode(x)", [1, 1]),
    "pyarrow time zone": (lambda pa: pa.array([0], pa.timestamp("s", tz="UTC")), "UTC", "x.cast(pyarrow.timestamp(x.type.unit))", ["1970-01-01"]),
    "pyarrow time of day": (lambda pa: pa.array([0], pa.time32("s")), "time32", "x.cast('int32')", [0]),
    "pyarrow nothing": (lambda pa: pa.array([None]), "null", "x.cast"),
    "pyarrow tensors turned round": (lambda pa: permuted(pa, [1, 2, 0], [2, 3, 2]), "[1, 2, 0]", "x.cast(x.type.storage_type)", [list(range(12))]),
    "pyarrow extension": (lambda pa: pa.ExtensionArray.from_storage(pa.uuid(), pa.array([uuid.uuid4().bytes], pa.binary(16))),
        "uuid",
        "x.cast(x.type.storage_type)",
    ),
    # Zarr and h5py
    "zarr text": (in_zarr(np.array(["a", "b"]), dtype=str), "text", "x[...]"),
    "h5py text": (in_h5("hello"), "text", "x.asstr()[()]"),
    "h5py bytes": (in_h5(np.array([b"ab"])), "text", "x.asstr()[()]"),
    "h5py text view": (lambda h5py: in_h5("hello")(h5py).asstr(), "text", "x[()]"),
    "h5py rows of any length": (lambda h5py: h5_file(h5py).create_dataset("x", (2,), h5py.vlen_dtype("i4")), "objects", "x[()]"
    ),
    "h5py references": (lambda h5py: h5_file(h5py).create_dataset("x", (2,), h5py.ref_dtype), "objects", "x[()]"),
    "h5py empty": (lambda h5py: in_h5(h5py.Empty("f4"))(h5py), "no values", "x.shape is None"),
    # Awkward
    "awkward ragged": (lambda ak: ak.Array([[1, 2], [3]]), "ragged", PADDING, [[1], [3]]),
    "awkward ragged inside": (lambda ak: ak.Array([[[1], [2, 3]]]), "ragged", PADDING),
    "awkward missing": (lambda ak: ak.Array([1, None]), "missing", "ak.fill_none(x, 0)", [1, 0]),
    "awkward missing inside": (lambda ak: ak.Array([[1, None]]), "missing", "ak.drop_none(x)"),
    "awkward missing list": (lambda ak: ak.Array([[1, 2], None]), "missing", "ak.drop_none(x)", [[1, 2]]),
    "awkward text": (lambda ak: ak.Array(["a", "b"]), "text", "ak.strings_astype(x, float)"),
    "awkward bytes": (lambda ak: ak.Array([b"a"]), "text", "ak.strings_astype(x, float)"),
    "awkward records": (lambda ak: ak.Array([{"a": 1}]), "records", "x[name]", [1]),
    "awkward records inside": (lambda ak: ak.Array([[{"a": 1}]]), "records", "x[name]"),
    "awkward union": (lambda ak: ak.Array([1, "a"]), "several types", "ak.enforce_type(x, type)"),
    "awkward categories": (lambda ak: ak.Array(ak.contents.IndexedArray(
            ak.index.Index64([0, 0]), ak.contents.NumpyArray([1]), parameters={"__array__": "categorical"}
        )),
        "categories",
        "ak.from_categorical(x)",
        [1, 1],
    ),
    "awkward without values": (lambda ak: ak.to_backend(ak.Array([1]), "typetracer"), "no values", "outside"),
}  # fmt: skip

good = pytest.mark.parametrize(
    "case", [Case(name.split()[0], *case) for name, case in GOOD.items()], ids=GOOD
)
refused = pytest.mark.parametrize(
    "case", [Refused(name.split()[0], *case) for name, case in REFUSED.items()], ids=REFUSED
)
targets = pytest.mark.parametrize("to", TARGETS)


def outcome(convert: Callable[[], Any]) -> Any:
    """Return the result of a conversion, or the type of its error."""
    try:
        return convert()
    except af.ConversionError as error:
        return type(error)


def test_tensors_are_as_pyarrow_sees_them():
    pa = pytest.importorskip("pyarrow")
    for order in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 1, 0]):
        x = permuted(pa, order, [2, 3, 2])
        same(af.convert(x, "numpy"), x.to_numpy_ndarray())


@good
@targets
def test_it_becomes_what_a_numpy_array_of_its_values_becomes(case, to):
    x = made(case)
    pytest.importorskip(to)
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
    x = made(case)
    found = af.convert(x, "numpy", copy=True)
    same(found, case.values)
    found.fill(0)
    same(af.convert(x, "numpy"), case.values)


@good
def test_shared_with_numpy(case):
    x = made(case)
    if case.shares:
        found = af.convert(x, "numpy", copy=False)
        same(found, case.values)
        at = {y.ctypes.data for y in (found, af.convert(x, "numpy"), af.convert(x, "numpy"))}
        assert len(at) == 1 or found.size == 0
    else:
        with pytest.raises(af.CopyRequiredError):
            af.convert(x, "numpy", copy=False)
        found, again = af.convert(x, "numpy"), af.convert(x, "numpy")
        assert found.size == 0 or not np.shares_memory(found, again)


@good
@pytest.mark.parametrize("copy", [None, False])
def test_what_others_hold_is_never_written_to(case, copy):
    x = made(case)
    torch = pytest.importorskip("torch")
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


@refused
@targets
def test_refused(case, to):
    x = made(case)
    pytest.importorskip(to)
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
    module = pytest.importorskip(case.package)
    if case.package == "pyarrow":
        pytest.importorskip("pyarrow.compute")
    names = {"x": made(case), "n": 1, "name": "a", "dtype": "float64", "ak": module, "numpy": np}
    code = case.remedy.rpartition(", or take a column, ")[2]
    found = af.convert(eval(code, {**names, case.package: module}), "numpy")
    expected = found.astype("M8[D]").astype(str) if found.dtype.kind == "M" else found
    assert expected.tolist() == case.values


@refused
def test_refused_in_a_tree(case):
    x = made(case)
    assert af.convert({"a": [x]}, "torch")["a"][0] is x
    with pytest.raises(af.ConversionError) as caught:
        af.convert({"a": [x]}, "numpy", unknown="convert")
    assert caught.value.path == "['a'][0]"
    assert case.reason in str(caught.value)


@good
@pytest.mark.parametrize("times", [1, 4])
def test_in_trees(case, times):
    x = made(case)
    tree = {"a": [x, np.ones(2)], "b": "text"}
    keep, convert = af.converter("numpy"), af.converter("numpy", unknown="convert")
    for _ in range(times):
        assert keep(tree)["a"][0] is x
        found = convert(tree)
        same(found["a"][0], case.values)
        assert found["b"] == "text"
        with pytest.raises(af.NotAnArrayError) as caught:
            af.convert(tree, "numpy", unknown="raise")
        assert caught.value.path == "['a'][0]"


@pytest.mark.parametrize(
    "package", ["pandas", "polars", "pyarrow", "zarr", "h5py", "scipy", "awkward"]
)
@targets
def test_routes(package, to):
    pytest.importorskip(package)
    assert str(af.route(package, to)).startswith(f"{package} (cpu) -> ")
    with pytest.raises(af.UnknownBackendError, match=f"only read from {package}"):
        af.converter(package)


SEQUENCES: dict[str, tuple[str, Callable[[Any, np.ndarray], Any], Callable[[Any], Any]]] = {
    "pandas": ("pandas", lambda pd, n: pd.Series(n), lambda pd: pd.Series([1, None], dtype="Int64")),
    "pandas nullable": (
        "pandas",
        lambda pd, n: pd.Series(n).astype(pd.Series(n).convert_dtypes().dtype),
        lambda pd: pd.Series([1, None], dtype="Int64"),
    ),
    "polars": ("polars", lambda pl, n: pl.Series(n), lambda pl: pl.Series([1, None])),
    "pyarrow": ("pyarrow", lambda pa, n: pa.array(n), lambda pa: pa.array([1, None])),
    "pyarrow chunked": (
        "pyarrow",
        lambda pa, n: pa.chunked_array([n[:1], n[1:]]),
        lambda pa: pa.chunked_array([[1], [None]]),
    ),
    "zarr": ("zarr", lambda zarr, n: in_zarr(n)(zarr), lambda zarr: in_zarr(np.array(["a"]), dtype=str)(zarr)),
    "h5py": ("h5py", lambda h5py, n: in_h5(n)(h5py), lambda h5py: in_h5("text")(h5py)),
    "awkward": ("awkward", lambda ak, n: ak.Array(n), lambda ak: ak.Array([[1], [2, 3]])),
}  # fmt: skip


@pytest.mark.parametrize("name", SEQUENCES)
@targets
@pytest.mark.parametrize("inside", [False, True])
def test_one_converter_for_changing_values(name, to, inside):
    package, make, bad = SEQUENCES[name]
    module = pytest.importorskip(package)
    pytest.importorskip(to)
    convert = af.converter(to, unknown="convert")
    wrap = (lambda x: {"a": (x,)}) if inside else (lambda x: x)
    unwrap = (lambda y: y["a"][0]) if inside else (lambda y: y)
    arrays = [np.array([1, 2, 3]), np.array([4, 5]), np.array([6, 7, 8]), np.array([2, 1, 9])]
    arrays += [np.array([1.5, 0.25]), np.array([], "i4"), np.array([True, False])]
    for n in arrays:
        x = make(module, n)
        found = unwrap(convert(wrap(x)))
        expected = af.convert(n if "nullable" not in name else af.convert(x, "numpy"), to)
        assert found.dtype == expected.dtype
        same(found, read(expected))
    for _ in range(3):
        with pytest.raises(af.ConversionError):
            convert(wrap(bad(module)))
        same(unwrap(convert(wrap(make(module, arrays[0])))), read(af.convert(arrays[0], to)))


# What is lazy.


@pytest.fixture
def zarr_reads(monkeypatch):
    """Count what is read from an array of Zarr with two chunks."""
    zarr = pytest.importorskip("zarr")
    found: dict[str, Any] = {"calls": 0, "chunks": [], "chunks of one": 2}

    class Counting(zarr.storage.MemoryStore):
        async def get(self, key, *args, **options):
            if key.startswith("c/"):
                found["chunks"].append(key)
            return await super().get(key, *args, **options)

    original = zarr.Array.__getitem__

    def counted(x, selection):
        found["calls"] += 1
        return original(x, selection)

    monkeypatch.setattr(zarr.Array, "__getitem__", counted)

    def make(values: np.ndarray) -> Any:
        x = zarr.create_array(Counting(), shape=values.shape, chunks=(2,), dtype=values.dtype)
        x[...] = values
        found["chunks"].clear()
        return x

    return make, found


@pytest.fixture
def h5_reads(monkeypatch):
    """Count how often a dataset is read."""
    h5py = pytest.importorskip("h5py")
    found: dict[str, Any] = {"calls": 0, "chunks": [], "chunks of one": 0}
    original = h5py.Dataset.__getitem__

    def counted(x, *args):
        found["calls"] += 1
        return original(x, *args)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counted)
    return lambda values: in_h5(values)(h5py), found


@pytest.fixture(params=["zarr_reads", "h5_reads"])
def reads(request):
    return request.getfixturevalue(request.param)


@targets
@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("inside", [False, True])
def test_it_is_read_once(reads, to, copy, inside):
    make, found = reads
    pytest.importorskip(to)
    values = np.arange(4, dtype=np.float32)
    x = make(values)
    convert = af.converter(to, copy=copy, unknown="convert")
    for times in range(1, 6):
        y = convert([x, "text"])[0] if inside else convert(x)
        assert found["calls"] == times
        same(y, values)
    assert len(found["chunks"]) == 5 * found["chunks of one"]


@pytest.mark.parametrize("package", ["zarr", "h5py", "scipy"])
def test_what_was_read_is_not_copied_again(package, monkeypatch):
    module, torch = pytest.importorskip(package), pytest.importorskip("torch")
    values = np.arange(4.0).reshape(2, 2)
    if package == "scipy":
        x = sparse_of("csr_array", values)
        monkeypatch.setattr(type(x), "toarray", lambda x: values)
    else:
        x = (in_zarr if package == "zarr" else in_h5)(values)(module)
        monkeypatch.setattr(type(x), "__getitem__", lambda x, selection: values)
    found = af.convert(x, "torch", sparse="dense")
    assert isinstance(found, torch.Tensor)
    assert found.data_ptr() == values.ctypes.data


def test_it_is_read_once_to_narrow(reads):
    make, found = reads
    pytest.importorskip("jax")
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
@pytest.mark.filterwarnings("ignore:The data type:")  # Zarr has no specification for them
def test_it_is_refused_before_it_is_read(reads, to, values, options, error, inside):
    make, found = reads
    pytest.importorskip(to)
    x = make(values)
    with pytest.raises(error):
        af.convert([x] if inside else x, to, unknown="convert", **options)
    assert found["calls"] == 0
    assert found["chunks"] == []


def test_it_is_kept_before_it_is_read(reads):
    make, found = reads
    pytest.importorskip("jax")
    x = make(np.arange(4))
    assert af.convert({"x": x}, "jax")["x"] is x
    with pytest.raises(af.NotAnArrayError):
        af.convert({"x": x}, "jax", unknown="raise")
    assert found["calls"] == 0


RECORDS = np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")])


@pytest.mark.parametrize(
    ("package", "make"), [("zarr", in_zarr(RECORDS)), ("h5py", in_h5(RECORDS))]
)
@pytest.mark.filterwarnings("ignore:The data type:")  # Zarr has no specification for them
def test_records_go_to_numpy_only(package, make):
    x = make(pytest.importorskip(package))
    same(af.convert(x, "numpy"), RECORDS)
    pytest.importorskip("torch")
    with pytest.raises(af.UnsupportedDtypeError, match="records"):
        af.convert(x, "torch")
    assert af.convert(x, "torch", unsupported="keep") is x


def test_records_of_objects_are_refused():
    h5py = pytest.importorskip("h5py")
    kind = np.dtype([("a", "i4"), ("b", h5py.string_dtype())])
    with pytest.raises(af.UnsupportedDtypeError, match="text or objects"):
        af.convert(in_h5(np.array([(1, "x")], kind))(h5py), "numpy")


@targets
@pytest.mark.parametrize("options", [{}, {"copy": False}, {"copy": True}])
@pytest.mark.parametrize("view", [False, True])
def test_a_closed_file(to, options, view):
    h5py = pytest.importorskip("h5py")
    pytest.importorskip(to)
    with h5_file(h5py) as file:
        x = file.create_dataset("x", data=GRID)
        x = x.astype("f4") if view else x
    for value in (x, [x]):
        with pytest.raises(af.ConversionError, match=r"closed file.* while the file is open"):
            af.convert(value, to, unknown="convert", **options)


def test_groups_are_no_arrays():
    zarr, h5py = pytest.importorskip("zarr"), pytest.importorskip("h5py")
    for group in (zarr.create_group({}), h5_file(h5py)):
        assert af.convert([group], "numpy")[0] is group


# What is sparse.

SPARSE_VALUES = {
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


def sparse_of(kind: str, values: np.ndarray) -> Any:
    return getattr(pytest.importorskip("scipy.sparse"), kind)(values)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("name", SPARSE_VALUES)
@targets
def test_sparse(form, kind, name, to):
    values = SPARSE_VALUES[name]
    x = sparse_of(f"{form}_{kind}", values)
    pytest.importorskip(to)
    for value in (x, [x], {"x": (x,)}):
        with pytest.raises(af.ConversionError, match=r'sparse="dense".*x.todense\(\)'):
            af.convert(value, to)
    with pytest.raises(af.CopyRequiredError):
        af.convert(x, to, sparse="dense", copy=False)
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


def test_sparse_of_other_dimensions():
    cube = np.arange(24).reshape(2, 3, 4) % 3
    for values in (cube, cube[0, 0]):
        same(af.convert(sparse_of("coo_array", values), "numpy", sparse="dense"), values)


def test_sparse_sums_of_one_place():
    sparse = pytest.importorskip("scipy.sparse")
    x = sparse.coo_array(([1, 2, 4], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    same(af.convert(x, "numpy", sparse="dense"), np.array([[0, 3], [4, 0]]))
    assert x.nnz == 3


def test_sparse_has_memory_of_its_own():
    torch = pytest.importorskip("torch")
    x = sparse_of("csr_array", np.eye(2))
    found = af.convert(x, "torch", sparse="dense")
    assert isinstance(found, torch.Tensor)
    found.zero_()
    same(x.toarray(), np.eye(2))


@pytest.mark.parametrize("values", [[0, 0, 3], [1, 2, 3], [True, False], [1.5, np.nan, 0.0], []])
@pytest.mark.parametrize("kind", ["Series", "Index", "array"])
@targets
def test_sparse_columns(values, kind, to):
    pd = pytest.importorskip("pandas")
    pytest.importorskip(to)
    dense = np.array(values)
    x = pd.arrays.SparseArray(values)
    x = x if kind == "array" else getattr(pd, kind)(x)
    for value in (x, [x], {"x": (x,)}):
        with pytest.raises(af.ConversionError, match=r'is sparse.*sparse="dense"'):
            af.convert(value, to)
    with pytest.raises(af.CopyRequiredError):
        af.convert(x, to, sparse="dense", copy=False)
    expected = af.convert(dense, to)
    for value in (x, [x]):
        found = af.convert(value, to, sparse="dense")
        found = found[0] if isinstance(found, list) else found
        assert found.dtype == expected.dtype
        same(found, read(expected))
        if to == "torch":
            found.zero_()
    same(np.asarray(x), dense)


# What each package promises.


def test_a_column_is_not_written_to_by_another():
    pd = pytest.importorskip("pandas")
    torch = pytest.importorskip("torch")
    for dtype in ("int64", "Int64"):
        x = pd.Series([1, 2, 3], dtype=dtype)
        other = x[:]  # has the same memory until one of them is written to
        found = af.convert(x, "numpy")
        assert not found.flags.writeable
        assert isinstance(af.convert(x, "torch"), torch.Tensor)
        x.iloc[0] = 9
        assert other.tolist() == [1, 2, 3]


def test_an_index_is_not_written_to():
    pd = pytest.importorskip("pandas")
    pytest.importorskip("torch")
    x = pd.Index([1, 2, 3])
    af.convert(x, "torch").zero_()
    assert not af.convert(x, "numpy").flags.writeable
    assert x.tolist() == [1, 2, 3]
    assert x.get_loc(2) == 1


def test_an_array_of_another_package_is_not_read():
    pd = pytest.importorskip("pandas")

    class Lengths(pd.api.extensions.ExtensionDtype):
        name, type, kind, na_value, _is_numeric = "metres", float, "f", np.nan, True

    class InMetres(pd.api.extensions.ExtensionArray):
        dtype = Lengths()

        def __len__(self):
            return 1

        def __getitem__(self, item):
            return 1.5

    Lengths.__module__ = InMetres.__module__ = "metres"
    with pytest.raises(af.UnsupportedDtypeError, match="metres"):
        af.convert(InMetres(), "numpy")


def test_text_is_kept_where_that_is_asked_for():
    pd = pytest.importorskip("pandas")
    torch = pytest.importorskip("torch")
    row = {"name": pd.Series(["a", "b"]), "age": pd.Series([1, 2])}
    found = af.convert(row, "torch", unknown="convert", unsupported="keep")
    assert found["name"] is row["name"]
    assert torch.equal(found["age"], torch.tensor([1, 2]))


def test_an_arrow_tensor_shares_memory_that_can_be_written_to():
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("torch")
    memory = np.arange(6.0).reshape(2, 3)
    x = pa.Tensor.from_numpy(memory)
    found = af.convert(x, "torch", copy=False)
    assert found.data_ptr() == memory.ctypes.data
    found[0, 0] = 9
    assert memory[0, 0] == 9
    with pytest.raises(af.CopyRequiredError, match="read-only"):
        af.convert(pa.Tensor.from_numpy(frozen(memory)), "torch", copy=False)
    arrays = pa.FixedShapeTensorArray.from_numpy_ndarray(memory)
    with pytest.raises(af.CopyRequiredError, match="read-only"):
        af.convert(arrays.to_tensor(), "torch", copy=False)


@pytest.mark.parametrize(
    ("package", "wrap"),
    [
        ("awkward", lambda ak, n: ak.Array(n)),
        ("pyarrow", lambda pa, n: pa.Tensor.from_numpy(n)),
        ("pandas", lambda pd, n: pd.Series(n, copy=False)),
    ],
)
def test_what_never_changes_is_not_over_memory_that_does(package, wrap):
    module = pytest.importorskip(package)
    memory = np.arange(4, dtype=np.float32)
    x = wrap(module, memory)
    shared = af.convert(x, "numpy")
    others = [af.convert(x, to) for to in ("jax", "dask") if pytest.importorskip(to)]
    memory[0] = 9
    assert shared[0] == 9
    assert [read(y)[0] for y in others] == [0, 0]
    for to in ("jax", "dask"):
        with pytest.raises(af.CopyRequiredError, match=f"{package} array can be written to"):
            af.convert(x, to, copy=False)


@pytest.mark.parametrize("package", ["polars", "pyarrow"])
def test_what_never_changes_is_not_made_writable(package):
    module = pytest.importorskip(package)
    x = module.Series([1, 2]) if package == "polars" else module.array([1, 2])
    assert not af.convert(x, "numpy", copy=False).flags.writeable
    pytest.importorskip("torch")
    with pytest.raises(af.CopyRequiredError, match=f"{package} arrays never change"):
        af.convert(x, "torch", copy=False)


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow", "awkward"])
def test_a_result_outlives_its_source(package):
    module = pytest.importorskip(package)
    for _ in range(20):
        n = np.arange(50_000)
        makers = {"pandas": "Series", "polars": "Series", "pyarrow": "array", "awkward": "Array"}
        found = af.convert(getattr(module, makers[package])(n), "numpy", copy=False)
        del n
        np.full(50_000, -1)
        assert np.array_equal(found, np.arange(50_000))


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow", "awkward"])
def test_slices(package):
    module = pytest.importorskip(package)
    hypothesis = pytest.importorskip("hypothesis")
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    makers = {
        "pandas": lambda n: module.Series(n).iloc,
        "polars": lambda n: module.Series(n),
        "pyarrow": lambda n: module.array(n),
        "awkward": lambda n: module.Array(n),
    }
    kinds = [hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.boolean_dtypes()]
    kinds += [hnp.floating_dtypes(sizes=(32, 64))]
    dtypes = st.one_of(kinds).map(lambda dtype: dtype.newbyteorder("="))

    @hypothesis.settings(max_examples=150, deadline=None, database=None)
    @hypothesis.given(hnp.arrays(dtypes, st.integers(0, 20)), st.data())
    def check(n, data):
        part = data.draw(st.slices(len(n)))
        if package == "pyarrow":  # slices of another step are taken, not views
            part = slice(part.start, part.stop, 1)
        if package == "awkward":  # it takes no slice with a step that ends before it starts
            hypothesis.assume(n[part].size)
        x = makers[package](n)[part]
        found = af.convert(x, "numpy")
        assert found.dtype == n.dtype
        assert found.shape == n[part].shape
        assert found.tobytes() == n[part].tobytes()

    check()


def test_a_sparse_column_does_not_teach_a_converter_to_take_dense_ones():
    pd = pytest.importorskip("pandas")
    to_torch = af.converter("torch", sparse="dense")
    thin, dense = pd.Series(pd.arrays.SparseArray([0, 0, 1])), pd.Series([1, 2, 3])
    for _ in range(4):
        assert to_torch([thin])[0].tolist() == [0, 0, 1]
    assert to_torch([dense])[0] is dense


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
