"""`translate`: trees, dtypes, devices, memory, threads, what is refused, gradients."""

import copy
import inspect
import pickle
import threading
from typing import NamedTuple

import jax
import jax.ad_checkpoint
import jax.custom_batching
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax
from jax.extend.random import define_prng_impl

import arrayferry as af
from arrayferry_translate import ProgramError, TranslationError, function_of, translate

from .operations import close


class Point(NamedTuple):
    x: object
    y: object


def doubled(x):
    return 2 * x


def traced(function):
    """Count how often a function is traced."""
    count = [0]

    def counted(*args):
        count[0] += 1
        return function(*args)

    return counted, count


@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_trees(to):
    def function(tree, *, scale):
        return {"sum": tree["a"][0] + tree["a"][1].x, "same": tree, "none": None, "n": scale * 2}

    tree = {"a": (np.ones(2, np.float32), Point(np.arange(2, dtype=np.float32), np.zeros(1, bool)))}
    given = af.convert(tree, to)
    found = translate(function, to)(given, scale=3)
    expected = jax.jit(function)(tree, scale=3)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert str(af.convert(found, "numpy")) == str(jax.tree.map(np.asarray, expected))


def test_it_is_traced_once_for_each_form():
    function, count = traced(lambda x, y: x + y)
    run = translate(function, "numpy")
    for _ in range(3):
        run(np.ones(2, np.float32), 1)
        run(np.ones(2, np.float32), 2)
    assert count == [1]
    run(np.ones(3, np.float32), 1)
    run(np.ones(2, np.int32), 1)
    run(np.ones(2, np.float32), 1.5)
    assert count == [4]


def test_threads_trace_it_once():
    function, count = traced(lambda x: jnp.cumsum(x * 2))
    run = translate(function, "torch")
    results, barrier = [], threading.Barrier(6)

    def call():
        barrier.wait()
        results.append(run(torch.ones(4)).tolist())

    threads = [threading.Thread(target=call) for _ in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert results == [[2, 4, 6, 8]] * 6
    assert count == [1]


def test_numbers_have_weak_types():
    function = lambda x, n: x * n  # noqa: E731
    for x in (np.ones(2, "float16"), np.ones(2, "int8")):
        found = translate(function, "numpy")(x, 2)
        assert found.dtype == jax.jit(function)(x, 2).dtype == x.dtype


def test_64_bits_are_checked():
    run = translate(lambda x: x + 1, "torch")
    found = run(torch.tensor([1, 2]))
    assert found.dtype == torch.int32
    assert found.tolist() == [2, 3]
    with pytest.raises(af.NarrowingError, match="argument number 0 contains 1099511627776"):
        run(torch.tensor([2**40]))
    assert run(torch.ones(2, dtype=torch.float64)).dtype == torch.float32


def test_with_64_bits(x64):
    function = lambda x: (x * 3, jnp.arange(3), jax.random.key_data(jax.random.key(2**33 + 1)))  # noqa: E731
    expected = jax.jit(function)(np.array([2**40]))
    for to in ("numpy", "torch"):
        found = translate(function, to)(np.array([2**40]))
        assert [x.tolist() for x in found] == [x.tolist() for x in expected]


@pytest.mark.parametrize("to", ["numpy", "array_api_strict"])
def test_large_unsigned_indices(to, x64):
    def function(x, i):
        return (
            lax.dynamic_slice(x, (i[0],), (2,)),
            lax.dynamic_update_slice(x, x[:2] - 9, (i[0],)),
            jnp.take(x, i, mode="clip"),
            x[i],
            x.at[i].set(-1),
            x.at[i].add(-1, mode="clip"),
        )

    x, i = np.arange(5.0), np.array([2**64 - 1, 3, 2**63, 5], np.uint64)
    for found, expected in zip(translate(function, to)(x, i), jax.jit(function)(x, i), strict=True):
        assert af.convert(found, "numpy").tolist() == expected.tolist()


@pytest.mark.assumes_other("rbg")
def test_random_numbers_of_64_bits(x64):
    def function(key):
        return jax.random.uniform(key, (3,)), jax.random.normal(key, dtype="float32")

    expected = jax.jit(function)(jax.random.key(3))
    found = translate(function, "numpy")(jax.random.key(3))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)


