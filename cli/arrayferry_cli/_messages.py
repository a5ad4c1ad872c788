"""Messages between a task of `_child` and `_ask`: reports as JSON."""

from __future__ import annotations

import types
from dataclasses import asdict, is_dataclass
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from . import _reports

Report = TypeVar("Report")
_KINDS: dict[str, type[Any]] = {
    name: kind
    for name, kind in vars(_reports).items()
    if isinstance(kind, type) and is_dataclass(kind)
}


def as_message(report: Any) -> dict[str, Any]:
    """Return a report for JSON, with its type."""
    return {"type": type(report).__name__, "value": asdict(report)}


def from_message(message: Any) -> Any:
    """Return the report of what `as_message` has made.

    Raises:
        ValueError: it is something else.
    """
    try:
        return load(_KINDS[message["type"]], message["value"])
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{message!r:.80} is no message") from error


def load(kind: type[Report], value: Any) -> Report:
    """Make a dataclass, and those inside it, of the dicts that `dataclasses.asdict` has made of them."""
    return cast(Report, _load(kind, value))


def _load(kind: Any, value: Any) -> Any:
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return cast(Any, kind)(**{name: _load(hints[name], part) for name, part in value.items()})
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list:
        return [_load(inner[0], part) for part in value]
    if origin in (Union, types.UnionType) and value is not None:
        return _load(next(part for part in inner if part is not type(None)), value)
    return value
