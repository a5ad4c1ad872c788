"""Every library to every other: equal values, the same shape, and the same dtype if supported."""

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from cases import quick_if

import arrayferry as af

LIBRARIES = {
    "numpy": ("numpy", lambda xp, n: n, lambda xp, x: x),
    "torch": ("torch", lambda xp, n: xp.from_numpy(n.copy()), lambda xp, x: x.numpy()),
    "jax": ("jax.numpy", lambda xp, n: xp.array(n), lambda xp, x: np.asarray(x)),
    "dask": ("dask.array", lambda xp, n: xp.from_array(n.copy(), name=False), lambda xp, x: x.compute()),
    "array_api_strict": ("array_api_strict", lambda xp, n: xp.asarray(n), lambda xp, x: np.from_dlpack(x)),
    "cupy": ("cupy", lambda xp, n: xp.array(n), lambda xp, x: xp.asnumpy(x)),
}  # fmt: skip
"""The namespace of each library, how it makes an array of one of NumPy, and how that is read."""


class Library(NamedTuple):
    name: str
    make: Callable[[np.ndarray], Any]
    read: Callable[[Any], np.ndarray]


@pytest.fixture(params=LIBRARIES)
def source(request):
    """Return a library, or skip the test if it is not usable."""
    namespace, make, read = LIBRARIES[request.param]
    try:
        xp = importlib.import_module(namespace)
        make(xp, np.zeros(1))
    except Exception as error:
        if request.param != "cupy":
            raise
        pytest.skip(f"no GPU that CuPy can use ({type(error).__name__})")
    return Library(request.param, functools.partial(make, xp), functools.partial(read, xp))


target = source

SHAPES = [(), (3,), (0,), (2, 3), (2, 0), (2, 1, 3), (2, 3, 1, 2)]


def narrowed(array: np.ndarray) -> str:
    """Return the dtype that JAX has for an array."""
    return str(importlib.import_module("jax.numpy").asarray(array).dtype)


def values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape))
    numbers = np.arange(size) - (size // 2 if dtype[0] in "ifc" else 0)
    array = numbers.reshape(shape).astype(dtype)
    if dtype.startswith("complex"):
        array = array * np.asarray(1 - 2j, dtype)
    return np.asarray(array)


RARE = {"int8", "int16", "uint16", "uint32", "uint64", "complex64"}
# array_api_strict has no float16
DTYPES = quick_if(sorted(af.STANDARD_DTYPES - {"float16"}), lambda dtype: dtype not in RARE)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_shapes_and_dtypes(source, target, dtype):
    for shape in SHAPES:
        n = values(dtype, shape)
        x = source.make(n)
        y = af.convert(x, target.name)
        assert af.backend_of(y).name == target.name
        assert tuple(y.shape) == shape
        expected = narrowed(n) if "jax" in (source.name, target.name) else dtype
        assert str(y.dtype).rpartition(".")[2] == expected
        np.testing.assert_array_equal(target.read(y), n)
        np.testing.assert_array_equal(source.read(x), n)


def test_like(source, target):
    n = np.ones(2, np.float32)
    y = af.convert([source.make(n)], like={"params": target.make(n)})
    assert af.backend_of(y[0]).name == target.name


SHARES = {("numpy", "torch"), ("torch", "numpy"), ("jax", "numpy")}


def test_route_is_described(source, target):
    route = af.route(source.make(np.ones(2, np.float32)), target.name)
    text = str(route)
    assert text.startswith(source.name)
    if source.name == target.name:
        assert route.steps == ()
    else:
        assert f"-> {target.name}" in text
        assert route.steps[-1].target.backend == target.name
        assert route.transfers or route.copies == ((source.name, target.name) not in SHARES)
    assert route.computes == (source.name == "dask" and target.name != "dask")