def test_normal_numbers_of_64_bits_are_refused(x64):
    with pytest.raises(TranslationError, match="only float32 and narrower floats are supported"):
        translate(lambda key: jax.random.normal(key, (2,)), "numpy")(jax.random.key(0))


def test_keys_of_an_unknown_generator_are_refused():
    def split(key, shape):
        return jnp.broadcast_to(key, (*shape, 1))

    mine = define_prng_impl(
        key_shape=(1,), seed=lambda seed: jnp.uint32(seed)[None], split=split, name="mine", tag="mine",
        random_bits=lambda key, width, shape: jnp.zeros(shape, f"uint{width}"), fold_in=lambda key, data: key,
    )  # fmt: skip
    with pytest.raises(NotImplementedError, match="keys of key<mine> are not supported"):
        translate(jax.random.split, "numpy")(jax.random.key(0, impl=mine))


@pytest.mark.parametrize("partitionable", [True, False])
@pytest.mark.assumes_other("rbg")
def test_random_numbers_follow_the_flags(partitionable):
    def function(key):
        return jax.random.bits(key, (3, 3)), jax.random.key_data(jax.random.split(key, 3))

    with jax.threefry_partitionable(partitionable):
        expected = jax.jit(function)(jax.random.key(3))
        for to in ("numpy", "torch", "array_api_strict"):
            found = af.convert(translate(function, to)(jax.random.key(3)), "numpy")
            assert all((x == y).all() for x, y in zip(found, expected, strict=True))


@pytest.mark.assumes_other("rbg")
def test_keys_come_and_go_as_numbers():
    function = lambda key: jax.random.split(key)  # noqa: E731
    found = translate(function, "torch")(torch.tensor([0, 7], dtype=torch.uint32))
    assert found.dtype == torch.uint32
    assert found.tolist() == jax.random.key_data(jax.random.split(jax.random.key(7))).tolist()
    assert translate(function, "torch")(jax.random.key(7)).tolist() == found.tolist()


@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_results_have_memory_of_their_own(to):
    constant = jnp.arange(3)

    def function(x):
        return x, x, constant, jnp.zeros((3, 2)), x.T, x[::2], x.reshape(-1), lax.stop_gradient(x)

    run, x = translate(function, to), af.convert(np.ones((3, 3), np.float32), to)
    for _ in range(2):
        results = run(x)
        expected = jax.jit(function)(np.ones((3, 3), np.float32))
        for found, correct in zip(results, expected, strict=True):
            assert found.tolist() == correct.tolist()
            found[...] = 5  # raises if it is read-only
        assert x.tolist() == np.ones((3, 3)).tolist()
    results = run(x)
    results[3][0, 0] = 9
    assert results[3].sum() == 9


def test_without_gradients_results_are_detached():
    x = torch.ones(2, requires_grad=True)
    found = translate(lambda x: (x * 2, x), "torch")(x)
    assert not any(y.requires_grad for y in found)


def test_no_setting_of_numpy_shows():
    with np.errstate(all="raise"):
        found = translate(lambda x: (1 / x, jnp.log(x - 1)), "numpy")(np.zeros(2, np.float32))
    assert np.isinf(found[0]).all()


def test_arrays_of_other_libraries():
    found = translate(lambda x, y: x + y, "torch")(np.ones(2, np.float32), jnp.ones(2))
    assert type(found) is torch.Tensor


def test_what_is_not_needed_needs_no_rule():
    def function(x):
        lax.reduce_precision(x, 5, 3)
        return x + 1

    assert translate(function, "numpy")(np.ones(1, np.float32)).tolist() == [2]


def refuse(function, *args, to="numpy"):
    ran = []

    def first(*args):
        ran.append(0)
        return function(*args)

    with pytest.raises(TranslationError) as error:
        translate(first, to)(*args)
    assert ran == [0]
    return str(error.value)


def test_primitives_without_a_rule_are_named_with_their_line():
    def function(x):
        return lax.reduce_precision(x, 5, 3)

    text = refuse(function, np.ones(2, np.float32))
    assert "primitive reduce_precision of float32[2] (test_translate.py, line " in text
    assert (
        "cannot be translated: it has no rule. Rewrite that part of the function with other operations."
        in text
    )


def test_a_primitive_that_was_traced_before_is_named_with_a_line():
    jnp.fft.rfft(np.ones(2, np.float32))
    assert "(test_translate.py, line" in refuse(jnp_rfft, np.ones(2, np.float32))


