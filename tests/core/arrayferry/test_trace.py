"""`trace`: what is counted, that it changes nothing, and that nothing of it stays."""

import collections
import dataclasses
import gc
import json
import pickle
import sys
import threading
import time
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import dask.array as da
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from boxes import Box, BoxBackend, BoxSource, Held, HeldContainer, Point
from cases import crossed

import arrayferry as af

pytestmark = pytest.mark.usefixtures("boxlib")
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def is_watched(conversion):
    return conversion._plans.run == conversion._plans._watched


def run_as(file):
    """Convert in a file of some name."""
    exec(compile("af.convert(X, 'torch')", file, "exec"), {"__name__": "user", "af": af, "X": X})


def round_trip():
    return af.convert(af.convert(X, "torch"), "numpy")


def traced(times, call, **options):
    """Return the trace of a function that is called several times."""
    with af.trace(**options) as t:
        for _ in range(times):
            call()
    return t


def only(t):
    (row,) = t.rows
    return row


# What is counted.


def test_a_row_says_what_crossed_and_where():
    with af.trace() as t:
        for _ in range(3):
            af.convert({"a": X, "b": [X + 1, "text", 3]}, "torch")
    row = only(t)
    assert (row.source, row.target) == ("numpy", "torch")
    assert row.source_device == row.target_device == "cpu"
    assert (row.calls, row.arrays, row.bytes) == (3, 6, 6 * X.nbytes)
    assert (row.how, row.why) == ("shared", {})
    assert row.seconds > 0
    assert row.file == __file__
    assert row.function == "test_a_row_says_what_crossed_and_where"
    assert row.place == f"test_trace.py:{row.line} in {row.function}"
    assert "af.convert" in Path(__file__).read_text().splitlines()[row.line - 1]
    assert (t.calls, t.arrays, t.bytes) == (3, 6, 6 * X.nbytes)
    assert t.seconds == pytest.approx(row.seconds)
    assert t.unread == 0


HOW = {
    "numpy to torch": (lambda: X, "torch", {}, "shared"),
    "numpy to torch, copied": (lambda: X, "torch", {"copy": True}, "copied"),
    "within numpy": (lambda: X, "numpy", {"copy": True}, "copied"),
    "numpy to jax": (lambda: X, "jax", {}, "copied"),
    "torch to numpy": (lambda: torch.ones(3), "numpy", {}, "shared"),
    "torch to jax": (lambda: torch.ones(3), "jax", {}, "copied"),
    "jax to numpy": (lambda: jnp.ones(3), "numpy", {}, "shared"),
    "jax to torch": (lambda: jnp.ones(3), "torch", {}, "copied"),
    "narrowed": (lambda: np.ones(3), "jax", {}, "copied"),
    "empty": (lambda: np.ones(0), "torch", {}, "shared"),
    "a view": (lambda: X[:, 1:], "torch", {}, "shared"),
    "flipped": (lambda: X[:, ::-1], "torch", {}, "copied"),
    "dask to numpy": (lambda: da.ones(4), "numpy", {}, "computed"),
    "numpy to dask": (lambda: X, "dask", {}, "copied"),
    "a number": (lambda: 1.5, "torch", {"scalars": "convert"}, "copied"),
    "a number of numpy": (lambda: np.float32(1), "torch", {}, "copied"),
    "strict to numpy": (lambda: af.convert(X, "array_api_strict"), "numpy", {}, "either"),
}


@pytest.mark.parametrize("name", HOW)
def test_what_happened_to_memory(name):
    make, target, options, how = HOW[name]
    x = make()
    with af.trace() as t:
        y = af.convert(x, target, **options)
    row = only(t)
    if name == "a number":
        assert row.source == "python"
    elif name != "a number of numpy":
        assert row.source == af.route(x, target).source.backend
    assert (row.target, row.arrays, t.unread) == (target, 1, 0)
    if how == "either":
        how = "shared" if np.shares_memory(np.from_dlpack(x), y) else "copied"
    assert row.how == how
    assert row.bytes == sum(z.nbytes for z in af.flatten(y)[0])


def test_what_a_source_reads_is_counted(register):
    register(BoxSource())
    box = Box(X.copy())
    with af.trace() as t:
        y = af.convert(box, "torch")
    assert (only(t).source, only(t).target) == ("boxes", "torch")
    assert only(t).how == ("shared" if np.shares_memory(y.numpy(), box.values) else "copied")


