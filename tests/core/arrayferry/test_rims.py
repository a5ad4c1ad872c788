"""Values at the rims: keys that have become equal, proxies, records, names of dimensions, and what is told about them."""

import types
import weakref
from collections import UserDict, defaultdict

import h5py
import numpy as np
import pluggy
import pytest
import torch

import arrayferry as af

X = np.ones(2)


class Key:
    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return hash(self.number)

    def __eq__(self, other):
        return self.number == other.number


class Derived(dict):
    pass


def with_factory(items):
    return defaultdict(list, items)


@pytest.mark.parametrize("warm", [0, 4])
@pytest.mark.parametrize("make", [dict, Derived, UserDict, with_factory, types.MappingProxyType])
def test_a_dict_whose_keys_have_become_equal_is_refused(make, warm):
    convert = af.converter("numpy", copy=True)
    for _ in range(warm):
        assert len(convert([make({Key(1): X, Key(2): X})])[0]) == 2
    changed = Key(2)
    value = [make({Key(1): X, changed: X})]
    changed.number = 1
    with pytest.raises(af.StructureError, match="a dict has 2 keys, of which only 1 differ"):
        convert(value)


@pytest.mark.parametrize("many", [1, 3])
def test_so_is_one_in_a_loop_of_a_plan(many):
    convert = af.converter("torch", copy=True)
    for _ in range(4):
        convert(
            [{Key(1): {Key(k): X for k in range(20)}}] * many
            if many == 1
            else {n: [X, X] for n in range(20)}
        )
    keys = [Key(n) for n in range(20)]
    value = dict.fromkeys(keys, X) if many == 1 else {key: [X.copy(), X.copy()] for key in keys}
    keys[3].number = 7
    with pytest.raises(af.StructureError, match="a dict has 20 keys, of which only 19 differ"):
        convert([{Key(1): value}] if many == 1 else value)


def read_only():
    x = np.ones(3)
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    "x", [read_only(), np.ones(3)[::-1], np.ones(3, ">f4"), np.broadcast_to(X, (3, 2))]
)
def test_a_route_says_what_becomes_of_this_array(x):
    assert af.route(x, "torch").copies
    with pytest.raises(af.CopyRequiredError):
        af.convert(x, "torch", copy=False)
    assert not af.route(np.ones(3), "torch").copies
    assert not af.route("numpy", "torch").copies


def test_like_takes_a_module():
    assert type(af.convert(X, like=torch)) is type(af.converter(like=torch)(X)) is torch.Tensor
    with pytest.raises(af.UnknownBackendError):
        af.convert(X, like=types)


def test_another_backend_of_a_registered_name_is_refused():
    class Mine(af.Backend):
        name = package = "numpy"
        array_types = ()

        def to_numpy(self, x):
            return x

        def from_numpy(self, x, device=None):
            return x

    with pytest.raises(af.UnknownBackendError, match="its name is registered for a"):
        af.convert(X, Mine())
    same = type(af.registry.backend("torch"))()  # as one that was pickled
    assert type(af.convert(X, same)) is torch.Tensor


class Unhashable:
    __hash__ = None

    def arrayferry_backends(self):
        return []


def test_a_plugin_need_not_be_hashable():
    registry, plugin = af.Registry(autoload=False), Unhashable()
    registry.register(plugin)
    assert registry.manager.is_registered(plugin)
    registry.unregister(plugin)
    assert not registry.manager.is_registered(plugin)


def test_records_may_have_a_field_named_mask():
    records = np.ones(3, [("mask", bool), ("x", "f4")]).view(np.recarray)
    assert af.convert(records, "numpy") is records
    assert af.convert([records], "torch", unsupported="keep")[0] is records
    assert af.convert(records.x, "torch").shape == (3,)
    with pytest.raises(af.UnsupportedDtypeError, match="records"):
        af.convert(records, "torch")
    masked = np.ma.MaskedArray([1.0, 2.0], [True, False])
    with pytest.raises(af.ConversionError, match="mask"):
        af.convert(masked, "torch")


def test_arrays_of_arrays_of_hdf5_are_arrays(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        data = file.create_dataset("x", (4,), np.dtype((np.float32, (2, 3))))
        data[...] = np.arange(24).reshape(4, 2, 3)
        np.testing.assert_array_equal(af.convert(data, "torch"), data[()])


class Hiding(list):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


class HidingDict(dict):
    def __init__(self, items):
        self.held = items

    def __len__(self):
        return len(self.held)


def proxy(value):
    return pytest.importorskip("wrapt").ObjectProxy(value)


HIDING = {
    "list": lambda: Hiding([X]),
    "dict": lambda: HidingDict({"x": X}),
    "proxy": lambda: proxy(X),
    "proxy of a list": lambda: proxy([X]),
    "weak proxy": lambda: weakref.proxy(X),
}


@pytest.mark.parametrize("make", HIDING.values(), ids=HIDING)
def test_what_hides_arrays_is_refused_if_asked_for(make):
    value, convert = make(), af.converter("torch", unknown="raise")
    for _ in range(4):
        convert([Hiding([])])
    with pytest.raises(af.NotAnArrayError, match="the object that it stands for"):
        convert([value])
    assert af.convert([value], "torch")[0] is not None


def test_a_proxy_of_text_is_no_array():
    convert = af.converter("torch", unknown="raise")
    for _ in range(4):
        convert([proxy("text")])


def test_names_of_dimensions_are_kept():
    td = pytest.importorskip("tensordict")
    inner = td.TensorDict({"b": torch.ones(2, 3)}, [2, 3], names=["t", "u"])
    value = td.TensorDict({"a": torch.ones(2, 3), "in": inner}, [2, 3], names=["t", "u"])
    parts = td.TensorDict({"b": torch.ones(3)}, [3], names=["u"])
    lazy = td.LazyStackedTensorDict(parts, parts.clone(), stack_dim=0, stack_dim_name="t")
    for each in (value, lazy):
        found = af.convert(each, "torch", copy=True)
        assert found.names == found.get("in", found).names == ["t", "u"]
    pytest.importorskip("arrayferry_streams")
    for each in (value, lazy):
        block = af.stream(each, "torch")[0]
        assert block.names == ["t", "u"]


def test_refresh_calls_no_historic_hook_again():
    called = []

    class Specs:
        @pluggy.HookspecMarker("arrayferry")(historic=True)
        def once(self, x):
            """A hook of another package."""

    class Plugin:
        @pluggy.HookimplMarker("arrayferry")(optionalhook=True)
        def once(self, x):
            called.append(x)

        def arrayferry_backends(self):
            return []

    registry = af.Registry()
    registry.manager.add_hookspecs(Specs)
    registry.manager.hook.once.call_historic(kwargs={"x": 1})
    registry.register(Plugin())
    registry.refresh()
    assert called == [1]
    registry.register(Plugin())
    assert called == [1, 1]