def jnp_rfft(x):
    return abs(jnp.fft.rfft(x))


def test_jax_is_needed(run_python):
    script = """
import sys
sys.modules["jax"] = None
import arrayferry as af
from arrayferry_translate import translate
try:
    translate(abs, "numpy")
except af.BackendUnavailableError as error:
    print(error)
"""
    assert "pip install jax" in run_python(script)


def test_they_are_found_inside_of_others():
    def function(x):
        return lax.fori_loop(
            0,
            3,
            lambda i, x: lax.cond(i > 1, lambda x: lax.reduce_precision(x, 5, 3), jnp.sin, x),
            x,
        )

    assert "reduce_precision" in refuse(function, np.ones(2, np.float32))


def test_parameters_without_a_rule_are_refused():
    bits = lambda x: lax.bitcast_convert_type(x, "uint8")  # noqa: E731
    assert "have different numbers of bits" in refuse(bits, np.ones(2, np.float32))
    combined = lambda x: lax.reduce(x, np.int32(0), lax.bitwise_or, (0,))  # noqa: E731
    assert "not the bits of integers" in refuse(combined, np.ones(2, np.int32))


def test_what_pytorch_lacks_is_refused(x64):
    x = np.ones((2, 2), "int32")
    text = refuse(lambda x: x + 1, x.astype("uint64"), to="torch")
    assert "PyTorch has no operations on uint64" in text


WITHOUT_SCIPY = """
import sys
sys.modules["scipy"] = None
import jax, numpy as np
from arrayferry_translate import TranslationError, translate
try:
    translate(lambda x: jax.lax.erf(x), "numpy")(np.ones(1, np.float32))
except TranslationError as error:
    print(error)
"""


@pytest.mark.parametrize("platforms", [("cpu", "tpu"), ("tpu", "default")])
def test_of_branches_for_platforms_that_of_the_cpu_is_taken(platforms):
    branches = dict(zip(platforms, (lambda x, y: x - 2 * y, lambda x, y: x + y), strict=True))
    function = lambda x: lax.platform_dependent(x, x, **branches)  # noqa: E731
    x = np.ones(2, np.float32)
    assert translate(function, "numpy")(x).tolist() == jax.jit(function)(x).tolist()
    other = lambda x: lax.platform_dependent(x, tpu=jnp.sin, cuda=jnp.cos)  # noqa: E731
    assert "primitive cond of int32[], float32[2] (test_translate.py, line" in refuse(other, x)


def test_scipy_is_named_where_it_is_needed(run_python):
    assert "erf needs SciPy: pip install scipy" in run_python(WITHOUT_SCIPY)


def test_keys_of_other_kinds_are_refused():
    text = refuse(lambda x: jax.random.normal(jax.random.key(0, impl="rbg")), np.ones(2))
    assert "rng_bit_generator" in text


def test_effects_are_refused():
    def function(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((2,), "float32"), x)

    assert "pure_callback" in refuse(function, np.ones(2, np.float32))


def test_effects_are_refused_where_no_result_needs_them():
    def function(x):
        jax.experimental.io_callback(lambda x: None, None, x)
        return x

    assert "io_callback of float32[2] (test_translate.py, line" in refuse(function, np.ones(2))
    loop = lambda x: lax.fori_loop(0, 2, lambda i, x: function(x), x)  # noqa: E731
    assert "io_callback of float32[2] (test_translate.py, line" in refuse(loop, np.ones(2))

    def shown(x):
        jax.debug.print("{}", x)
        return x

    assert translate(shown, "numpy")(np.ones(1, np.float32)) == 1


def test_lines_are_those_of_calls_of_compiled_functions():
    for function in (lambda x: jnp.i0(x), lambda x: lax.map(jnp.i0, x)):
        text = refuse(function, np.ones(2, np.float32))
        assert "bessel_i0e" in text
        assert "(test_translate.py, line" in text


def test_what_a_library_lacks_is_refused():
    function = lambda x: x.astype("float16")  # noqa: E731
    text = refuse(function, np.ones(2, np.float32), to="array_api_strict")
    assert "array_api_strict cannot compute convert_element_type of float32[2]" in text
    assert "choose another library" in text
    assert "has no erf" in refuse(
        jax.scipy.special.erf, np.ones(2, np.float32), to="array_api_strict"
    )


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: jnp.sort(x * (1 + 1j)), "sort of complex64"),
        (lambda x: x.astype("int4"), "convert_element_type of float32"),
        (lambda x: lax.map(lambda x: x.astype("int4"), x), "convert_element_type of float32"),
    ],
)
def test_errors_of_libraries_are_named_with_their_line(function, name):
    text = refuse(function, np.ones(2, np.float32), to="torch")
    assert f"torch cannot compute {name}" in text
    assert "(test_translate.py, line" in text