def test_what_does_not_change_is_not_counted():
    with af.trace() as t:
        af.convert(X, "numpy")
        af.convert({"a": [1, "text", None]}, "torch")
        af.convert({"text": np.array(["a"])}, "torch", unsupported="keep")
        assert af.convert(t, "torch") is t
    assert t.rows == []
    assert t.calls == 0
    assert str(t).startswith("No array crossed")


def test_pairs_of_one_call_have_rows_of_their_own():
    with af.trace() as t:
        af.convert({"a": X, "b": torch.ones(1000), "c": jnp.ones(2)}, "numpy", copy=True)
    found = {row.source: row for row in t.rows}
    assert set(found) == {"numpy", "torch", "jax"}
    assert t.calls == 1
    assert found["torch"].seconds > found["jax"].seconds
    assert {row.line for row in t.rows} == {found["torch"].line}


def test_lazy_arrays_are_not_computed_by_it():
    times = []

    def block(values):
        times.append(1)
        return values

    x = da.ones(4, chunks=4, dtype="float32").map_blocks(block, meta=np.ones(0, np.float32))
    with af.trace() as t:
        af.convert(x, "torch")
        af.convert([x], "dask")
        with pytest.raises(af.CopyRequiredError):
            af.convert(x, "torch", copy=False)
        af.convert(X, "dask")
    assert len(times) == 1
    assert {row.how for row in t.rows} == {"computed", "copied"}


def test_traced_values():
    with af.trace() as t:

        @jax.jit
        def double(x):
            assert af.convert(x, "jax") is x
            with pytest.raises(af.TracedValueError):
                af.convert([x], "numpy")
            return 2 * x

        double(jnp.ones(3))
    assert t.rows == []


def test_other_threads_are_counted():
    def work(_):
        for _ in range(50):
            af.convert(X, "torch")

    with af.trace() as t, ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert (only(t).calls, only(t).function) == (200, "work")


class Calling(HeldContainer):
    """A container that converts by itself."""

    def rebuild(self, value, children):
        af.convert(torch.ones(5), "numpy")
        return super().rebuild(value, children)


def test_a_conversion_within_another_one_is_not_timed_twice(register, monkeypatch):
    register(Calling())
    clock = iter(range(100))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    with af.trace() as t:
        af.convert([Held(X)], "torch")
    found = {row.source: row for row in t.rows}
    assert (found["torch"].seconds, found["torch"].arrays) == (1.0, 1)
    outer = found["numpy"].seconds
    # it began first and ended last, and what watching the inner one took is not part of it either
    assert outer == 2.0


# Fallbacks.


class Refusing(af.Converter):
    source, target, cost = "numpy", "boxes", "copy"
    answer = NotImplemented

    def convert(self, x, device, copy):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ValueError("not today"), "<Converter numpy -> boxes> failed (ValueError: not today)"),
        (NotImplemented, "<Converter numpy -> boxes> does not accept a ndarray of dtype float32"),
    ],
    ids=["raises", "declines"],
)
def test_a_direct_converter_that_does_not_take_an_array(answer, reason, register):
    register(BoxBackend())
    register(Refusing()).answer = answer
    t = traced(5, lambda: af.convert([X], "boxes"))
    assert only(t).why[reason] == 5
    text = " ".join(str(t).split())
    assert f"{reason}, 5 times" in text


def test_reasons_are_bounded(register):
    register(BoxBackend())
    converter = register(Refusing())
    with af.trace() as t:
        for number in range(100):
            converter.answer = ValueError(number)
            af.convert([X], "boxes")
    assert len(only(t).why) <= 17
    assert only(t).why["other reasons"] >= 100 - 16


# Findings.


@pytest.mark.parametrize(
    ("there", "start"),
    [("torch", X), ("jax", X), ("torch", jnp.ones(3)), ("numpy", torch.ones(3))],
    ids=["shared", "copied", "jax", "torch"],
)
def test_a_round_trip_is_reported(there, start):
    home = af.backend_of(start).name
    with pytest.warns(af.TraceWarning, match="round trip") as caught:
        t = traced(3, lambda: af.convert([af.convert(start, there)], home))
    (finding,) = t.findings
    assert (finding.kind, finding.times) == ("round trip", 3)
    assert f"{home} -> {there} -> {home}, 3 times" in finding.reason
    assert (finding.file, caught[0].filename) == (__file__, __file__)
    assert caught[0].lineno == finding.line
    assert "Keep the first array" in finding.remedy
    assert "Round trip at" in str(t)


