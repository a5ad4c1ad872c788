"""Array API libraries without a plugin, with the real packages: their values, masks and ragged rows."""

import warnings

import array_api_strict
import numpy as np
import pytest
from refusals import refused

import arrayferry as af

with warnings.catch_warnings(action="ignore"):
    import blosc2
    import cubed
    import marray
    import ndonnx
    import ragged

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)
MASKED = marray.masked_namespace(np)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


libraries = pytest.mark.parametrize(
    "xp", [array_api_strict, ndonnx, blosc2, ragged, cubed, MASKED], ids=lambda xp: xp.__name__
)


@libraries
@pytest.mark.parametrize("other", ["numpy", "torch", "jax", "dask"])
def test_there_and_back(xp, other):
    x = xp.asarray(VALUES)
    for _ in range(4):
        y = af.convert({"x": [x, "text"]}, other)["x"][0]
        np.testing.assert_array_equal(np.asarray(y), VALUES)
        assert af.backend_of(y).name == other
        back = af.convert([y], af.backend_of(x))[0]
        assert af.backend_of(back) is af.backend_of(x)
        np.testing.assert_array_equal(af.convert(back, "numpy"), VALUES)
    values = np.asarray(af.convert(x, other, copy=True))
    np.testing.assert_array_equal(values, VALUES)


@libraries
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float32", "float64"])
def test_dtypes_are_kept(xp, dtype):
    values = (VALUES - 2).astype(dtype) if dtype[0] != "u" else VALUES.astype(dtype)
    y = af.convert(xp.asarray(values), "numpy")
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, values)


def test_a_mask_is_never_lost():
    x = MASKED.asarray(VALUES, mask=VALUES > 3)
    for to in ("numpy", "torch", "jax"):
        refused(af.ConversionError, r"mask would be lost, at \[0\]", [x], to)


def test_ragged_rows_are_refused():
    refused(af.ConversionError, "no array of numbers", ragged.array([[1, 2], [3]]), "torch")


def test_a_graph_without_values_is_refused():
    x = ndonnx.argument(shape=("N",), dtype=ndonnx.float32)
    refused(af.ConversionError, "has no values yet", x, "torch")
