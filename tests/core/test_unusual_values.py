"""Values and objects that are made to fail, or that failed once."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import sys
import unittest.mock
import warnings
import weakref
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import arrayferry as af

TARGETS = ("numpy", "torch", "jax", "dask", "array_api_strict")
X = np.arange(3, dtype=np.float32)


class Liar:
    __class__ = torch.Tensor


class NumpyLiar:
    __class__ = np.ndarray


class Unbound:
    @property
    def __class__(self):
        raise RuntimeError("not bound")


def answers_to_all():
    class Vague(type):
        def __getattr__(cls, name):
            return cls

    class AnswersToAll(metaclass=Vague):
        pass

    return AnswersToAll()


class Unhashable(type):
    __hash__ = None


class NoHash(metaclass=Unhashable):
    pass


class ClaimsNamespace:
    def __array_namespace__(self):
        return np


def dead_proxy():
    return weakref.proxy(Liar())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "make",
    [
        Liar, NumpyLiar, Unbound, answers_to_all, NoHash, ClaimsNamespace, dead_proxy,
        lambda: unittest.mock.Mock(spec=torch.Tensor), lambda: unittest.mock.Mock(spec=np.ndarray),
        lambda: unittest.mock.Mock(spec=np.float32(1)), unittest.mock.MagicMock,
    ],
)  # fmt: skip
def test_objects_that_pretend_to_be_arrays_are_unchanged(make, target):
    thing = make()
    assert af.convert(thing, target) is thing
    assert af.convert({"a": [thing]}, target)["a"][0] is thing


def test_a_proxy_does_not_affect_other_proxies():
    x, thing = np.ones(2), answers_to_all()
    for proxy in (weakref.proxy(x), weakref.proxy(thing)):
        assert af.convert(proxy, "torch") is proxy


class Listed(list, enum.Enum):
    A = [1]


class Tupled(tuple, enum.Enum):
    A = (X,)


@dataclasses.dataclass
class Mass:
    kilograms: float


class Planet(Mass, enum.Enum):
    EARTH = 5.97e24


def test_enums_are_not_containers():
    for member in (Listed.A, Tupled.A, Planet.EARTH):
        assert af.convert([member], "torch", scalars="convert")[0] is member


def freed() -> torch.Tensor:
    x = torch.arange(1000.0)
    x.untyped_storage().resize_(0)
    return x


def half_freed() -> torch.Tensor:
    x = torch.arange(1000.0)
    x.untyped_storage().resize_(2000)
    return x


@pytest.mark.parametrize("make", [freed, lambda: freed().view(torch.bfloat16)])
@pytest.mark.parametrize("target", TARGETS)
def test_a_tensor_whose_storage_was_freed(make, target):
    with pytest.raises(af.ConversionError, match="storage was freed"):
        af.convert({"x": make()}, target, copy=True)


def test_a_tensor_whose_storage_was_shrunk():
    with pytest.raises(af.ConversionError, match="storage was freed"):
        af.convert(half_freed(), "torch", copy=True)


@pytest.mark.parametrize("target", ["numpy", "jax", "dask", "array_api_strict"])
def test_inside_functionalize(target):
    seen = []

    def inside(x):
        for copy in (None, True):
            with pytest.raises(af.TracedValueError):
                af.convert(x, target, copy=copy)
            seen.append(copy)
        return x

    torch.func.functionalize(inside)(torch.ones(3) * 5)
    assert seen == [None, True]


def test_an_error_after_heavy_sharing():
    tree = np.ones(1)
    for _ in range(40):
        tree = [tree, tree]
    with pytest.raises(af.UnsupportedDtypeError, match=r"at \[1\]\['a'\]"):
        af.convert([tree, {"a": np.array("x")}], "torch")


def test_a_pytree_that_is_its_own_child():
    @jax.tree_util.register_pytree_node_class
    class Own:
        def tree_flatten(self):
            return (self.child,), None

        @classmethod
        def tree_unflatten(cls, aux, children):
            return cls()

    own = Own()
    own.child = own
    with pytest.raises(af.StructureError, match="contains itself"):
        af.convert([own], "numpy")
    assert af.convert([np.ones(1)], "torch")[0].tolist() == [1]


DEEP = """
import sys, threading, collections, dataclasses, typing, numpy as np, arrayferry as af
sys.setrecursionlimit(10**6)
threading.stack_size(256 * 1024)
@dataclasses.dataclass
class Plain:
    x: object
class Point(typing.NamedTuple):
    x: object
