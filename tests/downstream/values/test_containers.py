"""Structures of other packages, with the real packages: what they become in each library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import warnings
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused

import arrayferry as af

with warnings.catch_warnings(action="ignore"):
    import tensordict as td
    import tianshou.data as ts
    import torch_geometric.data as pyg
    import xarray as xr
    from transformers.modeling_outputs import CausalLMOutputWithPast

LIBRARIES = ("numpy", "torch", "jax")
X = torch.arange(6, dtype=torch.float32).reshape(3, 2)
BIG = torch.full((3,), 2**40)  # JAX has no int64 here, and this fits no int32


@pytest.fixture(params=LIBRARIES)
def target(request: Any) -> Any:
    """The library to which a structure is converted."""
    return request.param


def said(value: Any) -> dict[str, tuple[str, str, Any]]:
    """Say what each array in a value is, and where."""
    arrays, layout = af.flatten(value)
    return {
        path: (af.backend_of(x).name, str(x.dtype).removeprefix("torch."), values(x))
        for path, x in zip(layout.paths, arrays, strict=True)
    }


def values_of(value: Any) -> dict[str, Any]:
    """Say what numbers each array has, and where."""
    return {path: numbers for path, (_, _, numbers) in said(value).items()}


def values(x: Any) -> Any:
    values = (x.detach() if isinstance(x, torch.Tensor) else np.asarray(x)).tolist()
    return repr(values) if x.dtype == object else values


def converted(value: Any, target: str, planned: bool = True, **options: Any) -> Any:
    """Convert a value without a plan and with one, and see that it is not altered, and that all are equal."""
    before, conversion = said(value), af.converter(target, **options)
    first, *others = (conversion(value) for _ in range(4))
    assert len(conversion._plans.all) == planned
    for other in others:
        assert type(other) is type(first)
        assert said(other) == said(first)
    assert said(value) == before
    assert {library for library, dtype, _ in said(first).values() if dtype != "object"} <= {target}
    return first


def shares(x: Any, y: Any) -> bool:
    return bool(np.shares_memory(np.asarray(x), np.asarray(y)))


# tensordict


def _tensordict() -> Any:
    """Make a tensordict with a bit of everything."""
    inner = td.TensorDict({"b": torch.ones(3, 4, 5), "gone": td.TensorDict({}, [3, 4])}, [3, 4])
    inner.names = ["time", "agent"]
    return td.TensorDict(
        {"x": X, "inner": inner, "text": "hi", "note": td.NonTensorData({"y": np.ones(2)}, [3])},
        batch_size=[3],
        names=["time"],
    )


@pytest.fixture
def full() -> Any:
    return _tensordict()


def test_a_tensordict(full, target):
    found = converted(full, target)
    if target == "torch":
        assert type(found) is td.TensorDict
        assert found.batch_size == (3,)
        assert found.names == ["time"]
        assert found.get("inner").batch_size == (3, 4)
        assert found.get("inner").names == ["time", "agent"]
        assert found["inner", "b"] is full["inner", "b"]
        assert type(found.get("note")) is td.NonTensorData
        assert type(found["note"]["y"]) is torch.Tensor
        assert (found.device, full.device) == (None, None)
    else:
        assert type(found) is type(found["inner"]) is type(found["note"]) is dict
        assert list(found) == list(full.keys())
        assert found["inner"]["gone"] == {}
    assert found["text"] == "hi"
    assert type(full["note"]["y"]) is np.ndarray
    back = af.convert(found, "torch")
    assert torch.equal(back["x"], X)
    assert torch.equal(back["inner"]["b"], full["inner", "b"])


def test_the_device_of_a_tensordict_is_true(full):
    placed = full.to("cpu").lock_()
    assert placed.device == torch.device("cpu")
    found = converted(placed, "torch", device="cpu", copy=True)
    assert found.device == found.get("inner").device == torch.device("cpu")
    assert found.is_locked
    assert found.get("inner").is_locked
    moved = _rebuilt(placed, lambda x: x.to("meta"))
    assert moved.device == moved["x"].device == torch.device("meta")
    assert all(entry.device == torch.device("meta") for entry in moved.values())
    assert placed.device == placed["x"].device == placed.get("text").device == torch.device("cpu")
    assert _rebuilt(full, lambda x: x.to("meta")).device is None


def _rebuilt(value: Any, change: Any) -> Any:
    """Rebuild a container around changed tensors, as a conversion to a device that is not here does."""
    kind = af.registry.kind(value)
    if kind.category != "container":
        return change(value) if isinstance(value, torch.Tensor) else value
    children = [_rebuilt(child, change) for child in kind.container.children(value)]
    return kind.container.rebuild(value, children)


def test_a_locked_tensordict_can_be_unlocked_beside_its_copy(full):
    full.lock_()
    found = af.convert(full, "torch")
    full.unlock_()
    assert found.is_locked
    found.unlock_()
    found["new"] = X
    assert "new" not in full.keys()  # noqa: SIM118
    found.get("inner")["new"] = found["inner", "b"]
    assert "new" not in full.get("inner").keys()  # noqa: SIM118


def test_a_copy_of_a_tensordict_has_its_own_memory(full):
    for target in LIBRARIES:
        found = af.convert(full, target, copy=True)
        assert not shares(found["x"], X)
    assert af.convert(full, "torch")["x"] is full["x"]
    assert shares(af.convert(full, "numpy", copy=False)["x"], X)


@pytest.mark.parametrize("times", [1, 4])
def test_a_tensordict_in_two_places_stays_one(times):
    inner = td.TensorDict({"x": X}, [3])
    outer = td.TensorDict({"left": inner, "right": inner}, [3])
    for target in LIBRARIES:
        conversion = af.converter(target)
        for _ in range(times):
            a, b = conversion([inner, {"b": outer}])
            parts = [a, *b["b"].values()]
            assert parts[0] is parts[1] is parts[2]


def test_errors_name_the_place_in_a_tensordict():
    inner = td.TensorDict({"big": BIG}, [3])
    for value, path in (
        (td.TensorDict({"in": inner}, [3]), "['in']['big']"),
        ([td.lazy_stack([inner, inner.clone()])], "[0].tensordicts[0]['big']"),
        (td.TensorDict({"note": td.NonTensorData([BIG])}, []), "['note'][0]"),
    ):
        assert refused(af.NarrowingError, "does not fit int32", value, "jax").path == path
        place = eval(f"value{path}")
        assert place is BIG or torch.equal(place, BIG)


def test_empty_tensordicts(target):
    for value in (td.TensorDict({}, [2]), td.TensorDict({"a": td.TensorDict({}, [2])}, [2])):
        found = af.convert({"k": value}, target)["k"]
        assert type(found) is td.TensorDict
        assert found.batch_size == (2,)
        assert list(found.keys()) == list(value.keys())
    words = td.TensorDict({"s": "text"}, [])
    assert af.convert(words, target)["s"] == "text"
    nothing = td.LazyStackedTensorDict(batch_size=[3], stack_dim=0)
    assert af.convert(nothing, target).batch_size == nothing.batch_size
    scalar = td.TensorDict({"a": torch.tensor(3)}, [])
    assert converted(scalar, target)["a"].shape == ()


@pytest.mark.parametrize("dim", [0, 1])
def test_a_lazy_stack(target, dim):
    parts = [
        td.TensorDict({"x": X + n, "in": td.TensorDict({"y": X[:, 0] * n}, [3]), "s": f"{n}"}, [3])
        for n in range(4)
    ]
    stack = td.lazy_stack(parts, dim)
    stack.names = ["a", "b"]
    found = converted([stack], target, copy=True)[0]
    if target == "torch":
        assert type(found) is td.LazyStackedTensorDict
        assert (found.stack_dim, found.batch_size) == (dim, stack.batch_size)
        assert found.names == ["a", "b"]
        assert not shares(found.tensordicts[1]["x"], parts[1]["x"])
    else:
        assert type(found) is type(found["in"]) is dict
        assert found["s"] == stack["s"]
    assert np.array_equal(np.asarray(found["x"]), stack["x"])
    assert np.array_equal(np.asarray(found["in"]["y"]), stack["in", "y"])


def test_a_stack_of_stacks():
    def inner(n: int) -> Any:
        return td.lazy_stack([td.TensorDict({"x": X + n + k}, [3]) for k in range(2)], 1)

    stack = td.lazy_stack([inner(n) for n in range(3)], 0)
    found = converted(stack, "numpy")
    assert np.array_equal(found["x"], stack["x"])
    same = converted(stack, "torch")
    assert type(same.tensordicts[2]) is td.LazyStackedTensorDict
    assert same.tensordicts[2].tensordicts[1]["x"] is stack.tensordicts[2].tensordicts[1]["x"]


def test_a_lazy_stack_of_parts_that_differ():
    shapes = [td.TensorDict({"x": torch.ones(n)}, []) for n in (1, 2)]
    keys = [td.TensorDict({"x": X}, []), td.TensorDict({"x": X, "y": X}, [])]
    nested = [td.TensorDict({"in": part}, []) for part in keys]
    for parts in (shapes, keys, nested):
        stack = td.lazy_stack(parts)
        same = converted({"k": stack}, "torch", copy=True)["k"]
        assert type(same) is td.LazyStackedTensorDict
        assert [list(part.keys()) for part in same.tensordicts] == [list(p.keys()) for p in parts]
        for target in ("numpy", "jax"):
            with pytest.raises(af.ConversionError, match=r"lazy stack .* at \['k'\].*tensordicts"):
                af.convert({"k": stack}, target)
            assert len(af.convert(list(stack.tensordicts), target)) == 2


def test_options_reach_a_lazy_stack():
    stack = td.lazy_stack([td.TensorDict({"x": BIG, "s": "t"}, [3]) for _ in range(2)])
    found = af.convert(stack, "jax", narrowing="allow")
    assert found["x"].shape == (2, 3)
    assert isinstance(found["x"], jax.Array)
    refused(af.NarrowingError, "forbidden", stack, "jax", narrowing="forbid")


def test_non_tensor_data(target):
    for data in ("text", {"a": 1}, [1, 2], (), None, 3):
        value = td.TensorDict({"x": X}, [3])
        value.set_non_tensor("data", data)
        assert converted(value, target)["data"] == data
    alone = td.NonTensorData({"x": np.ones(2, np.float32), "s": "text"}, batch_size=[4])
    found = converted(alone, target)
    assert type(found) is td.NonTensorData
    assert found.batch_size == (4,)
    assert af.backend_of(found.data["x"]).name == target
    assert found.data["s"] == "text"
    stack = td.TensorDict({"x": X, "s": td.NonTensorStack("a", np.ones(2, np.float32), "b")}, [3])
    found = converted(stack, target)
    assert found["s"][::2] == ["a", "b"]
    assert af.backend_of(found["s"][1]).name == target


def test_parameters(target):
    module = torch.nn.Linear(2, 3)
    value = td.TensorDictParams(td.TensorDict.from_module(module))
    found = converted(value, target, copy=True)
    if target == "torch":
        assert type(found) is td.TensorDictParams
        assert len(list(found.buffers())) + len(list(found.parameters())) == 2
        assert af.convert(value, "torch")["weight"] is value["weight"]
    else:
        assert type(found) is dict
    assert not shares(af.convert(found["weight"], "numpy"), module.weight.detach())
    assert type(value["weight"]) is torch.nn.Parameter


def test_typed_tensordicts_and_views():
    class State(td.TypedTensorDict):
        x: torch.Tensor

    found = converted(State(x=X, batch_size=[3]), "torch", copy=True)
    assert type(found) is State
    assert torch.equal(found.x, X)
    view = td.TensorDict({"x": X}, [3])._get_sub_tensordict(slice(1, 3))
    assert type(converted(view, "torch", copy=True)) is td.TensorDict
    assert converted(view, "numpy")["x"].tolist() == X[1:].tolist()

    class Own(td.TensorDict):
        pass

    assert type(converted(Own({"x": X}, [3]), "torch", copy=True)) is Own


def test_tensordicts_in_files(tmp_path):
    value = td.TensorDict({"x": X, "in": td.TensorDict({"y": X}, [3]), "s": "text"}, [3])
    mapped = value.memmap(str(tmp_path / "map"))
    for target in LIBRARIES:
        found = converted(mapped, target, copy=True)
        assert found["s"] == "text"
        assert not shares(found["in"]["y"], mapped["in", "y"])
    del value["s"]
    file = td.PersistentTensorDict.from_dict(value, str(tmp_path / "x.h5"))
    for target in LIBRARIES:
        found = converted(file, target)
        assert np.asarray(found["in"]["y"]).tolist() == X.tolist()
    assert type(af.convert(file, "torch")) is td.TensorDict


def test_functions_of_tensordicts(full):
    seen = []

    def halved(value: Any) -> Any:
        seen.append(type(value["x"]))
        return {**value, "x": value["x"] / 2}

    found = af.agnostic("numpy")(halved)(full)
    assert seen == [np.ndarray]
    assert type(found["x"]) is torch.Tensor
    assert type(af.agnostic("numpy")(lambda value: value)(full)) is dict


# tensorclasses


def _tensorclasses() -> list[type]:
    @td.tensorclass
    class Decorated:
        x: torch.Tensor
        word: str
        inner: Any = None

        def __post_init__(self):
            if type(self.x) is torch.Tensor and self.x.ndim == 5:
                raise AssertionError("a constructor was called")

    class Derived(td.TensorClass):
        x: torch.Tensor
        word: str
        inner: Any = None

    return [Decorated, Derived]


@pytest.mark.parametrize("index", [0, 1])
def test_a_tensorclass(index, target):
    cls = _tensorclasses()[index]
    assert (cls.__mro__[1] is object) is (index == 0)
    value = cls(X, "hi", cls(X + 1, "low", batch_size=[3]), batch_size=[3])
    found = converted([value], target)[0]
    if target == "torch":
        assert type(found) is type(found.inner) is cls
        assert found.batch_size == (3,)
        assert (found.word, found.inner.word, found.inner.inner) == ("hi", "low", None)
        assert found.inner.x is value.inner.x
        found.inner.word = "other"
        assert value.inner.word == "low"
        found.word = None
        assert value.word == "hi"
    else:
        assert list(found) == ["x", "word", "inner"]
        assert type(found) is type(found["inner"]) is dict
        assert found["word"] == "hi"
        assert found["inner"]["inner"] is None
    assert list(said(value)) == [".x", ".inner.x"]
    value.inner.x = torch.zeros(3, 1, 1, 1, 1)  # makes __post_init__ fail
    af.convert(value, target, copy=True)


def test_tensorclasses_in_other_places():
    cls = _tensorclasses()[0]
    value = cls(X, "hi", batch_size=[3], device="cpu")
    inside = td.TensorDict({"c": value}, [3])
    assert type(converted(inside, "torch", copy=True).get("c")) is cls
    assert converted(inside, "jax")["c"]["word"] == "hi"
    stack = td.lazy_stack([value, cls(X + 1, "ho", batch_size=[3], device="cpu")])
    found = converted(stack, "torch", copy=True)
    assert type(found) is cls
    assert found.device == torch.device("cpu")
    assert torch.equal(found.x, stack.x)
    assert list(said(stack)) == [".tensordicts[0]['x']", ".tensordicts[1]['x']"]
    dense = converted(stack, "numpy")
    assert dense["x"].shape == (2, 3, 2)
    assert dense["word"] == stack.word
    refused(af.NarrowingError, r"at \[0\]\.x", [cls(BIG, "hi")], "jax")


def test_a_class_that_only_looks_like_a_tensorclass():
    class Odd(type):
        def __getattr__(cls, name):
            return True

    class Claims(metaclass=Odd):
        pass

    value = Claims()
    assert af.convert([value], "torch") == [value]


# PyTorch Geometric


def _graph(n: int = 3) -> Any:
    return pyg.Data(
        x=torch.rand(n, 2),
        edge_index=torch.tensor([[0, 1], [1, 0]], dtype=torch.int32),
        y=1.5,
        name="g",
        parts=[torch.ones(2), {"deep": torch.zeros(1)}],
        num_nodes=n,
    )


def _temporal() -> Any:
    src = torch.arange(3, dtype=torch.int32)
    return pyg.TemporalData(src=src, dst=src + 1, t=src, msg=torch.ones(3, 2))


def _hetero() -> Any:
    data = pyg.HeteroData()
    data["paper"].x = torch.ones(2, 2)
    data["author"].x = torch.ones(1, 2)
    data["author", "wrote", "paper"].edge_index = torch.zeros(2, 1, dtype=torch.int32)
    data.year = torch.tensor(2020, dtype=torch.int32)
    data.note = "text"
    return data


@pytest.mark.parametrize("make", [_graph, _temporal, _hetero])
def test_graphs(make, target):
    value = make()
    found = converted({"g": value}, target, copy=True)["g"]
    assert type(found) is type(value)
    keys, expected = ([list(store.keys()) for store in x.stores] for x in (found, value))
    assert keys == expected
    assert all(store._parent() is found for store in found.stores)
    for path in said(value):
        x, y = eval(f"value{path}"), eval(f"found{path}")
        assert af.backend_of(y).name == target
        assert not shares(x, y)
    assert values_of(converted(found, "torch")) == values_of(value)
    str(found)


def test_paths_of_graphs():
    assert "['author', 'wrote', 'paper'].edge_index" not in said(_hetero())
    assert list(said(_hetero())) == [
        ".year",
        "['paper'].x",
        "['author'].x",
        "[('author', 'wrote', 'paper')].edge_index",
    ]
    data = pyg.Data(x=torch.ones(1))
    data["odd key"] = BIG
    refused(af.NarrowingError, r"at \[0\]\['odd key'\]", [data], "jax")


@pytest.mark.parametrize("make", [_graph, _hetero])
def test_batches_of_graphs(make, target):
    graphs = [make(), make()]
    value = pyg.Batch.from_data_list(graphs)
    found = converted(value, target)
    assert type(found) is type(value)
    assert found.num_graphs == 2
    back = af.convert(found, "torch")
    for before, after in zip(value.to_data_list(), back.to_data_list(), strict=True):
        assert type(after) is type(graphs[0])
        assert list(values_of(after).items()) == list(values_of(before).items())
    if target == "torch":
        assert len(converted(value, "torch", copy=True).to_data_list()) == 2


def test_odd_graphs():
    empty = pyg.Data()
    assert af.convert([empty], "numpy")[0] is empty
    assert pyg.HeteroData().node_types == af.convert(pyg.HeteroData(), "jax").node_types == []
    graph = _graph()
    found = af.agnostic("numpy")(lambda g: g.x * 2)(graph)
    assert torch.equal(found, graph.x * 2)
    assert type(copy.copy(af.convert(graph, "numpy")).x) is np.ndarray

    class Own(pyg.Data):
        def num_things(self) -> int:
            return len(self.things)

    own = converted(Own(things=torch.ones(4)), "jax")
    assert type(own) is Own
    assert own.num_things() == 4


# tianshou


def _batch() -> Any:
    ragged = np.array([np.ones(1, np.float32), np.ones(2, np.float32), None], dtype=object)
    return ts.Batch(
        obs=ts.Batch(image=X, state=np.ones((3, 2), np.float32), info=ts.Batch()),
        act=np.arange(3, dtype=np.int32),
        names=["a", "b", "c"],
        ragged=ragged,
        gone=None,
        reserved=ts.Batch(),
    )


def test_a_batch(target):
    value = _batch()
    found = converted({"k": value}, target, planned=False, copy=True)["k"]  # an array of objects
    kept = target == "numpy"  # it takes no tensors in arrays of objects, and no arrays of JAX
    assert type(found) is (ts.Batch if kept else dict)
    assert list(found.keys()) == list(value.keys())
    assert type(found["obs"]) is type(found["obs"]["info"]) is type(found)
    assert len(found["reserved"]) == 0
    assert found["gone"] is None
    assert list(found["names"]) == ["a", "b", "c"]
    assert not shares(found["act"], value.act)
    assert not shares(found["obs"]["image"], X)
    assert type(value.obs.image) is torch.Tensor
    del value.ragged, value.names
    found = converted(value, target)
    assert type(found) is (dict if target == "jax" else ts.Batch)
    if target != "jax":
        assert found[0].obs.image.tolist() == [0, 1]
        assert len(ts.Batch.cat([found.obs, found.obs])) == 6
        found.obs.info.new = 1
        found.reserved.new = 1
        assert "new" not in value.obs.info
        assert "new" not in value.reserved


def test_odd_batches(target):
    assert len(af.convert(ts.Batch(), target)) == 0
    words = af.convert(ts.Batch(s="text", n=None), target)
    assert words["s"] == "text"
    single = converted(_batch().obs[0], target)
    assert np.asarray(single["image"]).tolist() == [0, 1]
    scalars = converted(ts.Batch(a=1, b=2.5), target)
    assert scalars["a"].shape == ()
    with pytest.raises(af.ConversionError, match=r"at \[0\]\['in'\]\['big'\]"):
        af.convert([ts.Batch({"in": {"big": BIG}})], "jax")


def test_functions_of_batches():
    value = ts.Batch(x=X, y=ts.Batch(z=X + 1))
    found = af.agnostic("numpy")(lambda b: ts.Batch(x=b.x + b.y.z))(value)
    assert type(found) is ts.Batch
    assert torch.equal(found.x, 2 * X + 1)
    arrays, layout = af.flatten(value)
    assert layout.paths == ["['x']", "['y']['z']"]
    assert type(layout.unflatten(af.convert(arrays, "jax"))) is dict


# xarray


def _dataset() -> Any:
    grid = xr.DataArray(
        np.arange(6, dtype=np.float32).reshape(2, 3),
        dims=("y", "x"),
        coords={"x": [1, 2, 3], "y": ["a", "b"], "far": ("x", np.ones(3, np.float32))},
        attrs={"note": "text"},
        name="grid",
    )
    grid.encoding = {"zlib": True}
    value = xr.Dataset({"grid": grid, ("a", 1): ("y", np.ones(2, np.int32))}, attrs={"z": 1})
    value = value.assign_coords(when=("x", pd.date_range("2020", periods=3)))
    value.encoding = {"source": "here"}
    return value


@pytest.mark.parametrize("source", ["numpy", "dask", "jax"])
@pytest.mark.parametrize("target", ["numpy", "jax", "dask"])
def test_a_dataset(source, target):
    value = _dataset()
    if source != "numpy":
        value = af.convert(value, source)
    found = converted([value], target, planned=source != "dask" or target == "dask")[0]
    assert type(found) is xr.Dataset
    assert list(found.data_vars) == ["grid", ("a", 1)]
    assert found.attrs == {"z": 1}
    assert found.encoding == {"source": "here"}
    assert found["grid"].attrs == {"note": "text"}
    assert found["grid"].encoding["zlib"] is True
    assert found["grid"].dims == ("y", "x")
    assert sorted(found.coords) == ["far", "when", "x", "y"]
    assert found.indexes["x"].equals(value.indexes["x"])
    assert type(found["far"].data) is np.ndarray
    found.attrs["z"] = 2
    found["grid"].attrs["note"] = "other"
    assert value.attrs == {"z": 1}
    assert value["grid"].attrs == {"note": "text"}
    assert float(found["grid"].sel(x=2, y="b")) == 4


@pytest.mark.parametrize("target", ["numpy", "jax", "dask"])
def test_a_data_array(target):
    value = _dataset()["grid"]
    found = converted({"k": value}, target, copy=True)["k"]
    assert type(found) is xr.DataArray
    assert found.name == "grid"
    assert sorted(found.coords) == ["far", "when", "x", "y"]
    assert not shares(np.asarray(found.data), value.data)
    assert type(converted(value.variable, target)) is xr.Variable
    scalar = converted(xr.DataArray(np.float32(3)), target)
    assert (scalar.shape, float(scalar)) == ((), 3)
    assert converted(xr.DataArray(np.ones((0, 2), np.float32)), target).shape == (0, 2)


def test_what_xarray_cannot_hold_is_refused():
    value = _dataset()
    for part, path in ((value, "['grid']"), (value["grid"], ""), (value["grid"].variable, "")):
        words = r"cannot contain a torch.Tensor.*x\.data"
        assert refused(af.ConversionError, words, part, "torch").path == path
    refused(af.ConversionError, r"at \[0\]\['grid'\]", [value], "torch")
    assert af.convert(value["x"], "numpy").identical(value["x"])
    for to in ("jax", "dask", "array_api_strict"):  # an index is made of NumPy's arrays
        refused(af.ConversionError, "coordinate of a dimension cannot contain", value["x"], to)
    kept = value["grid"]
    for _ in range(4):
        found = af.convert({"a": kept, "b": np.ones(1)}, "torch", unsupported="keep")
        assert found["a"] is kept
        assert torch.is_tensor(found["b"])
    assert type(af.convert(value["grid"].data, "torch")) is torch.Tensor
    text = xr.Dataset({"grid": value["grid"], "words": ("y", np.array(["a", "b"]))})
    refused(af.UnsupportedDtypeError, r"at \['words'\]\.data", text, "jax")
    kept = af.convert(text, "jax", unsupported="keep")
    assert type(kept["words"].data) is np.ndarray
    assert isinstance(kept["grid"].data, jax.Array)


def test_odd_datasets():
    empty = xr.Dataset(attrs={"a": 1})
    assert af.convert([empty], "jax")[0] is empty
    value = _dataset()
    objects = xr.DataArray(np.array([np.ones(2, np.float32), None], dtype=object))
    assert isinstance(af.convert(objects, "jax").data[0], jax.Array)
    arrays, layout = af.flatten(value)
    assert layout.unflatten(arrays).identical(value)
    found = af.agnostic("jax")(lambda d: d["grid"].data * 2)(value)
    assert type(found) is np.ndarray
    assert pickle.loads(pickle.dumps(af.convert(value, "numpy", copy=True))).identical(value)


# Hugging Face


@dataclasses.dataclass
class Own(CausalLMOutputWithPast):
    extra: Any = None


def _output() -> Any:
    states = (X, X + 1)
    return Own(loss=torch.tensor(1.0), logits=X, hidden_states=states, extra={"deep": X + 2})


def test_model_outputs(target):
    value = _output()
    found = converted({"k": value}, target, copy=True)["k"]
    assert type(found) is type(value)
    assert list(found) == ["loss", "logits", "hidden_states", "extra"]
    assert type(found.hidden_states) is tuple
    assert found.hidden_states is found["hidden_states"]
    assert found.extra is found["extra"]
    assert found.logits is found["logits"]
    assert found.past_key_values is found.attentions is None
    assert len(found.to_tuple()) == 4
    assert np.array_equal(np.asarray(found[1]), X)
    assert not shares(found.logits, X)
    none = type(value)()
    assert af.convert(none, target) is none


def test_views_of_xarray_are_kept():
    data = xr.Dataset({"a": ("x", [1, 2])}, coords={"x": [1, 2]})
    for view in (data.coords, data.data_vars, data.a.coords):
        for to in ("numpy", "torch", "jax"):
            assert af.convert({"x": np.ones(1), "view": view}, to)["view"] is view


def test_trees_of_xarray():
    data = xr.Dataset({"a": ("x", np.float32([1, 2]))}, coords={"x": [1, 2]})
    tree = xr.DataTree.from_dict({"/": data, "/inner": data + 1}, name="tree")
    child = xr.DataTree.from_dict({"/a": data, "/a/b": data})["a"]
    assert set(af.convert(child, "jax").to_dict()) == {"/", "/b"}
    found = af.convert([tree], "jax")[0]
    assert type(found) is xr.DataTree
    assert found.name == "tree"
    assert af.backend_of(found["inner"].a.data).name == "jax"
    assert found["inner"].a.data.tolist() == [2, 3]
    assert af.convert(found, "numpy").equals(tree)
    refused(af.ConversionError, r"cannot contain a torch.*\['/'\]\.dataset", {"t": tree}, "torch")


def test_batches_of_graphs_share_no_places_with_the_original():
    graph = pyg.Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    batch = pyg.Batch.from_data_list([graph, graph])
    found = af.convert(batch, "torch", copy=True)
    found._slice_dict["x"][1] = 1
    assert batch._slice_dict["x"].tolist() == [0, 3, 6]


# All of them


@pytest.mark.parametrize(
    "make", [_tensordict, _graph, _temporal, _hetero, _batch, _dataset, _output]
)
def test_a_structure_is_put_together_stays_one_and_is_pickled(make, target):
    value = make()
    arrays, layout = af.flatten(value)
    again = layout.unflatten(arrays)
    assert type(again) is type(value)
    assert said(again) == said(value)
    for _ in range(4):
        a, b = af.convert([value, {"b": value}], target, copy=True, unsupported="keep")
        assert a is b["b"]
    assert said(pickle.loads(pickle.dumps(a))) == said(a)
