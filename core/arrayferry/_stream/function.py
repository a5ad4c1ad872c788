"""`stream`: arrays that are larger than memory, converted block by block."""

from __future__ import annotations

import secrets
from typing import Any

from arrayferry._api import conversion_like, kept_conversion
from arrayferry._errors import OptionError
from arrayferry._options import Narrowing, Sparse, Unsupported, check_count, check_flag
from arrayferry._plugin.backend import Target

from .order import Ordering
from .stream import Stream


def stream(
    value: Any,
    to: Target | None = None,
    *,
    like: Any = None,
    device: Any = None,
    axis: int = 0,
    prefetch: int = 2,
    block: int | None = None,
    client: Any = None,
    timeout: float | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    buffer_size: int | None = None,
    batch_size: int | None = None,
    drop_last: bool = False,
    copy: bool | None = None,
    narrowing: Narrowing = "checked",
    unsupported: Unsupported = "raise",
    sparse: Sparse = "raise",
) -> Stream[Any]:
    """Convert arrays larger than memory block by block, for a training loop.

    The next blocks are computed or read in other threads, or on a cluster, while the current one is in use. Each
    part of the arrays is computed or read once. At most `prefetch` + 2 blocks are in memory: the one in use, the
    next one, and those prefetched after it; one more if blocks are not whole chunks.

    Args:
        value: a Dask array, a Zarr array, an `h5py` dataset, an array in memory, or a tree of them whose lengths
            along the axis are equal. Arrays of objects that hold no arrays, such as texts, are cut too. Numbers, text and 0-d arrays in a tree are part of every block.
        to: the target: a name ("torch"), a namespace module or a `Backend`.
        like: an array, or a tree with one, instead of `to` and `device`.
        device: the device of the blocks.
        axis: the axis along which the arrays are split into blocks.
        prefetch: how many blocks are computed in advance, 0 for none.
        block: the length of the blocks along the axis; the last one may be shorter. None uses the chunks of the
            array with the most chunks; for files, as many at a time as fit into 64 MiB.
        client: a `distributed.Client`, or the address of a scheduler, that computes Dask arrays. None uses the
            current client, or threads if there is none. Files are always read in this process.
        timeout: seconds to wait for a block, None for no limit.
        shuffle: whether blocks are read in random order, and rows permuted within a buffer. Each iteration yields
            each row once, in a different order.
        seed: the seed of the orders; the same seed gives the same orders. None draws a random seed.
        buffer_size: how many rows are permuted together: as many whole blocks as fit, but at least one. None means
            4 blocks.
        batch_size: the number of rows in each result. None means as many as a block has.
        drop_last: whether to drop a last batch with fewer rows.
        copy: as in `convert`, but blocks own their memory unless this is False, which only arrays in memory allow.
        narrowing: as in `convert`.
        unsupported: as in `convert`.
        sparse: as in `convert`.

    Returns:
        The stream. Each iteration over it starts from the beginning.

    Raises:
        NotAnArrayError: nothing in the value can be streamed.
        OptionError: an option is invalid.
        ConversionError: the arrays differ in length, the target is known to refuse them, or no scheduler can be
            reached. While iterating: a block cannot be converted. If it cannot be computed or read, the error is a
            `BlockError`, which names the block.

    Warns:
        UserWarning: rows will hardly be shuffled, since blocks share chunks.

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
    check_count("prefetch", prefetch, 0)
    check_count("axis", axis, None)
    if block is not None:
        check_count("block", block, 1)
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0
    ):
        raise OptionError(f"timeout={timeout!r} is not valid", remedy="Pass a number of seconds.")
    ordering = _ordering(shuffle, seed, buffer_size, batch_size, drop_last)
    conversion = kept_conversion(to, device, copy, narrowing, "keep", unsupported, "keep", sparse)
    made: Stream[Any] = Stream(value, conversion, axis, prefetch, block, client, timeout, ordering)
    made.warn_of_runs(stacklevel=3)
    return made


def _ordering(
    shuffle: Any, seed: Any, buffer_size: Any, batch_size: Any, drop_last: Any
) -> Ordering:
    """Check how results are ordered, and return it.

    Raises:
        OptionError: an option is wrong, or means nothing without another one.
    """
    check_flag("shuffle", shuffle)
    check_flag("drop_last", drop_last)
    for option, value, least in (
        ("batch_size", batch_size, 1),
        ("seed", seed, 0),
        ("buffer_size", buffer_size, 1),
    ):
        if value is not None:
            check_count(option, value, least)
            if not shuffle and option != "batch_size":
                raise OptionError(
                    f"{option}={value!r} means nothing without shuffle=True", remedy="Leave it out."
                )
    if drop_last and batch_size is None:
        raise OptionError("drop_last=True means nothing without batch_size", remedy="Leave it out.")
    is_drawn = shuffle and seed is None
    if is_drawn:
        seed = secrets.randbits(32)
    return Ordering(shuffle, seed or 0, buffer_size, batch_size, drop_last, is_drawn)
