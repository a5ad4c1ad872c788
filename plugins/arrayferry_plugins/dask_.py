"""Dask: lazy arrays and values, computed together when they are converted to another library."""

from __future__ import annotations

import contextlib
import itertools
import operator
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

from arrayferry import (
    Backend,
    Blocks,
    Conversion,
    ConversionError,
    Converter,
    OptionError,
    Source,
    UnsupportedDtypeError,
    backend_of,
    convert,
    converter,
    fit_dtype,
    hookimpl,
    namespace_of,
    registry,
)
from arrayferry.adapting import map_arrays

if TYPE_CHECKING:
    from arrayferry.typing import Cost, Memory

__all__ = [
    "BagSource",
    "DaskBackend",
    "DataFrameSource",
    "arguments",
    "arrayferry_backends",
    "arrayferry_converters",
    "arrayferry_sources",
    "is_future",
    "owner_of",
    "persisted",
    "scheduler_of",
    "to_dask",
]


BLOCK = 64 * 1024 * 1024
"""Size in bytes from which on an array is split into blocks."""

_chunks: ContextVar[Any] = ContextVar("chunks", default=None)
"""What `to_dask` was called with, for the arrays that it makes."""


def to_dask(
    value: Any,
    chunks: Any = None,
    *,
    blocks: Any = None,
    device: Any = None,
    copy: bool | None = None,
    narrowing: Literal["checked", "forbid", "allow"] = "checked",
    scalars: Literal["keep", "convert"] = "keep",
    unsupported: Literal["raise", "keep"] = "raise",
    unknown: Literal["keep", "raise", "convert"] = "keep",
    sparse: Literal["raise", "dense"] = "raise",
) -> Any:
    """Make a Dask array of every array in a value. Nothing is computed.

    Args:
        value: an array of any known library, a tree of them, or anything else. It is never altered. Dask's
            `Delayed` and `Future` stay as they are.
        chunks: how the arrays are split into blocks. None splits the first axis only, into blocks of about 64
            MiB, and leaves Dask arrays as they are. A whole number is the length of the blocks along the
            first axis. Anything else is what `dask.array` takes, such as `(100, -1)` or `{1: 10}`.
        blocks: the library of the blocks, as `arrayferry.convert` takes a target. None keeps those of
            Dask arrays, and makes blocks of NumPy, or of CuPy for what is on a GPU that CuPy can use.
        device: the device of the blocks.
        copy: as for `arrayferry.convert`; the blocks follow it too.
        narrowing: what happens to blocks whose dtype their library lacks, as for `arrayferry.convert`. Whether the
            numbers fit is known when a block is computed.
        scalars: as for `arrayferry.convert`.
        unsupported: as for `arrayferry.convert`; "keep" leaves Dask arrays unchanged whose dtype the library of the
            blocks lacks.
        unknown: as for `arrayferry.convert`.
        sparse: as for `arrayferry.convert`.

    Returns:
        A value of the same structure. The dtype of each Dask array is that of its blocks, and its `_meta` an
        empty array of their library, or of NumPy if Dask cannot hold one, as of PyTorch.

    Raises:
        UnknownBackendError, BackendUnavailableError, DeviceError, OptionError: as `arrayferry.converter` does.
        ConversionError: an array cannot be converted, or the chunks do not fit it.

    Example:
        >>> import numpy as np
        >>> from arrayferry_plugins.dask_ import to_dask
        >>> batch = {"image": np.zeros((6, 4, 4), np.float32), "label": np.arange(6)}
        >>> lazy = to_dask(batch, chunks=2, blocks="torch")
        >>> lazy["image"].chunks
        ((2, 2, 2), (4,), (4,))
        >>> lazy["label"].blocks[0].compute()
        tensor([0, 1])
    """
    to_blocks = None
    if blocks is not None:
        to_blocks = converter(
            blocks, device=device, copy=copy, narrowing=narrowing, scalars="convert", sparse=sparse
        )
        device = None
        if isinstance(to_blocks.target, DaskBackend):
            raise OptionError(
                "the blocks of a Dask array cannot be Dask arrays",
                remedy='Pass another library, such as blocks="torch", or chunks alone.',
            )

    def finished(x: Any) -> Any:
        if not isinstance(registry.kind(x).backend, DaskBackend):  # kept, as text may be
            return x
        if chunks is not None:
            x = _rechunked(x, chunks)
        try:
            return x if to_blocks is None else _with_blocks(x, to_blocks)
        except UnsupportedDtypeError:
            if unsupported == "keep":
                return x
            raise

    token = _chunks.set(chunks)
    try:
        lazy = convert(
            value,
            "dask",
            device=device,
            copy=copy,
            scalars=scalars,
            unsupported=unsupported,
            unknown=unknown,
            sparse=sparse,
        )
    finally:
        _chunks.reset(token)
    return map_arrays(finished, lazy)


