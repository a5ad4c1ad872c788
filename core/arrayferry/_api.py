"""The functions for users: `convert`, `converter`, and functions that describe arrays, backends and routes."""

# pyright: reportInvalidTypeVarUse=false
from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, overload

from arrayferry._types import AnyArray, AnyTree, Device
from arrayferry._utilities.text import type_name

from ._conversion.conversion import Conversion, make_conversion
from ._errors import ConversionError, CopyRequiredError, NotAnArrayError, OptionError
from ._options import Narrowing, Options, Scalars, Sparse, Unknown, Unsupported
from ._plugin.backend import Backend, Target
from ._plugin.call import ask_backend, call_backend
from ._plugin.origin import Origin
from ._registry.generic import is_namespace
from ._registry.registry import Registry, default_registry
from ._route.devices import device_of, resolve_device
from ._route.route import Route, describe_route
from ._tree.spec import TreeSpec
from ._tree.spec import flatten as flatten_tree
from ._tree.tree import Tree
from ._utilities.cache import Cache
from ._utilities.compilers import uncompiled

if TYPE_CHECKING:
    from typing import Unpack

    from ._options import Keywords
    from ._types import (
        DaskArray,
        JaxArray,
        K,
        NamedT,
        NumpyArray,
        ToDask,
        ToJax,
        ToNumpy,
        TorchArray,
        ToTorch,
        V,
        X,
    )

    class ConverterKeywords(Keywords, total=False):
        """The keyword arguments of `converter`."""

        registry: Registry | None


MAX_KEPT = 256
"""The maximum number of conversions in each of the two caches, `_plain` and `_kept`."""

_OTHERS = ("narrowing", "scalars", "unsupported", "unknown", "sparse")
_OTHER_DEFAULTS = tuple(Options._field_defaults[name] for name in _OTHERS)
_plain: Cache[str, Conversion] = Cache(MAX_KEPT)
_kept: Cache[Any, Conversion] = Cache(MAX_KEPT)


@overload
def convert(value: X, to: ToNumpy, **options: Unpack[Keywords]) -> NumpyArray: ...
@overload
def convert(value: X, to: ToTorch, **options: Unpack[Keywords]) -> TorchArray: ...
@overload
def convert(value: X, to: ToJax, **options: Unpack[Keywords]) -> JaxArray: ...
@overload
def convert(value: X, to: ToDask, **options: Unpack[Keywords]) -> DaskArray: ...
@overload
def convert(value: NamedT, to: Target, **options: Unpack[Keywords]) -> NamedT: ...
@overload
def convert(value: dict[K, V], to: Target, **options: Unpack[Keywords]) -> dict[K, Any]: ...
@overload
def convert(value: list[V], to: Target, **options: Unpack[Keywords]) -> list[Any]: ...
@overload
def convert(value: tuple[V, ...], to: Target, **options: Unpack[Keywords]) -> tuple[Any, ...]: ...
@overload
def convert(value: V, to: Target, **options: Unpack[Keywords]) -> Any: ...
@overload
def convert(value: AnyTree, *, like: Any, **options: Unpack[Keywords]) -> Any: ...
@uncompiled
def convert(
    value: AnyTree,
    to: Target | None = None,
    *,
    like: Any = None,
    device: Device = None,
    copy: bool | None = None,
    narrowing: Narrowing = "checked",
    scalars: Scalars = "keep",
    unsupported: Unsupported = "raise",
    unknown: Unknown = "keep",
    sparse: Sparse = "raise",
) -> Any:
    """Convert every array in a value to another library.

    Args:
        value: an array of any known library, a tree of them (dicts, lists, tuples, dataclasses and so on, nested in
            any way), or anything else. It is never modified.
        to: the target: a name ("torch"), a namespace module (`jax.numpy`) or a `Backend`.
        like: an array, in place of `to` and `device`. The results use the library and the device of this array. For a
            tree, its first array is used. A namespace module is also accepted, in place of `to`.
        device: the device of the results: "cpu", "cuda:0", a device object of the target, or "default" for the default
            device of the target. None keeps an array on its GPU or other accelerator, if the target can use it. All
            other arrays go to the default device of the target.
        copy: True always copies. False shares memory or raises `CopyRequiredError`. None shares memory where this is
            possible and safe. Sharing is not safe if the result could be used to change an array that must not change.
        narrowing: what happens if the target lacks the dtype of an array. "checked" uses the smallest dtype of the
            target that can represent all numbers of this dtype. If there is none, it uses the widest dtype of the same
            kind, and raises `NarrowingError` if a number does not fit. "forbid" raises this error even if all numbers
            fit. "allow" converts without this check.
        scalars: "keep" leaves Python numbers and bools unchanged, "convert" turns them into 0-d arrays.
        unsupported: what happens to arrays of data that the target does not support, such as text, dates and records.
            "raise" raises `UnsupportedDtypeError`, "keep" leaves them unchanged.
        unknown: what happens to objects in a tree that could become arrays, but are not arrays of a known library.
            Table columns, and objects with `__array__` or `__dlpack__`, are examples. "keep" leaves them unchanged,
            "raise" raises `NotAnArrayError`, and "convert" converts them. If `value` itself is a table column or a
            dataset of a known library, it is converted. Any other such object as `value` raises an error unless
            `unknown` is "convert". With "raise", a `value` that is neither an array, a tree nor plain Python data such
            as text raises an error too.
        sparse: what happens to sparse arrays of a library other than the target. "raise" raises `ConversionError`,
            "dense" makes them dense. Sparse arrays of the target stay sparse.

    Returns:
        A value of the same structure. Shapes are unchanged, and so are dtypes that the target has. Dicts and lists are
        new objects, even if they contain no array. A value without arrays, dicts and lists is returned as the same
        object.

    Raises:
        UnknownBackendError: there is no such target.
        BackendUnavailableError: the target is not installed, or not usable on this machine.
        ConversionError: an array cannot be converted. The subclass of the error says why, and its attributes say where.

    Examples:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> observation = {"position": np.zeros(3, np.float32), "name": "cart"}
        >>> af.convert(observation, "torch")
        {'position': tensor([0., 0., 0.]), 'name': 'cart'}
    """
    other_options = (narrowing, scalars, unsupported, unknown, sparse)
    if (
        type(to) is str
        and like is None
        and device is None
        and copy is None
        and other_options == _OTHER_DEFAULTS
    ):
        conversion = _plain.get(to)
        if conversion is None:
            conversion = _plain[to] = make_conversion(to, Options())
        return conversion(value)
    if like is not None:
        to, device = conversion_like(like, to, device)
    return kept_conversion(
        to,
        device=device,
        copy=copy,
        narrowing=narrowing,
        scalars=scalars,
        unsupported=unsupported,
        unknown=unknown,
        sparse=sparse,
    )(value)


