"""Lazy stays lazy: blocks within Dask, and arrays that are computed together, once, or not at all if they are refused."""

import threading

import dask
import dask.array as da
import distributed
import jax
import numpy as np
import pytest
import torch
from boxes import Box, BoxBackend
from cases import crossed, quick_if
from clusters import local_cluster
from memory import most_memory
from refusals import refused

import arrayferry as af
from arrayferry_plugins import dask_
from arrayferry_plugins.dask_ import to_dask

pytestmark = pytest.mark.usefixtures("boxlib")
X = np.arange(12.0).reshape(6, 2)
SINGLE = "ignore:Running on a single-machine scheduler:UserWarning"
NEW_DASK = dask.__version__ >= "2025"
"""Whether Dask does without the copy of an array of one block, and computes what a delayed function takes anew."""


class Counter:
    """Counts the tasks that run."""

    def __init__(self):
        self.times = 0
        self.lock = threading.Lock()

    def __call__(self, x, fails=False):
        with self.lock:
            self.times += 1
        if fails:
            raise ValueError("this block fails")
        return x

    def array(self, x=X, chunks=2, **options):
        blocks = da.from_array(x, chunks=(chunks, *x.shape[1:]))
        return blocks.map_blocks(self, dtype=x.dtype, meta=x[:0], **options)

    def ones(self, dtype=np.float32, **options):
        return self.array(np.ones(4, dtype), 4, **options)


@pytest.fixture
def counter():
    return Counter()


# to_dask: chunks.


@pytest.mark.parametrize("library", ["numpy", "torch", "jax", "array_api_strict"])
def test_arrays_of_any_library_are_split_along_their_first_axis(library):
    x = af.convert(X, library, narrowing="allow")
    whole = [(chunks, ((6,), (2,))) for chunks in (None, -1, "auto")]
    given = ((1, 5), (2,))
    sizes = [(4, ((4, 2), (2,))), ((3, 1), ((3, 3), (1, 1))), ({1: 1}, ((6,), (1, 1)))]
    for chunks, expected in (*whole, *sizes, (given, given)):
        y = to_dask({"x": [x]}, chunks)["x"][0]
        assert y.chunks == expected
        np.testing.assert_array_equal(y.compute(), X)


@pytest.mark.parametrize("way", [to_dask, lambda x: af.convert(x, "dask")])
def test_large_arrays_are_split_into_blocks_of_some_size(way, monkeypatch):
    monkeypatch.setattr("arrayferry_plugins.dask_.chunks.CHUNK_BYTES", 400)
    whole = ((50,), (50,)), ((0, 1000), (0,)), ((), ())
    halves = ((100,), (50, 50)), ((2, 1000), (1, 1))
    for shape, chunks in (*whole, *halves, ((10, 30), (1,) * 10), ((7, 2, 10), (2, 2, 2, 1))):
        y = way(np.zeros(shape))
        assert y.chunks == (chunks, *((n,) for n in shape[1:])) if shape else y.chunks == ()
        assert (y.compute() == np.zeros(shape)).all()


def test_dask_arrays_are_rechunked_only_if_told(counter):
    x = counter.array()
    assert to_dask([x])[0] is x
    y = to_dask([x], 3)[0]
    assert y.chunks == ((3, 3), (2,))
    assert to_dask(da.ones((4, 4), chunks=(2, 2)), 1).chunks == ((1,) * 4, (2, 2))
    assert to_dask(da.ones(()), 2).chunks == ()
    assert counter.times == 0


def test_chunks_that_do_not_fit():
    for value, chunks in (([np.ones(3)], (1, 1)), ([da.ones(3)], {3: 1}), ([np.ones(3)], "no")):
        with pytest.raises(af.ConversionError, match=r"chunks=.* do not fit.*\(3,\).*at \[0\]"):
            to_dask(value, chunks)
    x = da.ones(4, chunks=2)
    with pytest.raises(af.ConversionError, match=r"chunks=1 .*compute_chunk_sizes\(\)") as caught:
        to_dask({"k": x[x > 0]}, 1)
    assert caught.value.path == "['k']"
    assert "\n" not in str(caught.value)
    assert dask_.chunks.chosen_chunks.get() is None


