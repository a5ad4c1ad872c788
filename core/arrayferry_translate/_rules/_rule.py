"""`rule`: the decorator that registers a function as the rule of one or more primitives."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from arrayferry.extending import dtype_info
from arrayferry_translate._library import Library, dtype_of

Run = Callable[..., Any]
"""A function of arrays that returns an array, or a list if the primitive has several results."""


class Site(NamedTuple):
    """The equation that a rule is applied to, and the library that is to compute it.

    Attributes:
        name: the name of the primitive.
        library: the library.
        ins: the shape and the dtype of each input.
        outs: the shape and the dtype of each output.
        bind: turns a nested program into a function from a list of arrays to a list of arrays.
    """

    name: str
    library: Library
    ins: tuple[Any, ...]
    outs: tuple[Any, ...]
    bind: Callable[[Any], Callable[[list[Any]], list[Any]]]

    @property
    def xp(self) -> Any:
        """The Array API namespace of the library."""
        return self.library.xp

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
        """Return the kind of a dtype: "bool", "int", "uint", "float" or "complex"."""
        return dtype_info(dtype_of(dtype)).kind

    @staticmethod
    def bits(dtype: str) -> int:
        """Return the size in bits of an element of a dtype."""
        return int(8 * dtype_of(dtype).itemsize)

    def is_integer(self, dtype: str) -> bool:
        """Return whether a dtype is one of signed or unsigned integers."""
        return self.kind(dtype) in ("int", "uint")

    def edges(self, dtype: str) -> tuple[Any, Any]:
        """Return the smallest and the largest value of a dtype."""
        if self.is_integer(dtype):
            limits: Any = dtype_info(dtype_of(dtype)).limits
            return limits.min, limits.max
        return (False, True) if dtype == "bool" else (-math.inf, math.inf)


class Rule(NamedTuple):
    """How a primitive is computed.

    Attributes:
        make: the registered function. It accepts a site and the parameters of the primitive, and returns a `Run`.
        params: the names of the parameters that the rule uses.
        ignored: the names of parameters that have no effect on results.
        fresh: whether the results share no memory with the inputs.
    """

    make: Callable[..., Run]
    params: frozenset[str]
    ignored: frozenset[str]
    fresh: bool


RULES: dict[str, Rule] = {}
"""The rule of each primitive, by its name."""


def rule(
    names: str, ignored: str = "", *, fresh: bool = True
) -> Callable[[Callable[..., Run]], Callable[..., Run]]:
    """Return a decorator that registers a rule: a function of a site and of the parameters of the primitives.

    Args:
        names: the names of the primitives, separated by spaces.
        ignored: the names of parameters that have no effect on results, separated by spaces.
        fresh: whether the results share no memory with the inputs.
    """

    def register(make: Callable[..., Run]) -> Callable[..., Run]:
        param_names = frozenset([*inspect.signature(make).parameters][1:])
        for primitive in names.split():
            RULES[primitive] = Rule(make, param_names, frozenset(ignored.split()), fresh)
        return make

    return register
