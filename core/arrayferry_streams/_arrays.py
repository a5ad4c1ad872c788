"""The arrays of a stream. A block of a stream has one or more of each array's own blocks, such as chunks of Dask."""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from arrayferry import (
    ContractError,
    Conversion,
    ConversionError,
    NotAnArrayError,
    OptionError,
    StructureError,
    TreeSpec,
    backend_of,
    convert,
    registry,
)
from arrayferry._utilities.text import type_name
from arrayferry.extending import Kind, Origin, call_backend, describe_error, flatten_by, raise_named
from arrayferry.typing import AnyArray, AnyTree

from ._blocks import HOOK, Blocks, Streaming, even_lengths

if TYPE_CHECKING:
    import numpy as np

_ARRAY = Kind("array")
_DEFAULT = Streaming()


@dataclass(eq=False)
class StreamedArray:
    """An array of a stream.

    Attributes:
        x: the array.
        path: the path of the array in the tree.
        axis: the axis along which the array is split, or None if every block contains the whole array.
        group: the index of the `Blocks` that read the array, or None for an array in memory.
        number: the index of the array in its group.
        ends: the end along the axis of each block into which the array is divided, such as a chunk of Dask.
    """

    x: Any
    path: str
    axis: int | None
    group: int | None = None
    number: int = 0
    ends: list[int] = field(default_factory=list)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, slice]]:
        """Yield the index and the length of each block of the array in `start:stop`, and the slice of it to use."""
        position = start
        while position < stop:
            index = bisect_right(self.ends, position)
            begin = self.ends[index - 1] if index else 0
            piece_end = min(self.ends[index], stop)
            yield index, self.ends[index] - begin, slice(position - begin, piece_end - begin)
            position = piece_end


def take_apart(
    value: AnyTree, axis: int, conversion: Conversion[Any], block: int | None
) -> tuple[list[StreamedArray], TreeSpec]:
    """Return the arrays of a tree, and the layout of the tree."""
    arrays, layout = _flattened(value)
    if not arrays:
        raise NotAnArrayError(
            f"a value of type {type(value).__name__} contains no array that can be streamed",
            remedy="Pass a Dask array, a Zarr array, a dataset of h5py, an array in memory, or a tree of them. To read "
            "a file, open it with Dask: dask.array.from_zarr(path).",
        )
    array_paths = zip(arrays, layout.paths, strict=True)
    return [_streamed_array(x, path, axis, conversion, block) for x, path in array_paths], layout


def _flattened(value: AnyTree) -> tuple[list[Any], TreeSpec]:
    """Flatten a tree. Replace each container that cannot be rebuilt from blocks by a tree of its arrays."""
    arrays, layout = flatten_by(value, _kind_of)
    kind_of = registry.catalog.kind
    streamed_values = [_streamed(x, kind_of(x)) for x in arrays]
    if all(map(operator.is_, streamed_values, arrays)):
        return arrays, layout
    return _flattened(layout.unflatten(streamed_values))


def _kind_of(x: AnyTree) -> Kind:
    """Return the kind of a value in a stream. An object array that contains no arrays counts as an array."""
    kind = _searched_kind(x)
    if kind.category != "objects" or not x.ndim or not kind.searches(x):
        return kind
    inner_leaves, _ = flatten_by(x, _searched_kind)
    has_arrays = any(getattr(leaf, "shape", None) != () for leaf in inner_leaves)
    return kind if has_arrays else _ARRAY


def _searched_kind(x: AnyTree) -> Kind:
    """Return the kind of a value. Sources count as arrays, and so do containers that `Streaming.streamed` replaces."""
    kind = registry.kind(x)
    return _ARRAY if kind.category == "source" or _streamed(x, kind) is not x else kind


def _streaming(part: Any) -> Streaming:
    """Return the `Streaming` of a backend, a source or a container."""
    streaming: Streaming = registry.parts(HOOK).of(part, _DEFAULT)
    return streaming


def _streamed(x: AnyArray, kind: Kind) -> Any:
    return _streaming(kind.container).streamed(x) if kind.category == "container" else x


