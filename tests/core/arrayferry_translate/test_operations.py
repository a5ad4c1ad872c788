"""Each primitive computes what `jax.jit` does, in each library, for each dtype and extreme numbers."""

import warnings
from collections import Counter

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies as st

import arrayferry as af
from arrayferry_translate import TranslationError, translate

from .operations import EXACT, OPERATIONS, array, close

LIBRARIES = ("numpy", "torch", "array_api_strict")
LACKING = ("float16", "bfloat16")  # of array_api_strict
SPECIAL = {"erf", "erfc", "lgamma", "digamma"}  # of no standard


def compare(function, arrays, to, loose):
    expected = jax.tree.leaves(jax.jit(function)(*arrays))
    given = [af.convert(np.array(x), to) for x in arrays]
    found = jax.tree.leaves(translate(function, to)(*given))
    for x, before in zip(given, arrays, strict=True):
        assert af.convert(x, "numpy").tobytes() == before.tobytes(), "an argument was written to"
    for x, y in zip(found, expected, strict=True):
        x, y = af.convert(x, "numpy"), np.asarray(y)
        assert close(x, y, loose), (arrays, x, y)


def runs(operation, to):
    for dtype in operation.dtypes:
        lacks = {dtype, operation.name.rpartition(" ")[2]}.intersection(LACKING)
        if to != "array_api_strict" or not (lacks or operation.name in SPECIAL):
            yield dtype


@pytest.mark.parametrize("to", [*LIBRARIES[:2], pytest.param(LIBRARIES[2], marks=pytest.mark.long)])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
@pytest.mark.assumes_other("rbg")
def test_each_operation(operation, to):
    rng = np.random.default_rng(3)
    chosen = [*runs(operation, to)]
    for dtype in chosen[:: 1 if len(chosen) < 4 else 2]:
        arrays = [array(rng, dtype, operation.plain) for _ in range(operation.count)]
        compare(operation.run, arrays, to, operation.loose)


REFUSED = {"lgamma", "digamma", "atan2", "nextafter"}  # by ndonnx, besides floats of 16 bits


def recorded(function, arrays):
    """Return a model of ONNX."""
    ndx = pytest.importorskip("ndonnx")
    dtypes = (getattr(ndx, x.dtype.name) for x in arrays)
    pairs = zip(arrays, dtypes, strict=True)
    inputs = {
        f"x{n}": ndx.argument(shape=x.shape, dtype=dtype) for n, (x, dtype) in enumerate(pairs)
    }
    made = jax.tree.leaves(translate(function, "ndonnx")(*inputs.values()))
    return ndx.build(inputs, {f"y{n}": x for n, x in enumerate(made)})