def test_a_tree_keeps_everything_else():
    shared = [X]
    value = {"a": shared, "b": shared, "n": 3, "t": "text", "o": np.array([X, None], object)}
    found = to_dask(value, 2, blocks="torch")
    assert found["a"] is found["b"]
    assert (found["n"], found["t"]) == (3, "text")
    assert found["o"][0].numblocks == (3, 1)
    assert isinstance(found["o"][0].blocks[0].compute(), torch.Tensor)
    assert shared[0] is X
    delayed = dask.delayed(X)
    assert to_dask([delayed], 2, blocks="jax")[0] is delayed
    number = to_dask([1.5], scalars="convert", blocks="jax")[0]
    assert isinstance(number.compute(), jax.Array)
    text = np.array(["a"])
    assert to_dask(text, blocks="jax", unsupported="keep").compute().tolist() == ["a"]


# to_dask: blocks.


TYPES = {"numpy": np.ndarray, "torch": torch.Tensor, "jax": jax.Array}


def check(found, library, values=X):
    """Check that an array is of a library, and has values."""
    assert isinstance(found, TYPES[library])
    np.testing.assert_array_equal(np.asarray(found), values)


@pytest.mark.parametrize(
    "dtype", quick_if(["float64", "int32", "bool", "complex128"], "float64".__eq__)
)
@pytest.mark.parametrize("library", TYPES)
@pytest.mark.parametrize("given", TYPES)
def test_blocks_of_one_library_become_those_of_another(counter, given, library, dtype):
    x = to_dask(counter.array(X.astype(dtype)), blocks=given)
    y = to_dask(x, blocks=library)
    expected = jax.numpy.asarray(X.astype(dtype)).dtype if "jax" in (given, library) else dtype
    assert y.chunks == x.chunks
    assert y.dtype == y._meta.dtype == expected
    assert y.name == to_dask(x, blocks=library).name
    assert y.name.startswith(f"to-{library}-")
    meta = np.ndarray if library == "torch" else TYPES[library]
    assert isinstance(y._meta, meta)
    assert y._meta.shape == (0, 0)
    assert counter.times == 0
    assert isinstance(y.blocks[0].compute(), TYPES[library])
    assert counter.times == 1
    for found, wanted in (
        (y, X),
        (y[1:5], X[1:5]),
        (y[:, 1], X[:, 1]),
        (da.concatenate([y, y]), np.concatenate([X, X])),
        (y.rechunk((3, 1)), X),
        (y.map_blocks(lambda block: block + block), (X.astype(dtype) + X.astype(dtype))),
    ):
        check(found.compute(), library, wanted.astype(expected))


@pytest.mark.parametrize("library", [*TYPES, "array_api_strict"])
@pytest.mark.parametrize("to", TYPES)
def test_arrays_of_such_blocks_are_converted(counter, library, to, make):
    x = to_dask(counter.array(), blocks=library)
    conversion = make(to)
    for _ in range(3):
        counter.times = 0
        found = conversion({"a": x, "b": x, "c": X})
        assert counter.times == 3
        for y in found.values():
            check(y, to)
    for name in found:
        for other in found:
            if to != "jax" and name != other:
                assert not np.shares_memory(np.asarray(found[name]), np.asarray(found[other]))


def test_tensors_in_a_graph_are_not_written_through():
    held = torch.ones(3)
    x = da.Array({("held", 0): held}, "held", ((3,),), meta=np.ones(0, np.float32))
    y = af.convert(x, "torch")
    y.zero_()
    assert held.tolist() == [1, 1, 1]
    assert af.convert(x, "dask", copy=True).compute().data_ptr() != held.data_ptr()


@pytest.mark.parametrize("library", TYPES)
@pytest.mark.parametrize("make_array", [
    lambda: da.ones(()),
    lambda: da.arange(5, chunks=2).sum(),
    lambda: da.ones((4, 2), chunks=((0, 2, 0, 2), (2, 0))),
    lambda: (lambda x: x[x > 0])(da.arange(5, chunks=2)),
    lambda: da.ones((0, 3)),
], ids=["0-d", "sum", "empty blocks", "unknown sizes", "empty"])  # fmt: skip
def test_odd_shapes(library, make_array):
    x = make_array()
    expected = x.compute()
    y = to_dask(x, blocks=library)
    assert str(y.chunks) == str(x.chunks)  # nan is not equal to itself
    for found in (y.compute(), af.convert(x, library), af.convert(y, library)):
        check(found, library, expected)
        assert found.shape == np.shape(expected)