wraps = [lambda t: [t], lambda t: (t,), lambda t: {"x": t}, Plain, Point, lambda t: collections.OrderedDict(x=t)]
def flatten_and_back(tree, to):
    leaves, layout = af.flatten(tree)
    return hash(layout), repr(layout), layout == af.flatten(tree)[1], layout.unflatten(leaves)
def work():
    for depth in (900, 4900, 20_000):
        found = set()
        for wrap in wraps:
            for leaf in (np.array(["text"]), np.ones(1)):
                tree = leaf
                for _ in range(depth): tree = wrap(tree)
                answers = set()
                for function in (af.convert, af.convert, flatten_and_back, lambda *_: af.first_array(tree)):
                    try:
                        function(tree, "jax")
                        answers.add("done")
                    except af.UnsupportedDtypeError as error:
                        answers.add("done")
                        assert len(str(error)) < 400
                    except af.StructureError as error:
                        answers.add("too deep" if "too deeply" in str(error) else str(error))
                        assert len(str(error)) < 400
                assert len(answers) == 1, answers
                found |= answers
                while tree is not leaf:  # freed level by level
                    tree = tree.x if hasattr(tree, "x") else next(iter(tree.values() if type(tree) is not list and type(tree) is not tuple else tree))
        print(depth, *found)
thread = threading.Thread(target=work); thread.start(); thread.join()
"""


@pytest.mark.parametrize("kinds", ["[:2]", pytest.param("", marks=pytest.mark.long)])
def test_deep_trees_in_a_thread_with_a_small_stack(run_python, kinds):
    middle = "4900 done" if sys.version_info < (3, 13) else "4900 too deep"
    found = run_python(DEEP.replace("wrap in wraps:", f"wrap in wraps{kinds}:")).splitlines()
    assert found == ["900 done", middle, "20000 too deep"]


def test_with_compilation_disabled():
    conversion = af.converter("jax")
    with jax.disable_jit():
        for _ in range(4):
            assert isinstance(conversion([X])[0], jax.Array)


@pytest.mark.parametrize("infs", [False, True])
def test_with_jax_debug_flags(capfd, infs):
    bad = np.array([np.inf, np.nan, 1], np.float32)
    conversion = af.converter("jax")
    with jax.debug_infs(infs), jax.debug_nans(True):
        for _ in range(4):
            for value in (bad, torch.tensor(bad)):
                np.testing.assert_array_equal(conversion([value])[0], bad)
            found = conversion(bad)
            for to in ("numpy", "torch", "jax"):
                np.testing.assert_array_equal(af.convert(found, to, copy=True), bad)
    assert capfd.readouterr().err == ""


def test_a_float8_with_infinities_becomes_float16():
    y = af.convert(np.array([np.inf, 1], ml_dtypes.float8_e4m3), "torch")
    assert y.dtype == torch.float16
    assert y.tolist() == [np.inf, 1]


def test_a_cpu_device_that_is_not_the_default(run_python):
    out = run_python(
        """
import numpy as np, jax, arrayferry as af
conversion = af.converter("jax", device="cpu")
with jax.default_device(jax.devices()[1]):
    for dtype in ("f4", "f8"):
        for _ in range(4):
            assert conversion(np.ones(3, dtype)).devices() == {jax.devices()[0]}
    y = af.convert(np.ones(3, "f4"), "jax", device=jax.devices()[0])
    assert y.devices() == {jax.devices()[0]}
