"""Checks of the parts of plugins, so that a mistake is reported at registration and by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from inspect import get_annotations, getattr_static
from typing import Any, get_args

from arrayferry._errors import PluginError
from arrayferry._plugin.autodiff import Autodiff
from arrayferry._plugin.converter import COSTS
from arrayferry._plugin.hookspecs import HOOKS
from arrayferry._plugin.origin import Memory

_Rule = tuple[str, Callable[[Any], bool]]
"""The valid values of an attribute, as messages describe them, and a check."""


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and "." in value and all(value.split("."))


def _tuple_of(check: Callable[[Any], Any]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(check, value))


def _one_of(*choices: Any) -> _Rule:
    text = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
    return text, lambda value: any(value is choice or value == choice for choice in choices)


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
    **dict.fromkeys(("dlpack_devices", "replaces", "aliases"), _NAMES),
    **dict.fromkeys(("to_numpy_shares", "from_numpy_shares"), _one_of(True, False, None)),
    "memory": _one_of(*get_args(Memory)),
    "cost": _one_of(*COSTS),
    "transparent": _one_of(True, False),
    "dtypes": ("a method: def dtypes(self): return {'float64'}", callable),
    "autodiff": (
        "None or an object of a subclass of Autodiff",
        lambda value: value is None or isinstance(value, Autodiff),
    ),
    "types": (
        "a tuple of classes or dotted paths, such as (MyClass,): mind the comma",
        _tuple_of(lambda entry: isinstance(entry, type) or _is_path(entry)),
    ),
}


def check_part(item: Any) -> None:
    """Check one backend, converter, container or source of a plugin.

    Raises:
        PluginError: an attribute is missing, or has a wrong type or value.
    """
    for kind in _kinds_of(item):
        for attribute, (expected, holds) in _RULES.items():
            if attribute not in _known(kind):
                continue
            value = getattr(item, attribute, None)
            required = not hasattr(kind, attribute)
            if not holds(value) or (required and not value):
                has = f"has {value!r:.80} for its" if value or value is False else "has no"
                raise PluginError(
                    f"{kind.__name__} {type(item).__qualname__} {has} {attribute}",
                    remedy=f"Set {attribute} to {expected}.",
                )


def near_misses(item: Any) -> Iterator[str]:
    """Yield a warning for each unknown attribute whose name is close to that of a known one that the part does not set."""
    from difflib import get_close_matches

    for kind in _kinds_of(item):
        defaults = {name: getattr_static(kind, name, None) for name in _known(kind)}
        unused = [name for name in defaults if getattr_static(item, name, None) is defaults[name]]
        for own in (each for each in dir(item) if each not in defaults and each[0] != "_"):
            is_method = callable(getattr_static(item, own, None))
            alike = [name for name in unused if callable(defaults[name]) is is_method]
            for meant in get_close_matches(own, alike, n=1, cutoff=0.8):
                yield (
                    f"{kind.__name__} {type(item).__qualname__} has an attribute {own!r}, which arrayferry does not "
                    f"know. Did you mean {meant!r}? If it is your own, let its name begin with an underscore."
                )


def _kinds_of(item: Any) -> list[type]:
    return [kind for kind in HOOKS.values() if isinstance(item, kind)]


@cache
def _known(kind: type) -> set[str]:
    """Return the names of the attributes of a kind of part, also of those that have no default."""
    return {*dir(kind), *(name for base in kind.__mro__ for name in get_annotations(base))}
