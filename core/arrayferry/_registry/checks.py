"""Checks the parts of plugins at registration. An error names the class and the attribute that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from inspect import get_annotations, getattr_static, isroutine
from typing import Any, get_args

from arrayferry._errors import PluginError
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.container import Container
from arrayferry._plugin.converter import COSTS, Converter
from arrayferry._plugin.devices import Devices
from arrayferry._plugin.dlpack import DLPack
from arrayferry._plugin.hookspecs import HOOKS
from arrayferry._plugin.origin import Memory, Source
from arrayferry._types import AnyTree

_Rule = tuple[str, Callable[[Any], bool]]
"""A description of the valid values of an attribute, for messages, and a function that checks a value."""


def _is_path(value: AnyTree) -> bool:
    return isinstance(value, str) and "." in value and all(value.split("."))


def _tuple_of(check: Callable[[Any], Any]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(check, value))


def _one_of(*choices: Any) -> _Rule:
    text = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
    # compare types first, since 0 == False, and since an array compares element by element
    return text, lambda value: any(isinstance(value, type(one)) and value == one for one in choices)


_TEXT: _Rule = "a string", lambda value: isinstance(value, str)
_PATHS: _Rule = 'a tuple of dotted paths, such as ("torch.Tensor",)', _tuple_of(_is_path)
_NAMES: _Rule = (
    'a tuple of strings, such as ("cuda",)',
    _tuple_of(lambda name: isinstance(name, str) and name),
)
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("name", "package", "install", "namespace"), _TEXT),
    **dict.fromkeys(("source", "target", "source_device", "target_device"), _TEXT),
    **dict.fromkeys(("array_types", "item_types"), _PATHS),
    **dict.fromkeys(("replaces", "aliases", "kinds"), _NAMES),
    **dict.fromkeys(("to_numpy_shares", "from_numpy_shares"), _one_of(True, False, None)),
    "memory": _one_of(*get_args(Memory)),
    "cost": _one_of(*COSTS),
    "transparent": _one_of(True, False),
    "dtypes": ("a method: def dtypes(self): return {'float64'}", callable),
    "devices": ("an object of a subclass of Devices", lambda value: isinstance(value, Devices)),
    "dlpack": (
        "None or an object of a subclass of DLPack",
        lambda value: value is None or isinstance(value, DLPack),
    ),
    "types": (
        "a tuple of classes or dotted paths, such as (MyClass,): mind the comma",
        _tuple_of(lambda entry: isinstance(entry, type) or _is_path(entry)),
    ),
}
_PARTS: dict[str, type] = {"devices": Devices, "dlpack": DLPack}
"""The attributes of backends and sources that are objects with methods, and their classes."""
_OF_LAYERS = ("name", "replaces")
"""The attributes that are checked in parts that hooks of layers return."""
_MOVED_FROM_SOURCES = {
    "is_out_of_memory": "devices.is_out_of_memory", "dlpack_devices": "dlpack.kinds", "to_dlpack": "dlpack.export",
    "dtype_of": "dlpack.dtype_of", "usable": "check", "blocks": "arrayferry_blocks()",
}  # fmt: skip
_MOVED: dict[type, dict[str, str]] = {
    Backend: {
        "devices": "devices.names", "default_device": "devices.default", "device_name": "devices.name_of",
        "to_device": "devices.move", "use_device": "devices.use", "is_named": "devices.is_named",
        "place_of": "devices.place_of", "is_on": "devices.is_on", "fence": "devices.fence",
        "from_dlpack": "dlpack.load", "has_item": "item_types", "random": "arrayferry_random()",
        **dict.fromkeys(("autodiff", "callback", "uncompiled"), "arrayferry_gradients()"), **_MOVED_FROM_SOURCES,
    },
    Source: _MOVED_FROM_SOURCES,
    Container: {"streamed": "arrayferry_blocks()"},
}  # fmt: skip
"""For each class, the old names of members that were renamed or moved, and their new names."""


def check_part(item: Any, kind: type = object) -> None:
    """Check one part of a plugin.

    Args:
        item: a backend, converter, container or source, or a part that a layer's hook returned.
        kind: the class of the parts of the layer's hook.

    Raises:
        PluginError: an attribute is missing, has moved, or has a wrong type or value.
    """
    if isinstance(item, (Backend, Source, Converter)) and type(item).__hash__ is None:
        raise PluginError(
            f"{type(item).__qualname__} defines __eq__ without __hash__, so it cannot be a key of a dict",
            remedy="Leave __eq__ out, as @dataclass(eq=False) does, or define __hash__ too.",
        )
    for member, cls in _described(item, kind):
        _refuse_moved(member, cls)
        attributes = _known(cls) if cls in HOOKS.values() or cls in _PARTS.values() else _OF_LAYERS
        for attribute, (expected_text, check_value) in _RULES.items():
            if attribute not in attributes:
                continue
            value = getattr(member, attribute, () if attribute == "replaces" else None)
            is_required = not hasattr(cls, attribute) and attribute != "replaces"
            is_empty = value is None or (isinstance(value, (str, tuple)) and not value)
            if not check_value(value) or (is_required and is_empty):
                problem = "has no" if is_empty else f"has {value!r:.80} for its"
                raise PluginError(
                    f"{cls.__name__} {type(member).__qualname__} {problem} {attribute}",
                    remedy=f"Set {attribute} to {expected_text}.",
                )


def _refuse_moved(item: Any, kind: type) -> None:
    """Raise an error for a member that has moved. If `kind` has an attribute of that name, only a method is refused."""
    names, defaults = {*dir(item)}, _known(kind)
    for old_name, new_name in _MOVED.get(kind, {}).items():
        actual = getattr_static(item, old_name, None) if old_name in names else None
        default = defaults.get(old_name)
        if actual is not default and (default is None or isroutine(actual)):
            raise PluginError(
                f"{kind.__name__} {type(item).__qualname__} has {old_name}, which is {new_name} now",
                remedy="Rename it. If the new name starts with devices or dlpack, define it in a subclass of "
                "arrayferry.Devices or DLPack. If it ends with (), define it in the part that this hook of a layer returns.",
            )


def near_misses(item: Any, kind: type) -> Iterator[str]:
    """Yield the text of a warning for each attribute whose name looks like a misspelt attribute of the base class."""
    from difflib import get_close_matches

    for member, cls in _described(item, kind):
        defaults = _known(cls)
        unknown_names = [name for name in dir(member) if name not in defaults and name[0] != "_"]
        if not unknown_names:
            continue
        unused = [name for name in defaults if getattr_static(member, name, None) is defaults[name]]
        for name in unknown_names:
            value = getattr_static(member, name, None)
            candidates = [known for known in unused if _may_be(value, known, defaults[known])]
            for meant_name in get_close_matches(name, candidates, n=1, cutoff=0.8):
                yield (
                    f"{cls.__name__} {type(member).__qualname__} has an attribute {name!r}, which arrayferry does not "
                    f"know. Did you mean {meant_name!r}? If the attribute is your own, start its name with an underscore."
                )


def _may_be(value: AnyTree, name: str, default: Any) -> bool:
    """Return whether `value`, which was found under another name, may be a value of the attribute `name`."""
    if name in _PARTS:
        return isinstance(value, _PARTS[name])
    return callable(default) is callable(value)


def _described(item: Any, kind: type) -> list[tuple[Any, type]]:
    """Return a part, and the part's `devices` and `dlpack`, each paired with its base class.

    The base class of a part that a layer's hook returned is `kind`.
    """
    classes = [cls for cls in HOOKS.values() if isinstance(item, cls)] or [kind]
    members = [(getattr(item, name, None), cls) for name, cls in _PARTS.items()]
    return [(item, cls) for cls in classes] + [member for member in members if isinstance(*member)]


@cache
def _known(kind: type) -> dict[str, Any]:
    """Return the default value of each attribute of a class of parts, or None for an attribute without a default."""
    names = {*dir(kind), *(name for base in kind.__mro__ for name in get_annotations(base))}
    return {name: getattr_static(kind, name, None) for name in names}
