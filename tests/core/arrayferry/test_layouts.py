"""`flatten` and `TreeSpec`: what is in a key, what is shared, and what does not fit."""

import array
import collections
import copy
import dataclasses
import decimal
import functools
import pathlib
import pickle
import types
import typing
import weakref

import attrs
import gymnasium
import jax
import ml_dtypes
import numpy as np
import pytest
import torch
from boxes import Compared, Items, Plain, Point
from pytrees import Node, Registered, Scaled, objects

import arrayferry as af
from arrayferry._tree.keys import exact_key

X = np.arange(3.0)


class Pair(tuple):
    scale = 1

    def __new__(cls, items, scale=1):
        new = super().__new__(cls, items)
        new.scale = scale
        return new


class Row(list):
    __slots__ = ("scale",)

    def __init__(self, items, scale=1):
        super().__init__(items)
        self.scale = scale


@dataclasses.dataclass(frozen=True)
class Config:
    """Python takes two of them for equal that hold 1 and 1.0."""

    scale: typing.Any = 1


@attrs.define
class Attrs:
    x: typing.Any
    scale: typing.Any = 1


class Store(Items):
    def __init__(self, items, scale=1):
        super().__init__(items)
        self.scale = scale


@dataclasses.dataclass
class Output(dict):
    x: typing.Any
    scale: typing.Any = 1

    def __post_init__(self):
        self["x"] = self.x


class SameName:
    """Equal to every other one."""

    def __init__(self, factor):
        self.factor = factor

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


def outside(value, name, held):
    setattr(value, name, held)
    return value


def ordered(**attributes):
    value = collections.OrderedDict(x=X)
    vars(value).update(attributes)
    return value


def proxy(kind):
    return types.MappingProxyType(kind({"x": X}))


def with_scale(make):
    return {
        "dict": Scaled(x=make(1) and X, scale=make(2)),
        "tuple": Pair((X,), scale=make(2)),
        "list": Row([X], scale=make(2)),
        "node": Node(X, make(2)),
        "registered dict": Registered(x=X, scale=make(2)),
        "dataclass": Plain(X, make(2)),
        "attribute of a dataclass": outside(Plain(X), "other", make(2)),
        "attrs": Attrs(X, make(2)),
        "named tuple": Point(X, make(2)),
        "mapping": Store({"x": X}, make(2)),
        "fields and items": Output(X, make(2)),
        "attribute of an OrderedDict": ordered(scale=make(2)),
        "deep": [{"a": (Node({"b": X}, make(2)),)}],
        "value": {"x": X, "scale": make(2)},
        "in a config": {"x": X, "config": Config(make(2))},
        "in a tuple": {"x": X, "config": (1, [make(2)])},
        "in a method": {"x": X, "config": Config(make(2)).__eq__},
        "in an object": {"x": X, "config": outside(types.SimpleNamespace(), "scale", make(2))},
        "in a set": {"x": X, "config": frozenset([make(2)])},
        "in a dict": {"x": X, "config": types.MappingProxyType({"scale": make(2)})},
        "keys": {make(2): X},
        "keys of an OrderedDict": collections.OrderedDict({make(2): X}),
    }


SCALES = {
    "int": int,
    "float": float,
    "bool": lambda number: True,
    "other": lambda number: 3,
    "numpy": np.int64,
    "text": str,
}
KINDS = {name: with_scale(make) for name, make in SCALES.items()}


@pytest.mark.parametrize("where", KINDS["int"])
def test_what_differs_besides_leaves_has_another_key(where):
    layouts = {name: af.flatten(kinds[where])[1] for name, kinds in KINDS.items()}
    again = {name: af.flatten(with_scale(make)[where])[1] for name, make in SCALES.items()}
    for name, layout in layouts.items():
        assert [other for other in again if again[other] == layout] == [name]
        assert hash(layout) == hash(again[name])
        if where not in ("in a dict", "in a method"):  # which cannot be pickled, or not as they are
            assert layout == pickle.loads(pickle.dumps(layout))


