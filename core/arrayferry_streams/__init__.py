"""Streams: arrays that are larger than memory, converted block by block."""

from ._blocks import Blocks as Blocks
from ._blocks import Reader as Reader
from ._blocks import Slices as Slices
from ._blocks import Streaming as Streaming
from ._blocks import even_lengths as even_lengths
from ._function import stream as stream
from ._stream import Stream as Stream

__all__ = ["Blocks", "Reader", "Slices", "Stream", "Streaming", "even_lengths", "stream"]