@pytest.mark.skipif(
    dask.__version__ < "2025",
    reason="older versions of Dask compute another array than they were given",
)
def test_a_round_trip_by_two_libraries():
    with af.trace(warn=False) as t:
        af.convert(af.convert(af.convert(X, "torch"), "jax"), "numpy")
        af.convert(af.convert(af.convert(X, "torch"), "dask"), "numpy")
    found = [finding.reason for finding in t.findings]
    assert "numpy -> torch -> jax -> numpy, 1 time" in found[0]
    assert "numpy -> torch -> dask -> numpy, 1 time" in found[1]


def test_what_is_no_round_trip():
    with af.trace() as t:
        for _ in range(5):
            y = af.convert(X, "torch")
            af.convert(X, "torch")
            af.convert(y * 2, "numpy")  # another array
            af.convert(np.ones(3), "jax")
            af.convert(af.convert(X.copy(), "torch"), "jax")
            af.convert(X, "numpy", copy=True)
            del y
    assert t.findings == []


def test_a_copy_in_a_hot_loop_is_reported():
    fixed = X.copy()
    fixed.flags.writeable = False
    words = r"hot loop.*read-only, 120 times"
    with pytest.warns(af.TraceWarning, match=words):
        t = traced(120, lambda: af.convert(fixed, "torch"))
    (finding,) = t.findings
    assert (finding.kind, finding.times) == ("hot loop", 120)
    assert "read-only" in finding.reason
    assert finding.remedy == "Pass a writable array."


AVOIDABLE = {
    "flipped": (lambda: X[::-1], {}, "strides"),
    "swapped": (lambda: X.astype(">f4"), {}, "byte order"),
    "asked": (lambda: X, {"copy": True}, "copy=True was passed"),
    "overlapping": (lambda: np.ndarray(2, "f4", bytearray(12), offset=2, strides=(4,)), {}, "alignment"),
}  # fmt: skip


@pytest.mark.parametrize("name", AVOIDABLE)
def test_why_it_is_copied(name):
    make, options, reason = AVOIDABLE[name]
    x = make()
    t = traced(5, lambda: af.convert(x, "torch", **options), hot=5, warn=False)
    (finding,) = t.findings
    assert reason in finding.reason
    assert finding.remedy


def test_copies_that_cannot_be_avoided_are_no_finding():
    with af.trace(hot=2) as t:
        for _ in range(5):
            af.convert(X, "jax")
            af.convert(X, "numpy", copy=True)
            af.convert(X, "torch")
    assert t.findings == []


def test_findings_are_no_warnings_if_the_block_raises_or_they_are_unwanted():
    with pytest.raises(AttributeError), af.trace() as t:
        _ = round_trip().missing
    assert len(t.findings) == len(traced(1, round_trip, warn=False).findings) == 1


@pytest.mark.filterwarnings("error::arrayferry.TraceWarning")
def test_a_warning_that_is_an_error_leaves_nothing_behind():
    with pytest.raises(af.TraceWarning), af.trace() as t:
        round_trip()
    calls = t.calls
    af.convert(X, "torch")
    assert t.calls == calls


# Nothing changes.


def values():
    shared = [X.copy()]
    return {
        "leaf": X.copy(),
        "tree": {"a": X.copy(), "b": [torch.ones(2), ("text", 1.5)], "c": None},
        "many": [np.full(3, i, np.float32) for i in range(40)],
        "odd": [X[::-1], X.astype(">f4"), np.ones(0), np.float64(2), np.bool_(True)],
        "named": Point(jnp.ones(3), torch.ones(2)),
        "ordered": collections.OrderedDict(b=X.copy(), a=jnp.ones(2)),
        "twice": [shared, shared],
        "objects": np.array([X.copy(), None, "a"], dtype=object),
        "delayed": [dask.delayed(lambda: {"x": X})(), da.ones(3)],
        "nothing": {"a": 1, "b": "c"},
        "strict": [af.convert(X, "array_api_strict")],
        "text": np.array(["a"]),
        "big": np.array([2**40]),
    }


