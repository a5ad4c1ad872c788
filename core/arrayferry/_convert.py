"""What users call: `convert`, `converter`, and the questions about arrays, backends and routes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ._backend import Backend
from ._conversion import Conversion, Target, make_conversion
from ._errors import NotAnArrayError, OptionError
from ._options import Narrowing, Options, Scalars, Unsupported
from ._registry import default_registry
from ._route import Route, describe_route
from ._tree import first_array as _first_array

__all__ = [
    "backend_of",
    "backends",
    "convert",
    "converter",
    "first_array",
    "namespace_of",
    "route",
]

_default_conversions: dict[str, Conversion] = {}
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
    if like is None and device is None and type(to) is str:
        if copy is None and narrowing == "checked" and scalars == "keep" and unsupported == "raise":
            made = _default_conversions.get(to)
            if made is None:
                made = _default_conversions[to] = converter(to)
            return made(value)
        key: Any = (to, copy, narrowing, scalars, unsupported)
        try:
            made = _conversions.get(key)
        except TypeError:  # an option that cannot be hashed, and so is none
            made = None
        if made is None or not (copy is None or type(copy) is bool):
            options = Options(None, copy, narrowing, scalars, unsupported)
            made = _conversions[key] = make_conversion(to, options, default_registry())
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
    return make_conversion(target, Options(device, copy, narrowing, scalars, unsupported), registry)


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