DIFFERENT = [
    (collections.defaultdict(list, x=X), collections.defaultdict(int, x=X)),
    (collections.deque([X], 2), collections.deque([X], 3)),
    (collections.deque([X], 2), collections.deque([X])),
    ({"x": X}, collections.OrderedDict(x=X)),
    ((X, 1), Point(X, 1)),
    ({"a": X, "b": X}, {"b": X, "a": X}),
    ({"k" * 100 + "a": X}, {"k" * 100 + "b": X}),
    ({"x": X, "y": 0.0}, {"x": X, "y": -0.0}),
    ({"x": X, "y": 0j}, {"x": X, "y": complex(0.0, -0.0)}),
    ({"x": X, "y": decimal.Decimal("1.0")}, {"x": X, "y": decimal.Decimal("1")}),
    ({"x": X, "y": jax.tree.structure([1])}, {"x": X, "y": jax.tree.structure((1,))}),
    ({"x": X, "y": SameName(1)}, {"x": X, "y": SameName(2)}),
    ({"x": X, "y": pathlib.Path("a")}, {"x": X, "y": "a"}),
    ({"x": X, "y": slice(1)}, {"x": X, "y": slice(2)}),
    ({"x": X, "y": slice(1)}, {"x": X, "y": slice(1.0)}),
    (ordered(), ordered(_metadata=1)),
    (proxy(collections.OrderedDict), proxy(dict)),
    (objects(X, X).reshape(1, 2), objects(X, X).reshape(2, 1)),
    ({"x": X, "y": np.ones(2)}, {"x": X, "y": {}}),
    ({"x": X, "y": []}, {"x": X, "y": ()}),
    (collections.ChainMap({"x": X}), collections.ChainMap({"x": X}, {})),
    (collections.UserDict(x=X), outside(collections.UserDict(x=X), "scale", 2)),
    (torch.return_types.max([X, X]), (X, X)),
    (jax.tree_util.Partial(max, X), jax.tree_util.Partial(min, X)),
]


@pytest.mark.parametrize(("some", "others"), DIFFERENT)
def test_other_pairs_that_differ(some, others):
    (leaves, first), (_, second) = af.flatten(some), af.flatten(others)
    assert first != second
    assert first == af.flatten(some)[1]
    again = first.unflatten(leaves)
    assert type(again) is type(some)
    assert af.flatten(again)[1] == first


def test_a_layout_is_equal_to_layouts_only():
    layout = af.flatten([X])[1]
    assert layout != "a layout"
    assert layout not in (None, 3)


def test_an_object_that_changed_is_another_one():
    settings = types.SimpleNamespace(scale=1, inner=[types.SimpleNamespace(x=2)])
    before = af.flatten((X, settings))[1]
    assert before == af.flatten((X, settings))[1]
    settings.inner[0].x = 3
    assert before != af.flatten((X, settings))[1]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda node: node,
        lambda node: (node,),
        lambda node: Point(1, node),
        lambda node: Node(node),
        lambda node: Node({"a": [node], "b": collections.OrderedDict(c=(node,))}),
        lambda node: Node(objects(node, None)),
    ],
)
def test_a_registered_structure_without_arrays_has_the_key_of_its_contents(wrap):
    node = Node(True, scale=1)
    leaves, before = af.flatten((X, wrap(node)))
    assert before == af.flatten((X, wrap(Node(True, scale=1))))[1]
    assert before.order_in(af.flatten((X, wrap(Node(True))))[1]) == [0]
    for other in (Node(False), Node(True, scale=2)):
        assert before.order_in(af.flatten((X, wrap(other)))[1]) is None
    tree = (X, wrap(node))
    assert af.flatten(tree)[1].unflatten(leaves)[1] is tree[1]
    for name, value in (("x", False), ("scale", 2)):
        setattr(node, name, value)
        changed = af.flatten((X, wrap(node)))[1]
        assert changed != before
        before = changed


def test_what_can_be_written_to_has_a_key_of_its_own():
    settings = types.SimpleNamespace(big=np.zeros(10_000), tensor=torch.ones(2))
    assert af.flatten((X, settings))[1] != af.flatten((X, settings))[1]
    fixed = jax.numpy.ones(2)
    for held, new in ((np.zeros(2), 1), (objects("a", None, 1), 1.0)):
        settings = types.SimpleNamespace(held=held, fixed=fixed)
        before = af.flatten((X, settings))[1]
        assert before == af.flatten((X, settings))[1]
        held[-1] = new
        assert before != af.flatten((X, settings))[1]


def test_odd_objects_are_equal_to_themselves_or_to_nothing():
    odd = type("Odd", (), {"__eq__": lambda self, other: 1 / 0, "__hash__": None})
    circle = types.SimpleNamespace()
    circle.self = circle
    huge = types.SimpleNamespace(many=[object() for _ in range(20_000)])
    deep = X.tolist()
    for _ in range(3_000):
        deep = types.SimpleNamespace(inner=deep)
    for each in (odd(), circle, huge, deep, weakref.ref(odd), lambda: 1, iter([])):
        layout = af.flatten((X, each))[1]
        assert layout == layout
        assert isinstance(layout == af.flatten((X, each))[1], bool)
        hash(layout)
    while type(deep) is types.SimpleNamespace:
        deep = deep.inner


