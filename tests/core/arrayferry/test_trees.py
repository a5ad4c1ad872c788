"""Structures: searched, rebuilt with their types, order and attributes, and never modified."""

import builtins
import collections
import dataclasses
import enum
import functools
import sys
import time
import types
from collections.abc import MutableMapping
from typing import Any

import attrs
import equinox
import flax.struct
import jax
import numpy as np
import pytest
import torch
from boxes import Held, HeldContainer, Items, Point, registered
from refusals import refused

import arrayferry as af

X = np.arange(3, dtype=np.float32)


def is_torch(x) -> bool:
    return isinstance(x, torch.Tensor) and x.tolist() == [0, 1, 2]


class PointWithMore(Point):
    def norm(self):
        return 1


class DictSubclass(dict):
    pass


class Counted(collections.OrderedDict):
    __slots__ = ("count",)


class Attributes(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Mirrored(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        setattr(self, key, value)


class NeedsArguments(dict):
    def __init__(self, owner, values):
        super().__init__(values)
        self.owner = owner


class Rows(list):
    def __init__(self, label, rows=()):
        super().__init__(rows)
        self.label = label


class Labelled(collections.UserDict):
    label = "none"


class Refusing(dict):
    def __setitem__(self, key, value):
        raise TypeError("frozen")


NEW_PYTHON = sys.version_info >= (3, 15)
"""Whether there is `frozendict`, whose keys JAX would sort."""


def reordered(cls):
    made = cls(a=X, b=2)
    made.move_to_end("a")
    return made


MAPPINGS = [
    {"x": X, 3: "three", (1, 2): None},
    collections.OrderedDict([("b", X), ("a", 1)]),
    reordered(collections.OrderedDict),
    *([builtins.frozendict({"x": X, 3: "three", "a": None})] if NEW_PYTHON else []),
    reordered(type("Ordered", (collections.OrderedDict,), {})),
    collections.defaultdict(list, {"x": X}),
    collections.Counter({"x": 2}),
    DictSubclass(x=X, y=1),
    Refusing(x=X),
    Attributes(x=X),
    NeedsArguments("me", {"x": X}),
    collections.UserDict({"x": X}),
    Labelled({"x": X}),
    types.MappingProxyType({"x": X}),
    collections.ChainMap({"x": X}),
]


@pytest.mark.parametrize("made", MAPPINGS, ids=lambda made: type(made).__name__)
def test_mappings(made):
    before = dict(made)
    found = af.convert(made, "torch")
    assert type(found) is type(made)
    assert list(found) == list(made)
    for key, value in before.items():
        assert made[key] is value
        if isinstance(value, np.ndarray):
            assert is_torch(found[key])
        else:
            assert found[key] is value


def test_what_mappings_have_besides_items():
    found = af.convert(collections.defaultdict(set, a=X), "torch")
    assert found["new"] == set()
    subclass = DictSubclass(a=X)
    subclass.note = "kept"
    assert af.convert(subclass, "torch").note == "kept"
    counted = Counted(a=X)
    counted.count = 5
    found = af.convert(counted, "torch")
    assert found.count == 5
    assert list(reversed(found)) == ["a"]
    attributes = af.convert(Attributes(x=X), "torch")
    assert attributes.x is attributes["x"]
    attributes.z = 1
    assert attributes["z"] == 1
    mirrored = Mirrored()
    mirrored["x"] = X
    found = af.convert(mirrored, "torch")
    assert is_torch(found["x"])
    assert found.x is found["x"]
    assert mirrored.x is X
    assert af.convert(NeedsArguments("me", {"x": X}), "torch").owner == "me"
    labelled = Labelled({"x": X})
    labelled.label = "mine"
    assert af.convert(labelled, "torch").label == "mine"


@pytest.mark.skipif(not NEW_PYTHON, reason="frozendict is new in Python 3.15")
@pytest.mark.parametrize("times", [1, 5])
def test_frozen_dicts(times):
    class Named(builtins.frozendict):
        def __new__(cls, name, items):
            made = super().__new__(cls, items)
            made.name = name
            return made

        def values(self):
            raise TypeError("not to be called")

    made = Named("me", {"b": X, "a": 1, 3: builtins.frozendict(c=(X, None))})
    convert = af.converter("jax")
    for _ in range(times):
        found = convert([made])[0]
        assert (type(found), found.name, list(found)) == (Named, "me", ["b", "a", 3])
        assert type(found[3]) is builtins.frozendict
        assert isinstance(found["b"], jax.Array)
        assert isinstance(found[3]["c"][0], jax.Array)
    assert af.convert(made, "numpy")["b"] is X
    with pytest.raises(af.ConversionError, match=r"at \['bad'\]"):
        af.convert(builtins.frozendict(good=X, bad=np.array(2**40)), "jax")


SEQUENCES = [
    [X, "a", None],
    (X, "a"),
    collections.deque([X, 1], maxlen=5),
    Point(X),
    PointWithMore(X, 2),
    Rows("label", [X]),
    collections.UserList([X]),
]


@pytest.mark.parametrize("made", SEQUENCES, ids=lambda made: type(made).__name__)
def test_sequences(made):
    before = list(made)
    found = af.convert(made, "torch")
    assert type(found) is type(made)
    assert len(found) == len(before)
    assert is_torch(found[0])
    assert all(a is b for a, b in zip(list(made), before, strict=True))
    assert getattr(found, "maxlen", None) == getattr(made, "maxlen", None)
    assert getattr(found, "label", None) == getattr(made, "label", None)


def test_struct_sequences():
    found = af.convert(torch.max(torch.ones(2, 2), 0), "numpy")
    assert type(found) is torch.return_types.max
    assert isinstance(found.values, np.ndarray)
    now = time.localtime()
    assert af.convert({"t": now}, "torch")["t"] is now


@dataclasses.dataclass
class Plain:
    x: Any
    n: int = 3


FIELDS = ["x", ("n", int, 3)]
Frozen = dataclasses.make_dataclass("Frozen", FIELDS, frozen=True)
Slotted = dataclasses.make_dataclass("Slotted", FIELDS, slots=True)
FrozenSlotted = dataclasses.make_dataclass(
    "FrozenSlotted", FIELDS, frozen=True, slots=True, kw_only=True
)


@dataclasses.dataclass
class Inherited(Plain):
    more: Any = None


@dataclasses.dataclass
class Derived:
    x: Any
    n: int = dataclasses.field(init=False, default=3)
    unset: Any = dataclasses.field(init=False, repr=False)
    given: dataclasses.InitVar[int] = 0

    def __post_init__(self, given):
        self.calls = [*getattr(self, "calls", []), given]

    @functools.cached_property
    def double(self):
        return self.x * 2


class Base:
    __slots__ = ("tag",)


@dataclasses.dataclass(slots=True)
class OnSlots(Base):
    x: Any
    n: int = 3


@attrs.define
class Attrs:
    x: Any
    n: int = 3
    _private: int = 4


AttrsFrozen = attrs.make_class(
    "AttrsFrozen", {"x": attrs.field(), "n": attrs.field(default=3)}, frozen=True
)


class Module(equinox.Module):
    x: Any
    n: int = equinox.field(static=True)


@flax.struct.dataclass
class Struct:
    x: Any
    n: int = flax.struct.field(pytree_node=False, default=3)


WITH_FIELDS = [
    Plain(X), Frozen(X), Slotted(X), FrozenSlotted(x=X), Inherited(X, more=[X]), Derived(X, given=7),
    OnSlots(X), Attrs(X), AttrsFrozen(X), Module(X, 3), Struct(X),
]  # fmt: skip


@pytest.mark.parametrize("made", WITH_FIELDS, ids=lambda made: type(made).__name__)
def test_classes_with_fields(made):
    found = af.convert([made], "torch")[0]
    assert type(found) is type(made)
    assert is_torch(found.x)
    assert made.x is X
    assert found.n == 3


def test_what_classes_have_besides_fields():
    derived = Derived(X, given=7)
    assert derived.double is not None
    found = af.convert(derived, "torch")
    assert found.calls == [7]
    assert isinstance(found.double, torch.Tensor)
    assert not hasattr(found, "unset")
    slots = OnSlots(X)
    slots.tag = "t"
    assert af.convert(slots, "torch").tag == "t"
    assert is_torch(af.convert(Inherited(X, more=[X]), "torch").more[0])
    assert af.convert(Attrs(X), "torch")._private == 4


def test_objects_without_arrays_are_returned_as_is():
    class Color(enum.Enum):
        RED = 1

    things = [
        None, True, 3, 2.5, 1j, "text", b"bytes", bytearray(b"x"), Color.RED, {1, 2},
        frozenset((1,)), range(3), slice(1), np, len, Plain, object(), Plain("no array"), Frozen(1),
        Attrs(1), Module("x", 1), Struct(1), iter([1]), (i for i in "ab"), np.dtype("f4"), np.str_("s"),
        np.datetime64("2020"), NotImplemented, ..., torch.float32, torch.device("cpu"), time.localtime(),
        torch.Size([1, 2]), functools.partial(len), types.SimpleNamespace(a=1), type, Exception("e"),
        np.random.default_rng(1), torch.nn.Linear(1, 1), sys,
    ]  # fmt: skip
    for target in ("numpy", "torch", "jax", "dask"):
        found = af.convert({"things": things}, target)["things"]
        for ours, theirs in zip(found, things, strict=True):
            assert ours is theirs
        for thing in things:
            assert af.convert(thing, target) is thing


def test_containers_are_new_even_if_nothing_changes():
    inner = [1, {"a": X}]
    found = af.convert(inner, "numpy")
    assert found == [1, {"a": X}]
    assert found is not inner
    assert found[1] is not inner[1]
    assert found[1]["a"] is X


def test_object_arrays():
    mixed = np.empty((2, 2), object)
    mixed[0, 0], mixed[0, 1], mixed[1, 0] = X, None, {"x": X}
    found = af.convert(mixed, "torch")
    assert found.shape == (2, 2)
    assert found.dtype == object
    assert is_torch(found[0, 0])
    assert found[0, 1] is None
    assert is_torch(found[1, 0]["x"])
    assert mixed[0, 0] is X
    single = np.empty((), object)
    single[()] = X
    assert is_torch(af.convert(single, "torch")[()])
    scalars = np.array([np.array(1.0), None], object)
    assert isinstance(af.convert(scalars, "torch")[0], torch.Tensor)
    bad = mixed.copy()
    bad[1, 1] = np.array(["text"])
    refused(af.UnsupportedDtypeError, r"at \[1, 1\]", bad, "torch")


def test_deep_trees_and_heavy_sharing_are_fast():
    tree = [X]
    for _ in range(300):
        tree = [tree, tree]
    found = af.convert(tree, "torch")
    for _ in range(300):
        assert found[0] is found[1]
        found = found[0]
    assert is_torch(found[0])


CYCLES = [
    (lambda: {"x": X}, lambda tree: tree.update(self=tree), "['self']"),
    (lambda: [X], lambda tree: tree.append([tree]), "[1][0]"),
    (lambda: Plain(X), lambda tree: setattr(tree, "n", [tree]), ".n[0]"),
    (lambda: np.empty(2, object), lambda tree: tree.__setitem__(1, tree), "[1]"),
]


@pytest.mark.parametrize(("make", "close", "path"), CYCLES)
def test_cycles(make, close, path):
    tree = make()
    close(tree)
    assert refused(af.StructureError, "contains itself", tree, "torch").path == path


@pytest.mark.parametrize("wrap", [lambda t: [t], lambda t: {"k": t}, lambda t: (t,), Plain])
def test_trees_that_are_too_deep(wrap):
    tree = X
    for _ in range(100_000):
        tree = wrap(tree)
    limit = sys.getrecursionlimit()
    for high in (limit, 200_000):
        sys.setrecursionlimit(high)
        try:
            refused(af.StructureError, "too deeply", tree, "torch")
        finally:
            sys.setrecursionlimit(limit)
    while not isinstance(tree, np.ndarray):  # freed level by level, which some types need
        parts = [tree.x] if isinstance(tree, Plain) else tree
        tree = next(iter(parts.values() if isinstance(parts, dict) else parts))


@pytest.mark.parametrize("method", ["children", "rebuild"])
def test_a_container_that_calls_itself_without_end_is_the_cause(method, register):
    again = {method: lambda self, *args: getattr(self, method)(*args)}
    register(type("Again", (HeldContainer,), again)())
    words = r"recurses without end \(RecursionError: .*at \[0\].*the cause"
    for _ in range(3):
        caught = refused(af.StructureError, words, [Held(X)], "torch")
        assert isinstance(caught.__cause__, RecursionError)


class BadKey:
    def __repr__(self):
        raise RuntimeError("no repr")


def test_a_key_whose_repr_fails():
    with pytest.raises(af.UnsupportedDtypeError, match="BadKey whose repr fails"):
        af.convert({BadKey(): np.array(["text"])}, "torch")


def test_an_attribute_that_raises():
    bad = dataclasses.make_dataclass("Bad", ["x"])(X)
    type(bad).x = property(lambda self: 1 / 0)
    words = r"Bad could not be read by the container DataclassContainer \(ZeroDivisionError"
    assert refused(af.StructureError, words, {"b": [bad]}, "torch").path == "['b'][0]"


class Store(Items, MutableMapping):
    """A custom mapping, whose constructor takes a dict."""

    def __setitem__(self, key, value):
        self.items_[key] = value

    def __delitem__(self, key):
        del self.items_[key]


class Named(Items):
    """One whose constructor takes other arguments."""

    def __init__(self, name, key, value):
        super().__init__({key: value})
        self.name = name


class Stubborn(Items):
    """One that stores its items in no mapping."""

    def __init__(self, key, value):
        self._pairs = [(key, value)]

    @property
    def items_(self):
        return dict(self._pairs)


def test_other_mappings():
    store = Store({"x": X})
    found = af.convert(store, "torch")
    assert type(found) is Store
    assert is_torch(found["x"])
    assert store["x"] is X
    stubborn = Stubborn("x", 1)
    assert af.convert(stubborn, "torch") is stubborn
    words = r"Stubborn cannot be rebuilt.*Register a Container"
    for how in ("raise", "keep"):
        error = refused(af.StructureError, words, [Stubborn("x", X)], "torch", unsupported=how)
        assert error.path == "[0]"
    texts = Stubborn("x", np.array(["a"]))  # in which nothing is converted
    assert af.convert(texts, "torch", unsupported="keep") is texts
    named = af.convert(Named("n", "x", X), "torch")
    assert named.name == "n"
    assert is_torch(named["x"])


def test_a_class_that_is_registered_with_jax_after_it_was_seen():
    """It is looked up again wherever no code was written for its objects, and then everywhere."""

    class Box:
        def __init__(self, x, name):
            self.x, self.name = x, name

    box, to_torch = Box([X], "n"), af.converter("torch")
    for _ in range(3):
        assert af.convert(box, "torch") is box is to_torch({"b": box, "x": X})["b"]
    assert (af.flatten([box])[0], *af.first_array(box)) == ([], None, None)
    jax.tree_util.register_pytree_with_keys(
        Box,
        lambda box: (((jax.tree_util.GetAttrKey("x"), box.x),), box.name),
        lambda name, children: Box(children[0], name),
    )
    assert af.first_array(box)[0] is af.flatten([box])[0][0] is X
    found = to_torch({"b": box, "x": X})["b"]
    assert is_torch(found.x[0])
    assert found.name == "n"
    refused(af.UnsupportedDtypeError, r"\['b'\]\.x", {"b": Box(np.array(["t"]), "n")}, "torch")


def test_a_mapping_that_also_holds_another_dict():
    two = Items({"x": X})
    vars(two).update(notes={"note": "kept"}, items_=vars(two).pop("items_"))
    found = af.convert(two, "torch")
    assert is_torch(found["x"])
    assert found.notes == {"note": "kept"}
    assert found.items_.keys() == {"x"}


class SmallHeld(Held):
    pass


def test_a_container_for_a_class_handles_its_subclasses():
    with registered(HeldContainer()):
        found = af.convert([SmallHeld(X), Held(X)], "torch")
        assert [type(item) for item in found] == [SmallHeld, Held]
        assert all(is_torch(item.x) for item in found)
        without = Held("no array")
        assert af.convert([without], "torch")[0] is without


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


def test_an_error_after_heavy_sharing():
    tree = np.ones(1)
    for _ in range(40):
        tree = [tree, tree]
    refused(af.UnsupportedDtypeError, r"at \[1\]\['a'\]", [tree, {"a": np.array("x")}], "torch")


def test_a_pytree_that_is_its_own_child():
    own = type("Own", (), {})()
    own.child = own
    jax.tree_util.register_pytree_node(
        type(own), lambda own: ((own.child,), None), lambda _, children: type(own)()
    )
    refused(af.StructureError, "contains itself", [own], "numpy")
    assert af.convert([np.ones(1)], "torch")[0].tolist() == [1]


DEEP = """
import sys, threading, collections, numpy as np, arrayferry as af
from boxes import Plain, Point
sys.setrecursionlimit(10**6)
threading.stack_size(256 * 1024)
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


@pytest.mark.long
@pytest.mark.parametrize("kinds", ["[:2]", ""])
def test_deep_trees_in_a_thread_with_a_small_stack(run_python, kinds):
    middle = "4900 done" if sys.version_info < (3, 13) else "4900 too deep"
    found = run_python(DEEP.replace("wrap in wraps:", f"wrap in wraps{kinds}:")).splitlines()
    assert found == ["900 done", middle, "20000 too deep"]


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
    assert is_torch(chain["b"])
    both = Both(X)
    both["item"] = X
    found = af.convert(both, "torch")
    assert is_torch(found.field)
    assert is_torch(found["item"])
    mine = np.array([X, None], object).view(type("Mine", (np.ndarray,), {}))
    assert type(af.convert(mine, "torch")) is type(mine)
    whole = np.ma.array([X, None], dtype=object)
    assert is_torch(af.convert(whole, "torch")[0])


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
    caught = refused(af.StructureError, "Needy could not be rebuilt", {"q": [needy]}, "torch")
    assert caught.path == "['q'][0]"


class Elsewhere:
    """A class that claims to be a dataclass, and keeps its fields elsewhere."""

    __dataclass_fields__ = Plain.__dataclass_fields__

    def __init__(self, x, n=None):
        object.__setattr__(self, "_store", {"x": x, "n": n})

    def __getattribute__(self, name):
        store = object.__getattribute__(self, "__dict__").get("_store", {})
        return store[name] if name in store else object.__getattribute__(self, name)


def test_fields_that_do_not_read_back():
    value = {"data": Elsewhere(X)}
    for _ in range(4):
        words = r"'x' does not return the value.*at \['data'\].*Container for this class"
        refused(af.StructureError, words, value, "torch")
    assert value["data"].x is X
