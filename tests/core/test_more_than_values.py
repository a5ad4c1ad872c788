"""Arrays that hold more than values: converted if nothing is lost, else refused with a remedy."""

from __future__ import annotations

import warnings

import dask.array as da
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import arrayferry as af

TARGETS = ("numpy", "jax", "dask", "array_api_strict")


def values(x) -> np.ndarray:
    return np.array(af.convert(x, "numpy"))


@pytest.mark.parametrize("target", TARGETS)
def test_gradients_are_dropped(target):
    x = torch.arange(3.0, requires_grad=True)
    for tensor in (x, x * 2, torch.nn.Parameter(torch.arange(3.0))):
        y = af.convert(tensor, target)
        np.testing.assert_array_equal(values(y), tensor.detach().numpy())
    assert x.requires_grad


@pytest.mark.parametrize("target", TARGETS)
def test_conjugate_and_negative_bits(target):
    z = torch.tensor([1 + 2j, -3 - 4j], dtype=torch.complex64)
    np.testing.assert_array_equal(values(af.convert(z.conj(), target)), z.numpy().conj())
    negative = z.conj().imag
    assert negative.is_neg()
    np.testing.assert_array_equal(values(af.convert(negative, target)), [-2, 4])


def test_inference_tensors():
    with torch.inference_mode():
        x = torch.ones(2)
    assert af.convert(x, "numpy").tolist() == [1, 1]
    with torch.inference_mode():
        assert af.convert(np.ones(2), "torch").tolist() == [1, 1]


@pytest.mark.parametrize("target", TARGETS)
def test_traced_tensors(target):
    seen = []

    def inside(x):
        with pytest.raises(af.TracedValueError, match="no values yet") as caught:
            af.convert({"x": x}, target)
        seen.append(caught.value)
        return x

    torch.func.vmap(inside)(torch.ones(2, 2))
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        inside(torch.ones(2))
    assert len(seen) == 2
    assert all(error.path == "['x']" for error in seen)


@pytest.mark.parametrize("target", ["numpy", "torch", "dask", "array_api_strict"])
def test_tracers(target):
    seen = []

    def inside(x):
        assert af.convert(x, "jax") is x
        assert af.convert([x], "jax", copy=True)[0] is x
        with pytest.raises(af.TracedValueError, match=r"at \['x'\]\[0\].*Convert outside"):
            af.convert({"x": [x]}, target)
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


def test_prng_keys_and_deleted_arrays():
    with pytest.raises(af.ConversionError, match=r"PRNG key.*key_data"):
        af.convert(jax.random.key(1), "numpy")
    key = jax.random.key(1)
    assert af.convert(key, "jax") is key
    gone = jnp.ones(3)
    gone.delete()
    donated = jnp.ones(3)
    jax.jit(lambda a: a * 2, donate_argnums=0)(donated)
    for x in (gone, donated):
        for target in ("numpy", "torch"):
            with pytest.raises(af.ConversionError, match="deleted"):
                af.convert([x], target)


@pytest.mark.long
def test_sharded_arrays(run_python):
    out = run_python(
        """
import numpy as np, jax, jax.numpy as jnp, arrayferry as af
from jax.sharding import Mesh, NamedSharding, PartitionSpec
assert len(jax.devices()) == 4
mesh = Mesh(np.array(jax.devices()), ("d",))
x = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("d")))
for target in ("numpy", "torch", "dask", "jax"):
    y = af.convert({"x": x}, target)["x"]
    assert np.asarray(af.convert(y, "numpy")).tolist() == list(range(8)), target
try:
    af.convert(x, "numpy", copy=False)
except af.CopyRequiredError:
    print("raised")
""",
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
    )
    assert out == "raised\n"


def test_masks():
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for target in ("torch", "jax", "dask", "array_api_strict"):
        with pytest.raises(af.ConversionError, match=r"mask.*filled"):
            af.convert({"m": masked}, target)
    whole = np.ma.array([1.0, 2.0])
    assert af.convert(whole, "torch").tolist() == [1, 2]
    assert af.convert(masked, "numpy") is masked


def test_dask_arrays():
    x = da.arange(10, chunks=3)
    unknown = x[x > 4]
    assert np.isnan(unknown.shape[0])
    assert af.convert(unknown, "torch").tolist() == [5, 6, 7, 8, 9]
    failing = x.map_blocks(lambda block: [][0], dtype=x.dtype, meta=np.ones(0, int))
    with pytest.raises(
        af.ConversionError, match=r"a Dask array could not be computed.*IndexError.*\['bad'\]"
    ) as caught:
        af.convert({"good": np.ones(1), "bad": failing}, "numpy")
    assert caught.value.path == "['bad']"
    with pytest.raises(af.ConversionError, match="one of 2 Dask arrays") as caught:
        af.convert({"good": x, "bad": failing}, "numpy")
    assert caught.value.path == "['good'], ['bad']"  # all are computed at once, and only once
    masked = da.ma.masked_greater(x, 4)
    with pytest.raises(af.ConversionError, match="mask"):
        af.convert(masked, "torch")