def test_leaves_of_an_array_of_objects():
    x = torch.ones(2, requires_grad=True)
    value = objects(x, None, {"y": X}, "text").reshape(2, 2)
    arrays, layout = af.flatten({"a": value})
    assert layout.paths == ["['a'][0, 0]", "['a'][1, 0]['y']"]
    assert arrays[0] is x
    again = layout.unflatten([1, 2])["a"]
    assert again.tolist() == [[1, None], [{"y": 2}, "text"]]
    numbers = np.array([1, 2.5, None], object)
    assert af.flatten(numbers)[0] == []
    assert [*af.flatten(numbers, everything=True)[0]] == [1, 2.5, None]


# Containers in two places.


def twice(make):
    inner = make()
    return [inner, {"again": inner}, (inner,)]


SHARED = [
    lambda: [X, 1],
    lambda: {"x": X},
    lambda: Point(X),
    lambda: Plain(X),
    lambda: Node(X),
    lambda: Scaled(x=[X]),
    lambda: objects(X, None),
    list,
    lambda: {"deep": Plain([X, {"y": X}])},
]


@pytest.mark.parametrize("make", SHARED)
def test_one_object_in_two_places_stays_one(make):
    value = twice(make)
    arrays, layout = af.flatten(value)
    assert len(arrays) == len(layout.paths) == 3 * len(af.flatten(make())[0])
    a, b, (c,) = layout.unflatten(arrays)
    assert a is b["again"] is c
    assert a is not value[0] or not arrays
    if arrays:
        others = [x + 1 for x in arrays]
        a, b, (c,) = layout.unflatten(others)
        assert len({id(each) for each in (a, b["again"], c)}) == 3
        third = len(others) // 3
        a, b, (c,) = layout.unflatten([*others[: 2 * third], *others[:third]])
        assert a is not b["again"]
    assert af.flatten([make(), {"again": make()}, (make(),)])[1] == layout


def test_layouts_do_not_keep_arrays_alive():
    class Kept(np.ndarray):
        pass

    for make in (lambda x: x, lambda x: twice(lambda: Plain([x])), lambda x: Output(x), Store):
        x = np.ones(3).view(Kept)
        gone = weakref.ref(x)
        layout = af.flatten(make({"x": x} if make is Store else x))[1]
        del x
        assert gone() is None
        assert layout.unflatten([X] * len(layout.paths)) is not None


def test_fields_that_mirror_items_or_do_not():
    value = outside(Output(X), "x", X)
    value["own"] = X * 2
    layout = af.flatten(value)[1]
    assert layout.paths == ["['x']", "['own']"]
    again = layout.unflatten([1, 2])
    assert (again.x, dict(again)) == (1, {"x": 1, "own": 2})
    apart = outside(Output(X), "x", X * 3)
    _arrays, layout = af.flatten(apart)
    assert layout.paths == ["['x']", ".x"]
    again = layout.unflatten([1, 2])
    assert (again.x, dict(again)) == (2, {"x": 1})


@pytest.mark.parametrize("count", [0, 1, 3, 4])
@pytest.mark.parametrize("value", [[X, X], Point(X, X), {"a": X, "b": [X, "text"]}])
def test_the_number_of_leaves_must_fit(count, value):
    layout = af.flatten(value)[1]
    for give in (list, iter, tuple):
        with pytest.raises(af.StructureError, match=f"{count} leaves were given for a layout of 2"):
            layout.unflatten(give([X] * count))
    whole = af.flatten(X)[1]
    if count != 1:
        with pytest.raises(af.StructureError, match=f"{count} leaves .* of 1"):
            whole.unflatten([X] * count)
    results = (layout.unflatten(leaves) for leaves in [[X, X], [X] * count])
    with pytest.raises(af.StructureError):
        list(results)


def test_copies_of_layouts_work():
    arrays, layout = af.flatten(twice(lambda: Plain([X, {"n": 3}])))
    for again in (pickle.loads(pickle.dumps(layout)), copy.copy(layout), copy.deepcopy(layout)):
        assert again == layout
        assert repr(again) == repr(layout)
        a, b, _ = again.unflatten(arrays)
        assert a is b["again"]
        assert a.x[0] is X


# What is kept besides arrays.


def test_attributes_of_an_ordered_dict():
    state = torch.nn.Linear(2, 2).state_dict()
    for _ in range(4):
        found = af.convert(state, "jax")
        assert found._metadata == state._metadata
        assert type(found) is collections.OrderedDict
    arrays, layout = af.flatten(state)
    assert layout.unflatten(arrays)._metadata == state._metadata
    back = af.convert(found, "torch")
    torch.nn.Linear(2, 2).load_state_dict(back)