def described(value, source):
    """Describe a result: structure, values, and where memory is shared with the source."""
    leaves, layout = af.flatten(value, everything=True)
    given = {id(leaf): index for index, leaf in enumerate(af.flatten(source, everything=True)[0])}
    arrays = (np.ndarray, torch.Tensor, jax.Array)
    memory = [np.asarray(x) for x in af.flatten(source)[0] if isinstance(x, arrays)]

    def of(leaf):
        said = [type(leaf).__name__, str(getattr(leaf, "dtype", None)), given.get(id(leaf))]
        if isinstance(leaf, arrays):
            n = np.asarray(leaf)
            said += [repr(n.tolist()), n.flags.writeable, [np.shares_memory(n, x) for x in memory]]
        return said

    return repr(layout), [of(leaf) for leaf in leaves]


OPTIONS = [{}, {"copy": True}, {"copy": False}, {"scalars": "convert"}, {"device": "cpu"}]


@pytest.mark.parametrize(
    ("name", "target", "options"), crossed(values(), ["numpy", "torch", "jax"], OPTIONS), ids=str
)
def test_results_are_the_same(name, target, options):
    value = values()[name]

    def outcomes(conversion):
        found = []
        for _ in range(4):
            try:
                found.append(described(conversion(value), value))
            except af.ConversionError as error:
                found.append(f"{type(error).__name__}: {error}")
        return found

    plain = af.converter(target, **options)
    expected = outcomes(plain)
    watched = af.converter(target, **options)
    with af.trace(warn=False) as t:
        assert outcomes(watched) == expected
        assert outcomes(plain) == expected
    assert t.unread == 0
    assert watched.explain() == plain.explain()
    assert not is_watched(watched)
    assert not is_watched(plain)
    assert outcomes(watched) == expected


def test_what_was_compiled_is_kept():
    conversion = af.converter("torch")
    for _ in range(3):
        conversion({"a": X})
    compiled, plans = conversion._plans, conversion.explain()
    with af.trace():
        assert conversion.explain() == plans
        conversion({"a": X})
        assert conversion.target.name == "torch"
        assert repr(pickle.loads(pickle.dumps(conversion))) == repr(conversion)
    assert conversion._plans is compiled
    assert conversion.explain() == plans
    assert traced(1, lambda: conversion.slow_path({"a": X})).calls == 1


def test_no_array_and_no_conversion_is_kept():
    with af.trace() as t:
        conversion = af.converter("torch", narrowing="allow")
        x = np.ones(3)
        y = conversion([x])
        alive = [weakref.ref(thing) for thing in (x, y[0], conversion)]
        del x, y, conversion
        gc.collect()
        assert [ref() for ref in alive] == [None] * 3
    assert only(t).arrays == 1


def test_what_is_followed_is_bounded():
    with af.trace() as t:
        kept = [af.convert(np.ones(1), "torch") for _ in range(5_000)]
        assert len(kept) == 5_000
        assert len(t._trips.followed) <= 4_096
    assert not t._trips.followed


def test_rows_are_bounded(monkeypatch):
    monkeypatch.setattr("arrayferry._trace.recorder.MAX_ROWS", 3)
    with af.trace() as t:
        for number in range(6):
            exec(compile("\n" * number + "af.convert(X, 'torch')", "<typed>", "exec"), globals())
    assert len(t.rows) == 4
    assert {row.place for row in t.rows} >= {"(other lines)"}
    assert t.arrays == 6


# Beginning and end.


def test_traces_can_be_nested_and_used_again():
    with af.trace() as outer:
        af.convert(X, "torch")
        with af.trace() as inner:
            af.convert(X, "torch")
            with inner:
                af.convert(X, "torch")
            af.convert(X, "torch")
        af.convert(X, "torch")
    with inner:
        af.convert(X, "torch")
    assert (outer.calls, inner.calls) == (5, 4)
    assert repr(inner) == str(inner)


def test_traces_of_several_threads():
    started = threading.Barrier(4)

    def work(_):
        started.wait(60)
        with af.trace() as t:
            for _ in range(20):
                af.convert(X, "torch")
        return t.calls

    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert min(pool.map(work, range(4))) >= 20
    with af.trace() as t:
        pass
    assert t.calls == 0


