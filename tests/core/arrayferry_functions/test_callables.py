"""What `agnostic` does for methods, columns, and callers that pass numbers and shards."""

import abc
import ast
import dataclasses
import functools
import pickle
from enum import Enum
from typing import Any, NamedTuple

import cloudpickle
import dask.array as da
import dask.base
import distributed
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from boxes import Point
from clusters import local_cluster

import arrayferry as af

X = np.arange(3, dtype=np.float32)


def is_numpy(*values):
    return all(type(value) is np.ndarray for value in values)


# The caller's library.


@pytest.mark.parametrize("number", [np.float32(2), np.int64(2), np.bool_(True)])
def test_a_number_of_numpy_does_not_decide_the_library(number):
    @af.agnostic("numpy")
    def scale(factor, x):
        assert is_numpy(x) or type(x) is float
        return factor * x

    for x in (torch.tensor(X), jnp.asarray(X)):
        assert type(scale(number, x)) is type(x)
        assert type(scale(number, x=x)) is type(x)
        assert type(scale([number], {"x": x}["x"])) is type(x)
        assert type(af.convert(X, like=[number, x])) is type(x)
        assert af.first_array({"n": number, "x": x})[0] is x
    assert af.first_array([number])[0] is number
    assert isinstance(scale(number, 3.0), (np.generic, np.ndarray))
    found = af.agnostic("torch")(lambda x: x * 2)(number)
    assert isinstance(found, np.ndarray)


# Functions whose results come later.


async def coroutine(x):
    return x


def generator(x):
    yield x


async def stream(x):
    yield x


@pytest.mark.parametrize("function", [coroutine, generator, stream])
@pytest.mark.parametrize("wrap", [lambda f: f, functools.partial])
def test_functions_whose_results_come_later_are_refused(function, wrap):
    words = r"returns a coroutine or a generator.*Decorate a function that"
    for options in ({}, {"differentiable": True}):
        with pytest.raises(af.OptionError, match=words):
            af.agnostic("jax", **options)(wrap(function))


# Methods.


def methods(decorate):
    class Counting:
        def count(self, x):
            self.calls += 1
            self.seen = self.x
            return x * 2

        count = decorate(count)

        @decorate
        def other_name(this, x):
            this.calls += 1
            this.seen = this.x
            return x * 2

        @staticmethod
        @decorate
        def static(own, x):
            assert is_numpy(x)
            assert not dataclasses.is_dataclass(own) or is_numpy(own.x)
            return x * 2

        @classmethod
        @decorate
        def of_class(cls, x):
            assert isinstance(cls, type)
            return x * 2

    return Counting


def outside(self, x):
    self.calls += 1
    self.seen = self.x
    return x * 2


@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_above_static_and_class_methods(library):
    decorate = af.agnostic(library, differentiable=library == "jax")
    seen = []

    class Base:
        @decorate
        @staticmethod
        def static(x, y=1):
            """Doc."""
            seen.append(af.backend_of(x).name)
            return x * y

        @decorate
        @classmethod
        def of_class(cls, x, y=1):
            seen.append(cls)
            return x * y

        to_do = decorate(staticmethod(abc.abstractmethod(lambda x: x)))

    class Derived(Base):
        pass

    x = torch.tensor(X)
    for owner, cls in ((Base, Base), (Derived, Derived), (Derived(), Derived)):
        for y in (owner.static(x), owner.static(x, y=1), owner.of_class(x), owner.of_class(x, y=1)):
            assert torch.equal(y, x)
        assert seen[-4:] == [library, library, cls, cls]
        assert owner.static.__doc__ == "Doc."
    assert Base.static.__name__ == "static"
    assert Base.to_do.__isabstractmethod__


@pytest.mark.parametrize("wrap", [property, functools.cached_property, lambda f: [f]])
def test_what_cannot_be_called_is_refused(wrap):
    with pytest.raises(af.OptionError, match=r"was given a \w+, which cannot be called.*below"):
        af.agnostic("numpy")(wrap(lambda self: self.x))


def _with_x(cls):
    def unflatten(_, children):
        new = cls()
        (new.x,) = children
        return new

    return unflatten


