"""Streams: arrays that are larger than memory, converted block by block."""

from ._blocks import Blocks as Blocks
from ._blocks import Reader as Reader
from ._blocks import Slices as Slices
from ._blocks import Streaming as Streaming
from ._blocks import even_lengths as even_lengths
from ._errors import BlockError as BlockError
from ._errors import BlockTimeoutError as BlockTimeoutError
from ._function import stream as stream
from ._stream import Stream as Stream

__all__ = [
    "BlockError", "BlockTimeoutError", "Blocks", "Reader", "Slices", "Stream", "Streaming",
    "even_lengths", "stream",
]  # fmt: skip
