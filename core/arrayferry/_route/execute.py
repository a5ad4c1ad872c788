"""The execution of a route: one array converted step by step, under all rules.

This is the path for every array that no direct converter handles, and it raises the errors.
"""

from __future__ import annotations

from typing import Any

from arrayferry._errors import ConversionError, CopyRequiredError, TracedValueError
from arrayferry._options import Options
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import call_backend
from arrayferry._plugin.origin import Origin
from arrayferry._registry.catalog import Catalog

from .devices import device_kind, resolve_device
from .dtypes import target_dtype
from .memory import share_memory, unsafe_to_share
from .route import HOST, Route, Step, find_route
from .via_numpy import PASS_COPY, Held, from_host, to_host

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
        here = call_backend(source, "device_of", x)
        there, device = resolve_device(target, self.options.device, here)
        while True:
            route = self._route(here, there, without)
            run = _Run(self, route, x, device, there, values)
            try:
                return run.result()
            except _NotHandledError as skipped:
                without |= {skipped.by}
                values = run.values

    def check(self, x: Any) -> bool:
        """Check what is known of a lazy array before it is computed.

        Returns:
            Whether its values are then read by `to_numpy`.

        Raises:
            ConversionError: it cannot be converted, whatever its values are.
        """
        here = call_backend(self.source, "device_of", x)
        there, _ = resolve_device(self.target, self.options.device, here)
        route = self._route(here, there, frozenset())
        _check_lazy(x, route, self.target, self.options)
        return route.steps[0].target == HOST

    def _route(self, here: str, there: str, without: frozenset[object]) -> Route:
        kinds = device_kind(here), device_kind(there)
        return find_route(self.catalog, self.source, kinds[0], self.target, kinds[1], without)

    def _within(self, x: Any, backend: Backend) -> Any:
        """Convert within one library: return the array itself, or move or copy it."""
        options = self.options
        if options.device is None and not options.copy:
            return x
        here = call_backend(backend, "device_of", x)
        there, device = here, None
        if options.device is not None:
            there, device = resolve_device(backend, options.device, here)
        if there == here:
            return call_backend(backend, "copy", x) if options.copy else x
        if options.copy is False:
            raise CopyRequiredError(
                f"memory on {here} cannot be shared with {there}",
                remedy="Pass copy=None to let it be moved.",
            )
        moved = call_backend(backend, "to_device", x, device)
        _check_device(moved, backend, there)
        return moved


def _check_device(y: Any, target: Backend, there: str) -> None:
    arrived = call_backend(target, "device_of", y)
    if arrived != there:
        raise ConversionError(
            f"the backend {target.name!r} put an array on {arrived} instead of {there}",
            remedy="Report this to the author of the plugin.",
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


class _NotHandledError(Exception):
    """A direct converter, or DLPack, does not handle this array."""

    def __init__(self, by: object) -> None:
        super().__init__()
        self.by = by


class _Run:
    """One array on one route.

    Args:
        executor: the backends and options.
        route: the steps.
        x: the array.
        device: the device of the result, as the target's backend takes it.
        there: the name of that device.
        values: the result of `source.to_numpy(x)`, if that was called already.
    """

    def __init__(
        self, executor: Executor, route: Route, x: Any, device: Any, there: str, values: Any
    ) -> None:
        self.source = executor.source
        self.target = executor.target
        self.options = executor.options
        self.known = executor.catalog.backends
        self.route = route
        self.x = x
        self.device = device
        self.there = there
        self.values = values

    def result(self) -> Any:
        """Take all steps."""
        if self.values is None:
            _check_lazy(self.x, self.route, self.target, self.options)
        if self.options.copy is False and self.route.transfers:
            raise CopyRequiredError(
                f"memory on {self.route.source.device} cannot be shared with {self.route.target.device}",
                remedy=PASS_COPY,
            )
        held = Held(self.x)
        last = len(self.route.steps) - 1
        before: Origin = self.source
        for index, step in enumerate(self.route.steps):
            after = self.target if index == last else self.known[step.target.backend]
            held = self._take(step, held, before, after, self.device if index == last else None)
            before = after
        if self.options.device is not None:
            _check_device(held.value, self.target, self.there)
        return held.value

    def _take(self, step: Step, held: Held, before: Any, after: Backend, device: Any) -> Held:
        if step.converter is not None:
            return self._by_converter(step, held, before, after, device)
        if step.via == "device":
            moved = call_backend(before, "to_device", held.value, device)
            return Held(moved, private=True)
        if step.via == "dlpack":
            return self._by_dlpack(held, before, after, device)
        if step.target == HOST and before.name != "numpy":
            return self._to_numpy(step, held, before, after)
        if held.value is self.x:  # an array of NumPy
            held = to_host(self.x, before, device_is_host=True, values=self.values)
        return from_host(held, self.x, self.source, after, device, self.options)

    def _by_converter(
        self, step: Step, held: Held, before: Any, after: Backend, device: Any
    ) -> Held:
        converter: Any = step.converter
        copy = self.options.copy
        if copy is False and (held.private or step.cost != "share"):
            constant = self.source.memory in ("immutable", "lazy")
            unsafe = unsafe_to_share(self.source, after, constant=constant, readonly=False)
            raise CopyRequiredError(
                f"memory cannot be shared: {unsafe or 'a copy is made on the way'}",
                remedy=PASS_COPY,
            )
        if held.private:  # by an earlier step
            copy = None
        elif step.cost == "copy" and converter.cost == "share":
            copy = True
        if not converter.takes(type(held.value)):
            raise _NotHandledError(converter)
        try:
            value = converter.convert(held.value, device, copy)
        except Exception as error:
            if self.source.is_out_of_memory(error) or after.is_out_of_memory(error):
                raise
            value = NotImplemented
        if value is NotImplemented or (copy and share_memory(held.value, before, value, after)):
            raise _NotHandledError(converter)
        return Held(value, private=step.cost != "share", constant=after.memory == "immutable")

    def _by_dlpack(self, held: Held, before: Any, after: Backend, device: Any) -> Held:
        """Share by DLPack; if a copy is needed, make it in the library whose arrays are writable."""
        copy = self.options.copy
        constant = before.memory == "immutable"
        unsafe = unsafe_to_share(before, after, constant=constant, readonly=False)
        if copy is False and unsafe:
            raise CopyRequiredError(f"memory cannot be shared: {unsafe}", remedy=PASS_COPY)
        promised = "unknown" not in (before.memory, after.memory)
        copying = not held.private and (copy or bool(unsafe) or (copy is None and not promised))
        x = held.value
        dtypes = call_backend(after, "dtypes")
        if dtypes is not None and str(x.dtype).rpartition(".")[2] not in dtypes:
            raise _NotHandledError("dlpack")
        try:
            if copying and after.memory != "writable":
                x = before.copy(x)
            y = after.from_dlpack(before.to_dlpack(x), device)
            if copying and after.memory == "writable":
                y = after.copy(y)
        except Exception as error:
            if before.is_out_of_memory(error) or after.is_out_of_memory(error):
                raise
            raise _NotHandledError("dlpack") from error
        return Held(y, held.private or copying, constant)

    def _to_numpy(self, step: Step, held: Held, before: Any, after: Backend) -> Held:
        first = held.value is self.x
        out = to_host(
            held.value, before, step.source.device == "cpu", self.values if first else None
        )
        if first and before.memory == "lazy":  # another route must not compute it again
            self.values = out.value
        out = Held(out.value, out.private or held.private, out.constant and not held.private)
        if after.name != "numpy":
            return out
        return from_host(out, held.value, before, after, None, self.options)