@pytest.mark.assumes_other("x64")
def test_what_blocks_cannot_be_is_refused_at_once(counter):
    records = counter.array(np.zeros(4, [("a", "i4"), ("b", "f8")]))
    for x in (records, counter.array(np.array([1, "a"], object)), counter.array(np.array(["t"]))):
        for library in ("torch", "jax"):
            with pytest.raises(af.UnsupportedDtypeError, match=r"at \['x'\]"):
                to_dask({"x": x}, blocks=library)
            assert to_dask({"x": x}, blocks=library, unsupported="keep")["x"] is x
        assert to_dask(x, blocks="numpy").dtype == x.dtype
    with pytest.raises(af.NarrowingError, match="would become float32, which is forbidden"):
        to_dask(counter.array(), blocks="jax", narrowing="forbid")
    with pytest.raises(af.CopyRequiredError):
        to_dask(counter.array(), blocks="jax", copy=False)
    with pytest.raises(af.OptionError, match="cannot be Dask arrays"):
        to_dask(X, blocks="dask")
    with pytest.raises(af.UnknownBackendError):
        to_dask(X, blocks="nothing")
    with pytest.raises(af.DeviceError):
        to_dask(X, blocks="torch", device="cuda:9")
    assert counter.times == 0


@pytest.mark.assumes_other("x64")
def test_options_of_blocks():
    x = da.from_array(np.array([2**40, 1]), chunks=1)
    y = to_dask(x, blocks="jax")
    assert y.dtype == "int32"
    assert y.blocks[1].compute().tolist() == [1]
    with pytest.raises(af.NarrowingError, match="1099511627776 does not fit int32"):
        y.compute()
    assert to_dask(x, blocks="jax", narrowing="allow").compute().tolist() == [0, 1]
    names = {
        to_dask(x, blocks=library, **options).name
        for library in TYPES
        for options in ({}, {"narrowing": "allow"}, {"copy": True})
    }
    assert len(names) == 9
    masked = to_dask(da.ma.masked_greater(da.arange(4, chunks=2), 2), blocks="torch")
    assert masked.blocks[0].compute().tolist() == [0, 1]
    with pytest.raises(af.ConversionError, match="mask would be lost"):
        masked.compute()
    copies = to_dask(da.from_array(X, chunks=(2, 2)), blocks="torch", copy=True)
    assert not np.shares_memory(copies.blocks[0].compute().numpy(), X)


@pytest.mark.long
def test_names_are_those_of_other_processes(run_python):
    script = (
        "import dask.array as da\nfrom arrayferry_plugins.dask_ import to_dask\n"
        "x = da.ones((4, 2), chunks=2)\n"
        "print([to_dask(x, blocks=b).name for b in ('numpy', 'torch')])"
    )
    x = da.ones((4, 2), chunks=2)
    here = [to_dask(x, blocks=library).name for library in ("numpy", "torch")]
    assert run_python(script).strip() == str(here)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_blocks_are_joined_in_their_library_whatever_came_before(run_python, library):
    script = (
        "import dask.array as da, arrayferry as af\n"
        f"y = da.ones((4, 2), chunks=2).map_blocks(af.converter('{library}'))\n"
        "print(af.backend_of(y.compute()).name)"
    )
    assert run_python(script).strip() == library


@pytest.mark.parametrize("library", TYPES)
def test_a_converter_in_map_blocks(counter, library, make):
    y = counter.array().map_blocks(make(library))
    assert counter.times == 0
    assert isinstance(y._meta, TYPES[library])
    assert y.chunks == ((2, 2, 2), (2,))
    assert str(y.dtype).endswith(str(jax.numpy.asarray(X).dtype) if library == "jax" else "float64")
    assert isinstance(y.blocks[1].compute(), TYPES[library])
    for found in (y.compute(), af.convert(y, library)):
        check(found, library)
    again = to_dask(y, blocks="numpy")
    assert isinstance(again.compute(), np.ndarray)


def test_conversions_within_blocks():
    def double(block):
        lazy = da.from_array(block, chunks=1)
        return af.convert(af.convert({"k": lazy}, "torch")["k"] * 2, "numpy")

    x = da.arange(4, chunks=2)
    for scheduler in ("threads", "synchronous"):
        assert x.map_blocks(double).compute(scheduler=scheduler).tolist() == [0, 2, 4, 6]


