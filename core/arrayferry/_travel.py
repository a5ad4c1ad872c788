"""Travelling: taking one array along its route, under all rules. This is the careful way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._devices import device_kind, resolve_device
from ._errors import ConversionError, CopyRequiredError, TracedValueError
from ._host import PASS_COPY, Held, enter, leave, promise_broken
from ._route import HOST, Route, Step, find_route

if TYPE_CHECKING:
    from ._backend import Backend
    from ._catalog import Catalog
    from ._options import Options

__all__ = ["travel"]


def travel(
    catalog: Catalog,
    x: Any,
    source: Backend,
    target: Backend,
    options: Options,
    *,
    without: frozenset[object] = frozenset(),
    values: Any = None,
) -> Any:
    """Take one array along its route, under all rules. This is the careful way.

    Args:
        catalog: where the route is found.
        x: an array of `source`.
        source: its backend.
        target: the backend to reach.
        options: the user's.
        without: direct converters that are not to be tried, and "dlpack" if that is not.
        values: what `source.to_numpy(x)` gave, if it was called already.

    Raises:
        ConversionError: it cannot be carried; one of its subclasses says why.
    """
    traced = source.is_traced(x)
    if traced and target.name != source.name:
        raise TracedValueError(
            f"a traced {source.name} value has no numbers yet, so it cannot become a {target.name} array",
            remedy="Convert outside the traced function (jit, grad, vmap), or call out of it "
            "with jax.pure_callback."
            if source.name == "jax"
            else "Convert outside of the transformed function.",
        )
    here = source.device_of(x) if not traced else "cpu"
    if target.name == source.name:
        return _stay(x, source, here, options, traced)
    there, device = resolve_device(target, options.device, here)
    kind, goal = device_kind(here), device_kind(there)
    while True:
        route = find_route(catalog, source, kind, target, goal, without)
        try:
            return _follow(catalog, route, x, source, target, device, there, options, values)
        except _UnservedError as unserved:
            without |= {unserved.by}


class _UnservedError(Exception):
    """A direct converter, or DLPack, leaves this array to the general way."""

    def __init__(self, by: object) -> None:
        super().__init__()
        self.by = by


def _stay(x: Any, backend: Backend, here: str, options: Options, traced: bool) -> Any:
    """Same library: the array itself, unless another device or a copy is asked for."""
    if traced or (options.device is None and not options.copy):
        return x
    there, device = resolve_device(backend, options.device, here)
    if there == here:
        return backend.copy(x) if options.copy else x
    if options.copy is False:
        raise CopyRequiredError(
            f"memory on {here} cannot be shared with {there}",
            remedy="Pass copy=None to let it be moved.",
        )
    return backend.to_device(x, device)


def _follow(
    catalog: Catalog,
    route: Route,
    x: Any,
    source: Backend,
    target: Backend,
    device: Any,
    there: str,
    options: Options,
    values: Any,
) -> Any:
    if options.copy is False and route.transfers:
        raise CopyRequiredError(
            f"memory on {route.source.device} cannot be shared with {route.target.device}",
            remedy=PASS_COPY,
        )
    known = catalog.backends
    held = Held(x)
    last = len(route.steps) - 1
    for index, step in enumerate(route.steps):
        before = source if index == 0 else known[step.source.backend]
        after = target if index == last else known[step.target.backend]
        where = device if index == last else None
        held = _take(step, held, x, source, before, after, where, options, values)
    arrived = target.device_of(held.value)
    if options.device is not None and arrived != there:
        raise ConversionError(
            f"the plugin of {target.name} put an array on {arrived} where {there} was asked for",
            remedy="Tell the plugin's author.",
        )
    return held.value


def _take(
    step: Step,
    held: Held,
    x: Any,
    source: Backend,
    before: Backend,
    after: Backend,
    device: Any,
    options: Options,
    values: Any,
) -> Held:
    if step.converter is not None:
        copy = True if step.cost == "copy" and step.converter.cost == "share" else options.copy
        if options.copy is False and (held.private or step.cost != "share"):
            raise CopyRequiredError(
                f"memory cannot be shared: {_why(source, after)}", remedy=PASS_COPY
            )
        if not step.converter.takes(type(held.value)):
            raise _UnservedError(step.converter)
        try:
            value = step.converter.convert(held.value, device, copy)
        except Exception:
            value = NotImplemented
        if value is NotImplemented:
            raise _UnservedError(step.converter)
        return Held(value, private=step.cost != "share", constant=after.memory == "immutable")
    if step.via == "device":
        return Held(before.to_device(held.value, device), private=True)
    if step.via == "dlpack":
        return _hand_over(held, before, after, device, options)
    if step.target == HOST and before.name != "numpy":
        first = held.value is x and before is source
        out = leave(held.value, before, step.source.device == "cpu", values if first else None)
        out = Held(out.value, out.private or held.private, out.constant and not held.private)
        return (
            enter(out, held.value, before, after, None, options) if after.name == "numpy" else out
        )
    if held.value is x:
        held = leave(x, before, device_is_host=True, values=values)
    return enter(held, x, source, after, device, options)


def _why(source: Backend, target: Backend) -> str:
    constant = source.memory in ("immutable", "lazy")
    broken = promise_broken(source, target, constant=constant, readonly=False)
    return broken or "a copy is made on the way"


def _hand_over(held: Held, before: Backend, after: Backend, device: Any, options: Options) -> Held:
    """Share by DLPack; where a copy is needed, make it on the side whose arrays can be written."""
    broken = promise_broken(before, after, constant=before.memory == "immutable", readonly=False)
    if options.copy is False and broken:
        raise CopyRequiredError(f"memory cannot be shared: {broken}", remedy=PASS_COPY)
    copying = not held.private and (options.copy is True or bool(broken))
    x = held.value
    dtypes = after.dtypes()
    if dtypes is not None and str(x.dtype).rpartition(".")[2] not in dtypes:
        raise _UnservedError("dlpack")
    try:
        if copying and after.memory != "writable":
            x = before.copy(x)
        y = after.from_dlpack(before.to_dlpack(x), device)
        if copying and after.memory == "writable":
            y = after.copy(y)
    except Exception as error:
        raise _UnservedError("dlpack") from error
    return Held(y, held.private or copying, before.memory == "immutable")