@pytest.mark.parametrize("slots", [True, False])
@pytest.mark.parametrize("hashed", [True, False])
def test_cached_hashes_of_attrs(slots, hashed):
    @attrs.frozen(cache_hash=True, slots=slots)
    class Cached:
        x: object = attrs.field(eq=False)
        n: object = 3

    value = Cached(X)
    if hashed:
        hash(value)
    for _ in range(4):
        assert hash(af.convert([value], "torch")[0]) == hash(value)
    arrays, layout = af.flatten(value)
    assert hash(layout.unflatten(arrays)) == hash(value)

    value = Cached(X, np.float32(3))
    hash(value)
    found = af.convert(value, "numpy", scalars="convert")
    if found.n is not value.n:
        with pytest.raises(TypeError, match="unhashable"):  # not the hash of another value
            hash(found)


def test_weak_values():
    value = weakref.WeakValueDictionary(a=X)
    for to in ("torch", "jax"):
        with pytest.raises(af.StructureError, match="that nothing else refers to"):
            af.convert({"w": value}, to)
    assert dict(af.convert(value, "numpy")) == {"a": X}
    key = Plain(1)
    assert af.convert([weakref.WeakValueDictionary(a=key), X], "torch")[0]["a"] is key
    own = Config()
    keys = weakref.WeakKeyDictionary({own: X})
    assert torch.is_tensor(af.convert(keys, "torch")[own])


# Keys.


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, lambda f: functools.partial(f, 1)])
def test_functions_are_the_same_if_they_are_the_same_object(wrap):
    function = wrap(lambda x: x)
    assert af.flatten((X, function))[1] == af.flatten((X, function))[1]
    assert af.flatten((X, function))[1] != af.flatten((X, wrap(lambda x: x)))[1]


def test_keys_keep_no_object_alive_that_equals_only_itself():
    function = lambda: None  # noqa: E731
    gone, key, again = weakref.ref(function), exact_key([function]), exact_key([function])
    assert key == again
    del function
    assert gone() is None
    assert key == key != again
    assert hash(key) == hash(again)


def test_arrays_differ_by_names_byte_order_masks_and_narrow_dtypes():
    made = [
        np.zeros(2, [("a", "i4")]), np.zeros(2, [("b", "i4")]), np.zeros(2, "<f4"), np.zeros(2, ">f4"),
        np.zeros(2, ml_dtypes.int4), np.zeros(2, ml_dtypes.uint4), np.ma.masked_array(np.zeros(2), [0, 1]),
        np.ma.masked_array(np.zeros(2), [1, 0]),
    ]  # fmt: skip
    keys = [exact_key(x) for x in made]
    assert [keys.index(exact_key(copy.deepcopy(x))) for x in made] == [*range(len(made))]


def test_what_has_a_shape_but_no_values_is_not_taken_for_an_array():
    def layout(n):
        space = gymnasium.spaces.MultiDiscrete([n, 2])
        return af.flatten((X, space))[1], af.flatten((X, jax.ShapeDtypeStruct((n,), "int32")))[1]

    assert layout(2)[1] == layout(2)[1]
    assert layout(2)[1] != layout(3)[1]
    assert layout(2)[0] != layout(3)[0]


@pytest.mark.parametrize("library", ["jax.tree_util", "optree"])
def test_equal_structures_are_the_same_however_they_are_written(library):
    """The structures of MuJoCo's states hold such objects, made anew by each step."""

    structure = pytest.importorskip(library).tree_structure

    def key(*made):
        kept = [Node(X, made)] if library == "jax.tree_util" else dict.fromkeys(made, X)
        return exact_key(structure(kept))

    assert key(Compared(1), np.int64(0)) == key(Compared(1), 0) != key(Compared(2), 0)
    assert hash(key(Compared(1), np.int64(0))) == hash(key(Compared(1), 0))
    if library == "jax.tree_util":
        scales = np.int64(0), (1, np.int64(0))
        one, other = (exact_key(structure(Node(X, scale))) for scale in scales)
        assert one == one != other  # although NumPy compares them element by element


def test_what_c_hides_is_not_taken_for_nothing():
    assert exact_key(array.array("i", [1])) != exact_key(array.array("i", [2]))


def test_leaves_are_found_in_another_order_at_any_depth():
    some = others = X
    for _ in range(900):
        some, others = {"a": some, "b": X}, {"b": X, "a": others}
    (_, some), (_, others) = af.flatten(some), af.flatten(others)
    assert some.order_in(others) == [*range(901)][::-1]
