"""Two libraries whose arrays are exchanged by DLPack in host memory, under the rule for copies."""

import numpy as np
import pytest
from refusals import refused
from toys import Array

import arrayferry as af


class One(Array):
    pass


class Two(Array):
    pass


class Exchange(af.DLPack):
    kinds = ("cpu",)

    def __init__(self, kind, calls):
        self.kind, self.calls = kind, calls

    def export(self, x):
        return x.values

    def load(self, x, device=None):
        self.calls.append("load")
        return self.kind(np.from_dlpack(x))


class Library(af.Backend):
    package = "numpy"
    kind: type
    calls: list

    def to_numpy(self, x):
        self.calls.append("to_numpy")
        return x.values.copy()

    def from_numpy(self, x, device=None):
        self.calls.append("from_numpy")
        return self.kind(x.copy())

    def copy(self, x):
        self.calls.append(f"copy of {self.name}")
        return self.kind(x.values.copy())


@pytest.fixture
def libraries(register):
    """Register the libraries "one" and "two" with these attributes. Return the list of calls."""

    def make(one="writable", two="writable", **attributes):
        calls = []
        for kind, memory, own in ((One, one, {}), (Two, two, attributes)):
            name = kind.__name__
            names = {"name": name.lower(), "array_types": (f"{__name__}.{name}",)}
            common = {**names, "kind": kind, "memory": memory, "calls": calls}
            own = {**common, "dlpack": Exchange(kind, calls), **own}
            register(type(name, (Library,), own)())
        return calls

    return make


SHARED = [("writable", "writable"), ("immutable", "immutable")]
COPIED = [
    ("writable", "immutable", "copy of one"),
    ("immutable", "writable", "copy of two"),
    ("unknown", "writable", "copy of two"),
    ("writable", "unknown", "copy of one"),
    ("unknown", "immutable", "copy of one"),
]


@pytest.mark.parametrize(("one", "two"), SHARED)
@pytest.mark.parametrize("copy", [None, False])
def test_memory_is_shared_where_that_is_safe(libraries, one, two, copy):
    calls = libraries(one, two)
    x = One(np.arange(3.0))
    for _ in range(4):
        y = af.convert([x], "two", copy=copy)[0]
        assert type(y) is Two
        assert np.shares_memory(x.values, y.values)
    assert set(calls) == {"load"}


@pytest.mark.parametrize(("one", "two", "by"), [(*pair, None) for pair in SHARED] + COPIED)
def test_memory_of_its_own(libraries, one, two, by):
    calls = libraries(one, two)
    x = One(np.arange(3.0))
    for copy in (None, True) if by else (True,):
        y = af.convert(x, "two", copy=copy)
        assert y.values.tolist() == [0, 1, 2]
        assert not np.shares_memory(x.values, y.values)
        assert "to_numpy" not in calls
        copies = [call for call in calls if call.startswith("copy")]
        assert len(copies) == 1
        assert by in (None, copies[0])
        calls.clear()


@pytest.mark.parametrize(("one", "two"), [pair[:2] for pair in COPIED if "unknown" not in pair])
def test_sharing_that_is_not_safe_is_refused(libraries, one, two):
    calls = libraries(one, two)
    refused(af.CopyRequiredError, "never change, but", One(np.arange(3.0)), "two", copy=False)
    assert calls == []


def test_sharing_may_be_asked_for_where_nothing_is_promised(libraries):
    libraries("unknown", "writable")
    x = One(np.arange(3.0))
    assert np.shares_memory(x.values, af.convert(x, "two", copy=False).values)


def test_a_dtype_that_the_target_lacks_is_not_handed_over(libraries):
    calls = libraries(dtypes=lambda self: frozenset({"float32"}))
    y = af.convert(One(np.arange(3.0)), "two")
    assert y.values.dtype == np.float32
    assert calls == ["to_numpy", "from_numpy"]


@pytest.mark.parametrize("error", [BufferError("not this one"), MemoryError("none left")])
def test_a_library_that_refuses_gets_the_values_by_numpy_if_there_is_memory(libraries, error):
    class Refusing(Exchange):
        def load(self, x, device=None):
            raise error

    calls = libraries(dlpack=Refusing(Two, []))
    if type(error) is MemoryError:
        refused(MemoryError, "none left", One(np.arange(3.0)), "two")
    else:
        assert af.convert(One(np.arange(3.0)), "two").values.tolist() == [0, 1, 2]
        assert calls == ["to_numpy", "from_numpy"]
