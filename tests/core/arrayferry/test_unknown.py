"""What is no array, but could become one: refused where it is the whole value, and read by sources."""

import array
import datetime
import pathlib
import types

import jax
import numpy as np
import pytest
import torch
from boxes import Held, HeldContainer
from pytrees import Node
from refusals import refused

import arrayferry as af

VALUES = np.array([1.0, 2.0, 3.0], np.float32)


class ByArray:
    def __init__(self, values=VALUES):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values


class ByDLPack:
    def __dlpack__(self, **options):
        return VALUES.copy().__dlpack__(**options)

    def __dlpack_device__(self):
        return (1, 0)


class ByInterface:
    def __init__(self):
        self.__array_interface__ = VALUES.__array_interface__


class ByNumpy:
    """As a tensor of tinygrad."""

    shape, dtype = VALUES.shape, "float32"

    def numpy(self):
        return VALUES.copy()


FOREIGN = {
    "array protocol": ByArray,
    "dlpack": ByDLPack,
    "interface of the instance": ByInterface,
    "numpy()": ByNumpy,
    "memoryview": lambda: memoryview(VALUES),
    "array.array": lambda: array.array("f", VALUES),
}
PLAIN = ["text", b"bytes", bytearray(b"b"), np.str_("text"), np.bytes_(b"b"), np.datetime64(1, "D")]
PLAIN += [None, object(), types.SimpleNamespace(a=1), ByArray, np, range(3), {1, 2}, slice(3), ...]


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "dask"])
def test_what_could_be_an_array_is_never_returned_in_silence(name, to):
    value = FOREIGN[name]()
    for call in (lambda: af.convert(value, to), lambda: af.converter(to, unknown="raise")(value)):
        for _ in range(4):
            with pytest.raises(
                af.NotAnArrayError,
                match=r"(Call (numpy\.asarray\(x\)|x\.numpy\(\)) first.*unknown=|Pass unknown=.*from_dlpack\(x\))",
            ):
                call()


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("unknown", ["keep", "raise", "convert"])
def test_what_could_not_be_an_array_is_returned(value, unknown):
    to_torch = af.converter("torch", unknown=unknown)
    for _ in range(4):
        assert to_torch(value) is value
        assert to_torch([value, VALUES])[0] is value


@pytest.mark.parametrize(
    "base", [str, int, float, set, frozenset, datetime.date, ValueError, pathlib.PurePosixPath]
)
def test_kinds_of_data_of_python_are_not_refused(base):
    made = type("Mine", (base,), {})
    value = made(2020, 1, 1) if base is datetime.date else made()
    assert af.convert(value, "torch", unknown="raise") is value


def test_a_whole_value_that_is_no_array_can_be_refused():
    class Grid:
        shape = (2,)

    refuses = af.converter("torch", unknown="raise")
    of_rust = type("Grid", (), {"__module__": "builtins", "shape": (2,)})()  # as PyO3 names them
    for value in (Grid(), of_rust, torch.float32, torch.Generator(), np.ones):
        own = type(value).__name__ == "Grid"
        for _ in range(3):
            assert af.convert(value, "torch") is value
            if value is np.ones:
                assert refuses(value) is value
            else:
                words = "has this type among its array_types"
                with pytest.raises(af.NotAnArrayError, match=words) as info:
                    refuses(value)
                assert ("Grid is neither an array of a known" in str(info.value)) is own
            assert refuses({"a": value, "x": VALUES})["a"] is value
            assert refuses(VALUES).tolist() == VALUES.tolist()


@pytest.mark.parametrize("name", FOREIGN)
def test_in_trees_the_option_says(name):
    value = FOREIGN[name]()
    tree = {"a": [value, VALUES]}
    for _ in range(4):
        assert af.convert(tree, "torch")["a"][0] is value
        refused(af.NotAnArrayError, r"at \['a'\]\[0\]", tree, "torch", unknown="raise")
        found = af.convert(tree, "torch", unknown="convert")["a"]
        assert [x.tolist() for x in found] == [VALUES.tolist()] * 2
        assert found[0].dtype is torch.float32
    for to in ("numpy", "jax", "dask"):
        np.testing.assert_array_equal(np.asarray(af.convert(value, to, unknown="convert")), VALUES)


