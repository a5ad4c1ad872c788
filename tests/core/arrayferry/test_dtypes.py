"""Dtypes: what each is, which holds which, and that a new one is one row in each library that has it."""

import contextlib
import itertools
import re

import ml_dtypes
import numpy as np
import pytest
import torch

import arrayferry as af
from arrayferry._registry.generic import GenericBackend
from arrayferry.extending import dtype_info, dtype_named
from arrayferry_plugins.jax_ import dtypes as jax_dtypes
from arrayferry_plugins.torch_ import dtypes as torch_dtypes

HERE = [name for name in ml_dtypes.__all__ if hasattr(getattr(ml_dtypes, name), "dtype")]
SMALL = [*HERE, "int8", "uint8", "int16", "uint16", "float16"]
WIDE = [*SMALL, "int32", "int64", "uint32", "uint64", "float32", "float64", "longdouble"]


def kind_by_name(name):
    return re.match("b?(uint|int|float|complex)|", name.replace("longdouble", "float")).group(1)


@pytest.mark.parametrize("name", [*WIDE, *sorted(af.STANDARD_DTYPES - {"bool", *WIDE})])
def test_the_kind_of_a_dtype_is_what_it_is(name):
    dtype = dtype_named(name)
    assert dtype_info(dtype).kind == dtype_info(dtype.newbyteorder()).kind == kind_by_name(name)


@pytest.mark.parametrize("name", ["U3", "S2", "O", "M8[s]", "m8[D]", "V4", "f4,f4"])
def test_a_dtype_that_is_no_number_has_no_kind(name):
    assert dtype_info(np.dtype(name)).kind == ""
    assert dtype_info(np.dtype(bool)).kind == "bool"


def test_dtypes_of_ml_dtypes_are_known_without_it(run_python):
    out = run_python(
        "import sys\n"
        "sys.modules['ml_dtypes'] = None\n"
        "from arrayferry._dtypes import dtype_named, unknown_dtypes\n"
        f"print([name for name in {HERE} if dtype_named(name) is not None])\n"
        f"print(unknown_dtypes([*{HERE}, 'flaot32', 'int3', 'float32', 'text']))"
    )
    assert len(HERE) > 10
    assert out.split("\n")[:2] == ["[]", "['flaot32', 'int3', 'text']"]


def numbers_of(name):
    """Return all numbers of a small dtype."""
    dtype = dtype_named(name)
    bits = dtype_info(dtype).limits.bits
    return np.arange(2**bits).astype(f"u{dtype.itemsize}").view(dtype)


@pytest.mark.parametrize("narrow", [name for name in SMALL if "complex" not in name])
def test_a_dtype_holds_another_if_it_has_all_its_numbers(narrow):
    numbers = numbers_of(narrow)
    info = dtype_info(numbers.dtype)
    for wide in (dtype_named(name) for name in WIDE if kind_by_name(name) == info.kind):
        holds = dtype_info(wide).holds(info)
        # it may have them as subnormal numbers only, which some libraries take for zero
        subnormal = info.kind == "float" and dtype_info(wide).limits.minexp > info.limits.minexp
        assert holds == (survive(numbers, wide) and not subnormal), wide


def survive(numbers, dtype):
    """Tell whether numbers are the same in another dtype, with the signs of zeros."""
    with np.errstate(all="ignore"):
        try:
            kept = numbers.astype(dtype)
        except TypeError:  # ml_dtypes does not cast to its smallest dtypes
            return False
        before, after = numbers.astype(float), kept.astype(float)
    signs = (np.signbit(before) == np.signbit(after)) | np.isnan(before)
    return np.array_equal(before, after, equal_nan=True) and bool(signs.all())


@pytest.mark.parametrize("name", ["complex32", "bcomplex32"])
@pytest.mark.parametrize("target", ["torch", "jax", "array_api_strict"])
def test_small_complex_numbers_become_complex64(name, target):
    dtype = dtype_named(name)
    if dtype is None:
        pytest.skip("ml_dtypes 0.6 has it")
    values = [complex(1.5, -0.0), complex(-np.inf, 2)]
    y = af.convert([np.array(values).astype(dtype)], target)[0]
    assert str(y.dtype).endswith("complex64")
    assert list(map(str, np.asarray(af.convert(y, "numpy")))) == list(map(str, values))


@contextlib.contextmanager
def cleared(monkeypatch, module, **names):
    """Change the rows of a library for a while."""
    cached = [value for value in vars(module).values() if hasattr(value, "cache_clear")]
    try:
        with monkeypatch.context() as changed:
            for name, value in names.items():
                changed.setattr(module, name, value)
            for function in cached:
                function.cache_clear()
            yield
    finally:
        for function in cached:
            function.cache_clear()


@pytest.mark.skipif("complex32" not in HERE, reason="ml_dtypes 0.6 has complex32")
def test_a_dtype_that_pytorch_has_is_one_row(monkeypatch):
    x = np.array([1.5 - 2j, np.inf]).astype(dtype_named("complex32"))
    with cleared(monkeypatch, torch_dtypes, EXTRA=(*torch_dtypes.EXTRA, "complex32")):
        there, back = af.converter("torch"), af.converter("numpy")
        for _ in range(3):
            y = there([x])[0]
            assert y.dtype is torch.complex32
            n = back([y])[0]
            assert n.dtype == x.dtype
            assert n.tobytes() == x.tobytes()
            assert np.shares_memory(n, x)


@pytest.mark.parametrize("lacking", [set(), {"int4"}])
def test_a_dtype_that_jax_has_is_one_row_and_others_are_widened(monkeypatch, lacking):
    x = np.array([-8, 7]).astype(dtype_named("int4"))
    with cleared(monkeypatch, jax_dtypes, EXTRA=jax_dtypes.EXTRA - lacking):
        y = af.converter("jax")([x])[0]
    assert y.dtype == (np.int8 if lacking else x.dtype)
    assert np.asarray(y).tolist() == [-8, 7]


@pytest.mark.parametrize("name", sorted(af.STANDARD_DTYPES | {"bfloat16"}))
def test_values_of_mlx_without_its_plugin(name):
    """MLX has no complex128: numbers that fit complex64 are narrowed, others are an error."""
    mx = pytest.importorskip("mlx.core")
    registry = af.Registry()
    registry.manager.set_blocked("mlx")
    to_numpy = af.converter("numpy", registry=registry)
    dtype = dtype_named(name)
    numbers = [0, 1, 1, 0, 1, 0] if name == "bool" else [0, 1, 2, 3, 100, 101]
    if dtype.kind in "iu":
        numbers[1:3] = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    elif name != "bool":
        numbers[1:4] = [np.nan, -np.inf, -0.0]
    x = np.array(numbers, dtype)
    for form, device in itertools.product(
        (x, x.reshape(2, 3).T, x[::-2], x[:0], x[1:2].reshape(())), (None, "cpu")
    ):
        y = af.converter(mx, registry=registry, device=device)(form)
        backend = registry.kind(y).backend
        assert type(backend) is GenericBackend
        assert (backend.device_of(y),) == backend.devices.names() == ("cpu",)
        back = to_numpy(mx.transpose(y))
        wanted = form.astype("complex64" if name == "complex128" else dtype).T
        both = [(x.dtype, x.shape, x.tobytes()) for x in (back, wanted)]
        assert both[0] == both[1]
    if name == "complex128":
        with pytest.raises(af.NarrowingError, match="does not fit complex64"):
            af.converter(mx, registry=registry)(np.array([1e300 + 1j]))
