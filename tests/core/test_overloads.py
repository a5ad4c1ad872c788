"""What type checkers know of functions fits the functions."""

from __future__ import annotations

import ast
import inspect
import re
import types
import typing
from pathlib import Path

import pytest

import arrayferry as af
from arrayferry import _overloads
from arrayferry._stream import overloads

CORE = Path(af.__file__).parent
FUNCTIONS = {
    "convert": _overloads.Convert,
    "converter": _overloads.Converter,
    "stream": overloads.MakeStream,
}


def fields_of(name):
    """Return the keys of a TypedDict, which exists for type checkers only."""
    for module in ("_types.py", "_overloads.py", "_stream/overloads.py"):
        for node in ast.walk(ast.parse((CORE / module).read_text())):
            if isinstance(node, ast.ClassDef) and node.name == name:
                own = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
                bases = [base.id for base in node.bases if base.id != "TypedDict"]
                return own.union(*map(fields_of, bases))
    raise LookupError(name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_overloads_have_the_parameters_of_the_function(name):
    own = inspect.signature(getattr(af, name)).parameters
    keywords = {each.name for each in own.values() if each.kind is each.KEYWORD_ONLY}
    # the last definition of a protocol is not registered as theirs
    place = {
        "__module__": FUNCTIONS[name].__module__,
        "__qualname__": f"{FUNCTIONS[name].__name__}.__call__",
    }
    known = typing.get_overloads(types.SimpleNamespace(**place))
    assert len(known) > 5
    for overload in known:
        told = dict(inspect.signature(overload).parameters)
        del told["self"]
        told.pop("others", None)  # what mypy calls wrong in short, see `NoSuchOption`
        options = told.pop("options", None)
        if options is not None:
            (group,) = re.findall(r"Unpack\[(\w+)\]", options.annotation)
            assert fields_of(group) == keywords
        else:
            assert keywords <= told.keys()
        for parameter in told.values():
            same = own[parameter.name]
            assert parameter.kind is same.kind
            assert parameter.default in (same.default, inspect.Parameter.empty)
