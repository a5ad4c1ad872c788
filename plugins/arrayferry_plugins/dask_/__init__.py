"""Dask: lazy arrays, which are computed when they are converted. All arrays of a tree are computed together."""

from __future__ import annotations

from typing import Any

from arrayferry import Backend, Converter, Source, hookimpl

from .backend import CupyToDask, DaskBackend, DaskToCupy
from .functions import to_dask as to_dask
from .sources import SOURCES


def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [DaskBackend()]


def arrayferry_converters() -> list[Converter]:
    """Return the direct converters between Dask and CuPy, which leave values on the GPU."""
    return [DaskToCupy(), CupyToDask()]


def arrayferry_sources() -> list[Source]:
    """Return the sources of this module."""
    return SOURCES


@hookimpl(optionalhook=True)
def arrayferry_blocks() -> list[Any]:
    """Return the `Streaming` of Dask arrays."""
    from .blocks import DaskStreaming

    return [DaskStreaming()]