# Values that are not arrays.


@pytest.mark.long
@pytest.mark.filterwarnings(SINGLE)
def test_processes_compute():
    x = to_dask(da.ones(4, chunks=2), blocks="torch")
    with dask.config.set(scheduler="processes", num_workers=1):
        found = af.convert({"x": x + 1, "y": [x]}, "numpy")
        assert x.compute().tolist() == [1] * 4
    assert found["x"].tolist() == [2] * 4
    assert found["y"][0].tolist() == [1] * 4


class Boxes(BoxBackend):
    memory = "lazy"
    answer = ()

    def compute(self, xs):
        return self.answer


def test_what_a_plugin_computes_is_checked(register):
    part = register(Boxes())
    for answer, words in (
        (af.ConversionError("it is lost", remedy="Find it."), r"^it is lost, at \[0\], from boxes to torch. Find it.$"),
        (None, r"compute\(\) of the .* returned 0 for 1 arrays"),
    ):  # fmt: skip
        part.answer = [answer] if answer else []
        refused(af.ConversionError, words, [Box(X)], "torch")


# Computed once, or not at all.


TARGETS = ["numpy", "torch", "jax", "array_api_strict"]
TREES = {
    "alone": lambda make: make(),
    "two": lambda make: [make(), make()],
    "wide and narrow": lambda make: {"a": make(np.float64), "b": make(np.int32)},
    "with other libraries": lambda make: [make(np.float64), np.ones(2), torch.ones(2)],
    "the same twice": lambda make: [make()] * 2,
}


OPTIONS = [{}, {"copy": True}, {"device": "cpu"}]


@pytest.mark.parametrize(("target", "tree", "options"), crossed(TARGETS, TREES, OPTIONS), ids=str)
def test_a_graph_runs_once_in_each_call(counter, target, tree, options):
    if target == "array_api_strict" and options.get("device"):
        pytest.skip("it has its own devices")
    conversion = af.converter(target, **options)
    for _ in range(6):
        counter.times = 0
        value = TREES[tree](counter.ones)
        arrays = {id(x) for x in af.flatten(value)[0] if isinstance(x, da.Array)}
        conversion(value)
        assert counter.times == len(arrays)


@pytest.mark.parametrize("target", TARGETS)
def test_a_graph_that_fails_runs_once(counter, target):
    conversion = af.converter(target)
    for value in [counter.ones(), [counter.ones(), np.ones(1)]] * 4:
        conversion(value)
    for wrap in [lambda x: x, lambda x: [x, np.ones(1)], lambda x: {"new": (x,)}] * 4:
        counter.times = 0
        with pytest.raises(af.ConversionError, match="this block fails"):
            conversion(wrap(counter.ones(fails=True)))
        assert counter.times == 1


REFUSED = {
    "no sharing": ({"copy": False}, np.float32, af.CopyRequiredError),
    "no narrowing": ({"narrowing": "forbid"}, np.float64, af.NarrowingError),
    "no such dtype": ({}, "U1", af.UnsupportedDtypeError),
}


@pytest.mark.parametrize("why", REFUSED)
@pytest.mark.parametrize("target", ["jax", "torch"])
def test_what_is_refused_is_not_computed(counter, target, why):
    options, dtype, error = REFUSED[why]
    if why == "no narrowing" and (target == "torch" or jax.config.jax_enable_x64):
        pytest.skip("it has float64")
    conversion = af.converter(target, **options)
    for _ in range(4):
        for wrap in (lambda x: x, lambda x: {"a": counter.ones(), "b": x}):
            with pytest.raises(error) as caught:
                conversion(wrap(counter.ones(dtype)))
            assert caught.value.source == "dask"
            assert caught.value.target == target
    assert counter.times == 0


def test_another_leaf_is_refused_before_anything_is_computed(counter):
    for value in ([counter.ones(), np.array(["text"])], [counter.ones(), jax.random.key(0)]):
        for _ in range(4):
            refused(af.ConversionError, r"at \[1\]", value, "torch")
    assert counter.times == 0