@pytest.mark.parametrize("container", ["dataclass", "dict", "list", "plain", "pytree"])
@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_the_object_of_a_method_is_itself(container, library):
    decorate = af.agnostic(library, differentiable=library == "jax")
    base = methods(decorate)
    bases = {"dict": (base, dict), "list": (base, list)}.get(container, (base,))
    cls = type("Own", bases, {"outside": decorate(outside), "__annotations__": {"x": Any}})
    if container == "dataclass":
        cls = dataclasses.dataclass(cls)
        own = cls(torch.tensor(X))
    else:
        own = cls()
        own.x = torch.tensor(X)
    if container == "pytree":
        jax.tree_util.register_pytree_node(cls, lambda own: ((own.x,), None), _with_x(cls))
    own.calls = 0
    kept = own.x
    for method in (own.count, own.other_name, own.outside):
        before = own.calls
        for _ in range(3):
            own.seen = None
            for y in (method(torch.ones(3)), method(x=torch.ones(3))):
                assert torch.is_tensor(y)
                assert y.tolist() == [2, 2, 2]
            assert own.seen is own.x is kept
        assert own.calls == before + 6
    assert torch.is_tensor(own.of_class(torch.ones(3)))
    if library == "numpy":
        assert torch.is_tensor(own.static(own, torch.ones(3)))
        assert torch.is_tensor(own.static(torch.ones(3), x=torch.ones(3)))


@dataclasses.dataclass
class Box:
    x: Any

    @classmethod
    def of_class(cls, other):
        return type(other.x)

    def of_object(self, other):
        return type(other.x)


@pytest.mark.parametrize("function", [Box.of_class, Box(X).of_object])
def test_bound_methods_have_their_object(function):
    @functools.wraps(function)
    def wrapped(other):
        return function(other)

    for each in (function, wrapped):
        assert af.agnostic("numpy")(each)(Box(torch.tensor(X))) is np.ndarray


@pytest.mark.assumes_other("no_grad")
def test_methods_of_named_tuples_and_their_gradients():
    class Layer(NamedTuple):
        w: Any

        @af.agnostic("jax", differentiable=True)
        def apply(self, x):
            return (jnp.asarray(self.w.detach().numpy()) * x).sum()

    x = torch.ones(3, requires_grad=True)
    Layer(torch.tensor(X)).apply(x).backward()
    assert x.grad.tolist() == X.tolist()


def test_result_like_gets_the_object_too():
    @dataclasses.dataclass
    class Sorter:
        x: Any

        @af.agnostic("numpy", result_like=lambda self, x: (self.x, x))
        def both(self, x):
            return np.asarray(self.x), np.sort(x)

    a, b = jax.jit(lambda x: Sorter(X).both(x))(jnp.asarray([3.0, 1.0]))
    assert (a.tolist(), b.tolist()) == (X.tolist(), [1, 3])


# Columns and datasets.


@pytest.mark.assumes_other("no_grad")
def test_columns_are_read(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "data.h5", "w") as file:
        stored = file.create_dataset("x", data=X)
        for library, differentiable in (("numpy", False), ("jax", False), ("jax", True)):
            decorate = af.agnostic(library, differentiable=differentiable)
            kind = decorate(lambda x, y=None, *, z=None: str((type(x), type(y), type(z))))
            name = str(type(af.convert(X, library)))
            assert kind(stored, z=stored) == f"({name}, {type(None)}, {name})"
            total = decorate(lambda x, y: (x * y).sum())
            x = torch.ones(3, requires_grad=differentiable)
            for y in (total(x, stored), total(stored, x), total(x, y=stored)):
                assert isinstance(y, torch.Tensor)
                assert y == X.sum()
            if differentiable:
                assert torch.autograd.grad(total(stored, x), x)[0].tolist() == X.tolist()
            words = r"File cannot be converted: .*, at \[1\]"
            with pytest.raises(af.ConversionError, match=words):
                total(x, file)


class Unread:
    pass


class UnreadSource(af.Source):
    name, package, array_types = "unread", "builtins", (f"{__name__}.Unread",)

    def to_numpy(self, x):
        raise af.TracedValueError("this has no values")


def test_traced_values_that_are_no_arrays(register):
    register(UnreadSource())
    function = af.agnostic("numpy", unknown="convert", result_like=X)(lambda x: x)
    for argument in ([Unread()], [Unread(), X], [X, {"u": Unread()}]):
        with pytest.raises(af.TracedValueError, match="this has no values"):
            function(argument)


# Shards.

