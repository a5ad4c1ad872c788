"""`CodeSnippet`: the code in a plan that converts arrays of one type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from arrayferry._plugin.converter import Inline
from arrayferry._route.devices import DEFAULT, resolve_device
from arrayferry._types import AnyArray

from .pair import Pair


class CodeSnippet(NamedTuple):
    """The code that converts arrays of one type.

    Attributes:
        one: the expressions that convert one array.
        many: a function that converts a list of arrays in one call. If it is None, `one` converts each array.
        test: an expression with `{x}` for an array. It must be true for each array in a call of `many`. "" is no
            condition.
    """

    one: Inline
    many: Callable[[list[Any]], list[Any]] | None = None
    test: str = ""


def snippet_of(pair: Pair, cls: type, *, with_routes: bool) -> CodeSnippet:
    """Return the code that converts arrays of exactly this type.

    Args:
        pair: the pair for the arrays.
        cls: their type.
        with_routes: whether the code must also convert arrays that a direct converter does not handle, at the
            cost of a call for each array.
    """
    import numpy

    object_test = "{x}.dtype.kind != 'O'" if issubclass(cls, numpy.ndarray) else ""
    call_snippet = CodeSnippet(Inline(object_test, "{convert}({x})", {"convert": pair.one}))
    if pair.same and not pair.options.copy:
        if pair.options.device is None:
            return CodeSnippet(Inline(object_test, "{x}", {}))
        if pair.options.device == DEFAULT:  # the default device may change: look it up again
            return call_snippet
        return CodeSnippet(_already_there(pair, object_test))
    direct = pair.direct
    if direct is None or not direct.takes(cls):
        return call_snippet
    if with_routes or direct.is_checked or direct.converter.target_device != "cpu":
        many = pair.many if direct.many is not None else None
        inline = Inline(object_test, "{convert}({x})", {"convert": _one_or_route(pair)})
        return CodeSnippet(inline, many, object_test)
    # this expression is true if the converter handles the array
    test = "({y} := {convert}({x})) is not NotImplemented"
    inline = direct.inline or Inline(test, "{y}", {"convert": direct.one})
    # built-in converters raise an error for an object array, so they need no test
    own_test = "" if direct.trusted else object_test
    inline = inline._replace(test=" and ".join(filter(None, (own_test, inline.test))))
    return CodeSnippet(inline, direct.many, own_test)


def _one_or_route(pair: Pair) -> Callable[[Any], Any]:
    """Return a function like `pair.one`, but faster, for arrays of a type that the direct converter accepts."""
    direct: Any = pair.direct
    if direct.is_checked:
        return pair.one
    convert, by_route = direct.one, pair.by_route

    def convert_or_take_route(x: AnyArray) -> Any:
        try:
            y = convert(x)
        except Exception as error:
            y = direct.set_aside(error)
        return by_route(x) if y is NotImplemented else y

    return convert_or_take_route


def _already_there(pair: Pair, test: str) -> Inline:
    """Return the code for arrays of the target's library. An array on the requested device is returned unchanged."""
    device_name, device = resolve_device(pair.target, pair.options.device, "cpu")
    names: dict[str, Any] = {"convert": pair.one, "there": device_name}
    if isinstance(device, str):
        names["device_of"] = pair.source.device_of
        return Inline(test, "{x} if {device_of}({x}) == {there} else {convert}({x})", names)
    names |= {"is_on": pair.target.devices.is_on, "there": device}
    return Inline(test, "{x} if {is_on}({x}, {there}) else {convert}({x})", names)
