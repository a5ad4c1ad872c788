"""The errors of streams. They are subclasses of `ConversionError`.

ConversionError (ValueError)
`-- BlockError (RuntimeError)               a block cannot be read or computed
    `-- BlockTimeoutError (TimeoutError)    a block does not arrive in time
"""

from __future__ import annotations

from arrayferry import ConversionError


class BlockError(ConversionError, RuntimeError):
    """A block of a stream cannot be read or computed.

    Attributes:
        block: the index of the block in the stream, before any slicing of the stream.
        start: the first index of the block, along the axis of the stream.
        stop: the index after the last index of the block.
    """

    def __init__(
        self,
        reason: str,
        *,
        remedy: str = "",
        block: int = -1,
        start: int = -1,
        stop: int = -1,
        **place: str,
    ) -> None:
        super().__init__(reason, remedy=remedy, **place)
        self.block = block
        self.start = start
        self.stop = stop


class BlockTimeoutError(BlockError, TimeoutError):
    """A block of a stream was not read or computed within `timeout` seconds."""


for _public in (BlockError, BlockTimeoutError):
    _public.__module__ = "arrayferry"  # tracebacks and pickles then contain this public name
