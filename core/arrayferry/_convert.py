"""`convert` and `converter`: what users call.

A `Conversion` is a target with options. It takes a value apart, takes the arrays across in groups
of one source each, and puts the value together again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any, Self

from ._backend import Backend
from ._converter import Converter
from ._devices import resolve_device
from ._errors import (
    ArrayFerryError,
    ConversionError,
    NarrowingError,
    NotAnArrayError,
    OptionError,
    UnsupportedDtypeError,
)
from ._options import Narrowing, Options, Scalars, Unsupported
from ._plan import Inline, Plan, Ways, plain, structure_of, write_plan
from ._registry import Registry, default_registry
from ._route import Route, describe_route, travel
from ._tree import Tree, say
from ._tree import first_array as _first_array

__all__ = [
    "Conversion",
    "backend_of",
    "backends",
    "convert",
    "converter",
    "first_array",
    "namespace_of",
    "route",
]

Target = str | ModuleType | Backend


class _Crossing:
    """Takes arrays of one source to one target under fixed options."""

    def __init__(self, conversion: Conversion, source: Backend) -> None:
        self.catalog = conversion.registry.catalog
        self.source = source
        self.target = conversion.target
        self.options = conversion.options
        self._tried: frozenset[object] = frozenset()
        self._takes: Callable[[type], bool] = lambda cls: False
        self.fast: Callable[[Any], Any] | None = None
        self.fast_many: Callable[[list[Any]], list[Any]] | None = None
        self._direct_way: Converter | None = None
        direct = self._direct()
        if direct is not None:
            try:
                self.fast = direct.bind(self.options)
                self.fast_many = direct.bind_many(self.options)
            except Exception:
                self.fast = self.fast_many = None
            self._takes = direct.takes
            self._direct_way = direct
            self._tried = frozenset((direct,))

    def _direct(self) -> Any:
        """The direct converter on the host, if that is the whole route under these options."""
        device = self.options.device
        if self.target.name == self.source.name or (device is not None and device != "cpu"):
            return None
        if device is None and "cpu" not in self.target.devices():
            return None
        route = describe_route(self.catalog, self.source, self.target, "cpu", "cpu")
        return route.steps[0].converter if len(route.steps) == 1 else None

    def one(self, x: Any) -> Any:
        """Take one array across: by the direct way if that serves it, else the careful one."""
        if self.fast is not None and self._takes(type(x)):
            try:
                y = self.fast(x)
            except Exception:
                y = NotImplemented
            if y is not NotImplemented:
                return y
        return self.careful(x)

    def careful(self, x: Any, values: Any = None) -> Any:
        """Take one array across by the general way."""
        try:
            return travel(
                self.catalog,
                x,
                self.source,
                self.target,
                self.options,
                without=self._tried,
                values=values,
            )
        except UnsupportedDtypeError as error:
            if self.options.unsupported == "keep":
                return x
            error.locate(source=self.source.name, target=self.target.name)
            raise
        except ConversionError as error:
            error.locate(source=self.source.name, target=self.target.name)
            raise
        except ArrayFerryError:
            raise
        except Exception as error:
            raise ConversionError(
                f"{_describe(x)} could not be carried ({say(error)})",
                source=self.source.name,
                target=self.target.name,
            ) from error

    def ways(self, cls: type) -> Ways:
        """How arrays of exactly this type cross, for a plan."""
        import numpy

        no_objects = "{x}.dtype.kind != 'O'" if issubclass(cls, numpy.ndarray) else ""
        if self.target.name == self.source.name and not self.options.copy:
            if self.options.device is None:
                return Ways(Inline(no_objects, "{x}", {}))
            return Ways(self._already_there())
        if self.fast is not None and self._direct_way is not None and self._takes(cls):
            inline = self._direct_way.inline(self.options)
            return Ways(inline or plain(self.fast), self.fast_many)
        if self.source.memory == "lazy":
            return Ways(plain(self.one), self.many)
        test, result, names = plain(self.one)
        return Ways(Inline(f"{no_objects} and {test}" if no_objects else test, result, names))

    def _already_there(self) -> Inline:
        """Within one library: the array itself if it lies on the device that was asked for."""
        there, _ = resolve_device(self.target, self.options.device, "cpu")
        names = {"cross": self.one, "device_of": self.source.device_of, "there": there}
        return Inline("", "{x} if {device_of}({x}) == {there} else {cross}({x})", names)

    def many(self, xs: list[Any]) -> list[Any]:
        """Take several arrays across, in one call where the way has one for many."""
        if self.fast_many is not None and all(self._takes(cls) for cls in set(map(type, xs))):
            try:
                return self.fast_many(xs)
            except Exception:
                return [self.one(x) for x in xs]
        if len(xs) > 1 and self.source.memory == "lazy" and self.target.name != self.source.name:
            try:
                values = list(self.source.to_numpy_many(xs))
            except Exception:
                return [self.one(x) for x in xs]
            return [self.careful(x, n) for x, n in zip(xs, values, strict=True)]
        return [self.one(x) for x in xs]


def _describe(x: Any) -> str:
    dtype = getattr(x, "dtype", None)
    shape = getattr(x, "shape", None)
    text = f"a {type(x).__module__}.{type(x).__qualname__}"
    try:
        return f"{text} of dtype {dtype} and shape {shape}" if dtype is not None else text
    except Exception:
        return text


_MISSED: Any = object()
_MOST_PLANS = 8
_MOST_STRUCTURES = 1_000


def _missed(value: Any) -> Any:
    return _MISSED


class Conversion(functools.partial[Any]):
    """A conversion to one target, made once and called often. `converter` makes it.

    Call it with a value: an array, a tree of arrays, or anything. It can be pickled and shared among
    threads. The first times that it meets a structure it goes the careful way; then it writes a plan for
    it, see `explain`. It is a `functools.partial`, whose function is the plan that served last: so calling
    it costs no more than calling the plan.

    Attributes:
        target: the backend that arrays are converted to.
        options: the options that hold.
        registry: where sources are looked up.

    Raises:
        ConversionError: when called, if an array cannot be carried; the error says where it stands.
        StructureError: when called, if the tree is cyclic or too deep.
    """

    def __new__(cls, target: Backend, options: Options, registry: Registry) -> Self:
        """Make it with a function that is replaced before it can be called."""
        return super().__new__(cls, _missed)

    def __init__(self, target: Backend, options: Options, registry: Registry) -> None:
        self.target = target
        self.options = options
        self.registry = registry
        self._start()
        registry.watch(self)

    def _start(self) -> None:
        for plans in getattr(self, "_plans", {}).values():
            for plan in plans:
                plan.forget()
        self._crossings: dict[Any, _Crossing] = {}
        self._plans: dict[type, list[Plan]] = {}
        self._sighted: dict[Any, int] = {}
        self._hits = 0
        self._call_first(self._miss)

    def _call_first(self, function: Callable[[Any], Any]) -> None:
        put = getattr(self, "__setstate__")  # noqa: B009 - not in the stubs
        put((function, (), {}, self.__dict__))

    def registry_changed(self) -> None:
        """Forget what was derived from the registry."""
        self.target = self.registry.backend(self.target)
        self._start()

    def _miss(self, value: Any) -> Any:
        """For a value that the plan that served last does not serve: another plan, or the careful way."""
        try:
            plans = self._plans.get(type(value), ())
        except Exception:  # a class that cannot be hashed
            plans = ()
        for plan in plans:
            result = plan.run(value, _missed)
            if result is not _MISSED:
                self._hits += 1
                if self._hits % 16 == 0:
                    self._call_first(plan.run)
                return result
        return self.careful(value)

    def careful(self, value: Any) -> Any:
        """Convert a value without a plan, as is done for structures that were not met before."""
        tree = Tree(value, self.registry, scalars=self.options.scalars == "convert")
        result = tree.build(self._across(tree))
        self._learn(tree, value)
        return result

    def _learn(self, tree: Tree, value: Any) -> None:
        """Write a plan for a structure that was met before."""
        structure = structure_of(tree)
        try:
            times = self._sighted.get(structure, 0)
        except Exception:  # as above
            return
        if structure is None or times >= 2:
            return
        if len(self._sighted) >= _MOST_STRUCTURES:
            self._sighted.clear()
        self._sighted[structure] = times + 1
        if times == 0:
            return
        plan = write_plan(tree, self._ways, f"to {self.target.name}")
        if plan is None:
            return
        plan.run.__defaults__ = (self._miss,)
        plans = self._plans.setdefault(type(value), [])
        if len(plans) >= _MOST_PLANS:
            plans.pop().forget()
        plans.insert(0, plan)
        self._call_first(plan.run)

    def _ways(self, cls: type) -> Ways:
        kind, by = self.registry.catalog.kinds[cls]
        if kind in ("scalar", "number"):
            return Ways(plain(self._cross_scalar))
        return self.crossing(by[0] if kind == "objects" else by).ways(cls)

    def _cross_scalar(self, value: Any) -> Any:
        import numpy

        array = numpy.asarray(value)
        if array.dtype.kind == "O":
            return NotImplemented
        return self.crossing(self.registry.backend("numpy")).one(array)

    def explain(self) -> str:
        """Show the code of the plans that were written so far, as text."""
        plans = [plan.source for listed in self._plans.values() for plan in listed]
        return "\n\n".join(plans) or "no structure was met twice yet, so there is no plan"

    def __get__(self, instance: Any, owner: Any = None) -> Self:
        """Be no method where it stands in a class."""
        return self

    def _across(self, tree: Tree) -> list[Any]:
        arrays: list[Any] = list(tree.arrays)
        groups: dict[Any, list[int]] = {}
        hub = self.registry.backend("numpy") if None in tree.backends else None
        for index, owner in enumerate(tree.backends):
            if owner is None:
                arrays[index] = self._from_scalar(arrays[index], tree, index)
            groups.setdefault(owner or hub, []).append(index)
        results = arrays
        for backend, places in groups.items():
            crossing = self.crossing(backend)
            try:
                crossed = crossing.many([arrays[index] for index in places])
            except ConversionError:
                crossed = self._one_by_one(crossing, arrays, places, tree)
            for index, y in zip(places, crossed, strict=True):
                results[index] = y
        return results

    def _one_by_one(
        self, crossing: _Crossing, arrays: list[Any], places: list[int], tree: Tree
    ) -> list[Any]:
        """Cross again array by array, to say which it is that cannot."""
        crossed = []
        for index in places:
            try:
                crossed.append(crossing.one(arrays[index]))
            except ConversionError as error:
                error.locate(path=tree.path_of(index))
                raise
        return crossed

    def _from_scalar(self, value: Any, tree: Tree, index: int) -> Any:
        import numpy

        array = numpy.asarray(value)
        if array.dtype == object:
            raise NarrowingError(
                f"an integer of {value.bit_length()} bits does not fit any dtype",
                remedy='Pass scalars="keep" to leave Python numbers as they are.',
                dtype="int",
                path=tree.path_of(index),
                target=self.target.name,
            )
        return array

    def crossing(self, source: Backend) -> _Crossing:
        """The crossing from one source, made at first need."""
        found = self._crossings.get(source)
        if found is None:
            found = self._crossings[source] = _Crossing(self, source)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        known = self.registry is default_registry() and self.registry.backends()
        target = self.target
        own = not known or known.get(target.name) is not target
        options = self.options
        if options.device is not None and not isinstance(options.device, str):
            options = replace(options, device=target.device_name(options.device))
        return _restore, (target if own else target.name, options)

    def __repr__(self) -> str:
        defaults = Options()
        names = ("device", "copy", "narrowing", "scalars", "unsupported")
        given = "".join(
            f", {name}={getattr(self.options, name)!r}"
            for name in names
            if getattr(self.options, name) != getattr(defaults, name)
        )
        return f"arrayferry.converter({self.target.name!r}{given})"


def _restore(target: Target, options: Options) -> Conversion:
    return _made(target, options, default_registry())


def _made(to: Target, options: Options, registry: Registry) -> Conversion:
    target = registry.backend(to)
    problem = target.problem()
    if problem is not None:
        raise problem
    registry.notice_imports()
    if options.device is not None:
        describe_route(registry.catalog, target, target, options.device, "cpu")
    return Conversion(target, options, registry)


_conversions: dict[Any, Conversion] = {}


def convert(
    value: Any,
    to: Target | None = None,
    *,
    like: Any = None,
    device: Any = None,
    copy: bool | None = None,
    narrowing: Narrowing = "checked",
    scalars: Scalars = "keep",
    unsupported: Unsupported = "raise",
) -> Any:
    """Convert every array in a value to another library.

    Args:
        value: an array of any known library, a tree of them (dicts, lists, tuples, dataclasses and
            so on, nested in any way), or anything. It is never altered.
        to: the target: a name ("torch"), a namespace module (`jax.numpy`) or a `Backend`.
        like: an array, or a tree with one, in place of `to` and `device`: the result will be of its
            library and on its device.
        device: where the results shall lie, "cpu", "cuda:0" or a device object of the target. None
            keeps the device that an array is on, where the target has it.
        copy: True gives memory of its own, False shares memory or raises `CopyRequiredError`, None
            shares where that is possible and lets nobody write to memory that was promised to be constant.
        narrowing: where the target lacks the dtype, "checked" takes the widest of the same kind and
            raises `NarrowingError` if a number does not fit, "forbid" raises at once, "allow" loses
            what does not fit.
        scalars: "keep" leaves Python numbers and bools alone, "convert" makes 0-d arrays of them.
        unsupported: "raise" `UnsupportedDtypeError` for arrays that the target cannot hold (text,
            dates, records), or "keep" them as they are.

    Returns:
        A value of the same structure. Shapes are kept, dtypes wherever the target has them. What is
        no array and holds none is the very same object.

    Raises:
        UnknownBackendError: `to` names nothing that is known.
        BackendUnavailableError: the target is not installed, or not usable on this machine.
        ConversionError: an array cannot be carried. The subclasses say why, the attributes where.

    Example:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> observation = {"position": np.zeros(3, np.float32), "name": "cart"}
        >>> af.convert(observation, "torch")
        {'position': tensor([0., 0., 0.]), 'name': 'cart'}
    """
    if like is None and type(to) is str and device is None:
        key: Any = (to, copy, narrowing, scalars, unsupported)
        try:
            made = _conversions.get(key)
        except TypeError:
            made = None
        if made is None or not (copy is None or type(copy) is bool):
            made = _made(
                to, Options(None, copy, narrowing, scalars, unsupported), default_registry()
            )
            _conversions[key] = made
        return made(value)
    return converter(
        to,
        like=like,
        device=device,
        copy=copy,
        narrowing=narrowing,
        scalars=scalars,
        unsupported=unsupported,
    )(value)


def converter(
    to: Target | None = None,
    *,
    like: Any = None,
    device: Any = None,
    copy: bool | None = None,
    narrowing: Narrowing = "checked",
    scalars: Scalars = "keep",
    unsupported: Unsupported = "raise",
) -> Conversion:
    """Make a conversion once, to call it often. The arguments are those of `convert`.

    Returns:
        A callable that takes a value. It can be pickled and shared among threads.

    Raises:
        UnknownBackendError, BackendUnavailableError, DeviceError, OptionError: as `convert` would.

    Example:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> to_torch = af.converter("torch", copy=True)
        >>> to_torch([np.ones(2), "text"])
        [tensor([1., 1.], dtype=torch.float64), 'text']
    """
    registry = default_registry()
    target = to
    if like is not None:
        if to is not None or device is not None:
            raise OptionError(
                "like= was given together with a target or a device",
                remedy="Pass either like=, or to and device.",
            )
        array, backend = _first_array(like, registry)
        if backend is None:
            raise NotAnArrayError(
                f"like= was given a {type(like).__name__} that holds no array",
                remedy="Pass an array, or a tree with one.",
            )
        traced = backend.is_traced(array)
        target, device = backend, None if traced else backend.device_of(array)
    elif target is None:
        raise OptionError("no target was given", remedy='Pass one, such as "torch", or like=array.')
    return _made(target, Options(device, copy, narrowing, scalars, unsupported), registry)


def backend_of(value: Any) -> Backend:
    """Tell which backend an array belongs to.

    Args:
        value: an array, or a NumPy scalar.

    Raises:
        NotAnArrayError: it is no array of a known library.

    Example:
        >>> import arrayferry as af
        >>> import torch
        >>> af.backend_of(torch.ones(2))
        <Backend torch>
    """
    registry = default_registry()
    kind, by = registry.kind(value)
    if kind == "array":
        return by  # type: ignore[no-any-return]
    if kind == "objects":
        return by[0]  # type: ignore[no-any-return]
    if kind == "scalar":
        return registry.backend("numpy")
    raise NotAnArrayError(
        f"a {type(value).__module__}.{type(value).__qualname__} is no array of a known library",
        remedy="Known are the libraries in arrayferry.backends(), and any that follows the Array API.",
    )


def namespace_of(value: Any) -> Any:
    """Give the Array API namespace of an array.

    Args:
        value: an array of any known library.

    Returns:
        The namespace, made to follow the standard by array-api-compat where it serves the library.

    Raises:
        NotAnArrayError: it is no array of a known library.

    Example:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> xp = af.namespace_of(np.ones(2))
        >>> xp.concat([xp.zeros(1), xp.ones(1)])
        array([0., 1.])
    """
    import importlib

    backend = backend_of(value)
    import array_api_compat

    try:
        return array_api_compat.array_namespace(value)
    except TypeError:
        return importlib.import_module(backend.namespace or backend.package)


def first_array(value: Any) -> tuple[Any, Backend | None]:
    """Find the first array in a tree, and its backend.

    Args:
        value: an array, a tree, or anything.

    Returns:
        The array and its backend; None and None if it holds none.

    Raises:
        StructureError: the tree is cyclic or too deep.

    Example:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> af.first_array({"name": "cart", "speed": np.ones(1)})
        (array([1.]), <Backend numpy>)
    """
    return _first_array(value, default_registry())


def backends() -> Any:
    """Map the name of every known backend to it, installed or not.

    Returns:
        A read-only mapping. Each backend says by `usable` whether it can be used here, and by
        `problem()` why not.

    Example:
        >>> import arrayferry as af
        >>> af.backends()["numpy"].usable
        True
    """
    return default_registry().backends()


def route(source: Any, to: Target, *, device: Any = None) -> Route:
    """Tell how arrays would go from one library to another, without converting any.

    Args:
        source: a backend by name, namespace or itself, on its default device; or an array, on its own.
        to: the target, likewise.
        device: as for `convert`.

    Returns:
        The route. It prints as a line that says at each step whether memory is shared, copied,
        transferred to or from a device, or computed.

    Raises:
        UnknownBackendError: one of them is not known.

    Example:
        >>> import arrayferry as af
        >>> print(af.route("numpy", "torch"))
        numpy (cpu) -> torch (cpu) shared
        >>> print(af.route("jax", "torch"))
        jax (cpu) -> torch (cpu) copied
    """
    registry = default_registry()
    target = registry.backend(to)
    if isinstance(source, (str, ModuleType, Backend)):
        backend = registry.backend(source)
        here = str(backend.devices()[0]) if backend.installed else "cpu"
    else:
        backend = backend_of(source)
        here = backend.device_of(source)
    return describe_route(registry.catalog, backend, target, device, here)
