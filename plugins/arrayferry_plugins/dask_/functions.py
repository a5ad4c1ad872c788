"""`to_dask`, with a choice of chunks and of the library of the blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arrayferry import OptionError, UnsupportedDtypeError, convert, converter, registry
from arrayferry.extending import map_arrays
from arrayferry.typing import AnyArray, AnyTree, Device

from .backend import DaskBackend
from .chunks import chosen_chunks, rechunked, with_blocks

if TYPE_CHECKING:
    from arrayferry.typing import Narrowing, Scalars, Sparse, Unknown, Unsupported


def to_dask(
    value: AnyTree,
    chunks: Any = None,
    *,
    blocks: Any = None,
    device: Device = None,
    copy: bool | None = None,
    narrowing: Narrowing = "checked",
    scalars: Scalars = "keep",
    unsupported: Unsupported = "raise",
    unknown: Unknown = "keep",
    sparse: Sparse = "raise",
) -> Any:
    """Turn every array in a value into a Dask array. Nothing is computed.

    Args:
        value: an array of any known library, a tree of them, or anything else. It is never modified. Dask's
            `Delayed` and `Future` objects are returned unchanged.
        chunks: how the arrays are split into blocks. None splits only the first axis, into blocks of about 64 MiB,
            and does not rechunk Dask arrays. An integer is the length of the blocks along the first axis. Other
            values are passed to `dask.array`, such as `(100, -1)` or `{1: 10}`.
        blocks: the library of the blocks, as the target of `arrayferry.convert`. None keeps the blocks of Dask
            arrays, and makes NumPy blocks of other arrays, or CuPy blocks of arrays on a GPU that CuPy can use.
        device: the device of the blocks, as for `arrayferry.convert`.
        copy: as for `arrayferry.convert`, also for the conversion of the blocks.
        narrowing: what happens if the library of the blocks lacks a dtype, as for `arrayferry.convert`. The numbers
            of a block are checked when the block is computed.
        scalars: as for `arrayferry.convert`.
        unsupported: as for `arrayferry.convert`; "keep" also leaves a Dask array unchanged if the library of the
            blocks lacks its dtype.
        unknown: as for `arrayferry.convert`.
        sparse: as for `arrayferry.convert`.

    Returns:
        A value of the same structure. Each Dask array has the dtype of its blocks. Its `_meta` is an empty array of
        the library of the blocks. If Dask does not support that library, as with PyTorch, `_meta` is a NumPy array.

    Raises:
        UnknownBackendError, BackendUnavailableError, DeviceError, OptionError: as in `arrayferry.converter`.
        ConversionError: an array cannot be converted, or the chunks do not fit it.

    Examples:
        >>> import numpy as np
        >>> from arrayferry_plugins.dask_ import to_dask
        >>> batch = {"image": np.zeros((6, 4, 4), np.float32), "label": np.arange(6)}
        >>> lazy = to_dask(batch, chunks=2, blocks="torch")
        >>> lazy["image"].chunks
        ((2, 2, 2), (4,), (4,))
        >>> lazy["label"].blocks[0].compute()
        tensor([0, 1])
    """
    convert_blocks = None
    if blocks is not None:
        convert_blocks = converter(
            blocks, device=device, copy=copy, narrowing=narrowing, scalars="convert", sparse=sparse
        )
        device = None
        if isinstance(convert_blocks.target, DaskBackend):
            raise OptionError(
                "the blocks of a Dask array cannot be Dask arrays",
                remedy='Pass another library, such as blocks="torch", or chunks alone.',
            )

    def finish_array(x: AnyArray) -> Any:
        # arrays that are not converted, such as arrays of text, are returned unchanged
        if not isinstance(registry.kind(x).backend, DaskBackend):
            return x
        if chunks is not None:
            x = rechunked(x, chunks)
        try:
            return x if convert_blocks is None else with_blocks(x, convert_blocks)
        except UnsupportedDtypeError:
            if unsupported == "keep":
                return x
            raise

    token = chosen_chunks.set(chunks)
    try:
        lazy_value = convert(
            value,
            "dask",
            device=device,
            copy=copy,
            scalars=scalars,
            unsupported=unsupported,
            unknown=unknown,
            sparse=sparse,
        )
    finally:
        chosen_chunks.reset(token)
    return map_arrays(finish_array, lazy_value)
