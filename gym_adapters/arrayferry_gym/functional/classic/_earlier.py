"""Earlier names of fields, which still work."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["earlier_names"]

T = TypeVar("T")


def earlier_names(**names: str) -> Callable[[type[T]], type[T]]:
    """Let the fields of a named tuple be read, and passed to it by keyword, under their earlier names too.

    Args:
        **names: the field of each earlier name.
    """

    def decorate(cls: Any) -> Any:
        make, replace = cls.__new__, cls._replace

        def translated(fields: dict[str, Any]) -> dict[str, Any]:
            for name in names.keys() & fields.keys():
                if names[name] in fields:
                    raise TypeError(
                        f"{cls.__name__} got {names[name]!r}, and {name!r}, which is its earlier name"
                    )
            return {names.get(name, name): value for name, value in fields.items()}

        def __new__(cls: Any, *args: Any, **fields: Any) -> Any:  # noqa: N807
            return make(cls, *args, **translated(fields))

        def _replace(self: Any, /, **fields: Any) -> Any:
            return replace(self, **translated(fields))

        __new__.__signature__ = inspect.signature(make)  # type: ignore[attr-defined]
        cls.__new__, cls._replace = __new__, _replace
        for name, field in names.items():
            setattr(
                cls,
                name,
                property(operator.attrgetter(field), doc=f"The earlier name of `{field}`."),
            )
        cls._earlier_names = names
        return cls

    return decorate
