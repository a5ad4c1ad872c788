"""Special arrays: those with more than values are converted if nothing is lost, else refused with a remedy."""

import types
import unittest.mock
import warnings
import weakref

import dask.array as da
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from refusals import refused
from torch._subclasses.fake_tensor import FakeTensorMode

import arrayferry as af

LIBRARIES = ("numpy", "torch", "jax", "dask", "array_api_strict")
OTHERS = ("numpy", "jax", "dask", "array_api_strict")
"""Those to which a tensor of PyTorch is converted."""


def values(x) -> np.ndarray:
    return np.array(af.convert(x, "numpy"))


def test_inference_tensors():
    with torch.inference_mode():
        x = torch.ones(2)
    assert af.convert(x, "numpy").tolist() == [1, 1]
    with torch.inference_mode():
        assert af.convert(np.ones(2), "torch").tolist() == [1, 1]


@pytest.mark.parametrize("target", OTHERS)
def test_traced_tensors(target):
    seen = []

    def inside(x):
        for copy in (None, True):
            caught = refused(af.TracedValueError, "no values yet", {"x": x}, target, copy=copy)
            seen.append(caught.path)
        return x

    torch.func.vmap(inside)(torch.ones(2, 2))
    torch.func.functionalize(inside)(torch.ones(3) * 5)
    with FakeTensorMode():
        inside(torch.ones(2))
    assert seen == ["['x']"] * 6


@pytest.mark.parametrize("target", ["torch", *OTHERS])
def test_tensors_in_a_fake_mode(target):
    x = torch.arange(4.0)
    whole = af.converter(target)
    for _ in range(3):
        whole([x])
    with FakeTensorMode() as mode:
        traced = {"x": [x]}, {"x": [torch.ones(2)]}, {"x": [mode.from_tensor(x)]}
        for value in traced if target != "torch" else ():
            for copy in (None, True, False):
                refused(af.TracedValueError, r"no values yet, at \['x'\]", value, target, copy=copy)
            with pytest.raises(af.TracedValueError, match="no values yet"):
                whole(value)
        refused(af.TracedValueError, "or the FakeTensorMode", x, target, copy=True)


@pytest.mark.parametrize("target", ["numpy", "torch", "dask", "array_api_strict"])
def test_tracers(target):
    seen = []

    def inside(x):
        assert af.convert(x, "jax") is x
        assert af.convert([x], "jax", copy=True)[0] is x
        refused(af.TracedValueError, r"at \['x'\]\[0\].*Convert outside", {"x": [x]}, target)
        seen.append(type(x).__name__)
        return x.sum()

    x = jnp.ones((2, 2))
    jax.jit(inside)(x)
    jax.grad(inside)(x)
    jax.vmap(inside)(x)
    jax.lax.scan(lambda carry, row: (carry + inside(row), None), 0.0, x)
    jax.make_jaxpr(inside)(x)
    assert len(seen) >= 4


def test_numpy_to_jax_inside_a_traced_function_keeps_values():
    kept = []

    @jax.jit
    def inside(x):
        constant = af.convert({"c": np.arange(3, dtype=np.float32)}, "jax")["c"]
        assert not isinstance(constant, jax.core.Tracer)
        kept.append(constant)
        return x + constant

    for _ in range(3):
        np.testing.assert_array_equal(inside(jnp.ones(3)), [1, 2, 3])
    np.testing.assert_array_equal(kept[0], [0, 1, 2])
    for _ in range(4):
        jax.vmap(lambda x: x + af.convert(np.ones(3, np.float32), "jax"))(jnp.ones((2, 3)))


def test_dask_arrays():
    x = da.arange(10, chunks=3)
    unknown = x[x > 4]
    assert np.isnan(unknown.shape[0])
    assert af.convert(unknown, "torch").tolist() == [5, 6, 7, 8, 9]
    failing = x.map_blocks(lambda block: [][0], dtype=x.dtype, meta=np.ones(0, int))
    words = r"a Dask array could not be computed.*IndexError.*at \['bad'\], .*x\.compute\(\), which raises the same"
    refused(af.ConversionError, words, {"good": np.ones(1), "bad": failing}, "numpy")
    caught = refused(af.ConversionError, "one of 2 Dask", {"good": x, "bad": failing}, "numpy")
    assert caught.path == "['good'], ['bad']"  # all are computed at once, and only once
    masked = da.ma.masked_greater(x, 4)
    words = r"masked blocks .*, at \['b'\]\[0\], from dask.*First call dask\.array\.ma\.filled"
    refused(af.ConversionError, words, {"a": da.ones(2), "b": [masked]}, "torch")