class DaskBackend(Backend):
    """`dask.array.Array`, with blocks of NumPy, CuPy or any other library; `Delayed` and `Future`."""

    name = "dask"
    package = "dask.array"
    install = "'dask[array]'"
    namespace = "dask.array"
    array_types: tuple[str, ...] = ("dask.array.Array",)
    deferred_types: tuple[str, ...] = ("dask.delayed.Delayed", "distributed.client.Future")
    memory: Memory = "lazy"
    to_numpy_shares: bool | None = False
    from_numpy_shares: bool | None = None

    def to_numpy(self, x: Any) -> Any:
        (found,) = self.compute([x])
        if isinstance(found, ConversionError):
            raise found
        return _on_host(found)

    def compute(self, xs: Sequence[Any]) -> Sequence[Any]:
        futures = [x for x in xs if is_future(x)]
        waiting = [x for x in xs if not is_future(x)]
        failed = [_failure(x) for x in xs]
        if any(failed):
            return failed
        computed, gathered = iter(_compute(waiting)), iter(_gather(futures))
        values = [next(gathered) if is_future(x) else next(computed) for x in xs]
        seen: set[int] = set()  # Dask computes equal arrays to one object
        for index, x in enumerate(xs):
            if registry.kind(x).is_array:
                again = id(values[index]) in seen
                seen.add(id(values[index]))
                try:
                    found = _read(values[index])
                    fresh = found is values[index] and not again and _is_finished(x, found)
                    values[index] = _owned(found, fresh=fresh)
                except ConversionError as error:
                    values[index] = error
        return values

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        if device is None or str(device).startswith("cpu"):
            return _split(x)
        import cupy

        with cupy.cuda.Device(int(str(device).partition(":")[2] or 0)):
            return _split(_written(cupy.asarray(x)))

    def is_sparse(self, x: Any) -> bool:
        return _is_sparse(x._meta)

    def to_dense(self, x: Any) -> Any:
        import numpy as np

        return np.array(_on_host(_compute([x])[0], sparse="dense"))

    def copy(self, x: Any) -> Any:
        return x.map_blocks(_copied, meta=x._meta)

    def to_device(self, x: Any, device: Any) -> Any:
        if str(device).startswith("cpu"):
            return _with_blocks(x, converter("numpy"))
        return _with_blocks(x, converter("cupy", device=device))

    def devices(self) -> tuple[str, ...]:
        cupy = registry.backends().get("cupy")
        usable = cupy is not None and cupy.installed and cupy.usable
        return ("cpu", *cupy.devices()) if cupy is not None and usable else ("cpu",)

    def default_device(self) -> str:
        return "cpu"

    def device_of(self, x: Any) -> str:
        meta = x._meta
        return f"cuda:{meta.device.id}" if type(meta).__module__.startswith("cupy") else "cpu"

    def dtypes(self) -> None:
        return None

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks:
        from ._dask_blocks import DaskBlocks

        return DaskBlocks(xs, axis, client)


# Computing.


def _compute(xs: Sequence[Any]) -> Sequence[Any]:
    """Compute several collections together, so that what they have in common is computed once."""
    import dask

    if not xs:
        return []
    try:
        client = _client_of(xs)
        if client is None:
            scheduler_of(xs)
        options = {} if client is None else {"scheduler": client}
        if not all(registry.kind(x).is_array for x in xs):
            xs = [x if registry.kind(x).is_array else _LikeArray(x) for x in xs]
        return dask.compute(*xs, **options)  # type: ignore[no-any-return]
    except (MemoryError, ConversionError):
        raise
    except Exception as error:
        which = "a" if len(xs) == 1 else f"one of {len(xs)}"
        what = "Dask array" if all(registry.kind(x).is_array for x in xs) else "Dask value"
        raise ConversionError(
            f"{which} {what}{'s' if len(xs) > 1 else ''} could not be computed "
            f"({type(error).__name__}: {error})",
            remedy="The error is in its graph: x.compute() raises it too.",
        ) from error