def test_what_is_kept_is_not_computed(counter):
    for options in ({}, {"copy": False}, {"copy": True}):
        for _ in range(4):
            x = counter.ones("U1")
            assert af.convert(x, "torch", unsupported="keep", **options) is x
    assert counter.times == 0
    found = af.convert([x, counter.ones()], "torch", unsupported="keep")
    assert found[0] is x
    assert isinstance(found[1], torch.Tensor)
    assert counter.times == 1


class Lazy(BoxBackend):
    """A lazy library whose plugin counts."""

    memory = "lazy"
    read = 0

    def to_numpy_many(self, xs):
        self.read += len(xs)
        return [x.values for x in xs]


def test_a_lazy_library_of_a_plugin(register):
    lazy = register(Lazy())
    for count in range(1, 5):
        lazy.read = 0
        found = af.convert([Box(np.array([1.5])), Box(np.array([2.5]))][:count], "jax")
        assert [float(y[0]) for y in found] == [1.5, 2.5][:count]
        assert lazy.read == min(count, 2)


@pytest.mark.assumes_other("x64")
@pytest.mark.parametrize(
    "tree", [lambda x: x, lambda x: [x], lambda x: [x] * 20], ids=["alone", "list", "long"]
)
def test_a_failure_after_a_plan_was_written_computes_once_too(counter, tree):
    conversion = af.converter("jax")
    for _ in range(4):
        conversion(tree(np.ones(2, np.float32)))
    assert conversion._plans.all
    with pytest.raises(af.NarrowingError):
        conversion(tree(counter.ones(np.int64) * 2**40))
    assert counter.times == 1


class Stored(np.lib.mixins.NDArrayOperatorsMixin):
    """A dataset in a file, which counts how often it is read."""

    def __init__(self, values):
        self.values = values
        self.reads = 0

    @property
    def dtype(self):
        if self.values is None:
            raise ValueError("the file is closed")
        return self.values.dtype


class Stores(af.Source):
    name, package, memory = "stores", "numpy", "lazy"
    array_types = (f"{__name__}.Stored",)
    to_numpy_shares = False

    def to_numpy(self, x):
        x.reads += 1
        if x.dtype.kind == "U":
            raise af.UnsupportedDtypeError("it holds text")
        x.read = x.values.copy()
        return x.read


@pytest.fixture
def stores(register):
    return register(Stores())


def test_what_is_read_for_us_is_not_copied_again(stores):
    for copy in (None, True):
        x = Stored(np.ones(3))
        y = af.convert(x, "torch", copy=copy)
        assert y.data_ptr() == x.read.ctypes.data
        assert x.reads == 1


def test_a_source_that_is_closed_is_an_error_in_words(stores):
    words = r"to_numpy.*of the source 'stores'.*the file is closed"
    refused(af.ConversionError, words, Stored(None), "torch")


def test_unsupported_lazy_sources_are_kept_alone(stores):
    text, numbers = Stored(np.array(["a"])), Stored(np.ones(2))
    given = [text, numbers, da.ones(2), text]
    options = {"unknown": "convert", "unsupported": "keep"}
    for _ in range(4):
        found = af.convert(given, "numpy", **options)
        assert found[0] is found[3] is text
        assert found[1].tolist() == found[2].tolist() == [1, 1]
    assert af.convert(text, "numpy", unsupported="keep") is text
    refused(af.UnsupportedDtypeError, r"at \[0\]", [text], "numpy", unknown="convert")


def test_nothing_is_computed_if_another_lazy_library_is_refused(counter, stores):
    text, numbers = Stored(np.array(["a"])), Stored(np.ones(2, "i4"))
    delayed = dask.delayed(lambda: 1 / 0)()
    for value in ([delayed, counter.ones(), text], [text, counter.ones()]):
        refused(af.UnsupportedDtypeError, "from stores to torch", value, "torch", unknown="convert")
    for value in ([numbers, counter.ones()], [counter.ones(), numbers]):
        value.append(counter.ones("U1"))
        refused(af.UnsupportedDtypeError, "from dask to torch", value, "torch", unknown="convert")
    assert counter.times == text.reads == numbers.reads == 0


@pytest.mark.assumes_other("x64")
def test_refused_before_it_is_read(stores):
    x = Stored(np.array([2**40]))
    for options in ({"copy": False}, {"narrowing": "forbid"}):
        refused(af.ConversionError, "from stores to jax", x, "jax", **options)
    assert x.reads == 0


