"""One array that a direct converter does not handle does not send its whole tree to the slow path."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import arrayferry as af

X = np.arange(4, dtype=np.float32)
READ_ONLY = X.copy()
READ_ONLY.flags.writeable = False
Z = torch.tensor([1 + 2j, 3 - 1j])

ODD = {
    "read-only": (X, READ_ONLY, "torch"),
    "flipped": (X, X[::-1], "torch"),
    "big-endian": (X, X.astype(">f4"), "torch"),
    "unaligned": (X, np.frombuffer(bytearray(17), np.uint8)[1:].view(np.float32), "torch"),
    "bfloat16 to torch": (jnp.ones(4), jnp.ones(4, jnp.bfloat16), "torch"),
    "gradient": (torch.ones(4), torch.ones(4, requires_grad=True), "numpy"),
    "conjugate": (Z, Z.conj(), "numpy"),
    "negative": (torch.ones(4), Z.conj().imag, "numpy"),
    "bfloat16": (torch.ones(4), torch.ones(4, dtype=torch.bfloat16), "numpy"),
    "gradient to jax": (torch.ones(4), torch.ones(4, requires_grad=True), "jax"),
    "conjugate to jax": (Z, Z.conj(), "jax"),
    "bfloat16 to jax": (torch.ones(4), torch.ones(4, dtype=torch.bfloat16), "jax"),
    "float64 to jax": (X, X.astype(float), "jax"),
}


def counted(conversion, monkeypatch):
    """Count how often a conversion takes a value apart."""
    times = []
    compiled = conversion._compiled
    original = compiled.slow_path
    monkeypatch.setattr(compiled, "slow_path", lambda value: times.append(1) or original(value))
    return times


def _values(x):
    if isinstance(x, torch.Tensor):
        x = x.detach().resolve_conj().resolve_neg()
        x = x.float() if x.dtype is torch.bfloat16 else x
    return np.asarray(x).astype(complex).tolist()


@pytest.mark.parametrize("copying", [None, True])
@pytest.mark.parametrize("name", ODD)
def test_an_odd_leaf_is_learnt(name, copying, monkeypatch):
    even, odd, target = ODD[name]
    conversion = af.converter(target, copy=copying)
    for _ in range(4):
        conversion([even, {"a": even}])
    for _ in range(3):
        conversion([even, {"a": odd}])
    times = counted(conversion, monkeypatch)
    for value in ([odd, {"a": even}], [even, {"a": odd}], [odd, {"a": odd}], [even, {"a": even}]):
        found = conversion(value)
        for y, x in ((found[0], value[0]), (found[1]["a"], value[1]["a"])):
            assert af.backend_of(y).name == target
            assert _values(y) == _values(x)
            expected = "float32" if str(x.dtype) in ("float64", ">f4") else str(x.dtype)
            assert str(y.dtype).removeprefix("torch.") == expected.removeprefix("torch.")
    assert times == []


def test_memory_of_odd_leaves():
    conversion = af.converter("torch")
    for value in (X, X, X, READ_ONLY, READ_ONLY, READ_ONLY, X[::-1]):
        conversion([value])
    before = READ_ONLY.tolist()
    conversion([READ_ONLY])[0].fill_(-1)
    assert READ_ONLY.tolist() == before
    shared = X.copy()
    conversion([shared])[0].fill_(-1)
    assert shared.tolist() == [-1] * 4


@pytest.mark.parametrize("times", [1, 6])
def test_sharing_is_refused_for_odd_leaves(times):
    conversion = af.converter("torch", copy=False)
    for _ in range(times):
        assert conversion([X.copy()])[0].tolist() == [0, 1, 2, 3]
    for _ in range(times):
        for odd in (READ_ONLY, X[::-1], X.astype(">f4")):
            with pytest.raises(af.CopyRequiredError, match=r"at \[0\]"):
                conversion([odd])
    to_numpy = af.converter("numpy", copy=False)
    for _ in range(times):
        with pytest.raises(af.CopyRequiredError):
            to_numpy([Z.conj()])


@dataclasses.dataclass
class Data:
    x: Any
    log: Any = None


class Pair(NamedTuple):
    x: Any
    log: Any = None


@pytest.mark.parametrize("times", [1, 5])
def test_what_holds_no_array_is_the_same_object(times):
    conversion = af.converter("torch")
    for _ in range(times):
        for value in (Data([1, 2], {"a": []}), Pair([1], "text"), (1, "text"), ((), (1,))):
            assert conversion(value) is value
            assert conversion({"k": value})["k"] is value
        for value in ([1], {"a": 1}, ([1],), {"a": (1, [2])}):
            found = conversion(value)
            assert found is not value
            assert found == value


@pytest.mark.parametrize("times", [1, 5])
def test_a_tuple_in_two_places_stays_one(times):
    conversion = af.converter("torch")
    for _ in range(times):
        conversion([(X,), (X.copy(),)])
    shared = (X,)
    found = conversion([shared, shared])
    assert found[0] is found[1]
    found = conversion([(X,), (X,)])
    assert found[0] is not found[1]
    constants = ((84, 84), (84, 84))
    assert constants[0] is constants[1]
    found = conversion({"shapes": constants, "x": X})
    assert found["shapes"] is constants


class Elsewhere:
    """A class that claims to be a dataclass, and keeps its fields elsewhere."""

    __dataclass_fields__ = Data.__dataclass_fields__

    def __init__(self, x, log=None):
        object.__setattr__(self, "_store", {"x": x, "log": log})

    def __getattribute__(self, name):
        store = object.__getattribute__(self, "__dict__").get("_store", {})
        return store[name] if name in store else object.__getattribute__(self, name)


def test_fields_that_do_not_read_back():
    value = {"data": Elsewhere(X)}
    for _ in range(4):
        with pytest.raises(
            af.StructureError,
            match=r"'x' does not read back.*at \['data'\].*Container for this class",
        ):
            af.convert(value, "torch")
    assert value["data"].x is X


def test_a_tensorclass_is_not_half_converted():
    tensordict = pytest.importorskip("tensordict")

    @tensordict.tensorclass
    class Step:
        reward: torch.Tensor

    step = Step(reward=torch.ones(2), batch_size=[2])
    found = af.convert(step, "numpy")
    assert type(found) is dict
    assert found["reward"].tolist() == [1, 1]
    assert type(found["reward"]) is np.ndarray


def test_parameters_that_are_not_initialized():
    weight = torch.nn.LazyLinear(2).weight
    for target, copy in (("numpy", None), ("jax", None), ("dask", None), ("torch", True)):
        with pytest.raises(
            af.ConversionError, match=r"uninitialized parameter.*at \['w'\]"
        ) as caught:
            af.convert({"w": weight}, target, copy=copy)
        assert not isinstance(caught.value, af.ContractError)


class Strange:
    """An array of an Array API library whose shape cannot be read."""

    dtype = np.dtype("float32")

    @property
    def shape(self):
        raise ZeroDivisionError("no shape")

    def __array_namespace__(self, api_version=None):
        import array_api_strict

        class Namespace(type(array_api_strict)):
            __array_api_version__ = "2024.12"

        namespace = Namespace("strange_namespace")
        namespace.asarray = array_api_strict.asarray
        return namespace


def test_an_object_whose_shape_raises():
    for _ in range(3):
        with pytest.raises(af.ConversionError, match=r"at \[1\], from strange_namespace to torch"):
            af.convert([X, Strange()], "torch")


def test_long_containers_of_one_structure(monkeypatch):
    conversion = af.converter("torch")

    def tree(count):
        return {f"agent {i}": {"x": X + i, "n": (i, "text")[1:], "id": i} for i in range(count)}

    for count in (20, 30, 40):
        conversion(tree(count))
    times = counted(conversion, monkeypatch)
    for count in (16, 100, 1_000, 3):
        found = conversion(tree(count))
        assert [y["x"][1].item() for y in found.values()] == [i + 1 for i in range(count)]
        assert [y["id"] for y in found.values()] == list(range(count))
    assert times == []
    shared = tree(20)
    shared["agent 3"] = shared["agent 7"]
    found = conversion(shared)
    assert found["agent 3"] is found["agent 7"]
    assert len(times) == 1
    other = tree(20)
    other["agent 5"] = {"x": jnp.ones(1), "n": ("text",), "id": 5}
    assert isinstance(conversion(other)["agent 5"]["x"], torch.Tensor)
    failing = tree(20)
    failing["agent 11"]["x"] = np.array(["text"])
    with pytest.raises(af.UnsupportedDtypeError, match=r"\['agent 11'\]\['x'\]"):
        conversion(failing)


STRUCTURES = {
    "an array": lambda: X,
    "a short dict": lambda: {"a": X, "b": (X, "text")},
    "a long dict": lambda: {f"k{i}": X for i in range(20)},
    "a long list": lambda: [X] * 20,
    "a long tuple": lambda: (X,) * 20,
    "long ones in a dict": lambda: {"a": [X] * 20, "b": {f"k{i}": X for i in range(20)}, "c": X},
    "a dict of dicts": lambda: {f"k{i}": {"a": X, "b": X} for i in range(20)},
    "a list of tuples": lambda: [(X, X, None) for _ in range(20)],
    "a dict of long dicts": lambda: {i: dict.fromkeys(range(20), X) for i in range(20)},
    "a dataclass": lambda: Data(X, [X]),
    "a named tuple": lambda: Pair(X, {"a": X}),
    "numbers": lambda: [1.5, (2, True), X],
}


@pytest.mark.parametrize("target", ["numpy", "torch", "jax", "array_api_strict"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_there_is_a_plan_for(name, target, monkeypatch):
    for options in ({}, {"copy": True}, {"scalars": "convert"}, {"device": "cpu"}):
        if target == "array_api_strict" and "device" in options:
            continue
        conversion = af.converter(target, **options)
        for _ in range(3):
            conversion(STRUCTURES[name]())
        times = counted(conversion, monkeypatch)
        conversion(STRUCTURES[name]())
        assert times == []


def test_long_lists_of_tuples():
    for target in ("torch", "jax", "numpy"):
        conversion = af.converter(target)
        for count in (16, 20, 33, 200):
            found = conversion([(X + i, X - i) for i in range(count)])
            assert [float(b[0]) for _, b in found] == [-i for i in range(count)]
            assert type(found[0]) is tuple


@pytest.mark.parametrize("leaves", [300, pytest.param(1_500, marks=pytest.mark.long)])
def test_many_arrays_into_jax_compile_for_few_at_once(leaves):
    compiled = []

    def count(name, seconds, **more):
        if name == "/jax/core/compile/backend_compile_duration":
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(count)
    conversion = af.converter("jax")
    value = {f"leaf {i}": np.full(5 + i % 37, i, np.float32) for i in range(leaves)}
    most = 0
    for _ in range(16):
        compiled.clear()
        found = conversion(value)
        most = max(most, len(compiled))
        assert all(float(y[0]) == i for i, y in enumerate(found.values()))
    assert most == 1
    assert compiled == []


SMALL_DTYPES = [f"uint{bits}" for bits in (1, 2, 3, 4, 7)]
SMALL_DTYPES += ["int1", "int4", "bits8", "float4_e2m1fn_x2"]


@pytest.mark.parametrize("name", SMALL_DTYPES)
def test_dtypes_of_a_few_bits_are_copied_or_refused_in_words(name):
    raw = torch.arange(12, dtype=torch.uint8).reshape(3, 4)
    for x in (raw, raw.T, raw[:, ::2]):
        x = x.view(getattr(torch, name))
        copy = af.convert([x], "torch", copy=True)[0]
        assert copy.dtype == x.dtype
        assert copy.data_ptr() != x.data_ptr()
        assert copy.view(torch.uint8).tolist() == x.view(torch.uint8).tolist()
        for to in ("numpy", "jax", "dask"):
            with pytest.raises(af.UnsupportedDtypeError, match=r"Call x.view\(torch.uint8\)"):
                af.convert(x, to)
            assert af.convert([x], to, unsupported="keep")[0] is x


def test_meta_tensors_are_refused_in_words():
    x = torch.empty(3, device="meta")
    assert af.convert(x, "torch") is x
    for to, options in (("torch", {"device": "cpu"}), ("numpy", {}), ("jax", {"copy": True})):
        with pytest.raises(af.ConversionError, match=r"has no values.*x.to_empty") as caught:
            af.convert([x], to, **options)
        assert "report" not in str(caught.value)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_numbers_of_ml_dtypes_are_shared_whatever_their_layout(name):
    x = torch.arange(12.0).reshape(3, 4).to(getattr(torch, name))
    for part in (x, x.T, x[:, ::2], x[::2], x[1, 2], x[:, None].expand(3, 2, 4), x[:0]):
        for _ in range(3):
            n = af.convert({"x": part}, "numpy", copy=False if part.numel() else None)["x"]
            assert n.shape == part.shape
            assert n.dtype.name == name
            assert n.astype(float).tolist() == part.float().tolist()
            back = af.convert(n, "torch")
            assert back.stride() == part.stride() or not part.numel()
    n = af.convert(x.T, "numpy")
    n[0, 1] = 3
    assert x[1, 0] == 3