def scheduler_of(xs: Sequence[Any]) -> Any:
    """Return the scheduler that Dask chooses for some collections.

    Raises:
        ConversionError: it is an asynchronous client, which would wait for itself in its event loop.
    """
    import dask

    try:
        get = dask.base.get_scheduler(collections=list(xs))
    except RuntimeError as error:  # newer versions of Dask refuse it too
        if "asynchronous" not in str(error):
            raise
    else:
        if not getattr(getattr(get, "__self__", None), "asynchronous", False):
            return get
    raise ConversionError(
        "Dask arrays and values cannot be computed here: the current client is asynchronous",
        remedy="Do it in another thread, as by asyncio.to_thread, or convert the result of `await client.compute(x)`.",
    )


class _LikeArray:
    """A `Delayed` that Dask optimises together with arrays, so that what they have in common runs once.

    Args:
        delayed: the value.
    """

    def __init__(self, delayed: Any) -> None:
        from dask.array import Array

        self._delayed = delayed
        self.__dask_optimize__ = Array.__dask_optimize__
        self.__dask_scheduler__ = Array.__dask_scheduler__

    def __dask_graph__(self) -> Any:
        return self._delayed.__dask_graph__()

    def __dask_keys__(self) -> Any:
        return self._delayed.__dask_keys__()

    def __dask_layers__(self) -> Any:
        return self._delayed.__dask_layers__()

    def __dask_tokenize__(self) -> Any:
        return self._delayed.__dask_tokenize__()

    def __dask_postcompute__(self) -> Any:
        return operator.itemgetter(0), ()


def _client_of(xs: Sequence[Any]) -> Any:
    """Return the client that computed parts of some collections, None if all of them are yet to be computed.

    Raises:
        ConversionError: a part has no result, or there are several clients.
    """
    if "distributed.client" not in sys.modules:
        return None
    graphs = [x.__dask_graph__() for x in xs]
    futures = [future for graph in graphs for future in persisted(graph).values()]
    owners = {id(future.client): future.client for future in futures}
    if len(owners) > 1:
        raise ConversionError(
            f"values that are persisted by {len(owners)} different clients cannot be computed together",
            remedy="Convert them one by one.",
        )
    futures += itertools.chain.from_iterable(map(arguments, graphs))
    for future in futures:
        failure = _failure(future)
        if failure is not None:
            raise failure
    return owner_of(futures)


def owner_of(futures: Sequence[Any]) -> Any:
    """Return a client of the cluster that has the results of some futures, None if there are no futures.

    Raises:
        ConversionError: they belong to several clusters.
    """
    clients = [future.client for future in reversed(futures) if future.client is not None]
    clusters = {client.scheduler.address: client for client in clients}
    if len(clusters) > 1:
        raise ConversionError(
            f"results of {len(clusters)} clusters cannot be computed together",
            remedy="Convert each by itself first.",
        )
    return next(iter(clusters.values()), None)


def persisted(graph: Any) -> dict[Any, Any]:
    """Return the parts of a graph that are futures, without writing out the whole of it."""
    return {
        key: part for layer in _written_out(graph) for key, part in layer.items() if is_future(part)
    }


def arguments(graph: Any) -> list[Any]:
    """Return the futures that are arguments of tasks of a graph, without writing out the whole of it."""
    waiting = [part for layer in _written_out(graph) for part in layer.values()]
    waiting += [list(getattr(layer, "indices", ())) for layer in _layers(graph)]
    found: list[Any] = []
    for part in waiting:
        if not is_future(part):  # else it is persisted
            _find_futures(part, found)
    return found


def _find_futures(part: Any, found: list[Any]) -> None:
    """Find the futures in a task: what depends on nothing has none."""
    waiting = [part]
    while waiting:
        part = waiting.pop()
        if is_future(part):
            found.append(part)
        elif isinstance(part, (list, tuple, set, frozenset)):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part.values())
        elif getattr(part, "dependencies", None) and hasattr(part, "args"):
            waiting += [*part.args, *part.kwargs.values()]


def _layers(graph: Any) -> Iterable[Any]:
    return getattr(graph, "layers", {"": graph}).values()


