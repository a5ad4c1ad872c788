"""Dask: lazy arrays, computed together when they are converted to another library."""

from __future__ import annotations

from arrayferry import Backend, Converter, Source

from .backend import DaskBackend
from .converters import CupyToDask, DaskToCupy
from .functions import to_dask as to_dask
from .sources import BagSource, DataFrameSource, DelayedSource


def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [DaskBackend()]


def arrayferry_converters() -> list[Converter]:
    """Return the direct converters, which stay on the GPU."""
    return [DaskToCupy(), CupyToDask()]


def arrayferry_sources() -> list[Source]:
    """Return the sources of this module."""
    return [DataFrameSource(), BagSource(), DelayedSource()]
