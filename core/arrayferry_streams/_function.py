"""`stream`: arrays that are larger than memory, converted block by block."""

# pyright: reportInvalidTypeVarUse=false
from __future__ import annotations

from numbers import Real
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any, TypedDict, overload

from arrayferry import OptionError
from arrayferry._utilities.compilers import uncompiled
from arrayferry.extending import checked_count, conversion_like, kept_conversion
from arrayferry.typing import AnyTree, Device, Narrowing, Sparse, Target, Unsupported

from ._stream import Stream

if TYPE_CHECKING:
    from typing import TypeVar, Unpack

    from arrayferry.typing import (
        Array,
        DaskArray,
        JaxArray,
        NumpyArray,
        ToDask,
        ToJax,
        ToNumpy,
        TorchArray,
        ToTorch,
    )

    X = TypeVar("X", bound=Array)


class Keywords(TypedDict, total=False):
    """The options of a stream, as keyword arguments."""

    device: Any
    axis: int
    prefetch: int
    block: int | None
    client: Any
    timeout: float | None
    copy: bool | None
    narrowing: Narrowing
    unsupported: Unsupported
    sparse: Sparse


@overload
def stream(value: X, to: ToNumpy, **options: Unpack[Keywords]) -> Stream[NumpyArray]: ...
@overload
def stream(value: X, to: ToTorch, **options: Unpack[Keywords]) -> Stream[TorchArray]: ...
@overload
def stream(value: X, to: ToJax, **options: Unpack[Keywords]) -> Stream[JaxArray]: ...
@overload
def stream(value: X, to: ToDask, **options: Unpack[Keywords]) -> Stream[DaskArray]: ...
@overload
def stream(value: AnyTree, to: Target, **options: Unpack[Keywords]) -> Stream[Any]: ...
@overload
def stream(value: AnyTree, *, like: Any, **options: Unpack[Keywords]) -> Stream[Any]: ...
@uncompiled
def stream(
    value: AnyTree,
    to: Target | None = None,
    *,
    like: Any = None,
    device: Device = None,
    axis: int = 0,
    prefetch: int = 2,
    block: int | None = None,
    client: Any = None,
    timeout: float | None = None,
    copy: bool | None = None,
    narrowing: Narrowing = "checked",
    unsupported: Unsupported = "raise",
    sparse: Sparse = "raise",
) -> Stream[Any]:
    """Convert arrays larger than memory block by block, for a training loop.

    The stream is a sequence of blocks. While one block is in use, an iteration computes or reads the next blocks in
    other threads, or on a cluster. An iteration computes each part of the arrays once. At most `prefetch` + 2 blocks
    are in memory: the block in use, the next block, and the `prefetch` blocks after it. If a block ends within a
    chunk, one more block is in memory.

    Args:
        value: a Dask array, a Zarr array, an `h5py` dataset, an array in memory, or a tree of them whose lengths
            along the axis are equal. Object arrays that contain no arrays, but for example strings, are split too.
            Columns of tables are read into memory. Numbers, text and 0-d arrays in a tree are part of every block.
        to: the target: a name ("torch"), a namespace module or a `Backend`.
        like: an array, or a tree with an array, whose library and device replace `to` and `device`.
        device: the device of the blocks.
        axis: the axis along which the arrays are split into blocks.
        prefetch: how many blocks an iteration computes in advance. With 0, a block is computed when it is needed.
        block: the length of the blocks along the axis. The last block may be shorter. None uses the chunks of the
            array with the most chunks. If this array is in a file, a block has as many chunks as fit into 64 MiB.
        client: a `distributed.Client` that computes Dask arrays, or the address of its scheduler. None uses the
            current client, or threads if there is no client. Files are read in this process.
        timeout: seconds to wait for a block, or None for no limit.
        copy: as in `convert`, but blocks own their memory by default. False is valid only for arrays in memory.
        narrowing: as in `convert`.
        unsupported: as in `convert`.
        sparse: as in `convert`.

    Returns:
        The stream. Each iteration over it starts from the beginning.

    Raises:
        NotAnArrayError: nothing in the value can be streamed.
        OptionError: an option is invalid.
        ConversionError: the arrays differ in length, an array cannot be split, the target cannot represent a dtype, or
            no scheduler can be reached. The iteration raises this error if a block cannot be converted, and a
            `BlockError`, which names the block, if a block cannot be computed or read.

    Warns:
        UserWarning: `stream[i]` does work, such as reading a chunk, that it did for two other blocks before.

    Examples:
        >>> import arrayferry as af
        >>> import dask.array as da
        >>> x = da.arange(6, chunks=2, dtype="float32")
        >>> for batch in af.stream({"x": x, "y": x > 2}, "torch"):
        ...     print(batch["x"].tolist(), batch["y"].tolist())
        [0.0, 1.0] [False, False]
        [2.0, 3.0] [False, True]
        [4.0, 5.0] [True, True]
    """
    if like is not None:
        to, device = conversion_like(like, to, device)
    prefetch = checked_count("prefetch", prefetch, 0)
    axis = checked_count("axis", axis, None)
    if block is not None:
        block = checked_count("block", block, 1)
    if timeout is not None:
        if isinstance(timeout, bool) or not isinstance(timeout, Real) or not timeout > 0:
            raise OptionError(
                f"timeout={timeout!r} is not valid",
                remedy="Pass a number of seconds greater than 0, or None for no limit.",
            )
        timeout = float(min(timeout, TIMEOUT_MAX))
    conversion = kept_conversion(
        to, device=device, copy=copy, narrowing=narrowing, unsupported=unsupported, sparse=sparse
    )
    return Stream(value, conversion, axis, prefetch, block, client, timeout)
