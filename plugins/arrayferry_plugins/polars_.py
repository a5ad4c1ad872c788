"""Polars: columns, as read-only views where Polars can return a view."""

from __future__ import annotations

from typing import Any

from arrayferry import Source
from arrayferry.typing import AnyArray, Memory

from ._sources import refused

REMEDIES = {
    "Categorical": "x.to_physical()",
    "Enum": "x.to_physical()",
    "Time": "x.to_physical()",
    "Datetime": "x.dt.convert_time_zone('UTC').dt.replace_time_zone(None)",
    "List": "x.list.to_array(n), if all lists have the same length n",
    "Struct": "x.struct.field(name)",
    "Int128": "x.cast(polars.Int64)",
    "UInt128": "x.cast(polars.UInt64)",
}


class PolarsSource(Source):
    """`Series` of numbers, bools, dates and time spans, and of dtype `Array` with such elements."""

    name = "polars"
    package = install = "polars"
    array_types: tuple[str, ...] = ("polars.Series", "polars.DataFrame", "polars.LazyFrame")
    memory: Memory = "immutable"

    def to_numpy(self, x: AnyArray) -> Any:
        import polars as pl

        if isinstance(x, pl.LazyFrame):
            what, first = ", a frame that is not computed yet,", "x.collect()"
        elif isinstance(x, pl.DataFrame):
            what, first = ", a frame of columns,", "x.to_numpy(), or select a column: x[name]"
        else:
            _refuse_dtype(x.dtype)
            inside = x.reshape((-1,)) if isinstance(x.dtype, pl.Array) else x
            if not (x.null_count() or inside.null_count()):
                return x.to_numpy()
            name = inside.dtype.base_type().__name__
            value = {"Boolean": "False", "Date": "", "Datetime": "", "Duration": ""}.get(name, "0")
            what, first = " with missing values", "x.drop_nulls()"
            if isinstance(x.dtype, pl.Array) and not x.null_count() and value:
                first = f"x.reshape((-1,)).fill_null({value}).reshape((-1, *x.dtype.shape))"
            elif value and not isinstance(x.dtype, pl.Array):
                first = f"x.fill_null({value}), or {first}"
        raise refused(f"a Polars {type(x).__name__}{what}", first)


def _refuse_dtype(dtype: Any) -> None:
    """Raise an error for a dtype that NumPy lacks, or stores only as Python objects."""
    import polars as pl

    of = dtype
    while isinstance(of, pl.Array):
        of = of.inner
    name = of.base_type().__name__
    numeric = (of.is_integer() or of.is_float()) and not name.endswith("128")
    date = name in ("Date", "Datetime", "Duration") and getattr(of, "time_zone", None) is None
    if numeric or date or name == "Boolean":
        return
    number = "polars.Float64"
    if isinstance(dtype, pl.Array):
        number = "polars.Array(polars.Float64, x.dtype.shape)"
    first = REMEDIES.get(name, f"x.cast({number}), if the values are numbers")
    raise refused(f"a Polars Series of dtype {dtype!s:.80}", first, dtype)


def arrayferry_sources() -> list[Source]:
    """Return the source of this module."""
    return [PolarsSource()]