# Clusters.


@pytest.fixture(scope="module")
def cluster():
    with local_cluster(processes=True) as cluster:
        yield cluster


@pytest.fixture
def clients(cluster):
    """Return the default client of a cluster with one thread, and another client."""
    with (
        distributed.Client(cluster, set_as_default=False) as other,
        distributed.Client(cluster) as client,
    ):
        yield client, other


def fails():
    raise KeyError("lost")


def test_a_closed_client(clients):
    cluster = clients[0].cluster
    with distributed.Client(cluster, set_as_default=False) as short:
        persisted = short.persist(da.ones(4, chunks=2))
        distributed.client.futures_of(persisted)[0].result(timeout=60)
    refused(af.ConversionError, r"it has no open client, at \[0\]", [persisted], "torch")


@pytest.mark.filterwarnings(SINGLE)
def test_persisted_arrays_of_any_client(clients):
    for owner in clients:
        persisted = owner.persist(da.ones((4, 2), chunks=2) + 1)
        for scheduler in (None, "threads"):
            with dask.config.set(scheduler=scheduler):
                found = af.convert({"p": persisted, "x": da.ones(2)}, "torch")
            assert found["p"].tolist() == [[2, 2]] * 4
            assert found["x"].tolist() == [1, 1]
        assert to_dask(persisted, blocks="jax").compute(scheduler=owner).tolist() == [[2, 2]] * 4
    both = [owner.persist(da.ones(4, chunks=2)) for owner in clients]
    assert [x.tolist() for x in af.convert(both, "torch")] == [[1] * 4] * 2
    gone = clients[1].persist(da.zeros(4, chunks=2))
    for future in distributed.client.futures_of(gone):
        future.cancel()
    refused(af.ConversionError, r"it is cancelled, at \[0\]", [gone], "torch")


def in_a_task(x):
    return af.convert(da.full(4, x, chunks=2), "torch").tolist()


def test_in_a_task_on_a_worker_with_one_thread(clients):
    found = clients[0].submit(in_a_task, 3, pure=False).result(timeout=60)
    assert found == [3] * 4


def test_persisted_arrays_that_are_sent_to_a_task(clients):
    x = clients[0].persist(da.ones(4, chunks=2))
    sent = {"x": x + 1}.__getitem__  # so that Dask does not compute it

    def both():
        return [y.tolist() for y in af.convert([sent("x"), sent("x") + 1], "torch")]

    found = clients[0].submit(both, pure=False).result(timeout=60)
    assert found == [[2] * 4, [3] * 4]


def test_a_persisted_array_without_a_client(cluster):
    with distributed.Client(cluster) as client:
        (kept,) = distributed.client.futures_of(client.persist(da.ones(2)))
        future = distributed.Future(kept.key)
        assert future.client is None or pytest.skip("this version takes the current client")
        x = da.Array({("x", 0): future}, "x", ((2,),), dtype=float)
        assert af.convert(x, "numpy").tolist() == [1, 1]  # by the current client
    refused(af.ConversionError, r"it has no open client, at \[0\]", [x], "torch")


@pytest.mark.parametrize("library", TYPES)
def test_blocks_on_a_cluster(clients, library):
    y = to_dask(da.from_array(X, chunks=(2, 2)), blocks=library)
    check(y.compute(scheduler=clients[0]), library)
    np.testing.assert_array_equal(af.convert(clients[0].persist(y), "numpy"), X)
    assert isinstance(clients[0].compute(y.blocks[0]).result(timeout=60), TYPES[library])


def test_blocks_on_a_worker_that_has_converted_none():
    """As one that joins later: it only gets blocks of others, and Dask joins them."""
    with local_cluster(processes=True) as cluster, distributed.Client(cluster) as client:
        made = {}
        for library in ("torch", "jax"):
            x = to_dask(da.arange(8.0, chunks=2), blocks=library)
            made[library] = x, client.compute([*x.blocks])
            distributed.wait(made[library][1])
        first = list(client.scheduler_info()["workers"])
        cluster.scale(2)
        client.wait_for_workers(2)
        (second,) = set(client.scheduler_info(n_workers=-1)["workers"]).difference(first)
        for library, (x, futures) in made.items():
            parts = [da.from_delayed(y, (2,), x.dtype, meta=x._meta) for y in futures]
            for whole in (da.concatenate(parts).rechunk(4)[2:7].rechunk(-1), da.stack(parts)):
                found = client.compute(whole, workers=[second]).result(timeout=60)
                assert isinstance(found, TYPES[library])
                assert af.convert(found, "numpy").tolist() == whole.compute().tolist()


