"""The crossings of a conversion: its arrays before and after, compared once it is done, for observers.

Nothing here computes a lazy array, reads values from a device, or keeps an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from arrayferry._conversion.compiled import CompiledConversion
from arrayferry._dtypes import dtype_name, dtype_named
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import overrides
from arrayferry._plugin.origin import Origin
from arrayferry._route.devices import device_if_known, memory_of
from arrayferry._route.memory import address_of, share_memory
from arrayferry._route.route import Route, describe_route
from arrayferry._tree.kind import Kind
from arrayferry._tree.nodes import Branch, Leaf
from arrayferry._tree.tree import Tree

How = Literal["shared", "copied", "transferred", "computed"]

SMALL = 1 << 24
"""The maximum size in bytes of an array that may be read to see whether memory is shared."""


@dataclass(eq=False, repr=False)
class Crossing:
    """One item that a trace counts: an array that crossed, a number that was read, or a conversion that failed.

    Attributes:
        source: the name of the backend or source that it belonged to, "" if it is not known.
        target: the name of the backend that it belongs to now, "python" for a number that was read.
        source_device: the name of the device that it was on, "" if it is not known.
        target_device: the name of the device that it is on now.
        nbytes: the size of the result.
        how: what happened to its memory.
        avoidable: if it was copied where memory could be shared, the reason and the remedy.
        before: the array.
        after: the result, None if there are several.
        addresses: the addresses of both, 0 where they are not known.
    """

    source: str
    target: str
    source_device: str = ""
    target_device: str = ""
    nbytes: int = 0
    how: How | Literal["failed"] = "failed"
    avoidable: tuple[str, str] | None = None
    before: Any = None
    after: Any = None
    addresses: tuple[int, int] = (0, 0)

    @property
    def route(self) -> str:
        """The planned route, without what happened to memory."""
        return f"{self.source or '?'} -> {'a number' if self.target == 'python' else self.target}"


class ArrayCrossing(Crossing):
    """An array that crossed.

    Args:
        x: the array.
        y: the result.
        kind: the kind of the array.
        compiled: the conversion.
    """

    def __init__(self, x: Any, y: Any, kind: Kind, compiled: CompiledConversion) -> None:
        kind_of = compiled.kind_of
        self._compiled = compiled
        result_kind = kind_of(y)
        several = not result_kind.is_array
        arrays = Tree(y, kind_of).arrays if several else [y]
        if several:
            result_kind = kind_of(arrays[0]) if arrays else result_kind
        target: Backend = result_kind.backend or compiled.target
        self._origin = origin = kind.origin or compiled.catalog.backend("numpy")
        on_host = kind.category in ("number", "scalar")
        super().__init__(
            "python" if kind.category == "number" else origin.name,
            target.name,
            "cpu" if on_host else device_if_known(origin, x),
            device_if_known(target, arrays[0]) if arrays else "",
            nbytes=sum(map(nbytes_of, arrays)),
            how="copied",
            before=x,
            after=None if several else y,
        )
        lazy = origin.memory == "lazy"
        if lazy and target.memory != "lazy":
            self.how = "computed"
        elif (
            self.source_device
            and self.target_device
            and memory_of(self.source_device) != memory_of(self.target_device)
        ):
            self.how = "transferred"
        if not several and not on_host and not lazy and target.memory != "lazy":
            self.addresses = address_of(origin, x), address_of(target, y)
            if self.how == "copied" and self._shares(x, y, origin, target):
                self.how = "shared"
            elif self.how == "copied" and self.source != self.target:
                self.avoidable = self._why_copied(x, origin)

    @property
    def route(self) -> str:
        """The planned route, without what happened to memory."""
        try:
            return _names(self._route())
        except Exception:  # a number, or a device that is gone
            return super().route

    def _route(self) -> Route:
        compiled = self._compiled
        device = compiled.options.device
        return describe_route(
            compiled.catalog, self._origin, compiled.target, device, self.source_device or "cpu"
        )

    def _shares(self, x: Any, y: Any, origin: Origin, target: Backend) -> bool:
        before, after = self.addresses
        if self.nbytes == 0 or (before and after):
            return self.nbytes == 0 or before == after
        if self.source_device != "cpu" or self.target_device != "cpu" or self.nbytes > SMALL:
            return self._compiled.options.copy is not True and not self._route().copies
        sparse = overrides(origin, Origin.is_sparse) and origin.is_sparse(x)
        if sparse or origin.is_traced(x) or target.is_traced(y):
            return False
        if share_memory(x, origin, y, target):
            return True
        return _overlap(x, origin, y, target)

    def _why_copied(self, x: Any, origin: Origin) -> tuple[str, str] | None:
        """Return the reason and the remedy for a copy where memory can be shared."""
        options = self._compiled.options
        if self._route().copies:
            return None
        if options.copy is True:
            return (
                "copy=True was given",
                "Leave copy=True out, unless one of the two is written to.",
            )
        strides = getattr(x, "strides", None)
        flags: Any = getattr(x, "flags", None)
        if origin.name == "numpy" and flags is not None:
            if not x.dtype.isnative:
                return (
                    "the bytes of the array are swapped",
                    'Call x.astype(x.dtype.newbyteorder("=")) once, before the loop.',
                )
            if isinstance(strides, tuple) and any(stride < 0 for stride in strides):
                return (
                    "the array has negative strides",
                    "Make the array contiguous where it is made, with numpy.ascontiguousarray(x).",
                )
            if not flags.writeable:
                return (
                    f"the array is read-only, but {self.target} could write to it",
                    "Pass a writable array.",
                )
            if not flags.aligned:
                return "the array is not aligned", "Copy it once, before the loop, with x.copy()."
        dtypes = _dtype_name(x), _dtype_name(self.after)
        if all(dtypes) and dtypes[0] != dtypes[1]:
            return (
                f"{self.target} has no {dtypes[0]} here, and the values became {dtypes[1]}",
                f"Make the array in {dtypes[1]} in the first place.",
            )
        return (
            "the layout or the type of the array is not one that can be shared",
            "Bring it into the usual layout once, before the loop.",
        )


def number_crossing(x: Any, backend: Backend) -> Crossing:
    """Return the crossing of a number that was read from an array without a conversion."""
    device = device_if_known(backend, x)
    how: How = "copied" if memory_of(device) in ("cpu", "") else "transferred"
    return Crossing(backend.name, "python", device, "cpu", nbytes_of(x), how)


def failed_crossing(value: Any, compiled: CompiledConversion) -> Crossing:
    """Return the crossing of the first array of a value that could not be converted."""
    origin = None
    with suppress(Exception):  # an odd value
        kind = compiled.kind_of(value)
        if kind.category in ("container", "objects"):
            kinds = Tree(value, compiled.kind_of).kinds
            kind = next((k for k in kinds if k.backend is not compiled.target), kind)
        origin = kind.origin
    return Crossing("" if origin is None else origin.name, compiled.target.name)


def crossings_of(value: Any, result: Any, compiled: CompiledConversion) -> list[ArrayCrossing]:
    """Compare a value with its conversion, array by array.

    Args:
        value: the value.
        result: the result.
        compiled: the conversion.

    Returns:
        One for each array that is now another object.
    """
    if result is value:
        return []
    kind_of = compiled.kind_of
    kind = kind_of(value)
    if kind.category in ("array", "objects") and not kind.searches(value):
        return [ArrayCrossing(value, result, kind, compiled)]
    tree = Tree(value, kind_of, compiled.options)
    pairs = _pairs(tree.root, result, kind_of)
    crossings: dict[tuple[int, int], ArrayCrossing] = {}
    for index, y in pairs:
        x = tree.arrays[index]
        own = tree.kinds[index].category == "scalar" and compiled.target.name == "numpy"
        if y is not x and not own and (id(x), id(y)) not in crossings:
            crossings[id(x), id(y)] = ArrayCrossing(x, y, tree.kinds[index], compiled)
    return list(crossings.values())


def _pairs(root: Any, result: Any, kind_of: Callable[[Any], Kind]) -> Iterator[tuple[int, Any]]:
    """Yield the index of each array of a tree, and the object in its place in the result."""
    seen: set[int] = set()
    waiting: list[tuple[Any, Any]] = [(root, result)]
    while waiting:
        node, made = waiting.pop()
        if type(node) is Leaf:
            yield node.index, made
        elif type(node) is Branch and made is not node.value and id(node) not in seen:
            seen.add(id(node))
            container = node.container
            if type(made) is not type(node.value):
                container = kind_of(made).container or container
            children = list(container.children(made))
            if len(children) == len(node.children):
                waiting.extend(zip(node.children[::-1], children[::-1], strict=True))


def nbytes_of(x: Any) -> int:
    """Return the size of an array, 0 if it is not known."""
    try:
        size = x.nbytes
        return int(size)
    except Exception:  # Dask's is not a number where lengths are not known
        pass
    try:
        dtype = dtype_named(_dtype_name(x))
        return 0 if dtype is None else int(x.size) * dtype.itemsize
    except Exception:
        return 0


def _overlap(x: Any, origin: Origin, y: Any, target: Backend) -> bool:
    """Compare the memory of the NumPy arrays where a library does not promise to return views of its own."""
    try:
        import numpy

        return bool(numpy.may_share_memory(origin.to_numpy(x), target.to_numpy(y)))
    except Exception:
        return False


def _dtype_name(x: Any) -> str:
    dtype = getattr(x, "dtype", None)
    return "" if dtype is None else dtype_name(dtype)


def _names(route: Route) -> str:
    steps = [f"{s.target} by DLPack" if s.via == "dlpack" else str(s.target) for s in route.steps]
    return " -> ".join([str(route.source), *steps])