def test_a_mask_of_fields():
    records = np.ma.array([(1, 2.0), (3, 4.0)], mask=[(False, False), (False, True)], dtype="i4,f8")
    words = "masked elements, so its mask would be lost"
    for masked in (records, records[1]):
        refused(af.ConversionError, words, [masked], "dask")
    assert af.convert(records[:1], "dask").compute().tolist() == [(1, 2.0)]
    for chunks in (1, 2):
        blocks = da.from_array(records, chunks=chunks, asarray=False)
        refused(af.ConversionError, "masked blocks", [blocks], "numpy")
        assert af.convert(blocks[:1], "numpy").tolist() == [(1, 2.0)]


class Wrapping(torch.Tensor):
    """A tensor that is made of another one, as those of torchao and `DTensor` are."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.float32)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return cls(args[0].inner)
        raise NotImplementedError(f"no {function}")


class Quantised(Wrapping):
    def dequantize(self):
        return self.inner * 0.5


class Spread(Wrapping):
    def full_tensor(self):
        return self.inner


def deleted():
    x = jnp.ones(3)
    x.delete()
    return x


def donated():
    x = jnp.ones(3)
    jax.jit(lambda a: a * 2, donate_argnums=0)(x)
    return x


def resized(size, start=0):
    x = torch.arange(1000.0)
    part = x[start:]
    x.untyped_storage().resize_(size)
    return part


def in_layout(change):
    """Return a function that makes a tensor of another layout, of which PyTorch may warn."""

    def make():
        with warnings.catch_warnings(action="ignore"):
            return change(torch.arange(6.0, dtype=torch.float32).reshape(2, 3))

    return make


COPY = {"copy": True}
REFUSED = {
    "numpy mask": (lambda: np.ma.array([1.0, 2.0], mask=[False, True]), r"mask.*filled"),
    "jax PRNG key": (lambda: jax.random.key(1), r"PRNG key.*key_data"),
    "jax deleted": (deleted, "deleted, or donated", COPY),
    "jax donated": (donated, "deleted, or donated", COPY),
    "torch sparse": (in_layout(lambda x: x.to_sparse()), "sparse"),
    "torch quantised": (in_layout(lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)), "quantised"),
    "torch nested": (in_layout(lambda x: torch.nested.nested_tensor([x[0], x[1, :2]])), "nested"),
    "torch jagged": (in_layout(lambda x: torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged)), "nested"),
    "torch MKL": (in_layout(lambda x: x.to_mkldnn()), "MKL"),
    "torch meta": (lambda: torch.empty(3, device="meta"), "has no values.*x.to_empty", {"device": "cpu"}),
    "torch uninitialized": (lambda: torch.nn.LazyLinear(2).weight, "uninitialized parameter", COPY),
    "torch freed": (lambda: resized(0), "storage was freed", COPY),
    "torch freed, sliced": (lambda: resized(0, 5), "storage was freed", COPY),
    "torch freed, viewed": (lambda: resized(0).view(torch.bfloat16), "storage was freed", COPY),
    **{
        f"torch {cls.__name__}": (
            lambda cls=cls: cls(torch.ones(3)), rf"{cls.__name__}, which consists of .*{remedy}", COPY,
        )
        for cls, remedy in (
            (Quantised, "dequantize"), (Spread, "full_tensor"), (Wrapping, "the method that returns an ordinary tensor"),
        )
    },
    **(
        {"jax reference": (lambda: jax.new_ref(jnp.arange(3.0)), r"jax\.Ref .*Pass ref\[\.\.\.\]", COPY)}
        if hasattr(jax, "Ref") else {}
    ),
}  # fmt: skip
"""What is refused by each other library, and with these options by its own."""


@pytest.mark.parametrize("target", LIBRARIES)
@pytest.mark.parametrize("what", REFUSED)
def test_what_would_lose_something_is_refused_in_words(what, target):
    make, words, *own = REFUSED[what]
    x, choices = make(), [{}, {"copy": True}]
    if what.startswith(target):
        assert af.convert([x], target)[0] is x
        choices = own
    for options in choices:
        conversion = af.converter(target, **options)
        for _ in range(4):
            with pytest.raises(af.ConversionError, match=words) as caught:
                conversion({"x": x})
            assert caught.value.path == "['x']"
            assert caught.value.remedy
            assert not isinstance(caught.value, af.ContractError)


@pytest.mark.filterwarnings("error")
def test_more_axes_than_numpy_has():
    x = torch.ones((1,) * 70)
    for target in ("numpy", "jax", "dask", "array_api_strict"):
        for options in ({}, {"copy": True}):
            caught = refused(
                af.ConversionError,
                "an array of 70 axes cannot be converted",
                [x],
                target,
                **options,
            )
            assert type(caught) is af.ConversionError
            assert "Reshape it to fewer axes first" in caught.remedy
            assert (caught.path, caught.source, caught.target) == ("[0]", "torch", target)
    assert af.convert(x, "torch", copy=True).shape == x.shape


WITHOUT_ML_DTYPES = """
import sys
sys.modules["ml_dtypes"] = None
import pytest, torch, arrayferry as af
words = "NumPy has it only with ml_dtypes, at .*pip install --upgrade ml_dtypes"
for x in (torch.ones(3).bfloat16(), torch.ones(3).to(torch.float8_e4m3fn)):
    for target in ("numpy", "dask"):
        with pytest.raises(af.UnsupportedDtypeError, match=words):
            af.convert([x], target)
        assert af.convert([x], target, unsupported="keep")[0] is x