def test_dtypes_that_numpy_lacks_on_a_cluster(clients):
    x = to_dask(da.from_array(np.arange(6).astype("bfloat16"), chunks=2), blocks="torch")
    for found in (x.compute(scheduler=clients[0]), af.convert(x.rechunk(3), "torch")):
        assert found.dtype == torch.bfloat16
        assert found.tolist() == [0, 1, 2, 3, 4, 5]


SENT = """
import torch, arrayferry as af
from arrayferry_plugins.dask_ import to_dask
assert torch.is_tensor(to_dask(torch.ones(4), 1, blocks="torch").rechunk(2).compute())
from clusters import local_cluster
from distributed import Client
if __name__ == "__main__":
    with local_cluster(processes=True) as cluster, Client(cluster) as client:
        assert client.scatter(torch.ones(2).bfloat16()).result(30).dtype == torch.bfloat16
"""


def test_dtypes_that_numpy_lacks_after_blocks_without_a_cluster(run_python):
    run_python(SENT)


def test_blocks_of_jax_in_any_order():
    x = to_dask(da.arange(8.0, chunks=2), blocks="jax")
    found = x[[5, 0, 3]].compute()
    assert isinstance(found, TYPES["jax"])
    assert found.tolist() == [5, 0, 3]


# Memory.


LARGE = np.zeros(2**20)


@pytest.mark.filterwarnings(SINGLE)
@pytest.mark.parametrize(
    ("options", "to"), crossed([{}, {"copy": True}], ["numpy", "torch"]), ids=str
)
@pytest.mark.parametrize(
    "chunks", [2**17, pytest.param(-1, marks=pytest.mark.skipif(not NEW_DASK, reason="it copies"))]
)
@pytest.mark.parametrize("kind", ["source", "persisted"])
def test_computing_takes_no_more_memory_than_by_hand(kind, chunks, to, options):
    x = da.from_array(LARGE, chunks=chunks)
    with dask.config.set(scheduler="synchronous"):  # threads may keep a result for a moment
        x = x.persist() if kind == "persisted" else x
        by_hand, _ = most_memory(x.compute)
        for value in (x, {"k": [x]}):
            taken, found = most_memory(lambda value=value: af.convert(value, to, **options))
            assert taken < by_hand + LARGE.nbytes / 2
            del found


def held_by_hand():
    """Return arrays whose blocks somebody holds, and what is held."""
    for count in (4, 2):
        memory = np.zeros(4)
        yield da.from_array(memory, chunks=count, name=False), memory
        blocks = np.zeros(4)
        parts = [blocks[start : start + count] for start in range(0, 4, count)]
        graph = {("held", n): part for n, part in enumerate(parts)}
        yield da.Array(graph, "held", ((count,) * len(parts),), meta=blocks), blocks

        def same(block, block_info, parts=parts):
            return parts[block_info[0]["chunk-location"][0]]

        yield da.ones(4, chunks=count).map_blocks(same, dtype=float), blocks


@pytest.mark.filterwarnings(SINGLE)
@pytest.mark.parametrize("blocks", [None, "torch"])
@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_what_is_computed_is_held_by_nobody(to, scheduler, blocks):
    for x, memory in held_by_hand():
        if blocks is not None:
            x = to_dask(x, blocks=blocks)
        with dask.config.set(scheduler=scheduler):
            for value in (x, x.persist()):
                found = af.convert([value, value[:], value.copy(), value], to)
                for number, y in enumerate(found):
                    y += 1 + number
                assert [float(y[0]) for y in found] == [1, 2, 3, 4]
                assert not memory.any()
                assert not np.asarray(value.compute()).any()


def test_a_cache_of_dask_does_not_see_what_is_written():
    class Keeping(dask.callbacks.Callback):
        def __init__(self):
            super().__init__(posttask=lambda key, value, *_: kept.update({key: value}))

    kept = {}
    for chunks in (4, 2):
        x = da.zeros(4, chunks=chunks) + 0
        for _ in range(2):
            with Keeping():
                y = af.convert(x, "torch")
            assert not y.any()
            y += 1


