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
from arrayferry._plugin.converter import Converter
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
        self._wrong: frozenset[object] = frozenset()

    def direct(
        self, converter: Converter, before: Origin, after: Backend, device: Any, copy: bool | None
    ) -> Direct:
        """Return a direct converter as it is used in a step, the same for the same step."""
        key = converter, device, copy
        direct = self._directs.get(key)
        if direct is None:
            there = None
            if device is not None and converter.target_device != "cpu":
                there = resolve_device(after, device, "")[0]
            direct = self._directs[key] = Direct(
                converter,
                before,
                after,
                self.options._replace(device=device, copy=copy),
                there,
                lambda y: self.catalog.kind(y).is_array_of(after),
                lambda: self._drop(converter),
            )
        return direct

    def _drop(self, converter: Converter) -> None:
        """Leave a converter that is wrong out of all routes."""
        self._wrong |= {converter}

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
        while True:
            route = find_route(self.catalog, source, here, target, there, without | self._wrong)
            run = _Run(self, route, x, here, there, device, values)
            try:
                return run.result()
            except NotHandledError as skipped:
                by, cause = skipped.by, skipped.__cause__
                by = "DLPack" if by == "dlpack" else by
                note(source.name, target.name, by, "did not take it", error=cause)
                without |= {skipped.by}
                values = run.values

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


class _Run:
    """One array on one route.

    Args:
        executor: the backends and options.
        route: the steps.
        x: the array.
        here: the name of its device.
        there: the name of the device of the result.
        device: the same, as the target's backend takes it.
        values: the result of `source.to_numpy(x)`, if that was called already.
    """

    def __init__(
        self,
        executor: Executor,
        route: Route,
        x: Any,
        here: str,
        there: str,
        device: Any,
        values: Any,
    ) -> None:
        self.executor = executor
        self.source = executor.source
        self.target = executor.target
        self.options = executor.options
        self.known = executor.catalog.backends
        self.route = route
        self.x = x
        self.here = here
        self.there = there
        self.device = device
        self.values = values

    def result(self) -> Any:
        """Take all steps."""
        if self.values is None:
            _check_lazy(self.x, self.route, self.target, self.options)
        if self.options.copy is False and self.route.transfers:
            raise CopyRequiredError(
                f"memory on {self.here} cannot be shared with {self.there}", remedy=PASS_COPY
            )
        held = Held(self.x)
        last = len(self.route.steps) - 1
        before: Origin = self.source
        for index, step in enumerate(self.route.steps):
            after = self.target if index == last else self.known[step.target.backend]
            device = self.device if index == last else None
            if step.via == "dlpack":
                moves = any(later.via == "device" for later in self.route.steps[index + 1 :])
                exchange = Exchange(
                    self.source, before, after, device, self.options, step.source.device
                )
                held = exchange.take(held, moves=moves)
            else:
                held = self._take(step, held, before, after, device)
            before = after
        if self.options.device is not None:
            _check_device(held.value, self.target, self.there)
        return held.value

    def _take(self, step: Step, held: Held, before: Any, after: Backend, device: Any) -> Held:
        if step.converter is not None:
            return self._by_converter(step, held, before, after, device)
        if step.via == "device":
            moved = duplicate(before, held.value, step.target.device if device is None else device)
            return Held(moved, COPIED)
        if step.target == HOST or held.value is self.x:
            held = self._to_host(step, held, before)
        return from_host(held, self.source, after, device, self.options)

    def _by_converter(
        self, step: Step, held: Held, before: Any, after: Backend, device: Any
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
        direct = self.executor.direct(converter, before, after, device, copy)
        value = direct.convert(held.value)
        if value is NotImplemented:
            raise NotHandledError(converter)
        return Held(value, COPIED if step.cost != "share" else "")

    def _to_host(self, step: Step, held: Held, before: Any) -> Held:
        first = held.value is self.x
        out = to_host(
            held.value,
            before,
            self.options,
            step.source.device == "cpu",
            self.values if first else None,
        )
        if first and before.memory == "lazy":  # another route must not compute it again
            self.values = out.value
        return Held(out.value, held.copied or out.copied)