def _streamed_array(
    x: AnyArray, path: str, axis: int, conversion: Conversion[Any], block: int | None
) -> StreamedArray:
    """Return the `StreamedArray` of an array in a tree. Read columns and 0-d datasets of files into memory."""
    kind = registry.kind(x)
    options = conversion.options
    try:
        if kind.origin is not None and kind.origin.memory == "lazy":
            call_backend(kind.origin, "device_of", x)  # raises an error for a closed file
            if options.sparse == "raise" and call_backend(kind.origin, "is_sparse", x):
                conversion(x)
        elif kind.backend is not None:
            x = _cuttable(x, axis, conversion, block)
        if kind.source is not None and (
            kind.source.memory != "lazy" or getattr(x, "shape", True) in ((), None)
        ):
            x = convert(x, "numpy", sparse=options.sparse)
    except ConversionError as error:
        error.target = conversion.target.name
        source_name = kind.origin.name if kind.origin else ""
        raise error.locate(path=path, source=source_name) from error.__cause__
    shape = getattr(x, "shape", None)
    if not isinstance(shape, tuple):
        raise NotAnArrayError(
            f"a {type_name(type(x))} has no shape, so it cannot be streamed",
            remedy="Convert it to an array first, or leave it out of the value.",
            path=path,
        )
    if not shape:
        if backend_of(x).memory == "lazy":
            raise NotAnArrayError(
                "a lazy array without dimensions cannot be streamed",
                remedy="Convert it to an array in memory first, with convert.",
                path=path,
            )
        return StreamedArray(x, path, None)
    if not -len(shape) <= axis < len(shape):
        raise OptionError(
            f"axis={axis} is not an axis of an array of shape {shape}"
            + (f" at {path}" if path else ""),
            remedy="Pass an axis that all arrays have.",
        )
    return StreamedArray(x, path, axis % len(shape))


def _cuttable(x: AnyArray, axis: int, conversion: Conversion[Any], block: int | None) -> Any:
    """Return an array in memory that can be sliced.

    If `x` cannot be sliced, for example because it is a sparse tensor of PyTorch, convert it.

    Raises:
        ConversionError: the array cannot be converted, or the converted array cannot be sliced.
    """
    must_copy = conversion.options.copy is not False
    try:
        if not x.shape:
            conversion(x)
        elif -len(x.shape) <= axis < len(x.shape):
            conversion(part_of(x, axis, 0, 0, copy=False))
            part_of(x, axis, 0, 1, copy=must_copy)
        return x
    except Exception:
        x = conversion(x)  # if no slice can be converted, this raises an error with the reason
    try:
        block_lengths = even_lengths(x.shape, itemsize_of(x), axis, wanted=block)
        part_of(x, axis, 0, (block_lengths or [0])[0], copy=must_copy)
    except Exception as error:
        if must_copy:
            call_backend(backend_of(x), "copy", x)  # raises an error if arrays cannot be copied
        raise ConversionError(
            f"a {type_name(type(x))} cannot be cut into blocks ({describe_error(error)})",
            remedy="Convert it as a whole, pass an array that can be sliced, or remove what forbids slices, such as "
            "jax.transfer_guard.",
        ) from error
    return x


def part_of(x: AnyArray, axis: int | None, start: int, stop: int, *, copy: bool) -> Any:
    """Return a slice of an array in memory, or the whole array if `axis` is None.

    If `copy` is True, return a copy, unless the array is immutable.
    """
    array_part = x if axis is None else x[(*(slice(None),) * axis, slice(start, stop))]
    if not copy or backend_of(array_part).memory == "immutable":
        return array_part
    return call_backend(backend_of(array_part), "copy", array_part)


