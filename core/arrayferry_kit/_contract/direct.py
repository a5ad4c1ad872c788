"""Tests of direct converters: called for one array or for many, and written into code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from arrayferry import Backend, Converter, Inline, Options, registry
from arrayferry._plugin.call import overrides
from arrayferry._route.memory import never_changes
from arrayferry.adapting import describe_error

from . import samples
from .arrays import BackendTests
from .calls import Call, Given, one_by_one
from .checks import ask, every

_Convert = Callable[[list[Any]], Any]


class DirectTests(BackendTests):
    """The tests of direct converters."""

    def test_direct_converters_match_the_general_path(self) -> None:
        """Direct converters return equal arrays, one or many at once, in any layout, with and without `copy=True`."""
        mine, known = self.tested.name, registry.backends()
        parts = []
        for direct in registry.catalog.converters:
            ends = (direct.source, direct.target)
            if mine in ends and all(name in known and known[name].usable for name in ends):
                kinds = {str(name).partition(":")[0] for name in known[direct.target].devices()}
                if direct.source_device == "cpu" and direct.target_device in kinds:
                    parts.append(partial(self._check_direct, direct, *(known[end] for end in ends)))
        every(parts)

    def _check_direct(self, direct: Converter, source: Backend, target: Backend) -> None:
        """Check a converter. One that raises, or returns `NotImplemented`, leaves arrays to the general path."""
        method = "to_numpy" if source.name == self.tested.name else "from_numpy"
        groups, outcomes = list(self._groups_of(source, method)), list[Any]()

        def check(way: str, copy: bool | None) -> None:
            function = _function(direct, way, Options(copy=copy))
            if function is not None:
                what, attempt = f"{way}() of {direct!r}", partial(_attempt, function, outcomes)
                shares = False if copy else None
                call = Call(what, attempt, source, target, shares, f"copy={copy}", declines=True)
                each_layout = [*groups[:4], *(group[-1:] for group in groups[4:])]
                for group in _mixed(groups) if way == "bind_many" else each_layout:
                    self.run(call, *(each for each in group if direct.takes(type(each.x))))
                if copy or never_changes(source) or never_changes(target):
                    memory = self._memory(method, (65_536, samples.LARGE))
                    for given in self._in_library(source, memory):
                        self.run(call, given, writes=True)

        every(partial(check, way, copy) for copy in (None, True) for way in ("convert", *_MADE))
        if True not in outcomes:
            cause = next((x for x in outcomes if isinstance(x, Exception)), None)
            came = f"raised {describe_error(cause)}" if cause else "returned NotImplemented"
            what = f"{direct!r}, for every ordinary array of dtype {self._usual().name} on the CPU"
            raise AssertionError(f"{what}: {came} instead of an array") from cause

    def _groups_of(self, source: Backend, method: str) -> Iterator[list[Given]]:
        """Yield arrays of a library of all dtypes, shapes and layouts, those of one shape together."""
        usual = self._usual()
        dtypes = samples.dtypes_of(source.dtypes())
        dtypes.sort(key=lambda dtype: (dtype != usual, dtype.kind not in "biuf"))
        for index, dtype in enumerate(dtypes):
            groups = self._samples(method, dtype)
            for group in islice(groups, 4 if index else None):
                yield list(self._in_library(source, group if index < 4 else group[:1]))
        for name, x in samples.odd_layouts(usual) if source.name == "numpy" else ():
            values = np.array(x.astype(x.dtype.newbyteorder("=")))
            yield [Given(x, values, samples.case_of(values, name))]

    def _in_library(self, source: Backend, arrays: Iterable[Given]) -> Iterator[Given]:
        """Yield the arrays, with NumPy arrays converted to a library."""
        for given in arrays:
            if isinstance(given.x, np.ndarray):  # an array may be given twice
                given.x = source.from_numpy(given.x)
            yield given


def _mixed(groups: list[list[Given]]) -> list[list[Given]]:
    """Return lists of many arrays of different dtypes and shapes, with other values in each list."""
    many = [group for group in groups if len(group) > 1]
    return [[group[shift] for group in many] for shift in (1, 2)]


_MADE = ("bind", "inline", "bind_many")
"""The methods of a converter that return a function or expressions, or None."""


def _function(direct: Converter, method: str, options: Options) -> Any:
    """Return a function that converts a list of arrays by a method of a converter, None if the method is not used."""
    if method == "convert":
        return one_by_one(lambda x: direct.convert(x, None, options.copy))
    if not overrides(direct, getattr(Converter, method)):
        return None
    made: Any = ask(getattr(direct, method), options, what=f"{method}() of {direct!r}")
    if made is not None and method != "bind_many":
        made = one_by_one(_written(made) if method == "inline" else made)
    return made


def _attempt(function: _Convert, outcomes: list[Any], xs: list[Any]) -> list[Any]:
    """Convert arrays. Add to `outcomes` the error, or whether each array was converted."""
    try:
        ys = list(function(xs))
    except Exception as error:
        outcomes.append(error)
        return [NotImplemented] * len(xs)
    outcomes += [y is not NotImplemented for y in ys]
    return ys


def _written(inline: Inline) -> Callable[[Any], Any]:
    """Make a function of the expressions that a conversion writes into its code."""
    names = {name: name for name in ("x", "y", *inline.names)}
    test, result = inline.test.format(**names) or "True", inline.result.format(**names)
    function: Callable[[Any], Any] = eval(
        f"lambda x: ({result}) if ({test}) else NotImplemented", dict(inline.names)
    )
    return function