def _written_out(graph: Any) -> list[Any]:
    """Return the layers of a graph whose tasks are known already."""
    from dask.highlevelgraph import MaterializedLayer

    return [layer for layer in _layers(graph) if isinstance(layer, (MaterializedLayer, dict))]


def is_future(x: Any) -> bool:
    """Tell whether a value is a `Future` of a cluster, without importing anything."""
    distributed = sys.modules.get("distributed.client")
    return distributed is not None and isinstance(x, distributed.Future)


def _failure(x: Any) -> ConversionError | None:
    """Return why a future has no result and will have none, None if it has one or may have."""
    if not is_future(x):
        return None
    client, cause = x.client, None
    if client is None or client.status == "closed":
        why, remedy = "it has no open client", "Convert it before its client is closed."
    elif client.asynchronous:
        why, remedy = "its client is asynchronous", "Convert the result of `await future`."
    elif x.status == "error":
        cause = x.exception()
        why = f"its task raised {type(cause).__name__}: {cause}"
        remedy = "future.result() raises the error too."
    elif x.status in ("cancelled", "lost"):
        why, remedy = f"it is {x.status}", "Submit its task again."
        if hasattr(x, "why_lost"):  # no task made it
            why, remedy = x.why_lost()
    else:
        return None
    error = ConversionError(f"a Dask Future has no result: {why}", remedy=remedy)
    error.__cause__ = cause
    return error


def _gather(futures: Sequence[Any]) -> Sequence[Any]:
    """Wait for futures and return their results; an error in the place of one that has none."""
    by_client: dict[int, list[Any]] = {}
    for future in futures:
        by_client.setdefault(id(future.client), []).append(future)
    values: dict[int, Any] = {}
    with contextlib.ExitStack() as stack:
        if not all(future.done() for future in futures):
            stack.enter_context(_outside_the_pool())
        for some in by_client.values():
            try:
                found = iter(some[0].client.gather(some, errors="skip"))
            except Exception as error:
                raise ConversionError(
                    f"the results of {len(some)} Dask Futures could not be gathered "
                    f"({type(error).__name__}: {error})",
                    remedy="client.gather(futures) raises the error too.",
                ) from error
            for future in some:
                failure = _failure(future)
                values[id(future)] = next(found) if failure is None else failure
    return [values[id(future)] for future in futures]


@contextlib.contextmanager
def _outside_the_pool() -> Iterator[None]:
    """While a task of a worker waits for others, let another one take its thread."""
    import distributed

    try:
        distributed.secede()
    except Exception:  # this is no task
        yield
        return
    try:
        yield
    finally:
        distributed.rejoin()


def _is_sparse(blocks: Any) -> bool:
    """Tell whether blocks, or the empty one that stands for them, are sparse, of whatever library."""
    return hasattr(type(blocks), "todense") and hasattr(blocks, "nnz")


def _read(values: Any) -> Any:
    """Return what an array was computed to: a NumPy array, or one of another library."""
    import numpy as np

    from .numpy_ import NumpyBackend

    if isinstance(values, (np.ndarray, np.generic)):
        if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
            raise ConversionError(
                "a Dask array of masked blocks cannot be converted: its mask would be lost",
                remedy="Call dask.array.ma.filled(x, value) first.",
            )
        return NumpyBackend().to_numpy(values)
    return values if registry.kind(values).is_array else convert(values, "numpy", scalars="convert")


def _is_finished(x: Any, values: Any) -> bool:
    """Tell whether Dask itself put the values of an array into memory that no graph and no worker holds."""
    import numpy as np
    from dask.array import Array

    if type(x).__dask_postcompute__ is not Array.__dask_postcompute__:
        return False
    if x.npartitions > 1 or not isinstance(values, np.ndarray):
        return bool(x.npartitions > 1)
    finish, arguments = x.__dask_postcompute__()  # older versions return an only block as it is
    block = np.empty(1)
    return not np.shares_memory(finish([block], *arguments), block)


def _owned(values: Any, *, fresh: bool) -> Any:
    """Return what an array was computed to in memory that nobody else holds, on a GPU perhaps.

    Args:
        values: the result.
        fresh: whether it is already.
    """
    import numpy as np

    if isinstance(values, np.ndarray):
        return values if fresh and _is_alone(values) else np.array(values)
    backend = backend_of(values)
    if backend.name == "cupy":
        import cupy

        # blocks are computed on streams of other threads
        cupy.cuda.Device(values.device.id).synchronize()
    alone = fresh or backend.memory != "writable"
    return values if alone else _written(backend.copy(values))


