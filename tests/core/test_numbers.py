"""Python numbers carry no dtype, so they take the one that the target chooses for them."""

from __future__ import annotations

import array_api_strict
import dask.array as da
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import arrayferry as af
from arrayferry_gym import array_conversion

NUMBERS = [True, 3, -(2**30), 1.5, float("inf"), float("nan"), -0.0, 1 - 2j]
OWN = {
    "numpy": np.asarray,
    "torch": torch.asarray,
    "jax": jnp.asarray,
    "dask": da.asarray,
    "array_api_strict": array_api_strict.asarray,
}


@pytest.mark.parametrize("target", OWN)
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_as_the_target_would(target, number):
    conversion = af.converter(target, scalars="convert")
    expected = OWN[target](number)
    for _ in range(4):
        for found in (
            conversion(number),
            conversion([number])[0],
            array_conversion(number, target),
        ):
            assert str(found.dtype) == str(expected.dtype)
            assert found.shape == ()
            np.testing.assert_array_equal(
                np.asarray(af.convert(found, "numpy")), np.asarray(number)
            )


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


@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize(
    ("number", "target"), [(1e300, "torch"), (1e300, "jax"), (2**40, "jax"), (2**70, "torch"), (-1e300j, "torch")]
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
    for scalar in (np.float64(1.5), np.float32(1.5), np.int8(3), np.uint64(3)):
        found = af.convert([scalar], "torch", scalars="convert")[0]
        assert str(found.dtype) == f"torch.{scalar.dtype}"
    assert af.convert(np.float64(1.5), "torch").dtype is torch.float64


def test_integers_beyond_the_default():
    assert af.convert(2**63, "torch", scalars="convert").dtype is torch.uint64
    assert af.convert(2**63, "numpy", scalars="convert").dtype == np.uint64
