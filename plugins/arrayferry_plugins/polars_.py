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
            noun, first_call = ", a frame that is not computed yet,", "x.collect()"
        elif isinstance(x, pl.DataFrame):
            noun, first_call = ", a frame of columns,", "x.to_numpy(), or select a column: x[name]"
        else:
            _refuse_dtype(x.dtype)
            elements = x.reshape((-1,)) if isinstance(x.dtype, pl.Array) else x
            if not (x.null_count() or elements.null_count()):
                return x.to_numpy()
            name = elements.dtype.base_type().__name__
            fill = {"Boolean": "False", "Date": "", "Datetime": "", "Duration": ""}.get(name, "0")
            noun, first_call = " with missing values", "x.drop_nulls()"
            if isinstance(x.dtype, pl.Array) and not x.null_count() and fill:
                first_call = f"x.reshape((-1,)).fill_null({fill}).reshape((-1, *x.dtype.shape))"
            elif fill and not isinstance(x.dtype, pl.Array):
                first_call = f"x.fill_null({fill}), or {first_call}"
        raise refused(f"a Polars {type(x).__name__}{noun}", first_call)


def _refuse_dtype(dtype: Any) -> None:
    """Raise an error for a dtype that NumPy lacks, or stores only as Python objects."""
    import polars as pl

    base = dtype
    while isinstance(base, pl.Array):
        base = base.inner
    name = base.base_type().__name__
    is_numeric = (base.is_integer() or base.is_float()) and not name.endswith("128")
    is_date = name in ("Date", "Datetime", "Duration") and getattr(base, "time_zone", None) is None
    if is_numeric or is_date or name == "Boolean":
        return
    number_type = "polars.Float64"
    if isinstance(dtype, pl.Array):
        number_type = "polars.Array(polars.Float64, x.dtype.shape)"
    first_call = REMEDIES.get(name, f"x.cast({number_type}), if the values are numbers")
    raise refused(f"a Polars Series of dtype {dtype!s:.80}", first_call, dtype)


def arrayferry_sources() -> list[Source]:
    """Return the source of this module."""
    return [PolarsSource()]