def test_extra_dtypes_are_converted():
    import ml_dtypes

    n = np.array([0.5, -2.0, 3.0])
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        x = n.astype(getattr(ml_dtypes, name))
        t = af.convert(x, "torch")
        assert t.dtype == getattr(torch, name)
        j = af.convert(t, "jax")
        assert j.dtype == x.dtype
        back = af.convert(af.convert(j, "torch"), "numpy")
        assert back.dtype == x.dtype
        assert back.astype(float).tolist() == n.tolist()
    four = jnp.array([1, -2], jnp.int4)
    assert af.convert(four, "torch").dtype == torch.int8
    assert af.convert(four, "torch").tolist() == [1, -2]
    assert af.convert(four, "numpy").dtype.name == "int4"


def test_quantised_and_other_layouts_raise():
    x = torch.arange(6.0).reshape(2, 3)
    with warnings.catch_warnings(action="ignore"):
        refused = {
            "sparse": x.to_sparse(),
            "quantised": torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
            "nested": torch.nested.nested_tensor([x[0], x[1, :2]]),
            "jagged": torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged),
            "MKL": x.to_mkldnn(),
            "meta": x.to("meta"),
        }
    for word, tensor in refused.items():
        assert af.convert(tensor, "torch") is tensor
        for target in TARGETS:
            with pytest.raises(af.ConversionError, match="nested" if word == "jagged" else word):
                af.convert(tensor, target)


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


@pytest.mark.parametrize(
    ("cls", "remedy"),
    [
        (Quantised, "dequantize"),
        (Spread, "full_tensor"),
        (Wrapping, "what makes an ordinary tensor"),
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_tensors_that_are_made_of_others(cls, remedy, target):
    x = cls(torch.ones(3))
    for options in ({}, {"copy": True}, {"copy": False}):
        conversion = af.converter(target, **options)
        for _ in range(4):
            with pytest.raises(
                af.ConversionError, match=rf"{cls.__name__}, which is made of .*\['x'\].*{remedy}"
            ) as caught:
                conversion({"x": x})
            assert not isinstance(caught.value, af.ContractError)
    assert af.convert(x, "torch") is x
    with pytest.raises(af.ConversionError, match=remedy):
        af.convert(x, "torch", copy=True)


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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"a": x, "b": [x]}])
def test_tensors_that_may_only_be_read(read_only, target, wrap):
    base = torch.arange(3.0)
    values = {
        "plain": base,
        "strided": torch.arange(6.0)[::2],
        "gradient": torch.ones(2, requires_grad=True),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "bfloat16": torch.ones(2, dtype=torch.bfloat16),
        "empty": torch.ones(0),
    }
    for copying in (None, True):
        conversion = af.converter(target, copy=copying)
        for tensor in values.values():
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


@pytest.mark.skipif(not hasattr(jax, "Ref"), reason="this JAX has no references")
def test_references_of_jax():
    x = jax.new_ref(jnp.arange(3.0))
    for target in ("numpy", "torch", "dask", "array_api_strict"):
        for _ in range(3):
            with pytest.raises(af.ConversionError, match=r"jax\.Ref .*\['x'\].*Pass ref\[\.\.\.\]"):
                af.convert({"x": x}, target)
    assert af.convert([x], "jax")[0] is x
    with pytest.raises(af.ConversionError, match=r"jax\.Ref"):
        af.convert(x, "jax", copy=True)
    assert af.convert(x[...], "numpy").tolist() == [0, 1, 2]


UNREDUCED = """
import jax, jax.numpy as jnp, arrayferry as af
from jax.sharding import AxisType, PartitionSpec as P
mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Explicit,))
with jax.set_mesh(mesh):
    a, b = (jax.device_put(x, P("d")) for x in (jnp.arange(8.0), jnp.ones((8, 2))))
    product = lambda a, b: jnp.einsum("i,ij->j", a, b, out_sharding=P(unreduced={"d"}))
    x = jax.jit(product)(a, b)
    whole = jax.reshard(x, P())
for target, options in (("numpy", {}), ("torch", {"copy": True}), ("dask", {}), ("jax", {"device": "cpu"})):
    try:
        af.convert([x], target, **options)
    except af.ConversionError as error:
        print(type(error).__name__, error)
assert af.convert(x, "jax") is x
print(af.convert(whole, "numpy").tolist())
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(jax, "reshard"), reason="this JAX has no unreduced arrays")
def test_unreduced_arrays(run_python):
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    *errors, last = run_python(UNREDUCED, env=flags).splitlines()
    assert len(errors) == 4
    for error in errors:
        assert error.startswith(
            "ConversionError a JAX array that is not summed up over its devices"
        )
        assert "at [0]" in error
        assert error.endswith("Call jax.reshard(x, jax.P()) first.")
    assert last == "[28.0, 28.0]"
