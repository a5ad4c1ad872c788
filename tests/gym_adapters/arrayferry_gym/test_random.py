"""Random numbers of each library: in range, reproducible, and for several threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from interrupts import quick_turns

import arrayferry as af
from arrayferry_gym import check_integers, make_rng

LIBRARIES = pytest.mark.parametrize("library", ["numpy", "torch", "jax", "array_api_strict"])
WHOLE = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max) + 1)
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}


def drawn(library, *args):
    """Return random integers as Python's."""
    values = make_rng(library, 1).integers(*args)
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
    wide = (least, last), (end // 3, last), (least, last - (last - least) // 4)
    narrow = (least, least + 5), (end // 2, end // 2 + 5), (last - 5, last), (last - 1, last)
    for low, high in (*wide, *narrow):
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
    numbers = af.convert(make_rng(backend, 1).uniform((500,), low, high), "numpy")
    assert numbers.dtype == np.float32
    assert -100 <= numbers.min() < -90 < 90 < numbers.max() <= 100


@pytest.mark.parametrize("library", ["numpy", "torch", "jax", "array_api_strict", "dask"])
def test_bounds_that_are_bools(library):
    rng = make_rng(library, seed=0)
    for shape in ((50,), (0,), (3, 0), ()):
        for low, high in ((False, True), (np.False_, np.True_)):
            drawn = rng.uniform(shape, low, high), rng.integers(shape, low, high)
            for values, most in zip(drawn, (1, 0), strict=True):
                values = af.convert(values, "numpy")
                assert values.shape == shape
                assert ((values >= 0) & (values <= most)).all()
            assert rng.normal(shape, low, high).shape == shape


@LIBRARIES
def test_random_integers_that_do_not_fit_are_refused(library):
    wrong = [(least - 1, 5, dtype) for dtype, (least, _) in WHOLE.items()]
    wrong += [(0, end + 1, dtype) for dtype, (_, end) in WHOLE.items()]
    wrong += [(0, 2**32, "int32"), (0, 300, "int8"), (np.int64(0), np.int64(2**40), "int32")]
    wrong += [(np.zeros(4, int), np.array([1, 2, 3, 300]), "int8"), (np.full(4, -1), 3, "uint8")]
    own = af.registry.backend(library).from_numpy
    wrong.append((own(np.zeros(4, np.int32)), own(np.array([1, 2, 3, 300], np.int32)), "int8"))
    for low, high, dtype in wrong:
        words = r"integers from .* do not fit u?int\d+, whose"
        with pytest.raises(af.OptionError, match=words):
            drawn(library, (4,), low, high, dtype)
    for low, high in ((5, 5), (np.zeros(4, int), np.array([1, 2, 0, 3]))):
        with pytest.raises(af.OptionError, match="there are no integers from"):
            drawn(library, (4,), low, high)


def test_random_integers_without_64_bits_in_jax():
    _, numbers = drawn("jax", (500,), 0, 2**31)
    assert max(numbers) > 2**30
    with pytest.raises(af.OptionError, match="do not fit int32, whose"):
        drawn("jax", (4,), 0, 2**40, "int64")


def test_random_integers_with_traced_bounds():
    def draw(high):
        return make_rng("jax", 1).integers((100,), 0, high, "int8")

    assert sorted(set(jax.jit(draw)(jnp.int32(3)).tolist())) == [0, 1, 2]
    own = make_rng("torch", 1)
    with torch.random.fork_rng():
        draw_row = torch.func.vmap(lambda high: own.integers((), 0, high), randomness="different")
        assert int(draw_row(torch.full((20,), 3)).max()) < 3


def test_errors():
    with pytest.raises(af.OptionError, match="from 3 to below 3"):
        check_integers(3, 3, "int8")
    with pytest.raises(af.UnknownBackendError, match="numpi"):
        make_rng("numpi")


def test_what_it_says():
    said = {name: repr(make_rng(name)) for name in ("numpy", "torch")}
    assert said == {"numpy": "<HostRandom of numpy>", "torch": "<TorchRandom>"}


def test_a_fork_while_another_thread_draws_its_first_numbers(monkeypatch, fork_while):
    wait, fork = fork_while
    make = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda *args: (wait(), make(*args))[1])
    fork(*[lambda: make_rng("numpy", 1).uniform((3,)).shape] * 2)


def test_two_threads_draw_their_first_numbers_together(monkeypatch):
    both, make = threading.Barrier(2, timeout=30), np.random.default_rng

    def together(seed):
        both.wait()
        return make(seed)

    monkeypatch.setattr(np.random, "default_rng", together)
    rng = make_rng("numpy", 1)
    with ThreadPoolExecutor(2) as pool:
        drawn = list(pool.map(rng.uniform, [(3,)] * 2))
    assert set(drawn[0].tolist()).isdisjoint(drawn[1].tolist())


def test_threads_take_different_keys_of_jax():
    rng = make_rng("jax", 1)

    def work(_):
        return [bytes(np.asarray(jax.random.key_data(rng.key()))) for _ in range(40)]

    with quick_turns(), ThreadPoolExecutor(4) as pool:
        keys = [key for keys in pool.map(work, range(4)) for key in keys]
    assert len(set(keys)) == len(keys) == 160


METHODS = {
    "uniform": (),
    "normal": (),
    "integers": (0, 5),
    "categorical": (np.zeros(5, np.float32),),
}
FLOATS = {"float16", "bfloat16", "float32", "float64"}
OTHERS = {"bool", "complex64", "float128", "float8_e4m3fn", "int4", "object", "str", "nope"}


@LIBRARIES
@pytest.mark.parametrize("method", METHODS)
def test_every_library_takes_and_refuses_the_same_dtypes(library, method, x64):
    own = af.registry.backend(library).from_numpy
    given = [own(x) if isinstance(x, np.ndarray) else x for x in METHODS[method]]
    draw = getattr(make_rng(library, 1), method)
    taken = FLOATS if method in ("uniform", "normal") else {*WHOLE}
    for dtype in FLOATS | {*WHOLE} | OTHERS:
        if dtype not in taken:
            with pytest.raises(af.OptionError, match=f"rng.{method} does not support the dtype"):
                draw((3,), *given, dtype=dtype)
        elif library != "array_api_strict" or "16" not in dtype:  # which has no float16
            assert str(draw((3,), *given, dtype=dtype).dtype).split(".")[-1] == dtype
    dtype = np.dtype("float64" if "float64" in taken else "int64")
    assert str(draw((3,), *given, dtype=dtype).dtype).split(".")[-1] == dtype.name


@LIBRARIES
@pytest.mark.parametrize("method", METHODS)
def test_every_library_takes_and_refuses_the_same_shapes(library, method):
    own = af.registry.backend(library).from_numpy
    given = [own(x) if isinstance(x, np.ndarray) else x for x in METHODS[method]]
    draw = getattr(make_rng(library, 1), method)
    for shape in ((), (0,), (2, 0, 3), [2, 3], np.array([2, 3]), (np.int64(2),)):
        assert tuple(draw(shape, *given).shape) == tuple(shape)
    for wrong in (3, None, (2.0,), (-1,), ("a",), (2, None)):
        with pytest.raises(af.OptionError, match=f"rng.{method} does not support the shape"):
            draw(wrong, *given)
    if method == "categorical":
        rows = own(np.zeros((3, 5), np.float32))
        assert tuple(draw((2, 3), rows).shape) == (2, 3)
        several = [(rows,)]
        for wrong in (np.float32(0), np.zeros((3, 0), np.float32)):
            with pytest.raises(af.OptionError):
                draw((3,), own(np.asarray(wrong)))
    else:
        first, high = own(np.zeros(3, np.int32)), own(np.full(3, 4, np.int32))
        assert tuple(draw((2, 3), first, high).shape) == (2, 3)
        assert tuple(draw((2, 3), [0, 1, 2], [3, 4, 5]).shape) == (2, 3)
        several = [(first, 5), (0, high)]
    for arguments in several:
        for wrong in ((), (1,), (2,), (3, 2)):
            with pytest.raises(af.OptionError, match="does not broadcast"):
                draw(wrong, *arguments)


@LIBRARIES
def test_categories_that_the_dtype_does_not_hold_are_refused(library):
    own = af.registry.backend(library).from_numpy
    rng = make_rng(library, 1)
    for count, dtype in ((129, "int8"), (300, "int8"), (257, "uint8"), (2**15 + 1, "int16")):
        with pytest.raises(af.OptionError, match=f"do not fit {dtype}, whose"):
            rng.categorical((4,), own(np.zeros(count, np.float32)), dtype)
    for count, dtype in ((128, "int8"), (256, "uint8"), (2**15, "int16")):
        assert rng.categorical((4,), own(np.zeros(count, np.float32)), dtype).shape == (4,)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32"])
def test_the_distribution_of_categories(library, dtype, x64):
    logits = np.zeros(200).astype(jnp.dtype(dtype))
    own = af.registry.backend(library).from_numpy
    numbers = af.convert(make_rng(library, 1).categorical((20_000,), own(logits)), "numpy")
    counts = np.bincount(numbers, minlength=200)
    assert ((counts - 100) ** 2 / 100).sum() < 300  # chi-square of 199 degrees, 5 deviations
    if dtype != "int32":
        logits[::2] = -np.inf
        numbers = af.convert(make_rng(library, 1).categorical((20_000,), own(logits)), "numpy")
        assert (numbers % 2 == 1).all()


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("dtype", sorted(FLOATS))
def test_the_distribution_of_floats(library, dtype, x64):
    rng = make_rng(library, 1)
    drawn = rng.normal((40_000,), 1.0, 2.0, dtype), rng.uniform((40_000,), -1.0, 3.0, dtype)
    normal, uniform = (np.asarray(af.convert(x, "numpy")).astype(np.float64) for x in drawn)
    assert abs(normal.mean() - 1) < 0.05
    assert abs(normal.std() - 2) < 0.05
    assert 7.5 < abs(normal - 1).max() < 12  # of 16 bits, tails were cut
    assert abs(uniform.mean() - 1) < 0.03
    assert abs(uniform.std() - 4 / 12**0.5) < 0.03
    assert uniform.min() >= -1
    assert uniform.max() <= 3
