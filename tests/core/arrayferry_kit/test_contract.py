"""The built-in plugins and the generic backend pass the contract kit."""

import io
import sys
from importlib.metadata import entry_points

import array_api_strict as strict
import dask.array as da
import h5py
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import arrayferry as af
from arrayferry.testing import BackendContract, SourceContract
from arrayferry_kit._contract.arrays import METHODS


class TestNumpy(BackendContract):
    backend = "numpy"

    def make(self, values):
        return values.copy()

    def unportable(self):
        return [(np.ma.array([1, 2], mask=[0, 1]), "mask")]


class TestTorch(BackendContract):
    backend = "torch"

    def make(self, values):
        dtype = getattr(torch, values.dtype.name)
        own = values if values.dtype.isbuiltin else values.astype(float)  # bfloat16 and float8
        return torch.tensor(own.tolist(), dtype=dtype).reshape(values.shape)

    def write(self, array, value):
        array.fill_(value)

    @pytest.mark.long
    def test_direct_converters_match_the_general_path(self):
        super().test_direct_converters_match_the_general_path()


class TestJax(BackendContract):
    backend = "jax"

    def make(self, values):
        return jnp.array(values, dtype=values.dtype)

    # tests/core/arrayferry/test_matrix.py has the values of each pair of libraries.
    @pytest.mark.long
    @pytest.mark.parametrize("method", METHODS)
    def test_values(self, method):
        super().test_values(method)

    @pytest.mark.long
    def test_direct_converters_match_the_general_path(self):
        super().test_direct_converters_match_the_general_path()


@pytest.mark.long
class TestDask(BackendContract):
    backend = "dask"

    def make(self, values):
        return da.from_array(values.copy(), name=False)

    def read(self, array):
        return np.array(array.compute())


@pytest.mark.long
class TestArrayApiStrict(BackendContract):
    backend = "array_api_strict"

    def make(self, values):
        return strict.asarray(values, copy=True)

    def read(self, array):
        return np.array(np.from_dlpack(array))

    @pytest.mark.skipif(np.__version__ < "2", reason="its own to_device() needs NumPy 2")
    def test_arrays_are_on_the_requested_device(self):
        super().test_arrays_are_on_the_requested_device()


@pytest.mark.gpu
@pytest.mark.skipif(af.backends()["cupy"].problem() is not None, reason="no GPU that CuPy can use")
class TestCupy(BackendContract):
    backend = "cupy"

    def make(self, values):
        import cupy

        return cupy.array(values)


@pytest.mark.long
@pytest.mark.skipif(af.backends()["warp"].problem() is not None, reason="Warp is not installed")
class TestWarp(BackendContract):
    backend = "warp"

    def make(self, values):
        import warp

        made = warp.array(values)
        if not values.shape:  # its constructor adds an axis
            made.shape, made.strides, made.ndim = (), (), 0
        return made

    def read(self, array):
        return np.array(array.numpy())

    def write(self, array, value):
        array.fill_(value)

    def unportable(self):
        import warp

        return [(warp.array(dtype=float), "without memory")]


class TestH5py(SourceContract):
    source = "h5py"

    def make(self, values):
        file = h5py.File(io.BytesIO(), "w")
        return file.create_dataset("x", data=values)


@pytest.mark.long
@pytest.mark.usefixtures("x64")
class TestJaxWithX64(TestJax):
    pass


def test_every_built_in_plugin_is_tested():
    here = vars(sys.modules[__name__]).values()
    tested = {c.backend for c in here if isinstance(c, type) and issubclass(c, BackendContract)}
    points = {p.name for p in entry_points(group="arrayferry") if p.dist.name == "arrayferry"}
    built_in = points & af.backends().keys()  # the others have containers and sources
    assert built_in == {"numpy", "torch", "jax", "cupy", "dask", "warp"}
    assert built_in <= tested