"""


def test_dtypes_of_ml_dtypes_without_it(run_python):
    run_python(WITHOUT_ML_DTYPES)


def test_a_tensor_whose_storage_was_shrunk():
    refused(af.ConversionError, "storage was freed", resized(2000), "torch", copy=True)


def test_a_mask_that_hides_nothing():
    assert af.convert(np.ma.array([1.0, 2.0]), "torch").tolist() == [1, 2]


@pytest.fixture
def read_only(monkeypatch):
    """Return a function that makes what `torch.utils.dlpack.ReadOnlyTensorWrapper` of PyTorch 2.15 makes."""

    class ReadOnlyTensorWrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, tensor):
            return tensor.as_subclass(cls)

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function in (torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__):
                with torch._C.DisableTorchFunctionSubclass():
                    return function(*args, **(kwargs or {}))
            raise RuntimeError("only DLPack export is supported")

    monkeypatch.setattr(
        torch.utils.dlpack, "ReadOnlyTensorWrapper", ReadOnlyTensorWrapper, raising=False
    )
    return torch.utils.dlpack.ReadOnlyTensorWrapper


@pytest.mark.parametrize("target", OTHERS)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"a": x, "b": [x]}])
def test_tensors_that_may_only_be_read(read_only, target, wrap):
    base = torch.arange(3.0)
    with_state = torch.ones(2, requires_grad=True), torch.tensor([1 + 2j]).conj()
    plain = base, torch.arange(6.0)[::2], torch.ones(2, dtype=torch.bfloat16), torch.ones(0)
    for copying in (None, True):
        conversion = af.converter(target, copy=copying)
        for tensor in (*with_state, *plain):
            for _ in range(4):
                (y, *_), _ = af.flatten(conversion(wrap(read_only(tensor))))
                assert af.backend_of(y).name == target
                expected = tensor.detach().resolve_conj()
                assert af.convert(y, "torch", copy=True).tolist() == expected.tolist()
                if target == "numpy":
                    assert y.flags.writeable is bool(copying)
    shared = af.convert(read_only(base), "numpy", copy=False)
    assert not shared.flags.writeable
    base[0] = 7
    assert shared[0] == 7
    x = read_only(base)
    assert af.convert(x, "torch") is af.convert(x, "torch", device="cpu") is x
    assert type(af.convert(x, "torch", copy=True)) is torch.Tensor


UNREDUCED = r"""
import jax, jax.numpy as jnp, pytest, arrayferry as af
from jax.sharding import AxisType, PartitionSpec as P
mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Explicit,))
with jax.set_mesh(mesh):
    a, b = (jax.device_put(x, P("d")) for x in (jnp.arange(8.0), jnp.ones((8, 2))))
    product = lambda a, b: jnp.einsum("i,ij->j", a, b, out_sharding=P(unreduced={"d"}))
    x = jax.jit(product)(a, b)
    whole = jax.reshard(x, P())
words = r"^a JAX array that is not summed up over its devices .*at \[0\].*First call jax.reshard\(x, jax.P\(\)\)\.$"
for target, options in (("numpy", {}), ("torch", {"copy": True}), ("dask", {}), ("jax", {"device": "cpu"})):
    with pytest.raises(af.ConversionError, match=words) as caught:
        af.convert([x], target, **options)
    assert caught.type is af.ConversionError
