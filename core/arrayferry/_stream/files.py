"""`files`: the arrays of a run of files, read when they are needed."""

from __future__ import annotations

import glob
import os
import zipfile
from collections.abc import Callable, Iterable
from typing import Any

from arrayferry._api import convert
from arrayferry._errors import (
    ArrayFerryError,
    BackendUnavailableError,
    ConversionError,
    OptionError,
)

Chunk = tuple[Any, ...]
"""A chunk of an array in a file: its length, a function that reads it, and the function's arguments after the path."""
FileArrays = dict[str | None, tuple[Any, tuple[int, ...], list[Chunk]]]
"""The arrays of a file by name, None for one without a name: dtype, shape and chunks."""
_MARK = "read "
"""What the names of arrays of one chunk begin with, before the path of the file."""


def files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    names: str | Iterable[str] | None = None,
) -> Any:
    """Return the arrays of a run of files as Dask arrays, one file after the other along the first axis.

    Only the sizes are read at first. Each file is read when a block needs it, in threads, processes or on a cluster:
    one array of an `.npz` or `.npy` file at a time, one row group of a Parquet file (needs pyarrow), one chunk of a Zarr
    array. So `stream(files("data/*.npz"), "torch")` has a block for each file, or each such part of one.

    Args:
        paths: the files, all `.npy`, `.npz`, `.parquet` or `.zarr`: a path; a folder, or a pattern such as
            "data/*.npz", whose files are sorted by name; or several of these in their order. In a folder, names that
            begin with "." or "_" are left out.
        names: the arrays or columns to take, None for all.

    Returns:
        A dict of Dask arrays by name. One array where files have no names: `.npy`, and a Zarr array.

    Raises:
        FileNotFoundError: no file is found.
        arrayferry.BackendUnavailableError: pyarrow or zarr is missing.
        arrayferry.OptionError: a file cannot be read; files are of different kinds, or differ in names, dtypes or the shapes
            of rows; or arrays of one file differ in length.

    Examples:
        >>> import os, tempfile
        >>> import arrayferry as af
        >>> import numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for number in range(3):
        ...         np.savez(f"{folder}/{number}.npz", x=np.full((4, 2), number), y=np.zeros(4))
        ...     stream = af.stream(af.files(f"{folder}/*.npz"), "torch")
        ...     print(len(stream), stream[2]["x"][0])
        3 tensor([2, 2])
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found = [path for each in given for path in _matching(os.fspath(each))]
    kinds = {os.path.splitext(path.rstrip("/"))[1].lower(): path for path in found}
    if len(kinds) > 1 or not kinds.keys() <= _READERS.keys():
        raise OptionError(
            f"these are not files of one kind that is read: {', '.join(sorted(kinds.values()))}",
            remedy=f"Pass files of one kind, {', '.join(_READERS)}, or a pattern such as 'data/**/*.npz'.",
        )
    read = _READERS[kinds.popitem()[0]]
    wanted = None if names is None else {names} if isinstance(names, str) else set(names)
    return _joined([(path, _chosen(path, _named(path, read, wanted), wanted)) for path in found])


def _matching(pattern: str) -> list[str]:
    """Return the files of a path, a folder or a pattern.

    Raises:
        FileNotFoundError: there are none.
    """
    if os.path.isdir(pattern) and not pattern.rstrip("/").endswith(".zarr"):
        names = sorted(name for name in os.listdir(pattern) if name[0] not in "._")
        found = [os.path.join(pattern, name) for name in names]
    else:
        found = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
    if not found:
        raise FileNotFoundError(f"there is no file {pattern}")
    return found


def _chosen(path: str, held: FileArrays, names: set[str] | None) -> FileArrays:
    """Return the arrays of a file that are taken.

    Raises:
        arrayferry.OptionError: there is no such array, or they differ in length.
    """
    if names is not None:
        missing = sorted(names - held.keys())
        if missing:
            has = ", ".join(name or "one array without a name" for name in held)
            raise OptionError(
                f"{path} has no {missing[0]!r}",
                remedy=f"It has {has or 'no arrays'}.",
            )
        held = {name: part for name, part in held.items() if name in names}
    lengths = {n: shape[0] if shape else "none: a scalar" for n, (_, shape, _) in held.items()}
    if len(set(lengths.values())) != 1 or "none: a scalar" in lengths.values():
        raise OptionError(
            f"the arrays of {path} have the lengths {lengths}",
            remedy="Choose some of one length by names=.",
        )
    return held


def _joined(parts: list[tuple[str, FileArrays]]) -> Any:
    """Return the arrays of files as Dask arrays."""
    import dask
    import dask.array as da

    folder = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path, _ in parts])
    forms = [_form(held) for _, held in parts]
    chunks: dict[Any, list[Any]] = {name: [] for name in forms[0]}
    for (path, held), form in zip(parts, forms, strict=True):
        if form != forms[0]:
            raise OptionError(
                f"{path} has {form}, but {parts[0][0]} has {forms[0]}",
                remedy="Files must have the same names, dtypes and shapes of rows. Choose some arrays by names=.",
            )
        state = os.stat(path)
        # so that what was computed from an older file is not taken for this one
        stamp = state.st_mtime_ns, state.st_size
        for name, (dtype, (_, *row), own) in held.items():
            for length, *read in own:
                shape = (length, *row)
                value: Any = dask.delayed(_checked, pure=True)(path, dtype, shape, stamp, *read)
                key = f"{_MARK}{os.path.relpath(path, folder)} {value.key}"
                chunks[name].append(da.from_delayed(value, shape, dtype, name=key))
    arrays = {name: da.concatenate(own) for name, own in chunks.items()}
    return arrays.get(None, arrays)


def file_names(x: Any) -> list[str]:
    """Return the files that a Dask array of `files` reads, in their order, as paths below their common folder."""
    layers = getattr(getattr(x, "dask", None), "layers", ())
    names = [name[len(_MARK) :].rpartition(" ")[0] for name in layers if name.startswith(_MARK)]
    return [*dict.fromkeys(names)]


def _form(held: FileArrays) -> dict[Any, str]:
    """Return the dtypes and the shapes of rows as text."""
    return {name: f"{dtype}{list(shape[1:])}" for name, (dtype, shape, _) in held.items()}


def _checked(path: str, dtype: Any, shape: Any, stamp: Any, read: Any, *args: Any) -> Any:
    """Read a chunk, and check that it has the form that it had when sizes were read."""
    x = _named(path, read, *args)
    if x.dtype != dtype or x.shape != shape:
        raise ValueError(
            f"{path} has changed: it has {x.dtype}{list(x.shape)}, not {dtype}{list(shape)}"
        )
    return x


def _named(path: str, read: Callable[..., Any], *args: Any) -> Any:
    """Read from a file. Errors name it."""
    try:
        return read(path, *args)
    except (ArrayFerryError, MemoryError):
        raise
    except ImportError as error:
        raise BackendUnavailableError(
            f"{path} cannot be read: {error}",
            remedy=f"Run: pip install {error.name}" if error.name else "",
        ) from error
    except Exception as error:
        raise OptionError(f"{path} cannot be read ({error!r})", remedy="Leave it out.") from error


def _npy(path: str, names: set[str] | None) -> FileArrays:
    import numpy as np

    x = np.load(path, mmap_mode="r")
    return {None: (x.dtype, x.shape, [(*x.shape[:1], np.load)])}


def _npz(path: str, names: set[str] | None) -> FileArrays:
    from numpy.lib import format as npy

    found: FileArrays = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                old = npy.read_magic(member) == (1, 0)
                read: Any = npy.read_array_header_1_0 if old else npy.read_array_header_2_0
                shape, _, dtype = read(member)
            key = name.removesuffix(".npy")
            found[key] = dtype, shape, [(*shape[:1], _member, key)]
    return found


def _member(path: str, name: str) -> Any:
    import numpy as np

    with np.load(path) as held:
        return held[name]


def _parquet(path: str, names: set[str] | None) -> FileArrays:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        lengths = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        empty = file.schema_arrow.empty_table()
    found: FileArrays = dict.fromkeys(empty.column_names, (None, (), []))
    for name in empty.column_names if names is None else names & found.keys():
        x = _numbers(path, name, empty.column(name))
        chunks: list[Chunk] = [(n, _column, i, name) for i, n in enumerate(lengths)]
        found[name] = x.dtype, (sum(lengths), *x.shape[1:]), chunks
    return found


def _column(path: str, group: int, name: str) -> Any:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        return _numbers(path, name, file.read_row_group(group, columns=[name]).column(name))


def _numbers(path: str, name: str, column: Any) -> Any:
    """Convert a column to NumPy. Errors name it and the file."""
    try:
        return convert(column, "numpy")
    except ConversionError as error:
        error.remedy = "Leave it out by names=, or write it as numbers without nulls."
        raise error.locate(path=f"[{os.path.basename(path)!r}][{name!r}]") from None


def _zarr(path: str, names: set[str] | None) -> FileArrays:
    import zarr

    held: Any = zarr.open(path, mode="r")
    found: FileArrays = {}
    for name, x in [(None, held)] if hasattr(held, "shape") else held.arrays():
        step = x.chunks[0] if x.shape else 1
        starts = range(0, max(x.shape[0], 1), step) if x.shape else ()
        chunks: list[Chunk] = [
            (min(step, x.shape[0] - i), _rows, name, i, i + step) for i in starts
        ]
        found[name] = x.dtype, x.shape, chunks
    return found


def _rows(path: str, name: str | None, start: int, stop: int) -> Any:
    import zarr

    held: Any = zarr.open(path, mode="r")
    return (held if name is None else held[name])[start:stop]


_READERS: dict[str, Callable[[str, Any], FileArrays]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".parquet": _parquet,
    ".zarr": _zarr,
}