def test_a_class_whose_instances_differ():
    class Holder:
        pass

    for unknown in ("keep", "raise", "convert"):
        to_torch = af.converter("torch", unknown=unknown)
        plain = Holder()
        for _ in range(4):
            assert to_torch([plain])[0] is plain
            if unknown != "raise":
                assert to_torch(plain) is plain
        holder = Holder()
        holder.__array_interface__ = VALUES.__array_interface__
        if unknown == "convert":
            assert to_torch(holder).tolist() == VALUES.tolist()
        else:
            with pytest.raises(af.NotAnArrayError):
                to_torch(holder)


def test_memory_of_unknown_objects_is_shared_only_if_asked_for():
    values = VALUES.copy()
    x = af.convert(ByArray(values), "torch", unknown="convert")
    shared = af.convert(ByArray(values), "torch", unknown="convert", copy=False)
    values[0] = 9
    assert x.tolist() == [1, 2, 3]
    assert shared.tolist() == [9, 2, 3]
    options = {"unknown": "convert", "copy": False}
    refused(af.CopyRequiredError, "is read-only", memoryview(b"abc"), "torch", **options)
    read_only = af.convert(memoryview(b"abc"), "torch", unknown="convert")
    assert read_only.tolist() == [97, 98, 99]


class Masked(ByArray):
    mask = np.array([True, False, False])


class Ragged(ByArray):
    def __array__(self, dtype=None, copy=None):
        raise ValueError("ragged")


class Measured(ByArray):
    units = "m"


MASKED_RECORDS = np.ma.array([(1, [2.0, 3.0])], mask=[(0, [0, 1])], dtype="i4,(2,)f8")
LOST = {
    "mask": lambda: ByArray(np.ma.masked_array(VALUES, [1, 0, 0])),
    "mask of a field": lambda: ByArray(MASKED_RECORDS),
    "own mask": Masked,
    "units": Measured,
    "no array of numbers": lambda: ByArray(np.array([None, "a"], object)),
    "ValueError: ragged": Ragged,
}


@pytest.mark.parametrize("what", LOST)
def test_nothing_is_stripped_in_silence(what):
    value = LOST[what]()
    words = what.removeprefix("own ").removesuffix(" of a field")
    refused(af.ConversionError, words, [value], "numpy", unknown="convert")
    assert af.convert([value], "numpy")[0] is value


def test_a_quantity_as_a_whole_is_refused_for_its_units():
    refused(af.NotAnArrayError, r"units, which would be lost.*magnitude", Measured(), "torch")


def test_the_remedy_names_the_objects_own_method():
    class Column(ByArray):
        def to_numpy(self):
            return self.values

    Column.__module__ = "mytables.columns"
    refused(af.NotAnArrayError, r"Call x\.to_numpy\(\).*plugin for mytables", Column(), "torch")


def test_the_remedy_leaves_what_offers_dlpack_on_its_device():
    class Tensor(ByDLPack):
        def numpy(self):
            raise AssertionError("called")

    Tensor.__module__ = "mytensors.core"
    remedy = r'Pass unknown="convert", or call from_dlpack\(x\) of the library that you want first, or install'
    info = refused(af.NotAnArrayError, remedy + ".*plugin for mytensors", Tensor(), "torch")
    assert "numpy" not in str(info)
    assert af.convert(Tensor(), "torch", unknown="convert").tolist() == VALUES.tolist()


class ByCuda:
    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (0, False), "version": 3}


class OfPyCuda(ByCuda):
    def get(self):
        return VALUES.copy()


class OfNumba(OfPyCuda):
    def copy_to_host(self):
        return VALUES.copy()


def test_memory_on_a_gpu_that_no_library_here_takes():
    for value, own_way in (
        (ByCuda(), r"cupy\.asarray\(x\)"),
        (OfPyCuda(), r"x\.get\(\)"),
        (OfNumba(), r"x\.copy_to_host\(\)"),
    ):
        words = rf"Call {own_way} first.*or pass unknown=.convert., which needs a CuPy or PyTorch"
        refused(af.NotAnArrayError, words, value, "torch")
        words = "on a GPU, and neither CuPy nor PyTorch could read it here.*NumPy array of it with its own"
        for to in ("numpy", "torch", "jax"):
            refused(af.ConversionError, words, value, to, unknown="convert")
            refused(af.ConversionError, words, [value], to, unknown="convert")


def test_memory_on_a_gpu_that_its_library_also_reads():
    class Both(ByCuda, ByArray):
        pass

    class OnGpu(Both):
        __dlpack__ = ByDLPack.__dlpack__
        __dlpack_device__ = lambda self: (2, 0)  # noqa: E731

    for value in (Both(), OnGpu()):
        for to in ("numpy", "torch", "jax"):
            assert np.asarray(af.convert(value, to, unknown="convert")).tolist() == [1, 2, 3]


