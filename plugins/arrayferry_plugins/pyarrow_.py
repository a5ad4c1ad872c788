"""pyarrow: tensors, and arrays, which become read-only views where Arrow and NumPy store values in the same way."""

from __future__ import annotations

from typing import Any

from arrayferry import Source
from arrayferry.typing import AnyArray, Memory

from ._sources import GroupSource, refused

REMEDIES = {
    "dictionary": "x.cast(x.type.value_type)",
    "run_end_encoded": "pyarrow.compute.run_end_decode(x)",
    "struct": "pyarrow.compute.struct_field(x, name)",
    "time32": "x.cast('int32')",
    "time64": "x.cast('int64')",
    "timestamp": "x.cast(pyarrow.timestamp(x.type.unit))",
}


class ArrowSource(Source):
    """`Array` and `ChunkedArray` of numbers, bools, dates and time spans, or of equally long lists of such elements."""

    name = "pyarrow"
    package = install = "pyarrow"
    array_types: tuple[str, ...] = (
        "pyarrow.Array",
        "pyarrow.ChunkedArray",
        "pyarrow.Table",
        "pyarrow.RecordBatch",
    )
    memory: Memory = "immutable"

    def to_numpy(self, x: AnyArray) -> Any:
        import numpy as np
        import pyarrow as pa

        if isinstance(x, (pa.Table, pa.RecordBatch)):
            noun = f"a pyarrow {type(x).__name__}, a frame of columns,"
            raise refused(noun, remedy="Select a column first: x[name].")
        tensor_shape, tensor_axes = _refuse_type(x.type)
        _refuse_missing(x)
        if isinstance(x, pa.ChunkedArray):
            chunks = [chunk for chunk in x.chunks if len(chunk)] or [pa.nulls(0, x.type)]
            if len(chunks) > 1:
                arrays = [self.to_numpy(chunk) for chunk in chunks]
                if any(array.shape[1:] != arrays[0].shape[1:] for array in arrays):
                    raise _ragged(x)
                return np.concatenate(arrays)
            x = chunks[0]
        shape, flat_call = [len(x)], "x"
        if isinstance(x, pa.ExtensionArray):
            x, flat_call = x.storage, "x.cast(x.type.storage_type)"
        while _is_list(x.type):
            lengths = x.value_lengths().to_numpy()
            if len(lengths) and (lengths != lengths[0]).any():
                raise _ragged(x)
            shape.append(getattr(x.type, "list_size", lengths[0] if len(lengths) else 0))
            x = x.flatten()  # x.values would contain the elements outside of a slice too
            flat_call = f"pyarrow.compute.list_flatten({flat_call})"
            _refuse_missing(x, flat_call)
        if tensor_shape is not None:
            shape = [shape[0], *tensor_shape]
        values = x.to_numpy(zero_copy_only=False).reshape(shape)
        return values.transpose(0, *(axis + 1 for axis in tensor_axes)) if tensor_axes else values


class TensorSource(Source):
    """`Tensor`, a view of memory that other objects use, and may write to."""

    name = "pyarrow"
    package = install = "pyarrow"
    array_types: tuple[str, ...] = ("pyarrow.Tensor",)
    to_numpy_shares: bool | None = True

    def to_numpy(self, x: AnyArray) -> Any:
        return x.to_numpy()


class DatasetSource(GroupSource):
    """Data sets and columns of Hugging Face's `datasets`. They are not converted: users first choose a format."""

    name = "datasets"
    package = install = "datasets"
    array_types: tuple[str, ...] = (
        "datasets.arrow_dataset.Column",
        "datasets.Dataset",
        "datasets.iterable_dataset.IterableColumn",
        "datasets.IterableDataset",
    )
    what = "a Hugging Face"
    inside = (
        "a column in it, such as dataset.with_format('arrow')[name][:], or the lists dataset[name][:]. If it is an "
        "IterableDataset, pass its batches, which dataset.with_format('torch').iter(batch_size=1000) yields"
    )


def _refuse_missing(x: AnyArray, flat: str = "x") -> None:
    from pyarrow import types

    if x.null_count:
        fill_value = "False" if types.is_boolean(x.type) else "0"
        can_fill = types.is_primitive(x.type) and not types.is_temporal(x.type)
        first_call = f"{flat}.fill_null({fill_value}), or " if can_fill else ""
        ending = "" if flat == "x" else ", and reshape the result"
        noun = f"a pyarrow {type(x).__name__} with missing values"
        raise refused(noun, f"{first_call}{flat}.drop_null(){ending}")


def _ragged(x: AnyArray) -> Exception:
    first_call = "pyarrow.compute.list_flatten(x), which joins the values of all lists"
    return refused(f"a pyarrow {type(x).__name__} of lists of different lengths", first_call)


def _is_list(kind: Any) -> bool:
    return hasattr(kind, "value_field")  # all list types of pyarrow have this attribute


def _refuse_type(arrow_type: Any) -> tuple[list[int] | None, list[int]]:
    """Raise an error for a type that NumPy lacks.

    Returns:
        For a type of tensors, their shape, and the permutation of their axes, or [] if there is none. For other
        types, None and [].
    """
    import pyarrow as pa
    from pyarrow import types

    subtype, shape, axes = arrow_type, None, None
    if isinstance(subtype, pa.FixedShapeTensorType):
        subtype, shape, axes = subtype.value_type, list(subtype.shape), subtype.permutation
        if axes is not None and [axes[axis] for axis in axes] != list(range(len(axes))):
            reason = ": pyarrow itself reads and writes such tensors in different orders"
            remedy = "Call x.cast(x.type.storage_type) first, and reshape the result."
            raise refused(f"tensors of the permutation {axes}", why=reason, remedy=remedy)
    while _is_list(subtype):
        subtype = subtype.value_type
    is_number = types.is_integer(subtype) or types.is_floating(subtype) or types.is_boolean(subtype)
    is_date = types.is_date(subtype) or types.is_timestamp(subtype) or types.is_duration(subtype)
    if is_number or (is_date and getattr(subtype, "tz", None) is None):
        return shape, axes or []
    type_name = str(subtype).partition("[")[0].partition("<")[0]
    first_call = REMEDIES.get(type_name, "x.cast('float64'), if the values are numbers")
    if _is_list(arrow_type):
        first_call = "pyarrow.compute.list_flatten(x), and convert the result"
    elif isinstance(subtype, pa.BaseExtensionType):
        first_call = "x.cast(x.type.storage_type)"
    raise refused(f"a pyarrow array of type {arrow_type!s:.80}", first_call, arrow_type)


def arrayferry_sources() -> list[Source]:
    """Return the sources of this module."""
    return [ArrowSource(), TensorSource(), DatasetSource()]