def test_what_cannot_be_translated():
    with pytest.raises(af.OptionError, match="translate was given a int, which cannot be called"):
        translate(3, "numpy")
    with pytest.raises(af.UnknownBackendError):
        translate(jnp.sin, "nympy")
    with pytest.raises(af.OptionError, match="numpy has no gradients"):
        translate(jnp.sin, "numpy", differentiable=True)
    with pytest.raises(ProgramError, match="a str is among the arguments"):
        translate(lambda x: 1, "numpy")("text")


@pytest.mark.parametrize("array", [
    np.array([1, None]), np.array(["a"]), np.array(["2020"], "datetime64[s]"),
    np.ma.masked_array([1.0, 2.0], [False, True]),
])  # fmt: skip
def test_arrays_of_no_numbers_are_refused(array):
    with pytest.raises(ProgramError, match=r"Array|array of .* is among the arguments"):
        translate(lambda x: x, "numpy")(array)


def test_complex_numbers_are_narrowed():
    found = translate(lambda x: x * 2, "numpy")(np.array([1 + 1j]))
    assert found.dtype == "complex64"
    assert found == 2 + 2j


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "int8"])
@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_products_of_matrices_keep_their_dtype(to, dtype):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 2, shape).astype(jnp.dtype(dtype)) for shape in ((2, 3, 4), (2, 4, 3)))
    for function in (
        lambda x, y: x @ y,
        lambda x, y: x[0, 0] @ y[0, :, 0],
        lambda x, y: x[..., :0] @ y[:, :0],
    ):
        expected = jax.jit(function)(x, y)
        found = af.convert(translate(function, to)(x, y), "numpy")
        assert found.dtype == expected.dtype
        assert (found == expected).all()


@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_products_of_matrices_are_rounded_at_the_end(to):
    x = np.array([[1.001, 2.003], [3.007, 300.9]], np.float32)
    function = lambda x: lax.dot(x, x, preferred_element_type="bfloat16")  # noqa: E731
    found = af.convert(translate(function, to)(x), "numpy")
    assert found.dtype == "bfloat16"
    assert found.tolist() == jax.jit(function)(x).tolist()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("to", ["jax", "array_api_strict"])
def test_libraries_without_a_class(to):
    def function(x):
        i = x.astype("int32")
        added = x.at[jnp.array([0, 0, 9])].add(2, mode="drop").at[1].mul(3)
        return added, jnp.pad(x, 1), x.at[i[0]].set(5), lax.dynamic_slice(x, (i[1],), (2,)), i >> 1

    x = np.array([1, 2, 3], np.float32)
    for found, expected in zip(translate(function, to)(x), jax.jit(function)(x), strict=True):
        assert af.convert(found, "numpy").tolist() == expected.tolist()


def test_padding_that_cuts_all_off():
    function = lambda x: lax.pad(x, np.float32(9), ((-20, 30, 2), (0, 0, 3)))  # noqa: E731
    x = np.ones((4, 3), np.float32)
    for to in ("numpy", "torch", "array_api_strict"):
        found = af.convert(translate(function, to)(x), "numpy")
        assert found.tolist() == jax.jit(function)(x).tolist()


def test_libraries_without_sorts_are_refused():
    pytest.importorskip("dask.array")
    text = refuse(jnp.sort, np.ones(2, np.float32), to="dask")
    assert "dask has no stable sort" in text


@pytest.mark.parametrize("run", [
    translate(lambda x: x * 2, "torch"),
    function_of(translate(lambda x: {"y": x * 2}, "torch").program(np.ones(2, np.float32)), "torch"),
])  # fmt: skip
def test_compiled_functions_call_it(run):
    found = torch.compile(lambda x: run(x + 1), backend="eager")(torch.ones(2))
    assert getattr(found, "get", {"y": found}.get)("y").tolist() == [4, 4]


def test_errors_of_jax_name_the_function():
    def function(x):
        return "text"

    with pytest.raises(TypeError, match="not a valid JAX type") as error:
        translate(function, "numpy")(np.ones(2))
    assert "_function.py" not in str(error.value)