assert af.convert(x, "jax") is x
assert af.convert(whole, "numpy").tolist() == [28.0, 28.0]
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(jax, "reshard"), reason="this JAX has no unreduced arrays")
def test_unreduced_arrays(run_python):
    run_python(UNREDUCED, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=4"})


# Objects and settings that are made to fail.


X = np.arange(3, dtype=np.float32)


Liar, NumpyLiar = (type("Liar", (), {"__class__": cls}) for cls in (torch.Tensor, np.ndarray))


class Unbound:
    @property
    def __class__(self):
        raise RuntimeError("not bound")


def answers_to_all():
    vague = type("Vague", (type,), {"__getattr__": lambda cls, name: cls})
    return vague("AnswersToAll", (), {})()


NoHash = type("Unhashable", (type,), {"__hash__": None})("NoHash", (), {})


class ClaimsNamespace:
    def __array_namespace__(self):
        return np


def dead_proxy():
    return weakref.proxy(Liar())


PRETENDING = [
    Liar, NumpyLiar, Unbound, answers_to_all, NoHash, ClaimsNamespace, dead_proxy,
    lambda: unittest.mock.Mock(spec=torch.Tensor), lambda: unittest.mock.Mock(spec=np.ndarray),
    lambda: unittest.mock.Mock(spec=np.float32(1)), unittest.mock.MagicMock,
]  # fmt: skip


@pytest.mark.parametrize("target", LIBRARIES)
@pytest.mark.parametrize("make", PRETENDING)
def test_objects_that_pretend_to_be_arrays_are_unchanged(make, target):
    thing = make()
    assert af.convert(thing, target) is thing
    assert af.convert({"a": [thing]}, target)["a"][0] is thing


class Raises:
    def __getattr__(self, name):
        raise RuntimeError(name)


@pytest.mark.parametrize("make", [dead_proxy, Raises])
@pytest.mark.parametrize("unknown", ["keep", "convert"])
def test_what_has_no_attributes_is_unchanged_each_time(make, unknown):
    convert, thing = af.converter("torch", unknown=unknown), make()
    for _ in range(4):
        assert convert(thing) is thing
    for _ in range(4):
        assert convert([thing])[0] is thing


def test_a_proxy_does_not_affect_other_proxies():
    x, thing = np.ones(2), answers_to_all()
    for proxy in (weakref.proxy(x), weakref.proxy(thing)):
        assert af.convert(proxy, "torch") is proxy


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


@pytest.mark.parametrize("target", LIBRARIES)
def test_long_long(target):
    for code in "qQ":
        for x in (np.arange(3).astype(code), np.arange(6).astype(code)[::-2]):
            y = af.convert(x, target)
            np.testing.assert_array_equal(np.asarray(af.convert(y, "numpy")), x)
    memory = np.arange(4).astype("Q")
    shared = af.convert(memory, "torch", copy=False)
    memory[0] = 7
    assert shared[0] == 7


def test_an_integer_too_long_to_be_printed():
    refused(af.NarrowingError, "bits", 10**5000, "torch", scalars="convert")


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="it came with NumPy 2")
def test_string_dtype():
    text = np.array(["a", "b"], np.dtypes.StringDType())
    for target in ("torch", "jax"):
        refused(af.UnsupportedDtypeError, "text", text, target)
        assert af.convert(text, target, unsupported="keep") is text
    assert af.convert(text, "dask").compute().tolist() == ["a", "b"]


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
    refused(af.UnsupportedDtypeError, r"complex32 .*x\.to\(torch\.complex64\)", x, "numpy")
    assert af.convert(x, "numpy", unsupported="keep") is x


def test_a_class_whose_attributes_raise():
    raising = type("Odd", (np.ndarray,), {"dtype": property(lambda self: 1 / 0)})
    assert af.convert(np.ones(2).view(raising), "torch").tolist() == [1, 1]


class Strange:
    """An array of an Array API library whose shape cannot be read."""

    dtype, shape = np.dtype("float32"), property(lambda self: 1 / 0)

    def __array_namespace__(self, api_version=None):
        import array_api_strict

        versioned = {"__array_api_version__": "2024.12", "asarray": array_api_strict.asarray}
        return type("Namespace", (types.ModuleType,), versioned)("strange_namespace")


def test_an_object_whose_shape_raises():
    pytest.importorskip("array_api_strict")
    for _ in range(3):
        with pytest.raises(af.ConversionError, match=r"at \[1\], from strange_namespace to torch"):
            af.convert([X, Strange()], "torch")


SMALL_DTYPES = [f"uint{bits}" for bits in (1, 2, 3, 4, 7)]
SMALL_DTYPES += ["int1", "int4", "bits8"]
SMALL_DTYPES += [name for name in ("float4_e2m1fn_x2",) if hasattr(torch, name)]  # from 2.8


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
            refused(af.UnsupportedDtypeError, r"First call x.view\(torch.uint8\)", x, to)
            assert af.convert([x], to, unsupported="keep")[0] is x


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