SHARDS = """
import jax, numpy as np, jax.numpy as jnp, arrayferry as af
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("i",))
x = jax.device_put(jnp.ones((8, 2)), NamedSharding(mesh, P("i")))

@af.agnostic("numpy")
def parts(x):
    return {"all": x * 2, "sum": x.sum(), "turned": x.T, "three": x[:3], "rows": x[:4, 0], "none": x[:0]}

for _ in range(4):
    found = parts(x)
    for name, y in found.items():
        assert y.devices() == x.devices() and y.committed, (name, y.sharding)
        assert np.array_equal(y, parts.__wrapped__(np.ones((8, 2)))[name])
    assert found["all"].sharding.is_equivalent_to(x.sharding, 2)
    assert found["rows"].sharding.shard_shape((4,)) == (1,)
    for name in ("sum", "turned", "three"):
        assert found[name].is_fully_replicated, name
    made = af.convert(np.ones(3), like=x)
    assert made.is_fully_replicated and made.devices() == x.devices()
    assert jax.jit(lambda a, b: a.sum() + b)(x, found["sum"]) == 32
"""


def test_results_that_do_not_fit_the_shards_of_the_caller(run_python):
    run_python(SHARDS, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=4"})


# torch.compile.


@pytest.mark.long
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("keyword", [False, True])
def test_inside_torch_compile(keyword):
    calls = []
    sort = af.agnostic("numpy")(lambda x: calls.append(type(x)) or np.sort(x))

    def whole(x):
        return (sort(x=x * 2) if keyword else sort(x * 2)) + 1

    compiled = torch.compile(whole, backend="eager")
    for size in (2, 3, 4, 5):
        x = torch.arange(size, dtype=torch.float32).flip(0)
        assert compiled(x).tolist() == [2 * n + 1 for n in range(size)]
    assert set(calls) == {np.ndarray}


# What a function returns where that is said before.


class Colour(Enum):
    RED = 1
    BLUE = 2


COMPARED = [
    ({"t": None, "x": X}, {"t": "text", "x": X}, r"returned 'text', where result_like says None"),
    ({"t": [None], "x": X}, {"t": ["text"], "x": X}, r"at result\['t'\]\[0\]"),
    ({"t": Colour.RED, "x": X}, {"t": Colour.BLUE, "x": X}, "returned <Colour>"),
    (jax.ShapeDtypeStruct((2,), "float32"), X, r"returned the shape \(3,\)"),
    (jax.ShapeDtypeStruct((3,), "int32"), X, "returned the dtype float32"),
    (X, np.array([1.0, 1e300, 2.0]), "1e\\+300, which does not fit float32"),
    (X, "text", "returned the shape None"),
    ((X,), X, "returned the structure"),
    ([X, X], (X, X), "structure <TreeSpec tuple"),
    ((X, X), Point(X, X), "structure <TreeSpec Point"),
    ({1: X}, {"1": X}, "structure"),
    ({1: X}, {1.0: X}, "structure"),
    ({"k" * 90 + "a": X}, {"k" * 90 + "b": X}, "structure"),
    ([[X]], [{"x": X}], "structure"),
]  # fmt: skip


@pytest.mark.parametrize(("example", "returned", "words"), COMPARED)
def test_results_are_compared_with_result_like(example, returned, words, capfd):
    function = af.agnostic("numpy", result_like=example)(lambda x: returned)
    arrays = jax.jit(lambda x: [y for y in jax.tree.leaves(function(x)) if hasattr(y, "shape")])
    with pytest.raises(jax.errors.JaxRuntimeError, match=words):
        jax.block_until_ready(arrays(X))
    capfd.readouterr()
    assert jax.jit(af.agnostic("numpy", result_like=X)(np.sort))(X).tolist() == X.tolist()


def test_long_keys_in_another_order_keep_their_arrays():
    first, second = "k" * 90 + "a", "k" * 90 + "b"
    function = af.agnostic("numpy", result_like={first: X, second: X, "t": None})(
        lambda x: {"t": None, second: x * 2, first: x}
    )
    found = jax.jit(lambda x: function(x)[first])(X)
    assert found.tolist() == X.tolist()
    inner = af.agnostic("numpy", result_like=[{"a": X, "b": {"c": X, "d": X}}])(
        lambda x: [{"b": {"d": x * 3, "c": x * 2}, "a": x}]
    )
    a, c, d = jax.jit(lambda x: jax.tree.leaves(inner(x)))(X)
    assert (a[1], c[1], d[1]) == (1, 2, 3)


# Pickles.


SCRIPT = """
import os, cloudpickle, pickle, jax, jax.numpy as jnp, numpy as np, arrayferry as af
from dask.base import tokenize

@af.agnostic("numpy", result_like=lambda x: x, narrowing="allow")
def ordered(x):
    return np.sort(x)

@af.agnostic("jax", differentiable=True)
@jax.jit
def energy(x):
    return (x**2).sum()

@af.agnostic("numpy")
def total(x):  # it finds itself
    return x[0] + total(x[1:]) if len(x) else np.zeros(())

def scaled(factor):
    return af.agnostic("numpy")(lambda x: x * factor)

MADE = [ordered, energy, total, scaled(2), scaled(3)]
if "LOAD" not in os.environ:
    with open("made", "wb") as file:
        file.write(cloudpickle.dumps(MADE))
else:
    with open("made", "rb") as file:
        order, square, add, doubled, tripled = pickle.loads(file.read())
    import torch
    x = torch.tensor([3.0, 1.0], requires_grad=True)
    square(x).backward()
    x, gradient = x.detach(), x.grad
    for y in order(x), gradient, add(x), doubled(x), tripled(x):
        assert type(y) is torch.Tensor
    assert order(x).tolist() == jax.jit(order)(jnp.array([3.0, 1.0])).tolist() == [1, 3]
    assert gradient.tolist() == doubled(x).tolist() == [6, 2]
    assert (add(x), tripled(x).tolist(), add.__qualname__) == (4, [9, 3], "total")
print([tokenize(function) for function in MADE])
"""


def test_functions_of_a_script_are_pickled_by_value(run_python, tmp_path):
    """They work in a process that has converted nothing, and have the same tokens in each."""
    script = SCRIPT.replace('"made"', repr(str(tmp_path / "made")))
    tokens, again = (
        ast.literal_eval(run_python(script, env=env))
        for env in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2", "LOAD": "1"})
    )
    assert again == tokens
    assert len({*tokens}) == len(tokens)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_pickles_and_tokens_are_the_same_after_calls(library):
    """As a function, a method and an object, also compiled and called from compiled code."""

    class Scaled:
        @af.agnostic(library, differentiable=library != "numpy")
        def method(self, x):
            return x * 2

        def __call__(self, x):
            return x * 2

    functions = [
        af.agnostic(library, differentiable=library != "numpy")(jax.jit(lambda x: x * 2))
        if library == "jax"
        else af.agnostic(library)(lambda x: x * 2),
        Scaled().method,
        af.agnostic(library)(Scaled()),
    ]
    for function in functions:
        pickled, token = cloudpickle.dumps(function), dask.base.tokenize(function)
        x = torch.tensor(X, requires_grad=library == "jax")
        compiled = torch.compile(lambda x, call=function: call(x) + 1, backend="eager")
        for call in (function, function, compiled, compiled):
            call(x)
        assert dask.base.tokenize(function) == token
        for again in (pickle.loads(pickled), pickle.loads(cloudpickle.dumps(function))):
            assert torch.equal(again(torch.tensor(X)), torch.tensor(X) * 2)


def test_tokens_are_the_same_after_pickling():
    """Those of a function, a closure, a method and of one within another, with any target."""

    def scaled(factor):
        def scale(self, x):  # so that it may be a method
            return x * factor

        return scale

    for library in ("numpy", "array_api_strict"):
        decorate = af.agnostic(library, narrowing="allow")
        for made in (lambda x: x, scaled(2), scaled(3).__get__(X), decorate(lambda x: x)):
            function, equal = decorate(made), decorate(made)
            copies = [equal, cloudpickle.loads(cloudpickle.dumps(function))]
            copies.append(cloudpickle.loads(cloudpickle.dumps(copies[1])))
            tokens = [dask.base.tokenize(x) for x in (function, *copies)]
            assert tokens == tokens[:1] * 4


def test_functions_run_on_a_cluster():
    """Also one that is defined here, which no worker can import."""

    @af.agnostic("torch")
    def doubled(x):
        import torch

        assert isinstance(x, torch.Tensor)
        return 2 * x

    x = da.arange(6.0, chunks=3)
    with local_cluster(processes=True) as cluster, distributed.Client(cluster) as client:
        for found in (
            client.submit(doubled, np.arange(6.0)).result(timeout=60),
            x.map_blocks(doubled),
        ):
            assert np.asarray(found).tolist() == [0, 2, 4, 6, 8, 10]