@pytest.mark.assumes_other("no_grad")
def test_it_is_called_as_the_function_is():
    def double(x):
        """Twice."""
        return 2 * x

    run = translate(double, "numpy")
    assert run.__doc__ == "Twice."
    assert "double in numpy" in repr(run)
    run = translate(doubled, "torch", differentiable=True)
    for each in (copy.deepcopy(run), pickle.loads(pickle.dumps(run))):
        assert each(torch.ones(2, requires_grad=True)).requires_grad


def test_a_program_is_plain_data():
    def function(x):
        step = lambda c, y: (lax.cond(y > 1, jnp.sin, jnp.cos, c), c)  # noqa: E731
        return lax.scan(step, x[0], x[jnp.array([2, 0])])

    program = translate(function, "numpy").program(np.ones(3, np.float32))

    def plain(value):
        if isinstance(value, dict):
            return all(map(plain, value.values()))
        if isinstance(value, (tuple, list)):
            return all(map(plain, value))
        if type(value) is type(program):
            return plain(list(vars(value).values()))
        return isinstance(value, (int, float, str, bool, np.ndarray, type(None)))

    assert plain(program)
    assert {"scan", "cond", "sin", "gather"} <= program.primitives() | {"gather"}
    assert "float32[3]) -> (float32[], float32[2])" in repr(program)
    x = np.array([1, 3, 2], np.float32)
    found = function_of(program, "torch")(x)
    np.testing.assert_allclose(found[1], jax.jit(function)(x)[1], rtol=1e-6)


@pytest.mark.assumes_other("rbg")
def test_a_program_of_shapes_alone():
    program = translate(jnp.cumsum, "numpy").program(jax.ShapeDtypeStruct((2,), "int32"))
    assert function_of(program, "numpy")(np.ones(2, "int32")).tolist() == [1, 2]
    keys = jax.eval_shape(lambda: jax.random.key(0))
    program = translate(jax.random.normal, "numpy").program(keys)
    found = function_of(program, "numpy")(np.array([0, 3], "uint32"))
    assert found == pytest.approx(float(jax.random.normal(jax.random.key(3))), rel=1e-5)


@jax.custom_batching.custom_vmap
def own_vmap(x):
    return x * 2


@own_vmap.def_vmap
def _(size, batched, x):
    return x * 3, True


SELDOM = {
    "name": lambda x: jax.ad_checkpoint.checkpoint_name(x * 2, "doubled"),
    "custom_vmap": lambda x: (own_vmap(x), jax.vmap(own_vmap)(x)),
    "composite": lax.composite(lambda x: x * 2, "own.double"),
    "derivatives": lambda x: jax.jacfwd(lambda x: (jnp.tanh(x), jnp.arctanh(x), jnp.arcsin(x)))(x),
    "polyval": lambda x: jnp.polyval(jnp.array([1.0, -2, 3]), x),
    "log2": jnp.log2,
    "sharding": lambda x: lax.with_sharding_constraint(
        x, jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    ),
}  # JAX of one version or another has primitives of their own for these


@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize("name", SELDOM)
def test_seldom_primitives(name, to):
    x = np.array([0.5, 0.125, 0.25], np.float32)
    found, expected = translate(SELDOM[name], to)(x), jax.jit(SELDOM[name])(x)
    for y, correct in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(y, correct, rtol=1e-6)


def test_top_k_along_an_axis():
    if "axis" not in inspect.signature(lax.top_k).parameters:
        pytest.skip("this JAX takes the last axis")
    x = np.array([[3, 1], [3, 2], [1, 2]], np.int32)
    function = lambda x: lax.top_k(x, 2, axis=0)  # noqa: E731
    for found, expected in zip(translate(function, "numpy")(x), function(x), strict=True):
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_top_k_orders_zeros_and_nan_by_their_signs(to, dtype, x64):
    x = np.array([-0.0, 0, 3, -3, np.nan, -np.nan, np.inf, 1e-4, -np.inf]).astype(jnp.dtype(dtype))
    function = lambda x: lax.top_k(x, x.size)  # noqa: E731
    expected, places = jax.jit(function)(x)
    assert places.tolist() == [4, 6, 2, 7, 1, 0, 3, 8, 5]
    found = af.convert(translate(function, to)(x), "numpy")
    assert found[1].tolist() == places.tolist()
    assert found[0].tobytes() == np.asarray(expected).tobytes()


