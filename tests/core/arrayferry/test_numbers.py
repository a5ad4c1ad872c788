"""Python numbers carry no dtype, so they take the one that the target chooses for them."""

import array_api_strict
import dask.array as da
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import arrayferry as af

NUMBERS = [True, 3, -(2**30), 1.5, float("inf"), float("nan"), -0.0, 1 - 2j]
OWN = {"numpy": np, "torch": torch, "jax": jnp, "dask": da, "array_api_strict": array_api_strict}


@pytest.mark.parametrize("target", OWN)
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_as_the_target_would(target, number):
    conversion = af.converter(target, scalars="convert")
    expected = OWN[target].asarray(number)
    for _ in range(4):
        for found in (conversion(number), conversion([number])[0]):
            assert str(found.dtype) == str(expected.dtype)
            assert found.shape == ()
            np.testing.assert_array_equal(af.convert(found, "numpy"), number)


@pytest.mark.parametrize("target", OWN)
@pytest.mark.parametrize("number", [True, 3, 1.5, 1 - 2j])
def test_numbers_have_no_memory_to_share(target, number):
    convert = af.converter(target, scalars="convert", copy=False)
    own = OWN[target].asarray(np.zeros(2))
    for _ in range(4):
        for value in (number, {"a": number}, [own, (number,)]):
            with pytest.raises(af.CopyRequiredError, match=r'a Python \w+ has no memory.*"keep"'):
                convert(value)
        assert convert([own])[0] is own
    with pytest.raises(af.CopyRequiredError, match=r"at \['a'\]\[0\], to "):
        convert({"a": [number]})
    assert af.convert([number], target, copy=False)[0] is number


@pytest.mark.parametrize("target", [name for name in OWN if name != "numpy"])
@pytest.mark.parametrize("number", [np.float32(1), np.int8(1), np.bool_(True), np.complex64(1j)])
def test_numbers_of_numpy_have_no_memory_to_share(target, number):
    convert = af.converter(target, copy=False)
    own = OWN[target].asarray(np.zeros(2))
    for _ in range(4):
        for value in (number, {"a": number}, [own, (number,)]):
            with pytest.raises(af.CopyRequiredError, match=r"a NumPy \w+ has no memory that could"):
                convert(value)
    assert af.convert(number, target).dtype is not None
    assert af.convert(number, "numpy", copy=False).dtype == number.dtype


def test_settings_of_the_target(enable_x64):
    torch.set_default_dtype(torch.float64)
    try:
        assert af.convert(1.5, "torch", scalars="convert").dtype is torch.float64
        assert af.convert(1j, "torch", scalars="convert").dtype is torch.complex128
    finally:
        torch.set_default_dtype(torch.float32)
    assert af.convert(1.5, "torch", scalars="convert").dtype is torch.float32
    with enable_x64(True):
        assert af.convert(1.5, "jax", scalars="convert").dtype == np.float64
        assert af.convert(2**40, "jax", scalars="convert").dtype == np.int64


NARROW = pytest.mark.assumes_other("x64")


@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize(
    ("number", "target"), [(1e300, "torch"), pytest.param(1e300, "jax", marks=NARROW), pytest.param(2**40, "jax", marks=NARROW),
                           (2**70, "numpy"), (2**70, "torch"), (2**70, "jax"), (-1e300j, "torch")]
)  # fmt: skip
def test_numbers_that_do_not_fit(number, target, times):
    conversion = af.converter(target, scalars="convert")
    fitting = type(number)(1)
    for _ in range(times):
        conversion({"n": [fitting]})
    for _ in range(times):
        with pytest.raises(af.NarrowingError, match=r"at \['n'\]\[0\]"):
            conversion({"n": [number]})


def test_without_checks():
    assert af.convert(1e300, "torch", scalars="convert", narrowing="allow").item() == float("inf")


def test_numpy_scalars_keep_their_dtype():
    names = ["float64", "float32", "int8", "uint64", "bool", "complex64", "bfloat16"]
    for scalar in (np.dtype(name).type(1) for name in names):
        (inside,) = af.convert([scalar], "torch", scalars="convert")
        for found in (inside, af.convert(scalar, "torch")):
            assert str(found.dtype) == f"torch.{scalar.dtype}"
            assert found.shape == ()
        assert isinstance(af.convert(scalar, "numpy"), np.ndarray)


def test_integers_beyond_the_default():
    for target in OWN.keys() - {"jax"}:
        made = af.convert(af.convert(2**63, target, scalars="convert"), "numpy")
        assert (made.dtype, int(made)) == (np.uint64, 2**63)
