"""What type checkers know of functions fits the functions."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
import types
import typing
from pathlib import Path

import pytest

import arrayferry as af
from arrayferry import _overloads

ROOT = Path(__file__).parents[2]
FUNCTIONS = {
    "convert": _overloads.Convert,
    "converter": _overloads.Converter,
}


def fields_of(name):
    """Return the keys of a TypedDict, which exists for type checkers only, with those of its bases."""
    if name == "TypedDict":
        return set()
    for module in (_overloads,):
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, ast.ClassDef) and node.name == name:
                own = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
                return own.union(*(fields_of(base.id) for base in node.bases))
    raise LookupError(name)


def test_they_are_those_that_the_tool_writes():
    written = runpy.run_path(str(ROOT / "tools" / "overloads.py"))["WRITTEN"]
    assert len(written) == 4
    for place, text in written.items():
        assert place.read_text() == text(), "Run: python tools/overloads.py"


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