def test_a_conversion_that_outlasts_the_trace_is_not_counted(register):
    began, go_on = threading.Event(), threading.Event()

    class Slow(HeldContainer):
        def rebuild(self, value, children):
            began.set()
            go_on.wait(60)
            return super().rebuild(value, children)

    register(Slow())
    with ThreadPoolExecutor(1) as pool:
        with af.trace() as t:
            found = pool.submit(af.convert, [Held(X)], "torch")
            assert began.wait(60)
        go_on.set()
        assert isinstance(found.result(60)[0].x, torch.Tensor)
    assert t.calls == 0


def test_the_registry_may_change(register):
    conversion = af.converter("torch")
    conversion([X])
    with af.trace() as t:
        conversion([X])
        register(Calling())
        conversion([X])
        af.registry.refresh()
        conversion([X])
    assert t.calls == 3
    conversion([X])
    assert not is_watched(conversion)
    assert conversion._plans.pairs.catalog is af.registry.catalog


def test_what_was_compiled_from_another_registry_does_not_come_back(monkeypatch):
    """The registry changes between the moment that a trace reads what was learnt and the one that it writes."""
    from arrayferry._conversion.plans import Plans

    conversion = af.converter("torch")
    conversion([X])
    compiled, notice = conversion._plans, Plans.notice_observers

    def meanwhile(self):
        if self is compiled:
            af.registry.refresh()
        notice(self)

    monkeypatch.setattr(Plans, "notice_observers", meanwhile)
    with af.trace():
        monkeypatch.undo()
        assert conversion._plans is None
        conversion([X])
        assert conversion._plans.pairs.catalog is af.registry.catalog


def test_other_registries(registry):
    from arrayferry._conversion.conversion import make_conversion

    conversion = make_conversion("torch", af.Options(), registry)
    assert traced(1, lambda: conversion([X])).calls == 1


def counts_for_itself(t):
    """Leave a trace, as a fork does, and count a call in one of its own."""
    t.__exit__(None, None, None)
    with af.trace() as own:
        af.convert(X, "torch")
    assert own.calls == 1


def test_a_forked_process_counts_nothing(run_forked):
    with af.trace() as t:
        af.convert(X, "torch")

        def child():
            assert af.convert(X, "torch").shape == (2, 3)
            assert t.calls == 1
            assert "numpy -> torch" in str(t)
            counts_for_itself(t)
            with t:
                af.convert(X, "torch")
            assert t.calls == 2

        run_forked(child)
        af.convert(X, "torch")
    assert t.calls == 2


def test_an_odd_value_is_counted_as_unread(monkeypatch):
    def fails(*_):
        raise RuntimeError

    monkeypatch.setattr("arrayferry._trace.watch.crossings_of", fails)
    with af.trace() as t:
        assert isinstance(af.convert(X, "torch"), torch.Tensor)
    assert (t.calls, t.unread) == (0, 1)
    assert "1 value could not be examined" in str(t)


# How it is shown.


@pytest.fixture
def shown():
    with af.trace(warn=False, hot=2) as t:
        for _ in range(3):
            af.convert(af.convert({"x": X, "y": jnp.ones(3)}, "torch"), "numpy")
            af.convert(X[::-1], "torch")
        af.convert(da.ones(3), "torch")
    return t


def test_the_table(shown):
    lines = str(shown).splitlines()
    assert " ".join(lines[0].split()) == "time calls arrays size how from -> to place"
    table = lines[1 : lines.index("")]
    places = [line for line in table if " in shown" in line]
    assert len(places) == len(shown.rows)
    for row in shown.rows:
        below = table[table.index(places.pop(0)) + 1 :][: len(row.why)]
        assert [line.strip().rpartition(", ")[0] for line in below] == list(row.why)
    assert "Round trip at" in str(shown)
    assert "Hot loop at" in str(shown)
    assert f"; {len(shown.rows) - 1} more rows not shown" in shown.table(1)


@pytest.mark.parametrize(
    ("call", "wrong", "words"),
    [
        (af.trace, {"hot": [0, True, "1"], "warn": [1]}, "is not valid"),
        (af.trace().table, {"rows": [0, "1"]}, "Pass a whole number of 1 or more"),
    ],
    ids=["trace", "table"],
)
def test_wrong_options(call, wrong, words):
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(af.OptionError, match=words):
                call(**{name: value})


