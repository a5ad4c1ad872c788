"""pyarrow: arrays, as read-only views where Arrow keeps them as NumPy does, and tensors."""

from __future__ import annotations

from typing import Any

from arrayferry import Source
from arrayferry.typing import Memory

from ._sources import GroupSource, refused

REMEDIES = {
    "dictionary": "x.cast(x.type.value_type)",
    "list": "numpy.array(x.to_pylist()), if all lists of a level have one length,",
    "run_end_encoded": "pyarrow.compute.run_end_decode(x)",
    "struct": "pyarrow.compute.struct_field(x, name)",
    "time32": "x.cast('int32')",
    "time64": "x.cast('int64')",
    "timestamp": "x.cast(pyarrow.timestamp(x.type.unit))",
}


class ArrowSource(Source):
    """`Array` and `ChunkedArray` of numbers, bools, dates and time spans, and of lists of fixed size."""

    name = "pyarrow"
    package = install = "pyarrow"
    array_types: tuple[str, ...] = (
        "pyarrow.Array",
        "pyarrow.ChunkedArray",
        "pyarrow.Table",
        "pyarrow.RecordBatch",
    )
    memory: Memory = "immutable"

    def to_numpy(self, x: Any) -> Any:
        import pyarrow as pa

        if isinstance(x, (pa.Table, pa.RecordBatch)):
            what = f"a pyarrow {type(x).__name__}, a frame of columns,"
            raise refused(what, remedy="Take a column first: x[name].")
        shape, axes = _refuse_type(x.type)
        value = "False" if pa.types.is_boolean(x.type) else "0"
        fill = "" if shape or pa.types.is_temporal(x.type) else f"x.fill_null({value}), or "
        _refuse_missing(x, f"{fill}x.drop_null(),")
        if isinstance(x, pa.ChunkedArray):
            x = x.chunk(0) if x.num_chunks == 1 else x.combine_chunks()
        count, flat = len(x), "x"
        if isinstance(x, pa.ExtensionArray):
            x, flat = x.storage, "x.cast(x.type.storage_type)"
        while pa.types.is_fixed_size_list(x.type):
            x = x.flatten()  # only the part that a slice shows
            flat = f"pyarrow.compute.list_flatten({flat})"
            _refuse_missing(x, f"{flat}.fill_null(0), and reshape the result,")
        values = x.to_numpy(zero_copy_only=False).reshape(count, *shape)
        return values.transpose(0, *(axis + 1 for axis in axes))


class TensorSource(Source):
    """`Tensor`: a view of memory that others hold and may write to."""

    name = "pyarrow"
    package = install = "pyarrow"
    array_types: tuple[str, ...] = ("pyarrow.Tensor",)
    to_numpy_shares: bool | None = True

    def to_numpy(self, x: Any) -> Any:
        return x.to_numpy()


class DatasetSource(GroupSource):
    """`Column` and `Dataset` of Hugging Face's `datasets`, which have formats of their own."""

    name = "datasets"
    package = install = "datasets"
    array_types: tuple[str, ...] = ("datasets.arrow_dataset.Column", "datasets.Dataset")
    what = "a Hugging Face"
    inside = (
        "a column in it, as dataset.with_format('torch')[name][:], or the lists dataset[name][:]"
    )


def _refuse_missing(x: Any, first: str) -> None:
    if x.null_count:
        raise refused(f"a pyarrow {type(x).__name__} with missing values", first)


def _refuse_type(given: Any) -> tuple[list[int], list[int]]:
    """Raise for a type that NumPy lacks. Return the shape of an element, and the order of its axes."""
    import pyarrow as pa
    from pyarrow import types

    kind, shape, axes = given, [], None
    if isinstance(kind, pa.FixedShapeTensorType):
        kind, shape, axes = kind.value_type, list(kind.shape), kind.permutation
        if axes is not None and [axes[axis] for axis in axes] != list(range(len(axes))):
            why = ": pyarrow itself reads and writes such tensors in different orders"
            remedy = "Call x.cast(x.type.storage_type) first, and reshape the result."
            raise refused(f"tensors of the permutation {axes}", why=why, remedy=remedy)
    while types.is_fixed_size_list(kind):
        shape.append(kind.list_size)
        kind = kind.value_type
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    date = types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind)
    if number or (date and getattr(kind, "tz", None) is None):
        return shape, list(range(len(shape))) if axes is None else axes
    name = str(kind).partition("[")[0].partition("<")[0].removeprefix("large_")
    first = REMEDIES.get(name, "x.cast('float64'), if it is numbers,")
    if isinstance(kind, pa.BaseExtensionType):
        first = "x.cast(x.type.storage_type)"
    raise refused(f"a pyarrow array of type {given!s:.80}", first, given)


def arrayferry_sources() -> list[Source]:
    """Return the sources of this module."""
    return [ArrowSource(), TensorSource(), DatasetSource()]