def kept_conversion(to: Any, device: Device = None, **options: Any) -> Conversion:
    """Return a conversion to a target with these options. A later call with equal arguments returns the same object.

    Args:
        to: the target.
        device: the device of the results, as for `convert`.
        **options: the other options of `convert`.

    Examples:
        >>> from arrayferry.extending import kept_conversion
        >>> kept_conversion("torch", copy=True) is kept_conversion("torch", copy=True)
        True
    """
    key: Any = to, device, type(device)
    if options:  # types are part of the key, since `copy=1` equals `copy=True`, but is refused
        key = *key, *options.items(), *map(type, options.values())
    try:
        conversion = _kept.get(key)
    except TypeError:  # an argument cannot be hashed, so nothing is cached
        return make_conversion(to, Options(device=device, **options))
    if conversion is None:
        conversion = _kept[key] = make_conversion(to, Options(device=device, **options))
    return conversion


@overload
def converter(to: ToNumpy, **options: Unpack[ConverterKeywords]) -> Conversion[NumpyArray]: ...
@overload
def converter(to: ToTorch, **options: Unpack[ConverterKeywords]) -> Conversion[TorchArray]: ...
@overload
def converter(to: ToJax, **options: Unpack[ConverterKeywords]) -> Conversion[JaxArray]: ...
@overload
def converter(to: ToDask, **options: Unpack[ConverterKeywords]) -> Conversion[DaskArray]: ...
@overload
def converter(to: Target, **options: Unpack[ConverterKeywords]) -> Conversion[Any]: ...
@overload
def converter(*, like: Any, **options: Unpack[ConverterKeywords]) -> Conversion[Any]: ...
@uncompiled
def converter(
    to: Target | None = None,
    *,
    like: Any = None,
    device: Device = None,
    copy: bool | None = None,
    narrowing: Narrowing = "checked",
    scalars: Scalars = "keep",
    unsupported: Unsupported = "raise",
    unknown: Unknown = "keep",
    sparse: Sparse = "raise",
    registry: Registry | None = None,
) -> Conversion:
    """Create a reusable conversion. Its options are those of `convert`, and `registry`.

    Backends are looked up in `registry`. None means `arrayferry.registry`.

    Returns:
        A callable that converts a value as `convert` does. Threads can share it. It can be pickled if the registry is
        `arrayferry.registry`.

    Raises:
        UnknownBackendError, BackendUnavailableError, DeviceError, OptionError: as `convert` does.

    Examples:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> to_torch = af.converter("torch", copy=True)
        >>> to_torch([np.ones(2), "text"])
        [tensor([1., 1.], dtype=torch.float64), 'text']
    """
    if like is not None:
        to, device = conversion_like(like, to, device, registry)
    options = Options(
        device=device,
        copy=copy,
        narrowing=narrowing,
        scalars=scalars,
        unsupported=unsupported,
        unknown=unknown,
        sparse=sparse,
    )
    return make_conversion(to, options, registry)


