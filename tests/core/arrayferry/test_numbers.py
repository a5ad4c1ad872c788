"""Python numbers carry no dtype, so they take the one that the target chooses for them."""

import array_api_strict
import dask.array as da
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import arrayferry as af

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
        for found in (conversion(number), conversion([number])[0]):
            assert str(found.dtype) == str(expected.dtype)
            assert found.shape == ()
            np.testing.assert_array_equal(
                np.asarray(af.convert(found, "numpy")), np.asarray(number)
            )


@pytest.mark.parametrize("target", OWN)
@pytest.mark.parametrize("number", [True, 3, 1.5, 1 - 2j])
def test_numbers_have_no_memory_to_share(target, number):
    convert = af.converter(target, scalars="convert", copy=False)
    own = OWN[target](np.zeros(2))
    for _ in range(4):
        for value in (number, {"a": number}, [own, (number,)]):
            with pytest.raises(af.CopyRequiredError, match=r'a Python \w+ has no memory.*"keep"'):
                convert(value)
        assert convert([own])[0] is own
    with pytest.raises(af.CopyRequiredError, match=r"at \['a'\]\[0\], to "):
        convert({"a": [number]})
    assert af.convert([number], target, copy=False)[0] is number


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
    ("number", "target"), [(1e300, "torch"), (1e300, "jax"), (2**40, "jax"), (2**70, "numpy"), (2**70, "torch"),
                           (2**70, "jax"), (-1e300j, "torch")]
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
        for found in (
            af.convert([scalar], "torch", scalars="convert")[0],
            af.convert(scalar, "torch"),
        ):
            assert str(found.dtype) == f"torch.{scalar.dtype}"
            assert found.shape == ()
        assert isinstance(af.convert(scalar, "numpy"), np.ndarray)


def test_integers_beyond_the_default():
    for target in OWN.keys() - {"jax"}:
        made = af.convert(af.convert(2**63, target, scalars="convert"), "numpy")
        assert (made.dtype, int(made)) == (np.uint64, 2**63)


LIBRARIES = pytest.mark.parametrize("library", ["numpy", "torch", "jax", "array_api_strict"])
WHOLE = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max) + 1)
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}


def drawn(library, *args):
    """Return random integers as Python's."""
    values = af.registry.backend(library).random(1).integers(*args)
    return values, np.asarray(af.convert(values, "numpy")).ravel().tolist()


@LIBRARIES
@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("bounds", ["numbers", "NumPy's", "arrays"])
def test_random_integers_of_every_range_of_a_dtype(library, dtype, bounds, x64):
    least, end = WHOLE[dtype]

    def given(*pair):
        if bounds == "numbers":
            return pair
        arrays, own = (np.array([x], dtype) for x in pair), af.registry.backend(library).from_numpy
        return [x[0] if bounds == "NumPy's" else own(x) for x in arrays]

    last = end - (bounds != "numbers")  # the dtype does not hold its end
    for low, high in (
        (least, last),
        (end // 3, last),
        (least, last - (last - least) // 4),
        (least, least + 5),
        (end // 2, end // 2 + 5),
        (last - 5, last),
        (last - 1, last),
    ):
        values, numbers = drawn(library, (2, 500), *given(low, high), dtype)
        assert str(values.dtype).removeprefix("torch.").removeprefix("array_api_strict.") == dtype
        assert all(low <= number < high for number in numbers)
        middle = sum(number >= (low + high) // 2 for number in numbers)
        assert high - low <= 5 or 400 < middle < 600
        assert high - low > 5 or set(numbers) == set(range(low, high))
    with pytest.raises(af.OptionError, match="there are no integers from"):
        drawn(library, (4,), *given(5, 3), dtype)


@LIBRARIES
def test_random_floats_with_bounds_in_arrays_of_integers(library):
    backend = af.registry.backend(library)
    low, high = (backend.from_numpy(np.array([bound], "int8")) for bound in (-100, 100))
    numbers = af.convert(backend.random(1).uniform((500,), low, high), "numpy")
    assert numbers.dtype == np.float32
    assert -100 <= numbers.min() < -90 < 90 < numbers.max() <= 100


@LIBRARIES
def test_random_integers_that_do_not_fit_are_refused(library):
    wrong = [(least - 1, 5, dtype) for dtype, (least, _) in WHOLE.items()]
    wrong += [(0, end + 1, dtype) for dtype, (_, end) in WHOLE.items()]
    wrong += [(0, 2**32, "int32"), (0, 300, "int8"), (np.int64(0), np.int64(2**40), "int32")]
    wrong += [(np.zeros(4, int), np.array([1, 2, 3, 300]), "int8"), (np.full(4, -1), 3, "uint8")]
    own = af.registry.backend(library).from_numpy
    wrong.append((own(np.zeros(4, np.int32)), own(np.array([1, 2, 3, 300], np.int32)), "int8"))
    for low, high, dtype in wrong:
        with pytest.raises(
            af.OptionError, match=r"integers from .* were asked for as u?int\d+, which"
        ):
            drawn(library, (4,), low, high, dtype)
    for low, high in ((5, 5), (np.zeros(4, int), np.array([1, 2, 0, 3]))):
        with pytest.raises(af.OptionError, match="there are no integers from"):
            drawn(library, (4,), low, high)


def test_random_integers_without_64_bits_in_jax():
    _, numbers = drawn("jax", (500,), 0, 2**31)
    assert max(numbers) > 2**30
    with pytest.raises(af.OptionError, match="as int32, which"):
        drawn("jax", (4,), 0, 2**40, "int64")


def test_random_integers_with_traced_bounds():
    rng = af.registry.backend("jax").random

    def draw(high):
        return rng(1).integers((100,), 0, high, "int8")

    assert sorted(set(jax.jit(draw)(jnp.int32(3)).tolist())) == [0, 1, 2]
    own = af.registry.backend("torch").random(1)
    with torch.random.fork_rng():
        draw_row = torch.func.vmap(lambda high: own.integers((), 0, high), randomness="different")
        assert int(draw_row(torch.full((20,), 3)).max()) < 3