print("right")
""",
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
    )
    assert out.strip() == "right"


class Ordered(collections.OrderedDict):
    pass


def test_the_order_of_ordered_dicts():
    for cls in (Ordered, collections.OrderedDict):
        made = cls(a=X, b=2)
        made.move_to_end("a")
        found = af.convert(made, "torch")
        assert list(found) == ["b", "a"]
        assert isinstance(found["a"], torch.Tensor)
        assert found["b"] == 2


@attrs.define
class Cached:
    x: Any
    calls = 0

    @functools.cached_property
    def double(self):
        type(self).calls += 1
        return self.x * 2


def test_cached_properties_of_slotted_attrs_classes():
    made = Cached(X)
    found = af.convert(made, "torch")
    assert Cached.calls == 0
    assert isinstance(found.double, torch.Tensor)
    assert made.double is not None
    assert isinstance(af.convert(made, "torch").double, torch.Tensor)


@dataclasses.dataclass
class Both(dict):
    field: Any


def test_structures_that_were_lost_once():
    chain = af.convert(collections.ChainMap({"a": X}, {"b": X}), "torch")
    assert len(chain.maps) == 2
    assert isinstance(chain["b"], torch.Tensor)
    both = Both(X)
    both["item"] = X
    found = af.convert(both, "torch")
    assert isinstance(found.field, torch.Tensor)
    assert isinstance(found["item"], torch.Tensor)

    class Mine(np.ndarray):
        pass

    mine = np.array([X, None], object).view(Mine)
    assert type(af.convert(mine, "torch")) is Mine
    import types

    proxy = types.MappingProxyType(collections.OrderedDict(a=X))
    assert isinstance(af.convert(proxy, "torch").copy(), collections.OrderedDict)
    whole = np.ma.array([X, None], dtype=object)
    assert isinstance(af.convert(whole, "torch")[0], torch.Tensor)


@pytest.mark.parametrize("target", TARGETS)
def test_long_long(target):
    for code in "qQ":
        for x in (np.arange(3).astype(code), np.arange(6).astype(code)[::-2]):
            y = af.convert(x, target)
            np.testing.assert_array_equal(np.asarray(af.convert(y, "numpy")), x)
    if target != "jax":
        made = af.convert(2**63, target, scalars="convert")
        assert int(af.convert(made, "numpy")) == 2**63
    memory = np.arange(4).astype("Q")
    shared = af.convert(memory, "torch", copy=False)
    memory[0] = 7
    assert shared[0] == 7


def test_an_integer_too_long_to_be_printed():
    with pytest.raises(af.NarrowingError, match="bits"):
        af.convert(10**5000, "torch", scalars="convert")


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="it came with NumPy 2")
def test_string_dtype():
    text = np.array(["a", "b"], np.dtypes.StringDType())
    for target in ("torch", "jax"):
        with pytest.raises(af.UnsupportedDtypeError, match="text"):
            af.convert(text, target)
        assert af.convert(text, target, unsupported="keep") is text
    assert af.convert(text, "dask").compute().tolist() == ["a", "b"]


def test_numbers_in_containers_that_cannot_hold_arrays():
    tree = {"shape": torch.Size([2]), "flags": sys.flags, "x": 1}
    found = af.convert(tree, "jax", scalars="convert")
    assert found["shape"] is tree["shape"]
    assert found["flags"] is sys.flags
    assert isinstance(found["x"], jax.Array)


class Needy(dict):
    def __new__(cls, argument):
        return super().__new__(cls)

    def __init__(self, argument):
        super().__init__()


def test_the_error_of_a_failed_rebuild_names_the_place():
    needy = Needy(1)
    needy["a"] = 1
    assert af.convert({"q": [needy]}, "torch")["q"][0] is needy
    needy["a"] = X
    with pytest.raises(af.StructureError, match="Needy could not be rebuilt") as caught:
        af.convert({"q": [needy]}, "torch")
    assert caught.value.path == "['q'][0]"


def test_strides_of_axes_of_length_one():
    x = np.lib.stride_tricks.as_strided(np.arange(3.0), (1, 3), (7, 8))
    y = af.convert(x, "torch", copy=False)
    assert y.tolist() == [[0, 1, 2]]


def test_extreme_sizes():
    assert af.convert(np.empty((2**31, 0, 3)), "dask").shape == (2**31, 0, 3)
    float0 = np.zeros(2, jax.dtypes.float0)
    assert af.convert(float0, "dask").compute().dtype == float0.dtype
    assert af.convert(float0, "torch", unsupported="keep") is float0
    nothing = np.zeros(3, "V0")
    assert af.convert(nothing, "torch", unsupported="keep") is nothing


def test_a_dtype_that_no_other_library_has():
    with warnings.catch_warnings(action="ignore"):
        x = torch.zeros(2, dtype=torch.complex32)
    with pytest.raises(af.UnsupportedDtypeError, match="complex32"):
        af.convert(x, "numpy")
    assert af.convert(x, "numpy", unsupported="keep") is x


def test_a_deleted_array_cannot_be_copied():
    x = jnp.ones(2)
    x.delete()
    with pytest.raises(af.ConversionError, match="deleted, or donated"):
        af.convert(x, "jax", copy=True)


def test_a_class_whose_attributes_raise():
    class Odd(np.ndarray):
        @property
        def dtype(self):
            raise RuntimeError("no dtype")

    odd = np.ones(2).view(Odd)
    assert af.convert(odd, "torch").tolist() == [1, 1]
