"""Checks of the parts of plugins, so that a mistake is reported at registration and by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arrayferry._errors import PluginError
from arrayferry._plugin.autodiff import Autodiff
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.container import Container
from arrayferry._plugin.converter import COSTS, Converter
from arrayferry._plugin.origin import Origin

_Rule = tuple[str, Callable[[Any], bool], str]
"""An attribute, a check of its value, and the valid values as messages describe them."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and "." in value and all(value.split("."))


def _all(check: Callable[[Any], bool], *, empty: bool = True) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, tuple) and (empty or len(value) > 0) and all(map(check, value))
    )


def _one_of(*choices: Any) -> Callable[[Any], bool]:
    return lambda value: any(value is choice or value == choice for choice in choices)


_PATHS = 'a tuple of dotted paths, such as ("torch.Tensor",)'
_NAMES = 'a tuple of strings, such as ("cuda",)'

_RULES: dict[type, tuple[_Rule, ...]] = {
    Origin: (
        ("name", _is_text, "a string"),
        ("package", _is_text, "a string"),
        ("install", lambda value: isinstance(value, str), "a string"),
        ("array_types", _all(_is_path, empty=False), _PATHS),
        ("dlpack_devices", _all(_is_text), _NAMES),
        (
            "memory",
            _one_of("writable", "immutable", "lazy", "unknown"),
            '"writable", "immutable", "lazy" or "unknown"',
        ),
        ("to_numpy_shares", _one_of(True, False, None), "True, False or None"),
        ("replaces", _all(_is_text), _NAMES),
    ),
    Backend: (
        ("namespace", lambda value: isinstance(value, str), "a string"),
        ("item_types", _all(_is_path), _PATHS),
        ("aliases", _all(_is_text), _NAMES),
        ("dtypes", callable, "a method: def dtypes(self): return {'float64'}"),
        ("from_numpy_shares", _one_of(True, False, None), "True, False or None"),
        (
            "autodiff",
            lambda value: value is None or isinstance(value, Autodiff),
            "None or an object of a subclass of Autodiff",
        ),
    ),
    Converter: (
        ("source", _is_text, "a string"),
        ("target", _is_text, "a string"),
        ("source_device", _is_text, "a string"),
        ("target_device", _is_text, "a string"),
        ("types", _all(lambda entry: isinstance(entry, type) or _is_path(entry)), _PATHS),
        ("cost", _one_of(*COSTS), '"share", "copy", "transfer" or "compute"'),
    ),
    Container: (
        (
            "types",
            _all(lambda entry: isinstance(entry, type) or _is_path(entry), empty=False),
            "a tuple of classes or dotted paths, such as (MyClass,): mind the comma",
        ),
        ("transparent", _one_of(True, False), "True or False"),
    ),
}


def check_part(item: Any) -> None:
    """Check one backend, converter, container or source of a plugin.

    Raises:
        PluginError: an attribute is missing, or has a wrong type or value.
    """
    for base, rules in _RULES.items():
        for attribute, holds, expected in rules if isinstance(item, base) else ():
            value = getattr(item, attribute, None)
            if not holds(value):
                has = f"has {value!r:.80} for its" if value or value is False else "has no"
                role = item.role if isinstance(item, Origin) else base.__name__
                raise PluginError(
                    f"{role} {type(item).__qualname__} {has} {attribute}",
                    remedy=f"Set {attribute} to {expected}.",
                )
