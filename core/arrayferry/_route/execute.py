"""The execution of a route: one array is converted step by step, under all rules.

This is the path for every array that no direct converter handles, and it raises the errors.
"""

from __future__ import annotations

from typing import Any

from arrayferry._errors import (
    ContractError,
    CopyRequiredError,
    TracedValueError,
)
from arrayferry._observers import note
from arrayferry._options import Options
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import ask_backend, call_backend
from arrayferry._plugin.origin import Origin
from arrayferry._registry.catalog import Catalog

from .devices import device_of, resolve_device
from .direct import Direct
from .dtypes import target_dtype
from .exchange import Exchange, NotHandledError
from .memory import COPIED, PASS_COPY, copy_required, decide
from .queued import duplicate, release
from .route import HOST, Route, Step, find_route
from .via_numpy import Held, from_host, to_host

__all__ = ["Executor"]


class Executor:
    """Converts single arrays of one backend to another.

    Args:
        catalog: where routes are found.
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

    def run(self, x: Any, *, without: frozenset[object] = frozenset(), values: Any = None) -> Any:
        """Convert one array.

        Args:
            x: an array of the source.
            without: direct converters that must not be tried, and "dlpack" if that must not.
            values: the result of `source.to_numpy(x)`, if that was called already.

        Raises:
            ConversionError: it cannot be converted. The subclasses tell why.
        """
        source, target = self.source, self.target
        traced = call_backend(source, "is_traced", x)
        if isinstance(source, Backend) and target.name == source.name:
            return x if traced else self._within(x, source)
        if traced:
            raise _traced(source, target)
        here = device_of(source, x)
        there, device = resolve_device(target, self.options.device, here)
        if "cpu" not in (here, there):
            release()
        if values is not None:  # a converter would compute them again
            without |= {each for each in self.catalog.converters if each.source == source.name}
        known = list(self._directs.values())  # another thread may add one
        without |= {direct.converter for direct in known if direct.wrong}
        while True:
            route = find_route(self.catalog, source, here, target, there, without)
            if values is None:
                _check_lazy(x, route, target, self.options)
            if self.options.copy is False and route.transfers:
                raise CopyRequiredError(
                    f"memory on {here} cannot be shared with {there}", remedy=PASS_COPY
                )
            if values is None and source.memory == "lazy" and route.steps[0].via == "host":
                values = call_backend(source, "to_numpy", x)  # once, whatever route is taken
            try:
                y = self._follow(route, x, device, values)
            except NotHandledError as skipped:
                by = "DLPack" if skipped.by == "dlpack" else skipped.by
                note(source.name, target.name, by, "did not take it", error=skipped.__cause__)
                without |= {skipped.by}
                continue
            if self.options.device is not None:
                _check_device(y, target, there)
            return y

    def _follow(self, route: Route, x: Any, device: Any, values: Any) -> Any:
        """Take the steps of a route.

        Args:
            route: the steps.
            x: the array.
            device: the device of the result, as the target's backend takes it.
            values: the result of `source.to_numpy(x)`, if that was called already.
        """
        source, options = self.source, self.options
        held, before, steps = Held(x), source, route.steps
        for index, step in enumerate(steps):
            last = index == len(steps) - 1
            after = self.target if last else self.catalog.backends[step.target.backend]
            place = device if last else None
            if step.converter is not None:
                held = self._by_converter(step, held, before, after, place)
            elif step.via == "dlpack":
                moves = any(later.via == "device" for later in steps[index + 1 :])
                exchange = Exchange(source, before, after, place, options, step.source.device)
                held = exchange.take(held, moves=moves)
            elif step.via == "device":
                moved = duplicate(
                    before, held.value, step.target.device if place is None else place
                )
                held = Held(moved, COPIED)
            else:
                if index == 0 or step.target == HOST:
                    on_host = step.source.device == "cpu"
                    read = to_host(held.value, before, options, on_host, values)
                    held = Held(read.value, held.copied or read.copied)
                held = from_host(held, source, after, place, options)
            before, values = after, None
        return held.value

    def _by_converter(
        self, step: Step, held: Held, before: Origin, after: Backend, device: Any
    ) -> Held:
        converter: Any = step.converter
        copy = self.options.copy
        sharing = decide(self.source, after, copy, copied=held.copied)
        if step.cost != "share" and copy is False:
            raise copy_required(COPIED)
        if held.copied:
            copy = None
        elif sharing == "copy" and converter.cost == "share":
            copy = True
        key = converter, device, copy
        direct = self._directs.get(key)
        if direct is None:  # the same for the same step
            options = self.options._replace(device=device, copy=copy)
            direct = Direct(converter, before, after, options, self.catalog.kind)
            self._directs[key] = direct
        value = direct.convert(held.value)
        if value is NotImplemented:
            raise NotHandledError(converter)
        return Held(value, COPIED if step.cost != "share" else "")

    def check(self, x: Any) -> bool:
        """Check what is known about a lazy array before it is computed.

        Returns:
            Whether its values are then read by `to_numpy`.

        Raises:
            ConversionError: it cannot be converted, whatever its values are.
        """
        here = device_of(self.source, x)
        there, _ = resolve_device(self.target, self.options.device, here)
        route = find_route(self.catalog, self.source, here, self.target, there)
        _check_lazy(x, route, self.target, self.options)
        return route.steps[0].target == HOST

    def _within(self, x: Any, backend: Backend) -> Any:
        """Convert within one library: return the array itself, or move or copy it."""
        options = self.options
        if options.device is None and not options.copy:
            return x
        here = device_of(backend, x)
        there, device = here, None
        if options.device is not None:
            there, device = resolve_device(backend, options.device, here)
        stays = there == here
        if device is not None and not isinstance(device, str):
            stays = ask_backend(backend, "is_on", x, device)
        if stays:
            return duplicate(backend, x) if options.copy else x
        if options.copy is False:
            raise CopyRequiredError(
                f"memory on {here} cannot be shared with {there}",
                remedy="Pass copy=None to let it be moved.",
            )
        moved = duplicate(backend, x, there if device is None else device)
        _check_device(moved, backend, there)
        return moved


def _check_device(y: Any, target: Backend, there: str) -> None:
    arrived = call_backend(target, "device_of", y)
    if arrived != there:
        raise ContractError(
            f"the backend {target.name!r} put an array on {arrived} instead of {there}"
        )


def _check_lazy(x: Any, route: Route, target: Backend, options: Options) -> None:
    if not route.computes:
        return
    import numpy as np

    try:
        dtype = x.dtype
    except Exception:  # it is read later, and fails then
        dtype = None
    if isinstance(dtype, np.dtype):
        target_dtype(dtype, target, options.narrowing)
    if options.copy is False:
        raise CopyRequiredError(
            f"memory cannot be shared: {route.source.backend} arrays are computed when they are converted",
            remedy=PASS_COPY,
        )


def _traced(source: Origin, target: Backend) -> TracedValueError:
    return TracedValueError(
        f"a traced {source.name} value has no values yet, so it cannot become a {target.name} array",
        remedy="Convert outside the traced function (jit, grad, vmap), or call out of it "
        "with jax.pure_callback."
        if source.name == "jax"
        else "Convert outside the transformed function.",
    )
