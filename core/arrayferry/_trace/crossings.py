"""The crossings of a conversion, for traces. They are found after the conversion, by comparing arrays with results.

This module computes no lazy array, and reads no values from a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from arrayferry._conversion.pairs import Pairs
from arrayferry._dtypes import dtype_name, dtype_named
from arrayferry._errors import CopyRequiredError
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.origin import Origin
from arrayferry._route.devices import device_if_known, memory_of, on_host
from arrayferry._route.memory import address_of, decide, share_memory
from arrayferry._route.route import How, Route, describe_route
from arrayferry._tree.kind import Kind
from arrayferry._tree.nodes import Branch, Leaf
from arrayferry._tree.tree import Tree
from arrayferry._types import AnyArray, AnyTree

SMALL = 1 << 24
"""The maximum size in bytes of an array that may be read to find out whether it shares memory with its result."""


@dataclass(eq=False)
class ArrayCrossing:
    """An array that crossed to another library or device, or a number that was read from an array.

    Attributes:
        source: the name of the backend or source of the array, or "python" for a number that became an array.
        target: the name of the backend of the result, or "python" for a number that was read.
        source_device: the name of the device of the array, or "" if it is not known.
        target_device: the name of the device of the result.
        how: what happened to the memory of the array, as in `TraceRow.how`.
        nbytes: the size of the result in bytes.
        before: the array, or None if a number was read.
        after: the result, or None if a number was read.
        addresses: the memory addresses of the array and of the result. An unknown address is 0.
        why: the reason why the memory was not shared, or "" if none is known.
        remedy: how to avoid the copy, or "" if it cannot be avoided.
    """

    source: str
    target: str
    source_device: str
    target_device: str
    how: How
    nbytes: int
    before: Any = None
    after: Any = None
    addresses: tuple[int, int] = (0, 0)
    why: str = ""
    remedy: str = ""


def number_crossing(x: AnyArray, backend: Backend) -> ArrayCrossing:
    """Return the crossing of a number that was read from an array without a conversion."""
    device = device_if_known(backend, x)
    how: How = "copied" if not device or on_host(device) else "transferred"
    return ArrayCrossing(backend.name, "python", device, "cpu", how, nbytes_of(x))


def crossings_of(
    value: AnyTree, result: AnyTree, pairs: Pairs, *, by_user: bool
) -> list[ArrayCrossing]:
    """Compare the arrays of a value with the results of its conversion.

    Args:
        value: the value that was converted.
        result: the result of the conversion.
        pairs: the `Pairs` that converted the value.
        by_user: whether the user's own code called the conversion, and so chose the options of the conversion.

    Returns:
        A crossing for each array whose result is another object.
    """
    tree = Tree(value, pairs.kind_of, pairs.options)
    crossings: dict[tuple[int, int], ArrayCrossing] = {}
    for index, y in _pairs(tree.root, result, pairs.kind_of):
        x, kind = tree.arrays[index], tree.kinds[index]
        stays_numpy = kind.category == "scalar" and pairs.target.name == "numpy"
        if y is not x and not stays_numpy and (id(x), id(y)) not in crossings:
            crossings[id(x), id(y)] = _crossing(x, y, kind, pairs, by_user=by_user)
    return list(crossings.values())


def _pairs(root: Any, result: AnyTree, kind_of: Callable[[Any], Kind]) -> Iterator[tuple[int, Any]]:
    """Yield the index of each array of a tree, and the object at the same path in the result."""
    seen_ids: set[int] = set()
    pending: list[tuple[Any, Any]] = [(root, result)]
    while pending:
        node, y = pending.pop()
        if type(node) is Leaf:
            yield node.index, y
        elif type(node) is Branch and y is not node.value and id(node) not in seen_ids:
            seen_ids.add(id(node))
            container = node.container
            if type(y) is not type(node.value):
                container = kind_of(y).container or container
            children = list(container.children(y))
            if len(children) == len(node.children):
                pending.extend(zip(node.children[::-1], children[::-1], strict=True))


def _crossing(
    x: AnyArray, y: AnyArray, kind: Kind, pairs: Pairs, *, by_user: bool
) -> ArrayCrossing:
    """Return the crossing of an array `x` with the result `y`: what happened to the memory of `x`, and why."""
    origin, options = kind.origin or pairs.catalog.backend("numpy"), pairs.options
    target = pairs.kind_of(y).backend or pairs.target
    is_number = kind.category in ("number", "scalar")
    source = "python" if kind.category == "number" else origin.name
    x_device = "cpu" if is_number else device_if_known(origin, x)
    y_device = device_if_known(target, y)
    crossing = ArrayCrossing(source, target.name, x_device, y_device, "copied", nbytes_of(y), x, y)
    if is_number:
        return crossing
    crossing.addresses = address_of(origin, x), address_of(target, y)
    is_shared: bool | None = False
    if "lazy" in (origin.memory, target.memory):
        crossing.how = "copied" if target.memory == "lazy" else "computed"
    elif x_device and y_device and memory_of(x_device) != memory_of(y_device):
        crossing.how = "transferred"
    else:
        is_shared = _is_shared(crossing, origin, target)
    if is_shared:
        crossing.how = "shared"
        return crossing
    route = describe_route(pairs.catalog, origin, target, options.device, x_device or "cpu")
    if is_shared is None and options.copy is not True and not route.copies:
        crossing.how = "shared"
        return crossing
    if len(route.steps) > 1:
        crossing.why = f"the route is {route}"
    elif crossing.how == "copied" and source != target.name:
        if options.copy is True and not by_user:
            crossing.why = "a library that called arrayferry passed copy=True"
        elif options.copy is True and not route.copies:
            crossing.why = "copy=True was passed"
            crossing.remedy = "Leave copy=True out, unless the array or its copy is written to."
        else:
            crossing.why, crossing.remedy = _why_copied(x, y, origin, target, route)
    return crossing


def _is_shared(crossing: ArrayCrossing, origin: Origin, target: Backend) -> bool | None:
    """Return whether an array and its result use the same memory, or None if that cannot be determined."""
    if crossing.nbytes == 0:
        return True
    may_read = crossing.nbytes <= SMALL and on_host(crossing.source_device)
    return share_memory(crossing.before, origin, crossing.after, target, reads=may_read)


def _why_copied(
    x: AnyArray, y: AnyArray, origin: Origin, target: Backend, route: Route
) -> tuple[str, str]:
    """Return the reason why an array was copied, and how to avoid the copy, or "" if it cannot be avoided."""
    try:
        decide(origin, target, False)
    except CopyRequiredError as error:
        return error.reason, ""
    if route.copies:
        return f"the route is {route}", ""
    if origin.name == "numpy" and not x.flags.writeable:
        return "the array is read-only", "Pass a writable array."
    dtype_before, dtype_after = dtype_name(x.dtype), dtype_name(y.dtype)
    if dtype_before != dtype_after:
        reason = f"{target.name} has no {dtype_before} here, and the values became {dtype_after}"
        return reason, f"Make the array in {dtype_after} in the first place."
    reason = "its strides, alignment or byte order do not allow it to be shared"
    return reason, "Make an array of the usual layout once, before the loop."


def nbytes_of(x: AnyArray) -> int:
    """Return the size of an array in bytes, or 0 if it is not known."""
    with suppress(Exception):
        # int() raises an error for a Dask array with unknown lengths, whose size is not a number
        if hasattr(x, "nbytes"):
            return int(x.nbytes)
        return int(x.size) * int(getattr(dtype_named(dtype_name(x.dtype)), "itemsize", 0))
    return 0