# Sources.


class Column:
    """A column of a table that nobody knows."""

    reads = 0

    def __init__(self, values, gaps=False):
        self.values = values
        self.gaps = gaps


class Columns(af.Source):
    name = "mytables"
    package = "numpy"
    array_types = (f"{__name__}.Column",)
    memory = "immutable"
    to_numpy_shares = True

    def to_numpy(self, x):
        Column.reads += 1
        if x.gaps:
            raise af.ConversionError(
                "a column with gaps has no array", remedy="Call x.fill(0) first."
            )
        view = x.values.view()
        view.flags.writeable = False
        return view

    def is_sparse(self, x):
        return isinstance(x, Thin)


class Thin(Column):
    pass


@pytest.fixture
def source(register):
    return register(Columns())


def test_a_source_is_read_where_it_is_the_whole_value(source):
    for to in ("numpy", "torch", "jax", "dask"):
        to_target = af.converter(to)
        for _ in range(4):
            np.testing.assert_array_equal(np.asarray(to_target(Column(VALUES))), VALUES)
    kept = Column(VALUES)
    assert af.convert({"a": kept}, "torch")["a"] is kept
    assert torch.equal(
        af.convert({"a": kept}, "torch", unknown="convert")["a"], torch.tensor(VALUES)
    )
    refused(af.NotAnArrayError, r"at \['a'\]", {"a": kept}, "torch", unknown="raise")


@pytest.mark.filterwarnings("error::arrayferry.UnconvertedWarning")
def test_a_source_that_stays_in_a_tree_is_told_once_for_each_class(source):
    class Untold(Column):
        dtype = np.dtype(float)

    class Text(Column):
        dtype = np.dtype("U1")

    class Closed(Column):
        @property
        def dtype(self):
            raise ValueError("it was closed")

    af.convert(
        [Text(VALUES), Column(VALUES), Closed(VALUES)], "torch"
    )  # nobody expects these to be converted

    tree, to_torch = {"a": [Untold(VALUES), Untold(VALUES)]}, af.converter("torch")
    said = r"Untold at \['a'\]\[0\] was not converted.*Pass unknown=\"convert\""
    for _ in range(2):  # as an error it is raised each time
        with pytest.raises(af.UnconvertedWarning, match=said):
            to_torch(tree)
    with pytest.warns(af.UnconvertedWarning, match=said) as told:
        results = [f(tree) for f in (to_torch, af.converter("jax"), to_torch, to_torch)]
    assert all(result["a"][0] is tree["a"][0] for result in results)
    assert [each.filename for each in told] == [__file__]
    assert torch.equal(af.convert(tree, "torch", unknown="convert")["a"][0], torch.tensor(VALUES))


def test_a_source_obeys_the_copy_rule(source):
    values = VALUES.copy()
    view = af.convert(Column(values), "numpy")
    assert np.shares_memory(view, values)
    assert not view.flags.writeable
    assert not np.shares_memory(af.convert(Column(values), "numpy", copy=True), values)
    assert not np.shares_memory(af.convert(Column(values), "torch").numpy(), values)
    refused(af.CopyRequiredError, "never change", Column(values), "torch", copy=False)


def test_a_source_is_read_once(source):
    before = Column.reads
    af.convert([Column(VALUES), Column(VALUES)], "torch", unknown="convert")
    assert Column.reads == before + 2


def test_what_a_source_refuses_is_an_error_with_its_place(source):
    to_torch = af.converter("torch", unknown="convert")
    for _ in range(4):
        assert len(to_torch({"a": Column(VALUES)})["a"]) == 3
    before = Column.reads
    words = r"gaps.*at \['a'\], from mytables to torch\. Call x"
    with pytest.raises(af.ConversionError, match=words):
        to_torch({"a": Column(VALUES, gaps=True)})
    assert Column.reads <= before + 2  # by the plan, and once more


def test_a_source_is_no_target_and_no_backend(source):
    assert source in af.registry.sources()
    assert "mytables" not in af.backends()
    refused(af.UnknownBackendError, "only read from mytables", VALUES, "mytables")
    with pytest.raises(af.NotAnArrayError):
        af.backend_of(Column(VALUES))
    refused(af.NotAnArrayError, "contains no array", VALUES, like=Column(VALUES))
    assert str(af.route("mytables", "torch")) == str(af.route(Column(VALUES), "torch"))
    assert af.route("mytables", "jax").copies


