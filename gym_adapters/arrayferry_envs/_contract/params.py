"""Parameters of environments. Each is static, or a value, which may differ between the environments of a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import arrayferry as af
from arrayferry._utilities.cache import Cache
from arrayferry.extending import dtype_name, exact_key
from arrayferry.typing import AnyArray, AnyTree, Device, Namespace
from arrayferry_gym.extending import Key, cast_fitting, held_dtype, parts_of, select


def identity(value: AnyTree) -> Hashable:
    """Return a hashable key of a value: its type and contents, including arrays of any size."""
    return exact_key(value, parts_of)


class StaticPart:
    """The static part of a tree: its structure and its static leaves. It can be hashed and compared.

    Args:
        leaves: the leaves, with `DYNAMIC` in place of values.
        structure: the structure of the tree.
        build: a function that makes a tree from a list of all leaves.
        key: the key for comparisons, or None for a key of the structure and the `identity` of each leaf.

    Attributes:
        key: the key for comparisons.
    """

    __slots__ = ("_build", "_leaves", "_structure", "key")

    def __init__(
        self, leaves: tuple[Any, ...], structure: Any, build: Any, key: Key | None = None
    ) -> None:
        self._leaves = leaves
        self._build = build
        self._structure = structure
        if key is None:
            key = Key((structure, tuple(map(identity, leaves))))
        self.key: Key = key

    def join(self, values: Iterable[Any]) -> Any:
        """Make the tree from the static part and the values."""
        remaining = iter(values)
        return self._build([next(remaining) if leaf is DYNAMIC else leaf for leaf in self._leaves])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticPart) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[Any, ...]:
        return StaticPart, (self._leaves, self._structure, self._build)


class DYNAMIC:
    """A placeholder for a leaf that is a value, not static."""


def partitioned(
    layout: af.TreeSpec, leaves: list[Any], defaults: list[Any]
) -> tuple[StaticPart, list[Any]]:
    """Return the static part and the values of parameters. The default of a leaf determines whether it is a value.

    Raises:
        arrayferry.OptionError: a static parameter is an array, or cannot be hashed.
    """
    triples = zip(layout.paths, leaves, defaults, strict=True)
    static = tuple(
        DYNAMIC if is_dynamic(d) else _checked_static(path, d, x) for path, x, d in triples
    )
    values = [x for x, leaf in zip(leaves, static, strict=True) if leaf is DYNAMIC]
    return StaticPart(static, layout, layout.unflatten), values


class Params:
    """Parameters in one library.

    Attributes:
        tree: the tree of parameters, for the methods of an environment.
        static_part: the static leaves, and the structure of the tree.
        values: the leaves that are not static, in the order of the tree: numbers, and arrays of the library.
        batched: for each value, whether it has an axis of environments.
        any_batched: whether any value is batched.
        arrays: the values that are arrays.
        pinned: for each leaf of the tree, whether the environment must not draw it. () if none is pinned.
    """

    def __init__(
        self,
        static_part: StaticPart,
        values: Iterable[Any],
        batched: Iterable[bool],
        pinned: tuple[bool, ...] = (),
    ) -> None:
        self.static_part = static_part
        self.pinned = pinned
        self.values = tuple(values)
        self.batched = tuple(batched)
        self.tree = static_part.join(self.values)
        self.any_batched = any(self.batched)
        self.arrays = [value for value in self.values if hasattr(value, "dtype")]

    def rows(self, index: Any) -> Any:
        """Return the tree of parameters for the environments with these indices."""
        if not self.any_batched:
            return self.tree
        pairs = zip(self.values, self.batched, strict=True)
        return self.static_part.join([x[index] if batched else x for x, batched in pairs])

    def with_values(self, values: Iterable[Any]) -> Params:
        """Return these parameters with other values, in the same order."""
        return Params(self.static_part, values, self.batched, self.pinned)

    def where(self, mask: AnyArray, other: Params, xp: Namespace) -> Params:
        """Return parameters that equal `self` where the mask is true, and `other` elsewhere.

        Raises:
            arrayferry.OptionError: a static parameter differs.
        """
        if self.static_part != other.static_part:
            raise af.OptionError(
                "a static parameter was changed for some of the environments",
                remedy="Integers, booleans and strings are the same for all environments: change them without reset_mask.",
            )
        values, batched = [], []
        for new, old, new_batched, old_batched in zip(
            self.values, other.values, self.batched, other.batched, strict=True
        ):
            if new is old or (type(new) is type(old) is float and new == old):
                values.append(old)
                batched.append(old_batched)
                continue
            new, old = (
                _as_rows(x, rows, mask, xp) for x, rows in ((new, new_batched), (old, old_batched))
            )
            values.append(select(xp, mask, new, old))
            batched.append(True)
        return Params(self.static_part, values, batched, self.pinned)


def _as_rows(x: AnyArray, batched: bool, mask: AnyArray, xp: Namespace) -> Any:
    """Return a value as an array with an axis of environments."""
    if type(x) in _HELD:
        dtype = _HELD[type(x)]
        cast_fitting(np.asarray(x), np.dtype(dtype), "a parameter of some of the environments")
        return xp.full(mask.shape, x, dtype=getattr(xp, dtype))
    return x if batched else x[None, ...]


_PREPARED: Cache[int, tuple[Any, Params]] = Cache(256)
"""A cache from the id of defaults to (defaults, `Params`), for defaults without arrays. They suit all libraries."""

_HELD = {float: "float32", complex: "complex64"}
"""The dtypes of arrays that replace Python numbers."""
_CONSTANTS = (float, int, bool, complex, str, type(None))


def prepare(
    user_params: Any,
    defaults: Any,
    n: int,
    backend: af.Backend,
    device: Device,
    *,
    base: Params | None = None,
    draws: bool = False,
) -> Params:
    """Check parameters against their defaults, and convert their values to a library.

    Args:
        user_params: the parameters: a tree like the defaults, a dict of some of their fields, `Params`, or None for the
            defaults. If `draws`, the fields of a dict and the parameters that differ from the defaults are pinned.
        defaults: the defaults, whose types determine which parameters are static.
        n: the number of environments.
        backend: the library.
        device: the device of arrays.
        base: the parameters that complete a dict of some fields, or None for the defaults.
        draws: whether the environment draws parameters, so that some may be pinned.

    Raises:
        arrayferry.OptionError: a parameter is unknown, or its type or shape does not fit.
    """
    uses_defaults = user_params is base is None
    if uses_defaults:
        cached = _PREPARED.get(id(defaults))
        if cached is not None and cached[0] is defaults:
            return cached[1]
    if isinstance(user_params, Params):
        base, user_params = user_params, None
    passed_names = user_params if isinstance(user_params, Mapping) else ()
    base_tree = defaults if base is None else base.tree
    user_params = completed(user_params, base_tree)
    default_leaves, layout = af.flatten(defaults, everything=True, prefix="params")
    leaves, user_layout = af.flatten(user_params, everything=True, prefix="params")
    if type(user_params) is not type(defaults) or user_layout.paths != layout.paths:
        raise af.OptionError(
            f"the parameters have the structure {user_layout!r}, but their defaults are {layout!r}",
            remedy="Pass a tree of the same types and fields as default_params, or a dict of the fields that differ.",
        )
    copy = None if backend.memory == "immutable" else True  # users may later change mutable arrays
    convert = af.converter(backend, device=device, narrowing="checked", copy=copy)
    static_part, _ = partitioned(user_layout, leaves, default_leaves)
    values: list[Any] = []
    batched: list[bool] = []
    for path, default, value in zip(layout.paths, default_leaves, leaves, strict=True):
        if not is_dynamic(default):
            continue
        # a NumPy float is treated as a Python number
        if isinstance(default, (np.floating, np.complexfloating)):
            default = default.item()
        value = _value(path, default, value, convert, backend)
        shape, default_shape = np.shape(value), np.shape(default)
        if shape not in (default_shape, (n, *default_shape)):
            raise af.OptionError(
                f"{path} has the shape {tuple(shape)}",
                remedy=f"Pass the shape {default_shape} for all environments, or {(n, *default_shape)} with a row for each environment.",
            )
        values.append(value)
        batched.append(shape != default_shape)
    pinned = _pinned(layout.paths, leaves, base_tree, passed_names, base) if draws else ()
    params = Params(static_part, values, batched, pinned)
    is_tuple = isinstance(defaults, tuple) and not hasattr(defaults, "__dict__")
    if uses_defaults and is_tuple and all(type(x) in _CONSTANTS for x in defaults):
        _PREPARED[id(defaults)] = defaults, params
    return params


def _pinned(
    paths: Sequence[str], leaves: list[Any], start: Any, names: Iterable[Any], base: Params | None
) -> tuple[bool, ...]:
    """Return for each parameter whether the user set it, so that the environment must not draw it. () for none."""
    pinned_before = base.pinned if base is not None and base.pinned else [False] * len(leaves)
    old_leaves = af.flatten(start, everything=True)[0]
    pinned = tuple(
        was_pinned or not equal(x, y) or is_named(path, names)
        for path, x, y, was_pinned in zip(paths, leaves, old_leaves, pinned_before, strict=True)
    )
    # (), as for default parameters, since a tuple of False would compile the same code again
    return pinned if any(pinned) else ()


def equal(a: Any, b: Any) -> bool:
    """Return whether two parameters of any type are equal. Floats are compared in the narrower of their dtypes."""
    if a is b:
        return True
    try:
        a, b = map(np.asarray, af.convert((a, b), "numpy"))
    except af.ArrayFerryError:  # traced values cannot be compared
        return False
    if not ("float" in dtype_name(a.dtype) and "float" in dtype_name(b.dtype)):
        return np.array_equal(a, b)
    narrower_dtype = min(a.dtype, b.dtype, key=lambda dtype: dtype.itemsize)
    with np.errstate(over="ignore", under="ignore"):
        return np.array_equal(a.astype(narrower_dtype), b.astype(narrower_dtype), equal_nan=True)


def is_named(path: str, names: Iterable[Any]) -> bool:
    """Return whether a path belongs to one of the fields in `names`, or to a leaf inside such a field."""
    fields = [field for name in names for field in (f"params.{name}", f"params[{name!r}]")]
    return any(path == field or path.startswith((f"{field}.", f"{field}[")) for field in fields)


def is_dynamic(default: Any) -> bool:
    """Return whether a parameter with this default is a value, and not static."""
    category = af.registry.kind(default).category
    return isinstance(default, (float, complex)) or category in ("array", "objects", "scalar")


def _value(path: str, default: Any, value: AnyTree, convert: Any, backend: af.Backend) -> Any:
    """Convert a parameter that is not static to a Python number or an array of the library."""
    name = _HELD.get(type(default)) or held_dtype(dtype_name(default.dtype), backend)
    try:
        if type(default) in _HELD and isinstance(value, (int, float, complex, np.generic)):
            number = np.asarray(type(default)(value))
            cast_fitting(number, np.dtype(held_dtype(number.dtype, backend)), "it")
            return number.item()
        if isinstance(value, (int, float, complex)):
            value = np.asarray(value)
        if type(value) is np.ndarray and value.dtype == object and name != "object":
            value = value.astype(float)  # NumPy makes an array of objects from large integers
        value = convert(value)
        dtype = getattr(af.namespace_of(value), name, None) or name
        return value if value.dtype == dtype else cast_fitting(value, dtype, "it")
    except (af.ArrayFerryError, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise af.OptionError(
            f"{path} is {value!r:.80}, but a number or an array of {name} is needed: {error}"
        ) from error


def _checked_static(path: str, default: Any, value: AnyTree) -> Any:
    """Check a static parameter, and return it."""
    if type(default) is not bool and isinstance(default, int) and isinstance(value, np.integer):
        value = int(value)
    is_fraction = isinstance(default, int) and isinstance(value, (float, np.floating))
    if is_fraction or af.registry.kind(value).category in ("array", "objects"):
        raise af.OptionError(
            f"{path} is static, since its default {default!r} is not a float, but it was given {value!r:.80}",
            remedy=f"Pass a {type(default).__name__}. To let it differ between environments, make the default a "
            "float or an array.",
        )
    try:
        hash(value)
    except TypeError:
        raise af.OptionError(
            f"{path} is static, but {value!r:.80} cannot be hashed",
            remedy="Pass a hashable value, such as a tuple.",
        ) from None
    return value


def field_names(params: AnyTree) -> list[Any]:
    """Return the names of the parameters in a mapping, a named tuple or a dataclass."""
    if isinstance(params, Mapping):
        return list(params)
    if hasattr(params, "_fields"):
        return list(params._fields)
    if dataclasses.is_dataclass(params):
        return [field.name for field in dataclasses.fields(params)]
    return []


def completed(overrides: Any, defaults: Any) -> Any:
    """Complete None, or a dict of some parameters, with the defaults. Return any other tree unchanged."""
    if overrides is None or (isinstance(overrides, Mapping) and not overrides):
        return defaults
    if not isinstance(overrides, Mapping) or (
        type(overrides) is type(defaults) and list(overrides) == list(defaults)
    ):
        return overrides
    fields = field_names(defaults)
    for name in overrides:
        if name not in fields:
            raise af.OptionError(
                f"there is no parameter {name!r}",
                remedy=f"The parameters are {', '.join(map(str, fields))}."
                if fields
                else "The environment has no parameters.",
            )
    if isinstance(defaults, Mapping):
        return type(defaults)({**defaults, **overrides})  # type: ignore[call-arg]
    replace_fields: Any = dataclasses.replace
    if not dataclasses.is_dataclass(defaults):
        replace_fields = type(defaults)._replace
    return replace_fields(defaults, **overrides)