def test_calls_are_counted_and_not_arrays():
    with af.trace(warn=False) as t:
        for _ in range(99):
            af.convert([np.ones(3)[::-1] for _ in range(5)], "torch")
        assert t.findings == []
        af.convert(np.ones(3)[::-1], "torch")
        assert t.findings == []  # it is another line
    with af.trace(warn=False, hot=66) as t:
        for number in range(99):
            af.convert([np.ones(3)[::-1], np.ones(3)] if number % 3 else X, "torch")
    assert [finding.times for finding in t.findings] == [66]
    assert {row.how: row.calls for row in t.rows} == {"copied": 66, "shared": 99}


def test_a_copy_that_a_library_between_asks_for_is_no_finding():
    library = {"__name__": "arrayferry_gym.somewhere", "af": af}
    exec("def own(x):\n    return af.convert(x, 'torch', copy=True)", library)
    t = traced(3, lambda: library["own"](X), hot=2)
    assert only(t).why == {"a library that called arrayferry passed copy=True": 3}
    assert only(t).file == __file__
    assert t.findings == []


def test_why_memory_cannot_be_shared():
    with af.trace() as t:
        af.convert(jnp.ones(3), "torch")
        af.convert(da.ones(3), "torch")
        af.convert(np.ones(3), "jax")
    found = {(row.source, row.target): list(row.why) for row in t.rows}
    assert found["jax", "torch"] == [
        "memory cannot be shared: jax arrays never change, but torch could write to them"
    ]
    assert found["dask", "torch"] == [
        "the route is dask (cpu) -> numpy (cpu) computed -> torch (cpu) shared"
    ]
    assert "the numpy array can be written to" in found["numpy", "jax"][0]
    assert t.findings == []


def test_a_part_of_an_array_is_another_one():
    with af.trace(warn=False) as t:
        y = af.convert(np.arange(6.0).reshape(3, 2), "torch")
        af.convert(y[0], "numpy")
        assert t.findings == []
        af.convert(y.reshape(2, 3), "numpy")
    assert [finding.kind for finding in t.findings] == ["round trip"]
    assert "if no values are changed" in t.findings[0].remedy


ODD = (
    "caf\udce9.py", "\x1b[31mred.py", "a\nb\tc.py", "ñandú.py", "$x$.py", "", "<script>alert(1)",
)  # fmt: skip


@pytest.mark.parametrize("file", ODD, ids=ascii)
def test_names_of_files_that_cannot_be_shown(file):
    run_as(file)
    t = traced(1, lambda: run_as(file))
    for text in (str(t), t.rows[0].place):
        text.encode()
        assert not any(odd in text for odd in ("\x1b", "\t", "\udce9", "a\nb"))
    assert len(str(t).splitlines()) == 4
    assert t.rows[0].file == file


def test_rows_are_ready_for_json(shown):
    read = json.loads(json.dumps([dataclasses.asdict(row) for row in shown.rows]))
    assert sum(row["arrays"] for row in read) == shown.arrays
    assert sum(row["bytes"] for row in read) == shown.bytes
    assert {finding.kind for finding in shown.findings} == {"round trip", "hot loop"}
    assert str(pickle.loads(pickle.dumps(shown))) == str(shown)


def test_a_cell_of_a_notebook(monkeypatch):
    compiler = types.SimpleNamespace(
        format_code_name=lambda name: ("Cell", "In[3]") if "ipykernel" in name else None
    )
    shell = types.SimpleNamespace(compile=compiler)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    t = traced(1, lambda: run_as("/tmp/ipykernel_1/2.py"))
    assert only(t).place == "Cell In[3]:1"


def test_units():
    from arrayferry._trace.rows import size_text, time_text

    assert [time_text(s) for s in (0, 1.2e-6, 9.999e-4, 0.5, 12, 100_000)] == [
        "0.00 us", "1.20 us", "1.00 ms", "500 ms", "12.0 s", "100000 s",
    ]  # fmt: skip
    sizes = [size_text(b) for b in (0, 999, 1000, 999_999, 12e9)]
    assert sizes == ["0 B", "999 B", "1.00 kB", "1.00 MB", "12.0 GB"]


def test_no_warning_by_itself():
    with af.trace() as t:
        af.convert([torch.ones(2).to_sparse(), X], "torch", copy=True)
    assert t.unread == 0


def test_a_fork_while_another_thread_counts(fork_while, monkeypatch):
    wait, fork = fork_while
    record = af.Trace.record
    monkeypatch.setattr(af.Trace, "record", lambda *args: (wait(), record(*args)))
    with af.trace() as t:
        fork(lambda: af.convert(X, "torch"), lambda: counts_for_itself(t))