def conversion_like(
    like: Any, to: Any = None, device: Device = None, registry: Registry | None = None
) -> tuple[Backend, Any]:
    """Return the backend and the device of the first array in `like`. The device of a namespace module is None."""
    if to is not None or device is not None:
        raise OptionError(
            "like= was given together with a target or a device",
            remedy="Pass either like=, or to and device.",
        )
    if isinstance(like, ModuleType):
        return (registry or default_registry()).backend(like), None
    array, backend = first_array(like, registry=registry)
    if backend is None:
        if isinstance(like, type):
            raise NotAnArrayError(
                f"like= was given the class {like.__qualname__}",
                remedy="Pass an array, a tree of arrays, or a namespace module.",
            )
        raise NotAnArrayError(
            f"like= was given a {type(like).__name__} that contains no array",
            remedy="Pass an array, a tree of arrays, or a namespace module.",
        )
    return backend, device_like(array, backend)


def device_like(array: AnyArray, backend: Backend) -> Any:
    """Return the device of an array, as a value that the option `device` accepts. It is None for a traced array."""
    try:
        device = call_backend(backend, "devices.place_of", array)
        return call_backend(backend, "device_of", array) if device is None else device
    except ConversionError:
        if ask_backend(backend, "is_traced", array):
            return None
        raise


def portable(backend: Backend) -> str | Backend:
    """Return a backend's name, which can be pickled, or the backend itself if it is not registered.

    Examples:
        >>> import arrayferry as af
        >>> from arrayferry.extending import portable
        >>> portable(af.registry.backend("np"))
        'numpy'
    """
    registered = default_registry().backends().get(backend.name)
    return backend.name if registered is backend else backend


def backend_of(value: AnyTree, *, registry: Registry | None = None) -> Backend:
    """Return the backend of an array.

    Args:
        value: an array, or a NumPy scalar.
        registry: the registry in which the backend is looked up, or None for `arrayferry.registry`.

    Raises:
        NotAnArrayError: the value is not an array of a known library.

    Examples:
        >>> import arrayferry as af
        >>> import torch
        >>> af.backend_of(torch.ones(2))
        <Backend torch>
    """
    registry = registry or default_registry()
    kind = registry.kind(value)
    if kind.backend is not None:
        return kind.backend
    raise NotAnArrayError(
        f"a {type_name(type(value))} is not an array of a known library",
        remedy="See arrayferry.backends() for the known libraries. Any library that follows the "
        "Array API works too.",
    )


@uncompiled
def namespace_of(value: AnyTree, *, registry: Registry | None = None) -> Any:
    """Return the Array API namespace of an array.

    Args:
        value: an array of any known library.
        registry: the registry in which the library is looked up, or None for `arrayferry.registry`.

    Returns:
        The namespace. It is a module of array-api-compat if that package wraps the library, or else the library's own.

    Raises:
        NotAnArrayError: the value is not an array of a known library, or that library does not follow the Array API.

    Examples:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> xp = af.namespace_of(np.ones(2))
        >>> xp.concat([xp.zeros(1), xp.ones(1)])
        array([0., 1.])
    """
    import array_api_compat

    backend = backend_of(value, registry=registry)
    try:
        return array_api_compat.array_namespace(value)
    except TypeError:
        namespace = importlib.import_module(backend.namespace or backend.package)
    if backend.namespace or is_namespace(namespace):
        return namespace
    raise NotAnArrayError(
        f"{backend.name} has no namespace of the Array API",
        remedy='Convert the array first, for example by arrayferry.convert(x, "numpy").',
    )


def first_array(value: AnyTree, *, registry: Registry | None = None) -> tuple[Any, Backend | None]:
    """Return the first array in a tree, and the backend of this array.

    Args:
        value: an array, a tree, or anything.
        registry: the registry in which the libraries are looked up, or None for `arrayferry.registry`.

    Returns:
        The first array and its backend. If there is no array, the first NumPy scalar and its backend. If there is no
        NumPy scalar either, None and None.

    Raises:
        StructureError: the tree is cyclic or too deep.

    Examples:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> af.first_array({"name": "cart", "speed": np.ones(1)})
        (array([1.]), <Backend numpy>)
    """
    registry = registry or default_registry()
    kind = registry.kind(value)
    if kind.category in ("array", "objects") and not kind.searches(value):
        return value, backend_of(value, registry=registry)
    tree = Tree(value, registry.kind)
    if not tree.arrays:
        return None, None
    index = next((i for i, kind in enumerate(tree.kinds) if kind.category != "scalar"), 0)
    return tree.arrays[index], backend_of(tree.arrays[index], registry=registry)


