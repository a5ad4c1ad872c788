"""The errors of streams, which are conversion errors.

ConversionError (ValueError)
`-- BlockError (RuntimeError)               a block cannot be read or computed
    `-- BlockTimeoutError (TimeoutError)    a block does not arrive in time
"""

from __future__ import annotations

from arrayferry import ConversionError


class BlockError(ConversionError, RuntimeError):
    """A block of a stream cannot be read or computed.

    Attributes:
        block: the number of the block.
        start: the index along the axis of the stream at which the block begins.
        stop: the index at which it ends, which is not part of it.
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