def in_onnx(function, arrays):
    """Return what onnxruntime computes."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model = recorded(function, arrays)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {f"x{n}": np.asarray(x) for n, x in enumerate(arrays)})


QUICK = {"add", "shift_right_logical", "cumprod", "scan", "while"}


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(x, marks=() if x.name in QUICK else pytest.mark.long)
        for x in OPERATIONS
        if x.name not in REFUSED and "16 as " not in x.name and not x.name.endswith(LACKING)
    ],
    ids=lambda operation: operation.name,
)
def test_each_operation_in_onnx(operation):
    for dtype in operation.dtypes:
        if dtype in LACKING:
            continue
        rng = np.random.default_rng(3)
        arrays = [array(rng, dtype, operation.plain) for _ in range(operation.count)]
        expected = jax.tree.leaves(jax.jit(operation.run)(*arrays))
        for x, y in zip(in_onnx(operation.run, arrays), expected, strict=True):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            assert close(x, np.asarray(y), operation.loose), (arrays, x, y)


def test_a_pad_of_nothing_has_memory_of_its_own():
    x = np.zeros(3, np.float32)
    pad = translate(lambda x: jax.lax.pad(x, np.float32(0), ((0, 0, 0),)), "numpy")
    assert not np.shares_memory(x, pad(x))


def test_pools_in_onnx_keep_nan_infinities_and_signs():
    x = np.array([np.nan, 1, 1, np.nan, -np.inf, -np.inf, -0.0, 0.0, 0.0, -0.0], np.float32)

    def pool(x):
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, (2,), (2,), "SAME")

    (found,) = in_onnx(pool, [x])
    assert close(found, np.asarray(pool(x)), False)
    assert np.isnan(found).sum() == 2


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_onnx_has_the_bits_of_floats(dtype, enable_x64):
    kind = f"int{8 * np.dtype(dtype).itemsize}"
    limits = np.iinfo(kind)
    bits = np.random.default_rng(0).integers(limits.min, limits.max, 500, kind, endpoint=True)
    x = bits.view(dtype)
    x = np.concatenate([x[~np.isnan(x)], [0, -0.0, np.nan, np.inf, -np.inf]]).astype(dtype)
    with enable_x64(True):
        found = in_onnx(lambda x: jax.lax.bitcast_convert_type(x, kind), [x])
    assert found[0].tolist() == x.view(kind).tolist()


@pytest.mark.parametrize(
    ("function", "most"),
    [
        (lambda x: jax.numpy.pad(x, 1), 2),
        (jax.nn.relu, 8),
        (lambda x: jax.lax.erf(x), 2),
        (lambda x: jax.lax.reduce_window(x, -np.inf, jax.lax.max, (2, 2), (2, 2), "SAME"), 20),
    ],
    ids=["pad", "relu", "erf", "pool"],
)
def test_onnx_needs_few_operators(function, most):
    nodes = recorded(function, [np.ones((4, 4), np.float32)]).graph.node
    assert sum(node.op_type != "Constant" for node in nodes) <= most


@pytest.mark.parametrize(
    ("name", "words"),
    [("erf", "onnxruntime has no erf of float64"), ("erfc", "replacement has only 7 digits")],
)
def test_erf_of_float64_is_refused_in_onnx(name, words, enable_x64):
    words = f"cannot compute {name} of float64.*{words}"
    with enable_x64(True), pytest.raises(TranslationError, match=words):
        in_onnx(lambda x: getattr(jax.lax, name)(x), [np.ones(3)])


def test_what_ndonnx_lacks_is_refused_with_its_line():
    with pytest.raises(TranslationError, match=r"cannot compute atan2 .*test_operations\.py, line"):
        in_onnx(lambda x, y: jax.numpy.arctan2(x, y), [np.ones(3, np.float32)] * 2)


def program(steps, dtype, rows):
    """Return a function of two arrays that takes steps, each with what an exact one before has made."""

    def function(x, y):
        values, results = [x, y], []
        for operation, picks in steps:
            made = jax.tree.leaves(
                operation.run(*[values[pick % len(values)] for pick in picks[: operation.count]])
            )
            results += made
            if dtype in EXACT:
                values += [z for z in made if z.shape == x.shape and z.dtype == x.dtype]
        return results

    return jax.vmap(function) if rows else function


def programs(count):
    """Run generated programs of five steps. Return how many have each operation."""
    counts = Counter({operation.name: 0 for operation in OPERATIONS})

    @hypothesis.settings(max_examples=count, deadline=None, derandomize=True, database=None)
    @hypothesis.given(st.integers(0, 2**32), st.booleans(), st.sampled_from(LIBRARIES[:2]))
    def run(seed, rows, to):
        rng = np.random.default_rng(seed)
        fewest = min(counts.values())
        first = rng.choice([name for name in counts if counts[name] <= fewest + 1])
        (first,) = [operation for operation in OPERATIONS if operation.name == first]
        dtype = rng.choice(first.dtypes)
        fitting = [operation for operation in OPERATIONS if dtype in operation.dtypes]
        rarest = sorted(fitting, key=lambda operation: counts[operation.name])[:20]
        more = [rarest[index] for index in rng.integers(len(rarest), size=5)]
        steps = [(operation, rng.integers(20, size=2)) for operation in (first, *more)]
        plain = any(operation.plain for operation, _ in steps)
        shape = (2, 4, 3) if rows else (4, 3)
        arrays = [array(rng, dtype, plain, shape) for _ in range(2)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of JAX, that int32 cannot be widened
            loose = any(operation.loose for operation, _ in steps)
            compare(program(steps, dtype, rows), arrays, to, loose)
        counts.update(operation.name for operation, _ in steps)

    run()
    return counts


def test_generated_programs():
    programs(25)


@pytest.mark.long
def test_many_generated_programs():
    assert min(programs(700).values()) >= 20