def test_a_subclass_of_dask_may_keep_what_it_finishes():
    held, plain = np.zeros(4), da.zeros(4, chunks=2)
    keeping = {"__dask_postcompute__": lambda self: ((lambda blocks: held), ())}
    x = type("Keeping", (da.Array,), keeping)(plain.dask, plain.name, plain.chunks, meta=held)
    af.convert(x, "torch").fill_(7)
    assert not held.any()


def test_a_small_part_of_a_message_keeps_nothing_else_alive(clients):
    large, small = af.convert([da.zeros(2**16, chunks=2**15), da.zeros(8, chunks=4)], "numpy")
    for y in (large, small):
        whole = y if y.base is None else y.base
        assert whole.nbytes <= 1.2 * y.nbytes
        y += 1


def test_on_workers_in_this_process_nothing_is_shared():
    with local_cluster() as cluster, distributed.Client(cluster) as client:
        for blocks in (None, "torch"):
            for chunks in (4, 2):
                x = da.zeros(4, chunks=chunks) + 0
                kept = client.persist(x if blocks is None else to_dask(x, blocks=blocks))
                first = af.convert([kept, kept], "torch")
                for y in first:
                    y += 1
                assert [y.tolist() for y in first] == [[1] * 4] * 2
                again = af.convert([kept, kept], "numpy")
                assert not any(y.any() for y in again)


def test_a_plugin_that_keeps_what_it_computes_is_not_written_through(register):
    held = torch.zeros(3)
    register(Boxes()).answer = [held]
    af.convert([Box(X)], "torch")[0].fill_(7)
    assert not held.any()


@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("nout", [None, 2])
def test_a_delayed_is_refused_in_words(nout, to, make):
    lazy, conversion = dask.delayed(np.ones(2), nout=nout), make(to)
    lazy = lazy if nout is None else lazy[0]
    words = rf"a Dask Delayed\w* cannot be converted.* to {to}\. .*x\.compute\(\)"
    for _ in range(3):
        with pytest.raises(af.ConversionError, match=words):
            conversion(lazy)
        assert conversion({"d": lazy, "x": X})["d"] is lazy
    refused(af.NotAnArrayError, r"Delayed.*at \['d'\]", {"d": lazy}, to, unknown="raise")
    with pytest.raises(af.NotAnArrayError):
        af.backend_of(lazy)
    assert to_dask([lazy])[0] is lazy


def add(x, y):
    return x + y


@pytest.mark.long
@pytest.mark.filterwarnings(SINGLE)
def test_futures_of_any_client_within_a_graph(clients):
    with local_cluster() as elsewhere:
        owners = [*clients, distributed.Client(elsewhere, set_as_default=False)]
        for owner in owners:
            future = owner.submit(np.ones, 3, pure=False)
            for value in (
                da.from_delayed(future, (3,), float) + 1,
                da.from_delayed(dask.delayed(add)(future, 1), (3,), float),
                da.from_delayed(dask.delayed(sum)([future, {"k": future}["k"]]), (3,), float),
                da.ones(3, chunks=1).map_blocks(lambda b, y: b + y[:1], future, dtype=float),
            ):
                for scheduler in (None, "threads"):
                    with dask.config.set(scheduler=scheduler):
                        assert af.convert([value, value], "torch")[1].tolist() == [2] * 3
        here, there = (
            da.from_delayed(owner.submit(np.ones, 3, pure=False), (3,), float)
            for owner in (owners[0], owners[2])
        )
        refused(
            af.ConversionError, "results on 2 clusters cannot be computed", [here, there], "torch"
        )
        failing = da.from_delayed(owners[2].submit(fails, pure=False), (3,), float)
        for _ in range(2):  # still running, then known to have failed
            refused(af.ConversionError, r"KeyError.*at \['k'\]", {"k": failing + 1}, "torch")
        owners[2].close()


def test_a_future_is_refused_in_words(clients):
    future = clients[0].submit(np.ones, 3, pure=False)
    refused(af.ConversionError, r"Dask Future cannot .*x\.result\(\)", future, "torch")
    assert af.convert([future], "torch") == [future]