@pytest.mark.parametrize("to", ["numpy", "torch", "array_api_strict"])
@pytest.mark.parametrize("power", [0.5, -0.5, 3.0])
def test_powers_of_zeros_and_infinities(to, power):
    x = np.array([-np.inf, np.inf, -0.0, 0, -1, 4, np.nan], np.float32)
    for function in (lambda x: x**power, lambda x: lax.pow(x, jnp.full(x.shape, power, "float32"))):
        found = af.convert(translate(function, to)(x), "numpy")
        assert close(found, np.asarray(jax.jit(function)(x)), False)


GRADIENTS = {
    "matrices": lambda x, y: jnp.tanh(x @ y).sum(),
    "abs and relu at 0": lambda x, y: (jnp.abs(x * 0) + jax.nn.relu(x * 0) + x * y).sum(),
    "a custom rule": lambda x, y: jax.nn.logsumexp(x, axis=0).sum() + jax.nn.silu(y).mean(),
    "rows": lambda x, y: (x.at[jnp.array([0, 0])].add(y[:2]) ** 2).sum() + x[1, 1],
    "scan": lambda x, y: lax.scan(lambda c, z: (jnp.sin(c + z), c * z), x[0], y)[1].sum(),
    "cond": lambda x, y: lax.cond(x[0, 0] > 0, lambda: (x * y).sum(), lambda: (x - y).mean()),
    "sort": lambda x, y: (jnp.sort(x, axis=0) * y).sum() + jnp.max(x) + y.std(),
    "integers besides": lambda x, y: (
        ((x > 0).astype("int32").sum().astype("float32") * x).sum() + y[0, 0]
    ),
}


@pytest.mark.assumes_other("no_grad")
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    function, rng = GRADIENTS[name], np.random.default_rng(0)
    x, y = (rng.normal(size=(3, 3)).astype("float32") for _ in range(2))
    expected = jax.grad(function, (0, 1))(x, y)
    given = [torch.tensor(z, requires_grad=True) for z in (x, y)]
    run = translate(function, "torch", differentiable=True)
    for _ in range(2):
        found = torch.autograd.grad(run(*given), given)
        for z, correct in zip(found, expected, strict=True):
            np.testing.assert_allclose(z, correct, rtol=1e-4, atol=1e-5)


def test_higher_gradients_and_transformations():
    function = lambda x: jnp.sum(jnp.sin(x) ** 3)  # noqa: E731
    run, x = translate(function, "torch", differentiable=True), torch.tensor([0.3, -1.0])
    found = torch.func.jacrev(torch.func.jacrev(run))(x)
    np.testing.assert_allclose(found, jax.hessian(function)(x.numpy()), rtol=1e-4)
    rows = torch.stack([x, 2 * x])
    found = torch.func.vmap(torch.func.grad(run))(rows)
    np.testing.assert_allclose(found, jax.vmap(jax.grad(function))(rows.numpy()), rtol=1e-4)


@pytest.mark.assumes_other("no_grad")
def test_gradients_of_trees():
    def function(tree, n, *, flag=None):
        return {"loss": (tree["w"] * n).sum(), "count": (tree["w"] > 0).astype("int32")}

    w = torch.tensor([1.0, -2.0], requires_grad=True)
    function = translate(function, "torch", differentiable=True)
    for n in (2, 3):
        result = function({"w": w, "i": torch.tensor([1, 2])}, n)
        assert not result["count"].requires_grad
        (found,) = torch.autograd.grad(result["loss"], w)
        assert found.tolist() == [n, n]


@pytest.mark.assumes_other("no_grad")
@pytest.mark.assumes_other("rbg")
def test_keys_and_numbers_have_no_gradients():
    def function(key, x, n):
        return (jax.random.normal(key, x.shape) * x).sum() * n

    expected = jax.grad(function, 1)(jax.random.key(3), jnp.ones(4), 2)
    run, x = translate(function, "torch", differentiable=True), torch.ones(4, requires_grad=True)
    (found,) = torch.autograd.grad(run(jax.random.key(3), x, 2), x)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    rows = torch.func.vmap(torch.func.grad(lambda x: run(jax.random.key(3), x, 2)))
    np.testing.assert_allclose(rows(torch.ones(2, 4)), [expected] * 2, rtol=1e-5)
