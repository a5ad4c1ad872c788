"""`Executor`: converts one array step by step along a route.

It converts the arrays that no direct converter converts in one step, and raises errors for arrays that cannot be
converted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from arrayferry._errors import ContractError, TracedValueError
from arrayferry._observers import note
from arrayferry._options import Options
from arrayferry._plugin.backend import Backend, same_library
from arrayferry._plugin.call import ask_backend, call_backend
from arrayferry._plugin.origin import Origin
from arrayferry._registry.catalog import Catalog
from arrayferry._types import AnyArray, AnyTree, Device

from .devices import device_of, resolve_device
from .direct import Direct
from .dtypes import target_dtype
from .exchange import Exchange, NotHandledError
from .memory import COPIED, copy_required, decide
from .queued import duplicate
from .route import HOST, Route, Step, find_route
from .via_numpy import RoutedArray, from_host, to_host


class Way(NamedTuple):
    """The route and the devices of an array, before the array is converted.

    Attributes:
        route: the route of the array, or None if the route must still be found.
        source_device: the name of the device of the array.
        target_device: the name of the device of the result.
        device: the device of the result, in the form that the target's backend accepts.
    """

    route: Route | None
    source_device: str
    target_device: str
    device: Any


class Executor:
    """Converts single arrays of one backend to another.

    Args:
        catalog: the backends and converters that routes consist of.
        source: the backend of the arrays.
        target: the backend of the results.
        options: the user's options.
    """

    def __init__(self, catalog: Catalog, source: Origin, target: Backend, options: Options) -> None:
        self.catalog = catalog
        self.source = source
        self.target = target
        self.options = options
        self._directs: dict[Any, Direct] = {}

    def run(
        self,
        x: AnyArray,
        *,
        without: frozenset[object] = frozenset(),
        values: AnyTree = None,
        way: Way | None = None,
    ) -> Any:
        """Convert one array.

        Args:
            x: an array of the source.
            without: direct converters that must not be used, and "dlpack" if DLPack must not be used.
            values: the result of `source.to_numpy(x)`, or None if `to_numpy` was not called yet.
            way: the result of `check(x)`, or None if `check` was not called.

        Raises:
            ConversionError: the array cannot be converted. The class of the error depends on the reason.
        """
        source, target = self.source, self.target
        if way is None:
            is_traced = ask_backend(source, "is_traced", x)
            if same_library(source, target):
                return x if is_traced else self._within(x, source)
            if is_traced:
                raise _traced(source, x)
            way = self._way(x)
        route, source_device, target_device, device = way
        if values is not None:  # the source's converters would compute `values` again
            without |= {each for each in self.catalog.converters if each.source == source.name}
        # a list, since another thread may add a converter to the dict during the loop
        directs = list(self._directs.values())
        without |= {direct.converter for direct in directs if direct.disabled}
        while True:
            if route is None:
                ends = source, source_device, target, target_device
                route = find_route(self.catalog, *ends, without)
            if values is None:
                _check_lazy(x, route, target, self.options)
            if self.options.copy is False and route.transfers:
                raise copy_required(f"it is on {source_device}, not on {target_device}")
            if values is None and source.memory == "lazy" and route.steps[0].via == "host":
                # read the values once: if this route fails, the next route must not compute them again
                values = call_backend(source, "to_numpy", x)
            try:
                y = self._follow(route, x, device, values)
            except NotHandledError as refusal:
                refuser = "DLPack" if refusal.by == "dlpack" else refusal.by
                note(
                    source.name, target.name, refuser, "did not accept it", error=refusal.__cause__
                )
                without |= {refusal.by}
                route = None
                continue
            if self.options.device is not None:
                _check_device(y, target, target_device)
            return y

    def _follow(self, route: Route, x: AnyArray, device: Device, values: AnyTree) -> Any:
        """Execute the steps of a route.

        Args:
            route: the route.
            x: the array.
            device: the device of the result, in the form that the target's backend accepts.
            values: the result of `source.to_numpy(x)`, or None if `to_numpy` was not called yet.
        """
        source, options = self.source, self.options
        routed, origin, steps = RoutedArray(x), source, route.steps
        for index, step in enumerate(steps):
            is_last = index == len(steps) - 1
            target = self.target if is_last else self.catalog.backends[step.target.backend]
            end_device = device if is_last else None
            if step.converter is not None:
                routed = self._by_converter(step, routed, origin, target, end_device)
            elif step.via == "dlpack":
                moves_later = any(later_step.via == "device" for later_step in steps[index + 1 :])
                exchange = Exchange(source, origin, target, end_device, options, step.source.device)
                routed = exchange.take(routed, moves=moves_later)
            elif step.via == "device":
                step_device = step.target.device if end_device is None else end_device
                routed = RoutedArray(duplicate(origin, routed.value, step_device), COPIED)
            else:
                if index == 0 or step.target == HOST:
                    on_host = step.source.device == "cpu"
                    host_array = to_host(routed.value, origin, options, on_host, values)
                    routed = RoutedArray(host_array.value, routed.copied or host_array.copied)
                routed = from_host(routed, source, target, end_device, options)
            origin, values = target, None
        return routed.value

    def _by_converter(
        self, step: Step, array: RoutedArray, before: Origin, after: Backend, device: Device
    ) -> RoutedArray:
        converter: Any = step.converter
        copy = self.options.copy
        sharing = decide(self.source, after, copy, copied=array.copied)
        if step.cost != "share" and copy is False:
            raise copy_required(COPIED)
        if array.copied:
            copy = None
        elif sharing == "copy" and converter.cost == "share":
            copy = True
        key = converter, device, copy
        direct = self._directs.get(key)
        if direct is None:  # equal steps share one `Direct`
            options = self.options._replace(device=device, copy=copy)
            direct = Direct(converter, before, after, options, self.catalog.kind)
            self._directs[key] = direct
        y = direct.convert(array.value)
        if y is NotImplemented:
            raise NotHandledError(converter)
        return RoutedArray(y, COPIED if step.cost != "share" else "")

    def _way(self, x: AnyArray) -> Way:
        """Return a `Way` with the devices of an array and of its result, and without a route."""
        source_device = device_of(self.source, x)
        target_device = resolve_device(self.target, self.options.device, source_device)
        return Way(None, source_device, *target_device)

    def check(self, x: AnyArray) -> tuple[Way, bool]:
        """Check a lazy array before it is computed, as far as this is possible without its values.

        Returns:
            The `Way` of the array, and whether the first step of its route reads its values into NumPy.

        Raises:
            ConversionError: the array cannot be converted, whatever its values are.
        """
        way = self._way(x)
        ends = self.source, way.source_device, self.target, way.target_device
        route = find_route(self.catalog, *ends)
        _check_lazy(x, route, self.target, self.options)
        first_step = route.steps[0]
        return way if first_step.converter else way._replace(route=route), first_step.target == HOST

    def _within(self, x: AnyArray, backend: Any) -> Any:
        """Convert within one library: return the array itself, or move or copy it."""
        options = self.options
        if options.device is None and not options.copy:
            return x
        source_device = device_of(backend, x)
        target_device, device = source_device, None
        if options.device is not None:
            target_device, device = resolve_device(backend, options.device, source_device)
        is_there = target_device == source_device
        if device is not None and not isinstance(device, str):
            is_there = ask_backend(backend, "devices.is_on", x, device)
        if is_there:
            return duplicate(backend, x) if options.copy else x
        if options.copy is False:
            raise copy_required(f"it is on {source_device}, not on {target_device}")
        moved = duplicate(backend, x, target_device if device is None else device)
        _check_device(moved, backend, target_device)
        return moved


def _check_device(y: AnyArray, target: Backend, target_device: str) -> None:
    actual_device = call_backend(target, "device_of", y)
    if actual_device != target_device:
        raise ContractError(
            f"the backend {target.name!r} put an array on {actual_device} instead of {target_device}",
            part=target,
        )


def _check_lazy(x: AnyArray, route: Route, target: Backend, options: Options) -> None:
    if not route.computes:
        return
    import numpy as np

    try:
        dtype = x.dtype
    except Exception:  # a later step reads the dtype again, and raises the error
        dtype = None
    if isinstance(dtype, np.dtype):
        # `base` is the element type of a subarray dtype, as in HDF5
        target_dtype(dtype.base, target, options.narrowing)
    if options.copy is False:
        raise copy_required(f"{route.source.backend} arrays are computed when they are converted")


def _traced(source: Origin, x: AnyArray) -> TracedValueError:
    """Return the error for a traced value: the `TracedValueError` that the plugin raises, or a less precise error."""
    try:
        source.to_numpy(x)
    except TracedValueError as error:
        return error
    except Exception:
        pass
    return TracedValueError(
        f"a traced {source.name} value has no values yet",
        remedy="Convert outside the traced function.",
    )