def test_a_sparse_source_follows_the_option(source):
    thin = Thin(VALUES)
    refused(af.ConversionError, r'is sparse.*sparse="dense"', thin, "torch")
    for _ in range(4):
        assert af.convert(thin, "torch", sparse="dense").tolist() == VALUES.tolist()
        for options in ({}, {"sparse": "raise"}, {"unknown": "convert"}, {"unknown": "raise"}):
            refused(af.ConversionError, r"is sparse, at \[0\]", [thin], "torch", **options)
        assert af.convert([thin], "torch", sparse="dense")[0].tolist() == VALUES.tolist()
        dense = Column(VALUES)
        assert af.convert([dense], "torch", sparse="dense")[0] is dense
        refused(af.CopyRequiredError, "shared", thin, "torch", sparse="dense", copy=False)


# Containers that take classes derived from nothing.


class Marked(Held):
    is_marked = True


class Marks(HeldContainer):
    types = ("collections.NoSuchThing",)

    def takes(self, cls):
        return getattr(cls, "is_marked", False)


def test_a_container_takes_classes_by_what_they_are(register):
    marked = Marked(VALUES)
    assert af.convert(marked, "torch") is marked
    register(Marks())
    for _ in range(4):
        assert torch.is_tensor(af.convert([marked], "torch")[0].x)


@pytest.mark.needs("torch")
def test_a_container_whose_takes_fails_is_named_and_left_out(register):
    class Failing(Marks):
        def takes(self, cls):
            raise ValueError("oops")

    class Odd:
        pass

    odd = Odd()
    register(Failing())
    with pytest.warns(af.PluginWarning, match=r"takes\(\) of the container .*Failing.*oops"):
        assert af.convert([odd, VALUES], "torch")[0] is odd


def test_a_pytree_that_changes_its_children_is_an_error():
    @jax.tree_util.register_pytree_node_class
    class Converting(Node):
        def __init__(self, x, scale=1):
            super().__init__(jax.numpy.asarray(x), scale)

    value = Converting([1.0, 2.0])
    assert isinstance(af.convert(value, "jax").x, jax.Array)
    refused(af.StructureError, "does not return the children", value, "torch")


def test_functions_with_arguments_are_pytrees_too():
    part = jax.tree_util.Partial(max, np.ones(2), default=[np.zeros(1)])
    _, linear = jax.linearize(jax.numpy.sin, jax.numpy.ones(2, np.float32))
    for to in ("numpy", "torch", "jax"):
        found = af.convert([part], to)[0]
        assert af.backend_of(found.args[0]).name == to
        assert af.backend_of(found.keywords["default"][0]).name == to
    assert af.convert(linear, "jax")(np.float32([1, 2])).shape == (2,)
    arrays, layout = af.flatten(part)
    assert layout.unflatten(arrays).args[0] is arrays[0]


@pytest.mark.parametrize("lazy", [False, True])
def test_values_of_a_source_that_hold_more(source, monkeypatch, lazy):
    monkeypatch.setattr(Columns, "memory", "lazy" if lazy else "writable")
    for values, what in (
        (np.ma.masked_array([1.0, 2.0], [1, 0]), "mask would be lost"),
        (np.ones(2).view(Metres), "has units"),
    ):
        monkeypatch.setattr(Columns, "to_numpy", lambda self, x, values=values: values)
        for to in ("numpy", "torch", "jax"):
            refused(af.ConversionError, what, Column(VALUES), to)
        refused(af.ConversionError, what, ByArray(values), "numpy", unknown="convert")


class Metres(np.ndarray):
    unit = "m"


def test_no_values_are_not_kept_in_silence(source, monkeypatch):
    monkeypatch.setattr(Columns, "memory", "lazy")
    monkeypatch.setattr(Columns, "to_numpy_many", lambda self, xs: [None] * len(xs))
    refused(af.ConversionError, "returned 0 for 1 arrays", Column(VALUES), "torch")


def test_an_answer_that_is_no_answer_is_named(source, monkeypatch):
    monkeypatch.setattr(Columns, "is_sparse", lambda self, x: VALUES)
    for value in (Column(VALUES), [Column(VALUES)]):
        with pytest.raises(af.ConversionError, match=r"is_sparse\(\) of the source 'mytables'"):
            af.convert(value, "torch", sparse="dense")


def test_values_without_a_numeric_dtype_are_refused_for_it():
    with pytest.raises(af.ConversionError, match="a ndarray of dtype object was returned"):
        af.convert(ByArray(np.array([1, None])), "torch", unknown="convert")  # as SymPy's matrices
