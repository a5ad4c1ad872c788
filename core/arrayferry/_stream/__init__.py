"""Streams: arrays that are larger than memory, converted block by block."""
