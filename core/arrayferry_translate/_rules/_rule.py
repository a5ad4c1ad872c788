"""`rule`: makes a function the rule of a primitive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from arrayferry.extending import dtype_info
from arrayferry_translate._library import Library, dtype_of

Run = Callable[..., Any]
"""Takes arrays. Returns one, or a list if the primitive has several results."""


class Site(NamedTuple):
    """Where a rule is used.

    Attributes:
        library: the library.
        params: the parameters of the equation.
        ins: the shape and the dtype of each input.
        outs: the shape and the dtype of each output.
        bind: makes a function of a list of arrays from a program.
    """

    library: Library
    params: Mapping[str, Any]
    ins: tuple[Any, ...]
    outs: tuple[Any, ...]
    bind: Callable[[Any], Callable[[list[Any]], list[Any]]]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first output."""
        return self.outs[0].shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> str:
        """The dtype of the first output."""
        return self.outs[0].dtype  # type: ignore[no-any-return]

    @staticmethod
    def kind(dtype: str) -> str:
        """Return "bool", "int", "uint", "float" or "complex"."""
        return dtype_info(dtype_of(dtype)).kind

    @staticmethod
    def limits(dtype: str) -> Any:
        """Return the `iinfo` or `finfo` of a dtype."""
        return dtype_info(dtype_of(dtype)).limits

    @staticmethod
    def bits(dtype: str) -> int:
        """Return the size of an element."""
        return int(8 * dtype_of(dtype).itemsize)

    def is_integer(self, dtype: str) -> bool:
        """Return whether a dtype holds integers."""
        return self.kind(dtype) in ("int", "uint")


class Rule(NamedTuple):
    """How a primitive is computed.

    Attributes:
        make: returns the function for a site.
        params: the parameters that it uses.
        ignored: those that change no result.
        fresh: whether the results have memory of their own.
    """

    make: Callable[[Site], Run]
    params: frozenset[str]
    ignored: frozenset[str]
    fresh: bool


RULES: dict[str, Rule] = {}
"""The rule of each primitive, by its name."""


def rule(
    names: str, params: str = "", ignored: str = "", *, fresh: bool = True
) -> Callable[[Callable[[Site], Run]], Callable[[Site], Run]]:
    """Register the rule of one or more primitives. Names are separated by spaces."""

    def register(make: Callable[[Site], Run]) -> Callable[[Site], Run]:
        for name in names.split():
            used, other = frozenset(params.split()), frozenset(ignored.split())
            RULES[name] = Rule(make, used, other, fresh)
        return make

    return register
