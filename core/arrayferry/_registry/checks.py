"""Checks of what a plugin registers, so that a mistake is reported at once and by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from arrayferry._errors import PluginError
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.container import Container
from arrayferry._plugin.converter import COSTS, Converter

__all__ = ["check_part"]


class _Rule(NamedTuple):
    """What an attribute must be."""

    attribute: str
    holds: Callable[[Any], bool]
    expected: str


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
    Backend: (
        _Rule("name", _is_text, "a string"),
        _Rule("package", _is_text, "a string"),
        _Rule("namespace", lambda value: isinstance(value, str), "a string"),
        _Rule("install", lambda value: isinstance(value, str), "a string"),
        _Rule("array_types", _all(_is_path, empty=False), _PATHS),
        _Rule("item_types", _all(_is_path), _PATHS),
        _Rule("aliases", _all(_is_text), _NAMES),
        _Rule("replaces", _all(_is_text), _NAMES),
        _Rule("dlpack_devices", _all(_is_text), _NAMES),
        _Rule(
            "memory",
            _one_of("writable", "immutable", "lazy", "unknown"),
            '"writable", "immutable", "lazy" or "unknown"',
        ),
        _Rule("to_numpy_shares", _one_of(True, False, None), "True, False or None"),
        _Rule("from_numpy_shares", _one_of(True, False, None), "True, False or None"),
    ),
    Converter: (
        _Rule("source", _is_text, "a string"),
        _Rule("target", _is_text, "a string"),
        _Rule("source_device", _is_text, "a string"),
        _Rule("target_device", _is_text, "a string"),
        _Rule("types", _all(lambda entry: isinstance(entry, type) or _is_path(entry)), _PATHS),
        _Rule("cost", _one_of(*COSTS), '"share", "copy", "transfer" or "compute"'),
    ),
    Container: (
        _Rule(
            "types",
            _all(lambda entry: isinstance(entry, type) or _is_path(entry), empty=False),
            "a tuple of classes or dotted paths, such as (MyClass,): mind the comma",
        ),
        _Rule("transparent", _one_of(True, False), "True or False"),
    ),
}


def check_part(item: Any) -> None:
    """Check one backend, converter or container of a plugin.

    Raises:
        PluginError: an attribute is missing, or has a wrong type or value.
    """
    for base, rules in _RULES.items():
        for rule in rules if isinstance(item, base) else ():
            value = getattr(item, rule.attribute, None)
            if not rule.holds(value):
                has = f"has {value!r:.80} for its" if value or value is False else "has no"
                raise PluginError(
                    f"{base.__name__} {type(item).__qualname__} {has} {rule.attribute}",
                    remedy=f"Set {rule.attribute} to {rule.expected}.",
                )
