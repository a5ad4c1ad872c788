"""Explains errors in the methods of an environment: the line in the author's code, the mistake, and the remedy."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import arrayferry as af
from arrayferry._utilities.caller import authors_line
from arrayferry.typing import AnyTree

from .functional_env import FunctionalEnv
from .params import field_names

SIGNATURES = {
    "reset": ("xp", "rng", "n", "params"),
    "step": ("xp", "rng", "state", "action", "params"),
    "observe": ("xp", "state", "params"),
    "info": ("xp", "state", "params"),
    "sample_params": ("xp", "rng", "n", "params"),
    "render": ("state", "index"),
}
"""The arguments of each method of an environment, without `self`."""


def wrong_signatures(
    functional: FunctionalEnv, methods: Iterable[str] = SIGNATURES
) -> Iterator[tuple[str, str]]:
    """Yield (name, correct definition) for each method that cannot be called with its arguments in SIGNATURES."""
    for name in methods:
        argument_names = SIGNATURES[name]
        try:
            inspect.signature(getattr(functional, name)).bind(*argument_names)
        except TypeError:
            yield name, f"def {name}(self, {', '.join(argument_names)})"
        except ValueError:  # a builtin may have no signature
            continue


def line_of(method: Any) -> str:
    """Return the "file:line" at which a method begins, or "without source"."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "without source"


def first_line(functional: FunctionalEnv, method: str) -> str:
    """Return the "file:line" at which a method begins, without the folders of the file."""
    return Path(line_of(getattr(type(functional), method))).name


def last_line(functional: FunctionalEnv, error: BaseException, method: str) -> str:
    """Return, as "file:line", the last line of the author's code in a traceback. If there is none, use `first_line`."""
    codes = {
        function.__code__
        for cls in type(functional).__mro__
        if cls is not FunctionalEnv
        for name, function in vars(cls).items()
        if name in SIGNATURES and inspect.isfunction(function)
    }
    return authors_line(error, codes) or first_line(functional, method)


def explanation(error: Exception, params: AnyTree) -> tuple[str, str]:
    """Return a description of the mistake that led to an error, and the remedy."""
    if isinstance(error, af.ArrayFerryError):
        return error.reason, error.remedy
    message, error_type = str(error), type(error).__name__
    for words, what, remedy in _MISTAKES:
        if error_type in words or any(word in message for word in words):
            return what.format(text=message.partition("\n")[0]), remedy
    if isinstance(error, (KeyError, AttributeError)):
        # a KeyError does not name its dict. Assume that it is the parameters if the line that
        # raised it contains "params"
        if isinstance(error, KeyError):
            line = traceback.extract_tb(error.__traceback__)[-1].line or ""
            name, owner = error.args[0], params if "params" in line else None
        else:
            name, owner = error.name, error.obj
        if isinstance(name, str) and (owner is params or type(owner) is type(params)):
            fields = ", ".join(map(str, field_names(params))) or "none"
            remedy = f"The parameters are {fields}: see default_params."
            return f"there is no parameter {name!r}", remedy
        if inspect.ismodule(owner) or "namespace" in type(owner).__name__.lower():
            return f"xp has no {name!r}, which is not in the Array API standard", "Use functions of the standard."  # fmt: skip
    return f"{error_type}: {message.partition(chr(10))[0]}", ""


_MISTAKES = [
    (
        ("truth value of an array", "Boolean value of Tensor", "TracerBoolConversionError", "bool is only allowed on arrays"),
        "it asks whether an array is true, by if, while, and, or, not, min or max",
        "Choose by xp.where(condition, a, b), and combine by &, | and ~.",
    ),
    (
        ("read-only", "arrays are immutable", "does not support item assignment", "in-place"),
        "it changes an array in place",
        "Make a new array, by arithmetic or by xp.where. Compiled code and other libraries would lose or leak the change.",
    ),
    (
        ("TracerArrayConversionError", "only supports array_api_strict", "from a different namespace", "can't convert", "Can't call numpy()"),
        "a function of NumPy was called on an array of another library",
        "Use the functions of xp, the namespace of the library in use.",
    ),
    (
        ("TracerIntegerConversionError", "ConcretizationTypeError", "only 0-dimensional arrays", "only length-1 arrays", "can only be converted to"),
        "it needs the value of an array as a Python number",
        "Compute with arrays: no int(), float(), range() or shapes that depend on values.",
    ),
    (
        ("NonConcreteBooleanIndexError",),
        "it selects by a mask, so that the shape depends on values",
        "Use xp.where(mask, a, b), which keeps the shape.",
    ),
    (
        ("cannot be type promoted", "expected scalar type", "expected m1 and m2", "same dtype"),
        "it mixes dtypes: {text}",
        "Cast by xp.astype(x, xp.float32), and give a dtype to xp.zeros and the like.",
    ),
    (
        ("Only numeric dtypes are allowed",),
        "it computes with a flag: {text}",
        "Write xp.astype(flag, xp.float32), or choose by xp.where.",
    ),
    (
        ("be broadcast together", "must match the size of tensor", "Incompatible shapes for broadcasting"),
        "it combines arrays of incompatible shapes: {text}",
        "One number for each environment has the shape (n,). To combine it with an array (n, d), use xp.reshape(x, (-1, 1)).",
    ),
]  # fmt: skip


class Problem(NamedTuple):
    """A mistake in an environment.

    Attributes:
        method: the method in which it was found, such as "step".
        place: the line, as "file:line".
        what: the mistake.
        remedy: the remedy, or "" if it is not known.
        libraries: the libraries in which it was found.
    """

    method: str
    place: str
    what: str
    remedy: str
    libraries: tuple[str, ...]

    def __str__(self) -> str:
        libraries_text = f" (in {', '.join(self.libraries)})" if self.libraries else ""
        return f"{self.method}(), {self.place}: {self.what}{libraries_text}. {self.remedy}".rstrip()


class Problems(list[Problem]):
    """The problems that `check_functional_env` found. Printed, the list has a line for each problem."""

    def __repr__(self) -> str:
        return "\n".join(map(str, self)) or "[]"


def merged(problems: list[Problem]) -> list[Problem]:
    """Merge equal problems into one, which names all libraries in which they were found."""
    problems_by_key: dict[Any, Problem] = {}
    for problem in problems:
        # after four words, texts of equal problems may differ, for example in names of libraries
        key = problem.method, problem.place, *problem.what.split()[:4]
        if key in problems_by_key:
            libraries = dict.fromkeys((*problems_by_key[key].libraries, *problem.libraries))
            problem = problems_by_key[key]._replace(libraries=tuple(libraries))
        problems_by_key[key] = problem
    return list(problems_by_key.values())