def flatten(
    value: AnyTree, *, everything: bool = False, prefix: str = "", registry: Registry | None = None
) -> tuple[list[Any], TreeSpec]:
    """Flatten a tree into a list of its arrays, and a layout to rebuild the tree.

    Args:
        value: an array, a tree, or anything.
        everything: whether values that are neither arrays nor containers are leaves too. If False, such values are
            stored in the layout.
        prefix: text that is added before each path in the layout.
        registry: the registry in which the libraries are looked up, or None for `arrayferry.registry`.

    Returns:
        The list of the leaves, in the order of the tree, and the layout. The leaves are the arrays, and with
        `everything` also other values. `layout.unflatten` builds a tree of this layout from a list of new leaves.
        Layouts can be compared and hashed.

    Raises:
        StructureError: the tree is cyclic or too deep.

    Examples:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> arrays, layout = af.flatten({"speed": np.ones(1), "name": "cart"})
        >>> layout.paths
        ["['speed']"]
        >>> layout.unflatten([x + 1 for x in arrays])
        {'speed': array([2.]), 'name': 'cart'}
    """
    kind_of = (registry or default_registry()).kind
    return flatten_tree(value, kind_of, everything=everything, prefix=prefix)


def backends(*, registry: Registry | None = None) -> Mapping[str, Backend]:
    """Return all known backends, installed or not.

    Args:
        registry: the registry in which the backends are looked up, or None for `arrayferry.registry`.

    Returns:
        A read-only mapping from names to backends. If a backend cannot be used here, its method `problem()` returns an
        error that says why. Otherwise it returns None.

    Examples:
        >>> import arrayferry as af
        >>> af.backends()["numpy"].problem() is None
        True
    """
    return (registry or default_registry()).backends()


@uncompiled
def route(
    source: Any, to: Target, *, device: Device = None, registry: Registry | None = None
) -> Route:
    """Describe how arrays are converted from one library to another, without converting any.

    Args:
        source: an array, or an object that arrays are read from. Or the name of a source ("pandas"), or a backend (a
            name, a namespace or a `Backend`): the route is then that of arrays on the default device of the backend.
        to: the target: a name, a namespace or a `Backend`.
        device: as for `convert`.
        registry: the registry in which the libraries are looked up, or None for `arrayferry.registry`.

    Returns:
        The route. It prints as one line that says for each step whether data is shared, copied, transferred to or
        from a device, or computed.

    Raises:
        UnknownBackendError: there is no such source or target.
        BackendUnavailableError: the source or the target is not installed, or cannot be used here.

    Examples:
        >>> import arrayferry as af
        >>> print(af.route("numpy", "torch"))
        numpy (cpu) -> torch (cpu) shared
        >>> print(af.route("jax", "torch"))
        jax (cpu) -> torch (cpu) copied
    """
    registry = registry or default_registry()
    target = registry.backend(to)
    origin: Origin
    by_name = isinstance(source, (str, ModuleType, Origin))
    matches = [known for known in registry.sources() if by_name and source in (known.name, known)]
    if matches:
        origin = matches[0]
    elif isinstance(source, (str, ModuleType, Backend)):
        origin = registry.backend(source)
    else:
        kind = registry.kind(source)
        origin = kind.source or backend_of(source, registry=registry)
    for library in (origin, target):
        problem = library.problem()
        if problem is not None:
            raise problem
    source_device = "cpu"
    if not by_name:
        source_device = device_of(origin, source)
    elif isinstance(origin, Backend):
        source_device, _ = resolve_device(origin, None, "")
    result = describe_route(registry.catalog, origin, target, device, source_device)
    if not by_name and not isinstance(source, Backend) and result.steps and not result.copies:
        try:  # with copy=False, this call raises an error if the array cannot be shared
            make_conversion(
                target, Options(device=device, copy=False, unknown="convert"), registry
            )(source)
        except CopyRequiredError:
            copied_step = result.steps[-1]._replace(cost="copy")
            result = result._replace(steps=(*result.steps[:-1], copied_step))
        except ConversionError:  # ignored here: `convert` raises this error for the array
            pass
    return result
