"""`Conversion`: a callable that converts values to one target with fixed options."""

# pyright: reportInvalidTypeVarUse=false
from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType, NoneType
from typing import TYPE_CHECKING, Any, Generic, overload

from arrayferry._errors import ArrayFerryError, OptionError
from arrayferry._observers import observers
from arrayferry._options import Options
from arrayferry._plugin.backend import AnyTarget, Backend
from arrayferry._registry.generic import GenericBackend
from arrayferry._registry.registry import Registry, default_registry, registries
from arrayferry._route.devices import resolve_device
from arrayferry._types import A, AnyTree
from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.text import changed_arguments, never_raises

from .plans import Plans

if TYPE_CHECKING:
    from arrayferry._types import K, NamedT, V, X


@uncompiled
class Conversion(Generic[A]):
    """A conversion to one target, as returned by `arrayferry.converter`.

    Call it with a value: an array, a tree of arrays, or anything else. A conversion can be pickled, and shared between
    threads. It caches the code that it generates for structures of values. This code is dropped when the registry
    changes, and is not pickled.

    Args:
        target: a name, a namespace module or a backend. It is looked up on the first call.
        options: the options of every call.
        registry: the registry that knows the backends. A conversion can be pickled only if this is
            `arrayferry.registry`.

    Attributes:
        options: the options of every call.
        registry: the registry that knows the backends.

    Raises:
        ArrayFerryError: a call raises a `ConversionError` if an array cannot be converted. The error has the path of
            the array in the tree. A call raises another error if the target is unknown or cannot be used, for example
            in a process that unpickled the conversion.

    Examples:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> to_torch = af.converter("torch")
        >>> to_torch([np.ones(2), "text"])
        [tensor([1., 1.], dtype=torch.float64), 'text']
    """

    __slots__ = ("__weakref__", "_device", "_plans", "_to", "options", "registry")

    def __init__(self, target: AnyTarget, options: Options, registry: Registry) -> None:
        self.options: Options = options
        self.registry: Registry = registry
        self._to = _portable_target(target, registry)
        self._device: str | None = None
        self._plans: Plans | None = None
        registry.watch(self)

    @overload
    def __call__(self, value: X) -> A: ...
    @overload
    def __call__(self, value: NamedT) -> NamedT: ...
    @overload
    def __call__(self, value: dict[K, V]) -> dict[K, Any]: ...
    @overload
    def __call__(self, value: list[V]) -> list[Any]: ...
    @overload
    def __call__(self, value: tuple[V, ...]) -> tuple[Any, ...]: ...
    @overload
    def __call__(self, value: V) -> Any: ...
    def __call__(self, value: AnyTree) -> Any:
        """Convert a value.

        Args:
            value: an array, a tree of arrays, or anything else. It is never modified.

        Returns:
            A value of the same structure, as `arrayferry.convert` returns it.
        """
        try:  # faster than a test for None; `run` is called below, so its errors are not caught
            run = self._plans.run  # type: ignore[union-attr]
        except AttributeError:  # `_plans` is None at first, and after a change of the registry
            run = self._prepare().run
        return run(value)

    def _prepare(self) -> Plans:
        """Look up the target, and set `_plans` to a new `Plans`, which is empty."""
        __tracebackhide__ = True
        registry, options = self.registry, self.options
        while True:
            problem = registry.backend(self._to).problem()
            if problem is not None:
                raise problem
            catalog = registry.catalog
            catalog.notice_imports()
            for warning in catalog.unknown_ends:
                registry.warn(warning)
            target = catalog.backend(self._to)
            if options.device is not None:
                self._device, _ = resolve_device(target, options.device, "cpu")
            self._plans = plans = Plans(catalog, target, options)
            plans.notice_observers()
            # if the registry changed before `_plans` was set, `_plans` is out of date: try again
            if registry.catalog is catalog:
                return plans

    def registry_changed(self) -> None:
        """Drop all plans, since they were made with the registry as it was before the change."""
        self._plans = None

    @property
    def target(self) -> Backend:
        """The backend of the results."""
        return (self._plans or self._prepare()).pairs.target

    def slow_path(self, value: AnyTree) -> Any:
        """Convert a value without a plan, even if there is a plan for its structure."""
        plans = self._plans or self._prepare()
        if observers:
            return plans.convert_watched(plans.slow_path, value)
        return plans.slow_path(value)

    def explain(self) -> str:
        """Return the Python code that was generated so far, or a sentence that says why there is none."""
        codes = [] if self._plans is None else [plan.code for plan in self._plans.all]
        return "\n\n".join(codes) or (
            "no structure has been converted twice yet, so there is no plan"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self.registry is not default_registry():
            raise TypeError(
                "a conversion with a registry of its own cannot be pickled, since the process that unpickles it has "
                "only the default registry. Create the conversion in that process"
            )
        options = self.options
        # a device object is pickled as its name: refuse an object that a name does not describe
        if not isinstance(options.device, (str, NoneType)):
            # reading `self.target` also sets `self._device`, the name of the device
            if not self.target.devices.is_named(options.device):
                raise TypeError(
                    f"a conversion to {options.device} cannot be pickled, since no name describes this device "
                    "object. Create the conversion in the other process, or pass the name of a single device"
                )
            options = options._replace(device=self._device)
        # a target without a plugin is unknown in the other process until it imports this module
        namespace = ""
        with suppress(ArrayFerryError):
            target = self.registry.backend(self._to)
            namespace = target.package if isinstance(target, GenericBackend) else ""
        # a pickle depends on which texts are the same object: intern them, so that equal
        # conversions have equal pickles, and equal tokens in Dask
        to, *values = [sys.intern(arg) if type(arg) is str else arg for arg in (self._to, *options)]
        return _restore, (to, options._make(values), sys.intern(namespace))

    def __copy__(self, memo: Any = None) -> Conversion[A]:
        return Conversion(self._to, self.options, self.registry)

    __deepcopy__ = __copy__

    @property
    def _name(self) -> str:
        """The name of the target, even if the target cannot be used here."""
        return self._to if isinstance(self._to, str) else self._to.name

    @never_raises
    def __repr__(self) -> str:
        options = self.options
        if self._device is not None and self.target.devices.is_named(options.device):
            options = options._replace(device=self._device)
        changed_text = changed_arguments(options._asdict(), options._field_defaults)
        return f"arrayferry.converter({', '.join(filter(None, (repr(self._name), changed_text)))})"


def _portable_target(target: AnyTarget, registry: Registry) -> str | Backend:
    """Return the name of a target, or the backend itself if it is not registered."""
    if isinstance(target, str):
        return target
    backend = registry.backend(target)
    has_name = isinstance(target, ModuleType) or registry.backends().get(backend.name) is backend
    return backend.name if has_name else backend


def _restore(target: str | Backend, options: Options, namespace: str = "") -> Conversion:
    if namespace:
        with suppress(Exception):
            # an error of the import is ignored: a call of the conversion then raises an error
            import_module(namespace)
    return Conversion(target, options, default_registry())


def make_conversion(
    to: AnyTarget | None, options: Options, registry: Registry | None = None
) -> Conversion:
    """Create a conversion. If its target or device is wrong, raise the error now, and not in the first call."""
    __tracebackhide__ = True
    if to is None:
        raise OptionError(
            "no target was given", remedy='Pass a target, such as "torch", or like=array.'
        )
    conversion = Conversion(to, options, registry or default_registry())
    conversion._prepare()
    return conversion


def notice_observers() -> None:
    """Make all conversions report their calls if there are observers, or stop reporting if there are none."""
    for registry in registries():
        for watcher in registry.watchers():
            plans = watcher._plans if isinstance(watcher, Conversion) else None
            if plans is not None:
                plans.notice_observers()