def grouped(leaves: list[StreamedArray], block: int | None, client: Any) -> list[Blocks]:
    """Return one `Blocks` for each library and axis. Set `group`, `number` and `ends` of the arrays."""
    arrays_by_key: dict[tuple[Origin, int], list[StreamedArray]] = {}
    for leaf in leaves:
        origin = registry.kind(leaf.x).origin
        if leaf.axis is not None and origin is not None and origin.memory == "lazy":
            arrays_by_key.setdefault((origin, leaf.axis), []).append(leaf)
    groups: list[Blocks] = []
    for (lazy_origin, axis), arrays in arrays_by_key.items():
        try:
            xs = [leaf.x for leaf in arrays]
            blocks = _streaming(lazy_origin).blocks(xs, axis, block=block, client=client)
            if blocks is None:
                raise NotAnArrayError(
                    f"{lazy_origin.name} does not say how to read its arrays block by block",
                    remedy="Convert whole arrays first, or ask the author of the plugin for Streaming.blocks().",
                )
            for number, leaf in enumerate(arrays):
                leaf.group, leaf.number = len(groups), number
                leaf.ends = list(itertools.accumulate(map(int, blocks.lengths[number])))
            groups.append(blocks)
        except Exception as error:
            try:
                raise_named(lazy_origin, "blocks", error)
            except ConversionError as named_error:
                located = named_error.locate(path=arrays[0].path, source=lazy_origin.name)
                raise located from named_error.__cause__
    if client is not None and not any(blocks.uses_client for blocks in groups):
        raise OptionError(
            "client= has no effect, since no cluster computes these arrays",
            remedy="Leave client= out, or pass Dask arrays.",
        )
    return groups


def common_length(leaves: list[StreamedArray]) -> int:
    cut_leaves = [leaf for leaf in leaves if leaf.axis is not None]
    if not cut_leaves:
        raise NotAnArrayError(
            "there is no array with an axis that can be cut into blocks",
            remedy="Pass an array of one dimension or more, or a tree with such an array.",
        )
    first_leaf, length = cut_leaves[0], int(cut_leaves[0].x.shape[cut_leaves[0].axis])
    for leaf in cut_leaves:
        if leaf.x.shape[leaf.axis] != length:
            raise StructureError(
                f"the arrays have different lengths: {length} at {first_leaf.path or 'the top'}, but {leaf.x.shape[leaf.axis]}",
                remedy="Pass arrays of the same length along the axis.",
                path=leaf.path,
            )
        total_length = leaf.ends[-1] if leaf.ends else 0
        if leaf.group is not None and total_length != length:
            raise ContractError(
                f"the blocks have a total length of {total_length} instead of {length}",
                method="blocks",
                path=leaf.path,
            )
    return length


def cut(leaves: list[StreamedArray], length: int, block: int | None) -> list[tuple[int, int]]:
    """Return the start and stop of each block of a stream."""
    if block is not None:
        block_ends = [*range(block, length, block), length]
    else:
        own_ends = [leaf.ends for leaf in leaves if leaf.group is not None]
        memory_lengths = (
            even_lengths(leaf.x.shape, itemsize_of(leaf.x), leaf.axis)
            for leaf in leaves
            if leaf.axis is not None
        )
        block_ends = max(own_ends or map(list, map(itertools.accumulate, memory_lengths)), key=len)
    return [(start, end) for start, end in itertools.pairwise([0, *block_ends]) if end > start]


def itemsize_of(x: AnyArray) -> int:
    """Return the size of an element in bytes."""
    size = getattr(x.dtype, "itemsize", None)
    return size if isinstance(size, int) else 8


class _Mapped(tuple[Any, ...]):
    """The arguments with which `numpy.memmap` maps a part of a file, read-only. Unpickling returns that `memmap`."""

    def __reduce__(self) -> tuple[Any, ...]:
        import numpy as np

        return np.memmap, tuple(self)


def by_file_name(value: AnyTree) -> Any:
    """Replace each `numpy.memmap` in lists, tuples and dicts by an object whose pickle contains no values.

    Unpickling this object maps the same part of the file, read-only.
    """
    import numpy as np

    value_type = type(value)
    if value_type is np.memmap:
        return _mapped(value) or value
    if value_type is dict:
        return {key: by_file_name(child) for key, child in value.items()}
    if value_type in (list, tuple):
        return value_type(map(by_file_name, value))
    return value


def _mapped(x: np.memmap[Any, Any]) -> _Mapped | None:
    """Return the object to pickle in place of an array, or None if the array is not a contiguous part of its file."""
    import mmap
    import os

    root: Any = x.base if type(x.base) is type(x) else x
    is_mapped = isinstance(root.base, mmap.mmap) and root.mode != "c" and x.size
    if not is_mapped or not x.flags.forc or not root.filename or not os.path.isfile(root.filename):
        return None
    offset = root.offset + x.ctypes.data - root.ctypes.data
    memory_order = "C" if x.flags.c_contiguous else "F"
    return _Mapped((str(x.filename), x.dtype, "r", offset, x.shape, memory_order))
