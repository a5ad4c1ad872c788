"""pandas: columns, indexes and extension arrays, as read-only views where pandas can return a view."""

from __future__ import annotations

from typing import Any

from arrayferry import Source
from arrayferry.typing import AnyArray

from ._sources import read_only, refused

REMEDIES = {
    "CategoricalDtype": "x.cat.codes",
    "DatetimeTZDtype": "x.dt.tz_convert(None)",
    "IntervalDtype": "pandas.IntervalIndex(x).left and .right",
    "PeriodDtype": "pandas.PeriodIndex(x).to_timestamp()",
}


class PandasSource(Source):
    """`Series`, `Index` and extension arrays of numbers, bools, dates and time spans."""

    name = "pandas"
    package = install = "pandas"
    array_types: tuple[str, ...] = (
        "pandas.Series",
        "pandas.Index",
        "pandas.DataFrame",
        "pandas.api.extensions.ExtensionArray",
    )

    def to_numpy(self, x: AnyArray) -> Any:
        import pandas as pd

        if isinstance(x, pd.DataFrame):
            noun, first_call = ", a frame of columns,", "x.to_numpy(), or select a column: x[name]"
        elif isinstance(x, pd.MultiIndex):
            noun, first_call = ", an index of several levels,", "x.get_level_values(0)"
        else:
            dtype = _plain_dtype(x)
            # a dtype without pd.NA has no missing values: its NaN is an ordinary value
            is_nullable = getattr(x.dtype, "na_value", None) is pd.NA
            if not (is_nullable and x.isna().any()):
                # read-only, since the column uses the same memory
                return read_only(x.to_numpy(dtype))
            number_fill = "x.fillna(0), or "
            fill_call = {"b": "x.fillna(False), or ", "m": "", "M": ""}.get(dtype.kind, number_fill)
            noun, first_call = " with missing values", f"{fill_call}x.dropna()"
        raise refused(f"a pandas {type(x).__name__}{noun}", first_call)

    def is_sparse(self, x: AnyArray) -> bool:
        import pandas as pd

        return isinstance(getattr(x, "dtype", None), pd.SparseDtype)


def _plain_dtype(x: AnyArray) -> Any:
    """Return the NumPy dtype of the values of a column. Raise an error if NumPy has no such dtype."""
    import pandas as pd

    dtype = x.dtype
    is_known = type(dtype).__module__.partition(".")[0] in ("numpy", "pandas")
    plain_dtype = dtype.subtype if isinstance(dtype, pd.SparseDtype) else dtype
    # the nullable dtypes and the Arrow dtypes of pandas have a `numpy_dtype`
    plain_dtype = getattr(plain_dtype, "numpy_dtype", plain_dtype)
    time_zone = getattr(getattr(dtype, "pyarrow_dtype", dtype), "tz", None)
    if is_known and plain_dtype.kind in "biufcmM" and time_zone is None:
        return plain_dtype
    type_name = "DatetimeTZDtype" if time_zone is not None else type(dtype).__name__
    first_call = REMEDIES.get(type_name, "pandas.to_numeric(x), or x.astype(dtype)")
    if not isinstance(x, pd.Series):  # an Index has x.codes in place of x.cat.codes
        first_call = first_call.replace(".cat.", ".").replace(".dt.", ".")
    raise refused(f"a pandas {type(x).__name__} of dtype {dtype!s:.80}", first_call, dtype)


def arrayferry_sources() -> list[Source]:
    """Return the source of this module."""
    return [PandasSource()]
