"""The names in the code of functions and methods: which attributes and globals it may use."""

from __future__ import annotations

import types
import weakref
from typing import Any

ANY = frozenset({"getattr", "vars", "__dict__", "asdict", "astuple", "fields"})
"""Names that give code access to any attribute."""

ANY_GLOBAL = frozenset({"globals", "eval", "exec"})
"""Names that give code access to any global."""

_NEVER = frozenset({
    "__init__", "__new__", "__post_init__", "__init_subclass__", "__repr__", "__str__", "__eq__", "__hash__",
    "__setattr__", "__delattr__", "__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__del__", "__dir__",
    "__format__", "__sizeof__", "__class_getitem__",
})  # fmt: skip
"""Methods that a policy does not run."""


def names_of(function: Any) -> frozenset[str]:
    """Return the names in the code of a function, and in the code of functions of its module that it currently names."""
    all_names: set[str] = set()
    todo, done = [function], set()
    while todo:
        own = todo.pop()
        done.add(own)
        names = names_in(own.__code__)
        all_names |= names
        for name in names:
            other = own.__globals__.get(name)
            known_here = type(other) is types.FunctionType and other.__module__ == own.__module__
            if known_here and other not in done:
                todo.append(other)
    return frozenset(all_names)


_IN_CODE: weakref.WeakKeyDictionary[types.CodeType, frozenset[str]] = weakref.WeakKeyDictionary()


def names_in(code: types.CodeType) -> frozenset[str]:
    """Return the names in code, and in the code of functions that it defines."""
    names = _IN_CODE.get(code)
    if names is None:
        inner = (names_in(part) for part in code.co_consts if isinstance(part, types.CodeType))
        _IN_CODE[code] = names = frozenset(code.co_names).union(*inner)
    return names


def names_with_methods(names: frozenset[str], cls: type, special_too: bool) -> frozenset[str]:
    """Return names, and those used in the methods of a class that they name, and perhaps in its special methods."""
    bases = [vars(base) for base in cls.__mro__[:-1]]
    extended, todo, done = set(names), set(names), set()
    if special_too:
        own = {name for base in bases for name in base}
        todo |= {name for name in own if name[:2] == name[-2:] == "__"} - _NEVER
    while todo:
        name = todo.pop()
        done.add(name)
        members = [base[name] for base in bases if name in base]
        if not members:
            continue
        member = members[0]
        for function in (getattr(member, part, None) for part in ("__func__", "fget", "func")):
            member = function or member
        if type(member) is types.FunctionType:
            new = names_of(member)
            extended |= new
            todo |= new - done
    return frozenset(extended)
