"""The narrowing rule, the scalars option, and arrays that a target does not support."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest
import torch
from refusals import refused

import arrayferry as af

NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
FITS = {
    "int64": [-(2**31), 2**31 - 1],
    "uint64": [0, 2**32 - 1],
    "float64": [1.5, 3e38],
    "complex128": [1 - 2j],
}
LOST = {"int64": 2**31, "uint64": 2**32, "float64": -1e300, "complex128": 1e300j}


@pytest.mark.assumes_other("x64")
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("source", ["numpy", "torch", "dask"])
def test_checked(dtype, source):
    x = af.convert(np.array(FITS[dtype], dtype), source)
    y = af.convert(x, "jax")
    assert y.dtype == NARROW[dtype]
    np.testing.assert_array_equal(np.asarray(y), np.array(FITS[dtype], dtype).astype(NARROW[dtype]))
    x = af.convert(np.array([LOST[dtype]], dtype), source)
    words = f"does not fit {NARROW[dtype]}.*jax_enable_x64"
    caught = refused(af.NarrowingError, words, {"x": x}, "jax")
    assert (caught.dtype, caught.narrowed) == (dtype, NARROW[dtype])
    assert caught.path == "['x']"


def test_infinities_and_nan_can_be_narrowed():
    x = np.array([np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(np.asarray(af.convert(x, "jax")), x.astype(np.float32))
    z = np.array([complex(np.inf, np.nan)])
    assert np.isnan(np.asarray(af.convert(z, "jax")).imag).all()


@pytest.mark.assumes_other("x64")
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("source", ["numpy", "torch", "dask", "array_api_strict"])
def test_forbid_and_allow(dtype, source):
    x = af.convert(np.array(FITS[dtype][:1], dtype), source)
    for _ in range(3):
        refused(af.NarrowingError, "forbidden", [x], "jax", narrowing="forbid")
    assert af.convert(np.ones(2, np.float32), "jax", narrowing="forbid").dtype == np.float32
    lost = np.array([LOST[dtype]], dtype)
    with np.errstate(all="ignore"):
        expected = lost.astype(NARROW[dtype])
    found = af.convert([af.convert(lost, source)], "jax", narrowing="allow")[0]
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.assumes_other("x64")
def test_x64_switched_at_run_time(enable_x64):
    conversion = af.converter("jax")
    x = np.array([2**40])
    for _ in range(3):
        with pytest.raises(af.NarrowingError):
            conversion([x])
        with enable_x64(True):
            y = conversion([x])[0]
            assert y.dtype == np.int64
            assert int(y[0]) == 2**40
        assert conversion([np.array([5])])[0].dtype == np.int32


@pytest.mark.assumes_other("x64")
def test_x64_switched_at_run_time_for_one_array(enable_x64):
    conversion = af.converter("jax")
    for x in (np.array([2**40, 7]), torch.tensor([2**40, 7])):
        for _ in range(4):
            with enable_x64(True):
                for _ in range(4):  # the quick way is learnt
                    assert conversion(x).dtype == np.int64
            with pytest.raises(af.NarrowingError):
                conversion(x)
            assert conversion(x - x).dtype == np.int32


def test_wide_jax_arrays_are_converted_while_x64_is_off(enable_x64):
    with enable_x64(True):
        wide = af.convert(np.array([2**40]), "jax")
    assert af.convert(wide, "numpy").tolist() == [2**40]
    assert af.convert(wide, "torch").tolist() == [2**40]
    assert af.convert(wide, "jax") is wide


def test_longdouble():
    x = np.array([1.5, -2.0], np.longdouble)
    y = af.convert(x, "torch")
    assert y.dtype == torch.float64
    assert y.tolist() == [1.5, -2.0]
    assert af.convert(x, "dask").dtype == np.longdouble
    with pytest.raises(af.NarrowingError, match=r" \d\S*e\+\d+ does not fit float64"):
        af.convert(np.array([np.finfo(np.longdouble).max]), "torch")
    z = np.array([1 + 1j], np.clongdouble)
    assert af.convert(z, "torch").dtype == torch.complex128


def test_a_missing_dtype_is_widened_if_possible():
    eight = np.array([0.5, np.inf], ml_dtypes.float8_e4m3)
    y = af.convert(eight, "torch")
    assert y.dtype == torch.float16
    assert y.tolist() == [0.5, np.inf]
    four = np.array([-8, 7], ml_dtypes.int4)
    assert af.convert(four, "torch").dtype == torch.int8
    brain = np.array([1e38], ml_dtypes.bfloat16)
    strict = af.convert(brain, "array_api_strict")
    assert "float32" in str(strict.dtype)
    refused(af.NarrowingError, "forbidden", four, "torch", narrowing="forbid")


UNSUPPORTED = {
    "text": np.array(["a", "b"]),
    "bytes": np.array([b"a"]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "time spans": np.array([3], "m8[s]"),
    "records": np.zeros(2, [("a", "i4")]),
}


@pytest.mark.parametrize("what", UNSUPPORTED)
@pytest.mark.parametrize("target", ["torch", "jax", "array_api_strict"])
def test_unsupported(what, target):
    x = UNSUPPORTED[what]
    words = f"{target} has no dtype for {what}.*unsupported="
    assert refused(af.UnsupportedDtypeError, words, [1, {"w": x}], target).path == "[1]['w']"
    kept = af.convert([x, np.ones(2, np.float32)], target, unsupported="keep")
    assert kept[0] is x
    assert af.backend_of(kept[1]).name == target


@pytest.mark.parametrize("source", ["numpy", "torch", "array_api_strict"])
def test_a_device_that_lacks_a_dtype(source):
    strict = pytest.importorskip("array_api_strict")
    backend, device = af.registry.backend("array_api_strict"), "no_float64"
    if device not in backend.devices.names():
        pytest.skip("this version has no such device")
    wide, narrow = (af.convert(np.ones(2, dtype), source) for dtype in ("f8", "f4"))
    like = strict.ones(2, dtype=strict.float32, device=backend.devices.object_of(device))
    words = (
        r"device 'no_float64' of array_api_strict has no float64, at \[0\], .*pass another device"
    )
    for option in ({"to": "array_api_strict", "device": device}, {"like": like}):
        caught = refused(af.UnsupportedDtypeError, words, [wide], **option)
        assert (caught.dtype, type(caught.__cause__)) == ("float64", ValueError)
        refused(af.UnsupportedDtypeError, words, [2.5], scalars="convert", **option)
        kept, moved = af.convert([wide, narrow], unsupported="keep", **option)
        assert kept is wide
        assert moved.device == like.device
    assert "float64" in str(af.convert(wide, "array_api_strict", device="cpu").dtype)


@pytest.mark.parametrize("what", UNSUPPORTED)
def test_dask_and_numpy_support_all(what):
    x = UNSUPPORTED[what]
    assert (af.convert(x, "dask").compute() == x).all()
    assert af.convert(x, "numpy") is x


@pytest.mark.parametrize(
    ("option", "value"),
    [("copy", 1), ("copy", "yes"), ("copy", 0), ("narrowing", "maybe"), ("narrowing", None), ("scalars", True),
     ("unsupported", "drop"), ("copy", np.True_), ("copy", []), ("unknown", "drop"), ("sparse", "keep"), ("sparse", True)],
)  # fmt: skip
def test_invalid_options(option, value):
    functions = partial(af.convert, [1], "torch"), partial(af.converter, "torch")
    for function in (*functions, af.Options()._replace):
        with pytest.raises(af.OptionError, match=f"{option}=.*is not valid. Pass one of"):
            function(**{option: value})


def test_like_and_target_exclude_each_other():
    refused(af.OptionError, "either like=", np.ones(1), "torch", like=np.ones(1))
    refused(af.OptionError, "no target was given", np.ones(1))
    refused(af.NotAnArrayError, "contains no array", np.ones(1), like={"a": "text"})
