"""Streams: arrays that are larger than memory, converted block by block."""

from ._function import stream as stream
from ._stream import Stream as Stream

__all__ = ["Stream", "stream"]
