"""Warp's vectors and views, Isaac Lab's `ProxyArray`, and what Warp keeps to itself."""

import sys
import types
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from refusals import refused

import arrayferry as af
from arrayferry_plugins import warp_

wp = pytest.importorskip("warp")
pytestmark = pytest.mark.skipif(
    af.backends()["warp"].problem() is not None, reason="no usable Warp"
)
TARGETS = ("numpy", "torch", "jax", "dask")
VALUES = np.arange(24, dtype=np.float32).reshape(2, 12)


def shared(x, y):
    return np.shares_memory(np.asarray(x), y.numpy())


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("dtype", ["vec3f", "quatf", "transformf", "mat22f", "mat33d", "vec2ub"])
@pytest.mark.parametrize("length", [0, 3])
def test_vectors_and_matrices_are_trailing_axes(to, dtype, length):
    dtype = getattr(wp, dtype)
    x = wp.zeros(length, dtype=dtype)
    x.fill_(dtype(*range(dtype._length_)))
    y = af.convert({"a": [x]}, to)["a"][0]
    expected = np.broadcast_to(
        np.arange(dtype._length_).reshape(dtype._shape_), (length, *dtype._shape_)
    )
    np.testing.assert_array_equal(np.asarray(y), expected)
    back = af.convert(y, "warp")
    assert back.shape == expected.shape
    assert back.numpy().dtype == x.numpy().dtype or to == "jax"  # float64 without x64
    assert af.backend_of(x).dlpack.dtype_of(x) == x.numpy().dtype.name


def test_scalars_are_viewed_as_vectors_again():
    x = af.convert(np.ones((4, 3), np.float32), "warp").view(wp.vec3f)
    assert (x.shape, x.dtype) == ((4,), wp.vec3f)


@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_views_are_shared_in_both_directions(to):
    whole = wp.array(VALUES)
    for x in (
        whole,
        whole[::2, 1:9:3],
        whole.transpose((1, 0)),
        whole.reshape((2, 4, 3)).view(wp.vec3f)[:, ::2],
    ):
        y = af.convert(x, to, copy=False)
        assert shared(y, x)
        assert shared(y, af.convert(y, "warp", copy=False))
        assert not shared(af.convert(x, to, copy=True), x)
        assert not shared(x.numpy(), af.convert(x, "warp", copy=True))


def test_memory_that_must_not_change_is_copied():
    frozen = VALUES.copy()
    frozen.flags.writeable = False
    for x in (frozen, af.convert(VALUES, "jax"), np.broadcast_to(np.float32(1), (3, 4))):
        y = af.convert(x, "warp")
        assert not shared(x, y)
        y.fill_(-1.0)
        assert np.asarray(x).min() >= 0
        refused(af.CopyRequiredError, "cannot be shared", x, "warp", copy=False)


@pytest.mark.parametrize("to", TARGETS)
def test_arrays_of_no_dimensions_keep_their_shape(to):
    x = af.convert(np.array(2.5, np.float32), "warp")
    for y in (x, af.convert(x, "warp", copy=True), af.convert(af.convert(x, to), "warp")):
        assert (y.shape, y.numpy().item(), y.reshape(1).shape) == ((), 2.5, (1,))
    with pytest.raises(NotImplementedError, match="an array without axes"):
        af.backends()["warp"].dlpack.load(np.array(2.5))


def test_complex_numbers_are_refused():
    refused(af.UnsupportedDtypeError, "complex64", np.ones(2, np.complex64), "warp")


def test_gradients_stay():
    x = wp.array(VALUES, requires_grad=True)
    y = af.convert(x, "torch")
    assert shared(y, x)
    assert not y.requires_grad
    assert x.requires_grad
    assert not af.convert(y.requires_grad_(), "warp").requires_grad
    for to in TARGETS:
        np.testing.assert_array_equal(np.asarray(af.convert(x, to, copy=True)), VALUES)


def test_structs_are_refused_where_there_are_none():
    @wp.struct
    class Pair:
        a: wp.float32
        b: wp.float32

    x = wp.zeros(2, dtype=Pair)
    assert af.convert(x, "numpy").dtype.names == ("a", "b")
    refused(af.UnsupportedDtypeError, "no dtype for records", x, "torch")


@pytest.fixture
def proxy_type(monkeypatch):
    """A class like Isaac Lab's, in a module of that name."""

    class ProxyArray:
        def __init__(self, array):
            self._warp = array

        shape = property(lambda self: self._warp.shape)
        dtype = property(lambda self: self._warp.dtype)
        device = property(lambda self: self._warp.device)
        warp = property(lambda self: self._warp)
        __hash__ = None

        def __eq__(self, other):
            raise AssertionError("compared")

        def __getattr__(self, name):
            warnings.warn(f"implicit use of {name}", DeprecationWarning, stacklevel=2)
            raise AttributeError(name)

        @property
        def __array_interface__(self):
            return self._warp.__array_interface__

    path = "isaaclab.utils.warp.proxy_array"
    names = path.split(".")
    for end in range(1, len(names) + 1):
        monkeypatch.setitem(sys.modules, ".".join(names[:end]), types.ModuleType(names[end - 1]))
    ProxyArray.__module__, ProxyArray.__qualname__ = path, "ProxyArray"
    sys.modules[path].ProxyArray = ProxyArray
    af.registry.refresh()
    yield ProxyArray
    af.registry.refresh()


@pytest.mark.parametrize("to", TARGETS)
def test_a_proxy_is_read_like_the_array_that_it_holds(proxy_type, to):
    x = wp.array(VALUES.reshape(2, 4, 3)).view(wp.vec3f)
    convert = af.converter(to)
    for _ in range(4):
        y = convert({"pos": proxy_type(x)})["pos"]
        np.testing.assert_array_equal(np.asarray(y), x.numpy())
        assert shared(y, x) is (to in ("numpy", "torch"))
    copy = af.convert(proxy_type(x), "warp", copy=True)
    assert (type(copy), copy.dtype) == (wp.array, wp.vec3f)
    assert not shared(x.numpy(), copy)


def test_warp_is_loaded_only_when_used_and_without_a_banner(run_python):
    code = (
        "import sys, numpy, arrayferry as af; af.convert(numpy.ones(2), 'numpy');"
        "assert 'warp' not in sys.modules; x = af.convert(numpy.ones(2), 'warp');"
        "import warp; assert warp.config.log_level == warp.LOG_INFO"
    )
    assert run_python(code) == ""


def test_one_thread_at_a_time_changes_the_level_of_warps_messages(monkeypatch):
    """Two would each restore what the other has set."""
    free = []

    def init():
        with ThreadPoolExecutor(1) as other:
            free.append(other.submit(warp_._setting_level.acquire, blocking=False).result())

    monkeypatch.setattr(wp, "init", init)
    assert warp_._warp.__wrapped__() is wp
    assert free == [False]