def _is_alone(values: Any) -> bool:
    """Tell whether an array may be written to, and keeps no more alive than itself, as a message of a worker."""
    import numpy as np

    whole = values if values.base is None else values.base
    return (
        type(whole) is np.ndarray
        and bool(whole.flags.owndata and values.flags.writeable)
        and whole.nbytes <= values.nbytes + values.nbytes // 8
    )


def _on_host(values: Any, sparse: Any = "raise") -> Any:
    """Return computed blocks as a NumPy array, whatever their library."""
    return convert(_read(values), "numpy", sparse=sparse)


# Blocks.


def _split(x: Any) -> Any:
    """Make a Dask array of an array, in blocks as `to_dask` was told."""
    import dask.array as da
    from dask.array.core import normalize_chunks

    chunks, whole = _chunks.get(), tuple((length,) for length in x.shape)
    if chunks is None and x.nbytes > BLOCK:  # then the first axis is not empty
        chunks = max(1, BLOCK * x.shape[0] // x.nbytes)
    if chunks is not None and not whole:
        chunks = None
    if chunks is not None:
        try:
            whole = normalize_chunks(_by_axis(chunks), x.shape, dtype=x.dtype)
        except Exception as error:
            raise _misfit(chunks, x, error) from error
    own = type(x).__module__.startswith("numpy")
    return da.from_array(x, chunks=whole, name=False, asarray=None if own else False)


def _rechunked(x: Any, chunks: Any) -> Any:
    if not x.ndim:
        return x
    try:
        return x.rechunk(_by_axis(chunks))
    except Exception as error:
        raise _misfit(chunks, x, error) from error


def _by_axis(chunks: Any) -> Any:
    """Return chunks as Dask takes them: a whole number is meant for the first axis."""
    return {0: chunks} if isinstance(chunks, int) else chunks


def _misfit(chunks: Any, x: Any, error: Exception) -> ConversionError:
    unknown = any(length != length for length in x.shape)
    return ConversionError(
        f"chunks={chunks!r:.80} do not fit an array of shape {x.shape} and dtype {x.dtype} "
        f"({str(error).partition(chr(10))[0]})",
        remedy="Call x.compute_chunk_sizes() first, which computes it."
        if unknown
        else "Pass a whole number for the first axis, or what x.rechunk(chunks) of Dask takes.",
    )


def _with_blocks(x: Any, conversion: Conversion) -> Any:
    """Convert the blocks of a Dask array when they are computed."""
    from dask.base import tokenize

    meta, dtype = _empty(x, conversion)
    to_blocks = _ToBlocks(conversion)
    name = f"to-{conversion.target.name}-{tokenize(x, conversion, str(dtype))}"
    return x.map_blocks(to_blocks, name=name, dtype=dtype, meta=meta)


def _empty(x: Any, conversion: Conversion) -> tuple[Any, Any]:
    """Return an empty array like the blocks that a conversion makes, and its dtype.

    Dask works with dtypes of NumPy only, so an array of another library has one of these too, or one of
    NumPy stands for it.
    """
    import numpy as np

    meta = x._meta
    if not meta.ndim:  # its only value may be anything
        meta = meta.reshape(1)[:0]
    if meta.dtype == object:  # elsewhere, such an array is searched for arrays
        target = conversion.target
        try:
            fit_dtype(meta, target, conversion.options.narrowing)
        except ConversionError as error:
            raise error.locate(source="dask", target=target.name) from None
    made = conversion(meta)
    _join(type(made))
    if not isinstance(getattr(made, "dtype", None), np.dtype):
        made = convert(made, "numpy")
    return made, made.dtype


class _ToBlocks:
    """Converts blocks, wherever they are computed.

    Args:
        conversion: to the library of the blocks.
    """

    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion

    def __call__(self, block: Any) -> Any:
        made = self.conversion(block)
        _join(type(made))
        return made


def _join(cls: type) -> None:
    """Tell Dask how arrays of a type are put together, if it does not know."""
    import numpy as np
    from dask.array.dispatch import concatenate_lookup

    if concatenate_lookup.dispatch(cls) is np.concatenate and not issubclass(cls, np.ndarray):
        concatenate_lookup.register(cls, _concatenate)


def _copied(block: Any) -> Any:
    return backend_of(block).copy(block)


def _concatenate(arrays: Sequence[Any], axis: int = 0) -> Any:
    return namespace_of(arrays[0]).concat(list(arrays), axis=axis)


def _know_torch() -> None:
    """Let Dask put tensors together, for users who convert blocks by `x.map_blocks`."""
    dispatch = sys.modules.get("dask.array.dispatch")
    lookup = getattr(dispatch, "concatenate_lookup", None)
    if lookup is not None:

        @lookup.register_lazy("torch")  # type: ignore[untyped-decorator]
        def register() -> None:
            import torch

            lookup.register(torch.Tensor, _concatenate)


_know_torch()


class DaskToCupy(Converter):
    """Computes an array of CuPy blocks on the GPU, so that the host is not needed.

    Blocks are computed on the streams of other threads, so these are waited for.
    """

    source: str = "dask"
    target: str = "cupy"
    cost: Cost = "compute"
    source_device: str = "cuda"
    target_device: str = "cuda"

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            return NotImplemented
        import cupy

        (values,) = _compute([x])
        if not isinstance(values, cupy.ndarray):  # whatever its meta says
            return convert(_read(values), "cupy", device=device, copy=True)
        return _owned(values, fresh=_is_finished(x, values))


class CupyToDask(Converter):
    """Wraps a copy of a CuPy array, on its GPU. It is made before other threads can read it."""

    source: str = "cupy"
    target: str = "dask"
    cost: Cost = "copy"
    source_device: str = "cuda"
    target_device: str = "cuda"

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        import cupy

        if copy is False:
            return NotImplemented
        with cupy.cuda.Device(x.device.id):
            return _split(_written(x.copy()))


def _written(x: Any) -> Any:
    """Wait until a copy is made, if it is one of CuPy, since its readers or its source are on other streams."""
    if backend_of(x).name == "cupy":
        import cupy

        with cupy.cuda.Device(x.device.id):
            cupy.cuda.get_current_stream().synchronize()
    return x


# Other collections.


class DataFrameSource(Source):
    """Dask's `DataFrame`, `Series`, `Index` and `Scalar`: what to call first."""

    name = "dask.dataframe"
    package = "dask"
    array_types: tuple[str, ...] = (
        "dask.dataframe.DataFrame",
        "dask.dataframe.Series",
        "dask.dataframe.Index",
        "dask.dataframe.dask_expr._collection.Scalar",
    )

    def to_numpy(self, x: Any) -> Any:
        scalar = type(x).__name__ == "Scalar"
        way = "x.to_delayed()" if scalar else _AS_ARRAY
        raise ConversionError(
            f"a Dask {type(x).__name__} cannot be converted", remedy=f"Convert {way} instead."
        )

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks:
        what = type(xs[0]).__name__
        remedy = f"Pass {_AS_ARRAY} instead, which computes the lengths of the partitions."
        if what == "Scalar":
            remedy = "Convert x.to_delayed() first: it is one number."
        raise ConversionError(f"a Dask {what} cannot be streamed", remedy=remedy)


_AS_ARRAY = "x.to_dask_array(lengths=True)"


class BagSource(Source):
    """Dask's `Bag` and `Item`: what to call first."""

    name = "dask.bag"
    package = "dask"
    array_types: tuple[str, ...] = ("dask.bag.Bag", "dask.bag.Item")

    def to_numpy(self, x: Any) -> Any:
        raise ConversionError(
            f"a Dask {type(x).__name__} cannot be converted",
            remedy="Convert x.to_delayed() instead, which is computed to what it holds.",
        )

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks:
        raise ConversionError(
            f"a Dask {type(xs[0]).__name__} cannot be streamed",
            remedy="Make an array of x.to_delayed() by dask.array.from_delayed, which must be told shapes and dtypes.",
        )


@hookimpl
def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [DaskBackend()]


@hookimpl
def arrayferry_converters() -> list[Converter]:
    """Return the direct converters, which stay on the GPU."""
    return [DaskToCupy(), CupyToDask()]


@hookimpl
def arrayferry_sources() -> list[Source]:
    """Return the sources of this module."""
    return [DataFrameSource(), BagSource()]
