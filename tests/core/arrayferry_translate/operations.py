"""Operations of JAX on arrays of one dtype, for tests that compare a translated function with `jax.jit`."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
FLOATS = ("float32", "float16", "bfloat16")
NUMBERS = (*INTEGERS, *FLOATS)
ALL = (*NUMBERS, "bool")
EXACT = (*INTEGERS, "bool")
ROUGH = (*INTEGERS, "float32")


class Operation(NamedTuple):
    """A function of arrays of shape (4, 3).

    Attributes:
        name: its name.
        run: the function.
        count: how many arrays it takes.
        dtypes: those that it takes.
        plain: whether floats must be finite and small, since an order of additions decides otherwise.
    """

    name: str
    run: object
    count: int
    dtypes: tuple
    plain: bool = False

    @property
    def loose(self):
        """Whether numbers near 0 are differences of larger ones."""
        return self.plain or self.name in ("lgamma", "digamma")


def array(rng, dtype, plain=False, shape=(4, 3)):
    """Draw an array, half of it extreme numbers."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        edges = [
            limits.min,
            limits.min + 1,
            0,
            1,
            2,
            3,
            7,
            8,
            16,
            31,
            32,
            33,
            limits.max - 1,
            limits.max,
        ]
        edges = np.array([*edges, -1 if limits.min else limits.max])
        drawn = rng.integers(limits.min, limits.max, shape, endpoint=True)
        return np.where(rng.random(shape) < 0.5, rng.choice(edges, shape), drawn).astype(dtype)
    edges = [
        0.0,
        -0.0,
        np.nan,
        np.inf,
        -np.inf,
        1,
        -1,
        0.5,
        -0.5,
        1.5,
        2.5,
        1e-3,
        3e9,
        -3e9,
        100,
        300,
        -129,
    ]
    drawn = rng.normal(size=shape) * (1 if plain else 3)
    extreme = (rng.random(shape) < 0.4) & (not plain)
    own = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    with np.errstate(over="ignore"):
        return np.where(extreme, rng.choice(edges, shape), drawn).astype(own)


def places(x):
    """Return indices of which some are outside."""
    return lax.convert_element_type(x, "int32") % 9 - 3


def streams(x):
    key = jax.random.fold_in(jax.random.key(5), x[0, 0])
    return (
        jax.random.normal(key, (3,)),
        jax.random.uniform(key, (2,)),
        jax.random.randint(key, (4,), -3, 300),
        jax.random.bits(key, (2,), "uint8"),
        jax.random.permutation(key, 5),
        jax.random.choice(key, 9, (3,)),
        jax.random.bernoulli(key, 0.3, (4,)),
        jax.random.categorical(key, jnp.arange(4.0)),
        jax.random.key_data(jax.random.split(key, 3)),
        jax.random.truncated_normal(key, -1, 1),
    )


def keys_in_rows(x):
    def row(x):
        key = jax.random.key(x)
        other = lax.cond(x > 3, lambda key: key, lambda key: jax.random.fold_in(key, 2), key)
        chosen = jnp.stack([key, other])[1]
        same = jax.random.key_data(key) == jax.random.key_data(other)
        return (
            jax.random.normal(key),
            jax.random.key_data(chosen),
            jax.random.split(other)[0] == key,
            same,
        )

    return jax.vmap(row)(x[:, 0])


def loop(x, y):
    return lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2 - y), (0, x))


def loop_in_rows(x, y):
    def row(x, y):
        going = lambda c: (c[0] < 20) & (c[2] < 30)  # noqa: E731
        return lax.while_loop(going, lambda c: (c[0] + y % 5, c[1] * 2 - y, c[2] + 1), (x, x, 0))

    return jax.vmap(jax.vmap(row))(x, y)


def windows(x, y):
    start = places(y)
    update = lax.dynamic_update_slice(x, y[:2, :1], (start[2, 0], start[1, 0]))
    return lax.dynamic_slice(x, (start[0, 0], start[1, 1]), (2, 2)), update


def windows_in_rows(x, y):
    def row(x, y):
        at = places(y)
        window = lax.dynamic_slice(x, (at[0],), (2,))
        return (
            window,
            lax.dynamic_update_slice(x, y[:2], (at[2],)),
            x[at],
            x.at[at[1]].set(y[0]),
            x.at[at].add(y),
        )

    return jax.vmap(row)(x, y)


def changed(x, y, how, mode):
    at = places(y)
    if how == "set":  # of equal places the order is open
        return x.at[jnp.arange(4), at[:, 1]].set(y[:, 0], mode=mode)
    return getattr(x.at[at[:, 0], at[:, 1]], how)(y[:, 0], mode=mode)


def applied(x, y):
    """Some places are outside, and some are equal."""
    at = places(y)
    half = x.at[at[:, 0]].apply(lambda v: v // 2)
    same = x.at[0].apply(lambda v: v), x.at[1:3, 1].apply(lambda v: jnp.ones((), v.dtype))
    return half, x.at[at[:, 0], at[:, 1]].apply(lambda v: v * 2 + 1, mode="clip"), same


def convolved(x, y, lhs, rhs, **how):
    """Convolve arrays that are reshaped to have a batch, features and more axes."""
    how = {"window_strides": (1,) * (len(lhs) - 2), "padding": "VALID"} | how
    return lax.conv_general_dilated(x.reshape(lhs), y.reshape(rhs), **how)


def pooled(x, how, fill, **windows):
    if np.isinf(fill) and x.dtype != "float32":
        fill = jnp.iinfo(x.dtype).min if fill < 0 else jnp.iinfo(x.dtype).max
    return lax.reduce_window(x, x.dtype.type(fill), how, **windows)


def places_of_pools(x):
    """Reduce two arrays together. The order is total, since XLA combines elements in any order."""

    def rank(values):
        return jnp.where(jnp.isnan(values), np.inf, values) if values.dtype == "float32" else values

    def better(first, second):
        one, other = rank(first[0]), rank(second[0])
        which = (one > other) | ((one == other) & (first[1] > second[1]))
        return jnp.where(which, first[0], second[0]), jnp.where(which, first[1], second[1])

    least = np.float32(-np.inf) if x.dtype == "float32" else jnp.iinfo(x.dtype).min
    fills = np.asarray(least, x.dtype)[()], np.int32(-1)
    places = lax.broadcasted_iota("int32", x.shape, 1)
    return lax.reduce_window((x, places), fills, better, (1, 2), (1, 1), "VALID")


def gradients_of_pools(x, y):
    """Each window selects the first of equal elements."""

    def pool(x):
        least = lax.reduce_window(x, np.float32(np.inf), lax.min, (3, 2), (2, 1), "SAME")
        return lax.reduce_window(x, np.float32(-np.inf), lax.max, (2, 2), (1, 1), "VALID"), least

    made, pull = jax.vjp(pool, jnp.where(x > 0, 1.0, -1.0))
    return pull(made), jax.jvp(pool, (x,), (y,))  # in which JAX selects another


def reduced(x, name):
    return getattr(jnp, name)(x, axis=1), getattr(jnp, name)(x)


def switched(x, y):
    return lax.switch(x[0, 0].astype("int32"), [lambda a: a, lambda a: a * 2, lambda a: a - 1], y)


def switched_rows(x, y):
    return jax.vmap(
        lambda x, y: lax.switch(x[0].astype("int32"), [lambda a: a, lambda a: a * 2], y)
    )(x, y)


def scanned(x, y):
    return lax.scan(lambda c, z: (c + z[0], (c * z[1], c)), x[0], (x, y), reverse=True)


def _operations():
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "max", "min"):
        yield name, getattr(lax, name), 2, ALL
    for name in ("add", "sub", "mul", "div", "rem"):
        yield name, getattr(lax, name), 2, NUMBERS
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        yield name, getattr(lax, name), 2, EXACT
    for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic"):
        yield name, getattr(lax, name), 2, INTEGERS
    yield "neg", lax.neg, 1, NUMBERS
    yield "abs", lax.abs, 1, ("int8", "int16", "int32", *FLOATS)
    yield "sign", lax.sign, 1, NUMBERS
    yield "bitwise_not", lax.bitwise_not, 1, EXACT
    for name in [
        "floor",
        "ceil",
        "is_finite",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "exp",
        "expm1",
        "log",
        "log1p",
        "sqrt",
        "rsqrt",
        "cbrt",
        "logistic",
        "exp2",
        "erf",
        "erfc",
        "erf_inv",
        "lgamma",
        "digamma",
        "square",
    ]:
        yield name, getattr(lax, name), 1, FLOATS
    yield "round", lax.round, 1, FLOATS
    yield "round to even", jnp.round, 1, FLOATS
    yield "atan2", lax.atan2, 2, FLOATS
    yield "pow", lax.pow, 2, ("float32",)
    yield "nextafter", lax.nextafter, 2, ("float32",)
    for power in (-3, -1, 0, 1, 2, 3, 5, 7):
        yield (
            f"power {power}",
            partial(lax.integer_pow, y=power),
            1,
            FLOATS if power < 0 else NUMBERS,
        )
    yield "clz", lax.clz, 1, INTEGERS
    yield "population_count", lax.population_count, 1, INTEGERS
    for dtype in ALL:
        yield f"to {dtype}", partial(lax.convert_element_type, new_dtype=dtype), 1, ALL
    for old, new in (
        ("float32", "int32"), ("int32", "float32"), ("uint32", "float32"), ("float32", "uint32"), ("int32", "uint32"),
        ("uint32", "int32"), ("float16", "uint16"), ("int16", "float16"), ("int8", "uint8"), ("uint16", "bfloat16"),
    ):  # fmt: skip
        bits = partial(lax.bitcast_convert_type, new_dtype=jnp.dtype(new))
        yield f"bits of {old} as {new}", bits, 1, (old,)
    for name in ("sum", "prod", "max", "min"):
        yield f"reduce {name}", partial(reduced, name=name), 1, ROUGH, name in ("sum", "prod")
    yield "any and all", lambda x: (jnp.any(x, 0), jnp.all(x, 1)), 1, ("bool",)
    yield "reduce_xor", lambda x: lax.reduce_xor(x, (0,)), 1, INTEGERS
    yield "argmax", lambda x: (jnp.argmax(x, 0), jnp.argmin(x, 1), jnp.argmax(x)), 1, ALL
    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        yield name, partial(getattr(lax, name), axis=0), 1, ROUGH, True
        yield (
            f"{name} in reverse",
            partial(getattr(lax, name), axis=1, reverse=True),
            1,
            ROUGH,
            True,
        )
    yield "cumlogsumexp", partial(lax.cumlogsumexp, axis=0), 1, ("float32",), True
    yield "sort", lambda x: (jnp.sort(x, axis=0), jnp.argsort(x, axis=1)), 1, ALL
    yield "sort by two", lambda x, y: lax.sort((x, y, y), num_keys=2), 2, NUMBERS
    yield "top_k", lambda x: lax.top_k(x, 2), 1, NUMBERS
    yield (
        "searchsorted",
        lambda x, y: jnp.searchsorted(jnp.sort(x[:, 0]), y),
        2,
        ("int32", "float32"),
    )
    yield "matrices", lambda x, y: x @ y.T, 2, ROUGH, True
    yield "batched matrices", lambda x, y: jnp.einsum("ij,ij->i", x, y), 2, ROUGH, True
    convolutions = {
        "along a line": {"lhs": (1, 2, 6), "rhs": (3, 2, 2)},
        "apart": {
            "lhs": (1, 2, 2, 3), "rhs": (2, 2, 3, 1), "padding": ((1, 0), (2, 1)), "rhs_dilation": (2, 1),
            "window_strides": (1, 2), "dimension_numbers": ("NHWC", "HWIO", "NHWC"),
        },
        "padded": {"lhs": (2, 1, 2, 3), "rhs": (3, 1, 2, 2), "padding": ((2, 1), (-1, 2))},
        "spread": {"lhs": (2, 1, 2, 3), "rhs": (2, 1, 2, 3), "padding": ((1, 2), (2, 2)), "lhs_dilation": (2, 2)},
        "spread along a line": {"lhs": (1, 2, 6), "rhs": (2, 2, 3), "padding": ((1, 2),), "lhs_dilation": (3,)},
        "spread to the right": {"lhs": (1, 2, 6), "rhs": (2, 2, 3), "padding": ((0, 3),), "lhs_dilation": (2,)},
        "spread to the left": {"lhs": (1, 2, 6), "rhs": (2, 2, 3), "padding": ((2, 0),), "lhs_dilation": (2,)},
        "spread with strides": {
            "lhs": (1, 2, 6), "rhs": (2, 2, 3), "padding": ((1, 2),), "lhs_dilation": (3,), "window_strides": (2,)
        },
        "in groups": {"lhs": (1, 4, 3), "rhs": (6, 2, 1), "feature_group_count": 2},
        "spread in groups": {
            "lhs": (1, 4, 3), "rhs": (4, 1, 3), "feature_group_count": 4, "lhs_dilation": (2,), "padding": ((1, 2),)
        },
        "in groups of the batch": {"lhs": (4, 1, 3), "rhs": (4, 1, 3), "batch_group_count": 2},
        "in three dimensions": {"lhs": (1, 1, 2, 2, 3), "rhs": (3, 1, 2, 2, 1)},
        "in four dimensions": {"lhs": (1, 1, 2, 2, 3, 1), "rhs": (3, 1, 1, 2, 2, 1)},
        "of no windows": {"lhs": (1, 1, 2, 6), "rhs": (1, 1, 3, 4)},
    }  # fmt: skip
    for name, how in convolutions.items():
        yield f"convolution {name}", partial(convolved, **how), 2, (*ROUGH, "bfloat16"), True
    for name, how, least in (
        ("sum", lax.add, 0), ("prod", lax.mul, 1), ("max", lax.max, -np.inf), ("min", lax.min, np.inf)
    ):  # fmt: skip
        sizes = {
            "window_dimensions": (2, 3),
            "window_strides": (1, 2),
            "padding": ((1, 1), (2, 0)),
        }
        yield f"pool {name}", partial(pooled, how=how, fill=least, **sizes), 1, ROUGH, True
        sizes |= {"base_dilation": (2, 1), "window_dilation": (1, 2)}
        yield f"pool {name} apart", partial(pooled, how=how, fill=least, **sizes), 1, ROUGH, True
    yield "pool from 2", partial(pooled, how=lax.add, fill=2, **sizes), 1, ("int32",)
    yield (
        "pool of none",
        lambda x: lax.reduce_window(x, 0, lax.add, (7, 1), (2, 1), "VALID"),
        1,
        ("int32",),
    )
    yield "places of pools", places_of_pools, 1, ROUGH
    yield "gradients of pools", gradients_of_pools, 2, ("float32",), True
    config = ((1, 2, 1), (-1, 3, 0))
    yield "pad", lambda x: lax.pad(x, jnp.zeros((), x.dtype), config), 1, ALL
    for low, high in (((-2, -1, 0), (2, -1, 2)), ((-4, 0, 0), (0, -2, 1))):
        yield f"pad {low}", lambda x, c=(low, high): lax.pad(x, jnp.ones((), x.dtype), c), 1, ALL
    yield "slices", lambda x: (x[::-1, ::2], x.T.reshape(2, 6)[1]), 1, ALL
    yield "reshape with an order", lambda x: lax.reshape(x, (6, 2), dimensions=(1, 0)), 1, ALL
    yield "together", lambda x, y: (
        jnp.stack([x, y], 1), jnp.concatenate([x, y], 1), jnp.tile(x, (2, 1)), jnp.split(x, [1, 3]), jnp.roll(x, 1, 0)
    ), 2, ALL  # fmt: skip
    yield "iota", lambda x: x + lax.broadcasted_iota(x.dtype, x.shape, 1), 1, ROUGH
    yield "where", lambda x, y: jnp.where(x > y, x, y), 2, NUMBERS
    yield "select_n", lambda x, y: lax.select_n(places(x) % 3, x, y, x), 2, INTEGERS
    yield "clip", lambda x: jnp.clip(x, 1, 5), 1, NUMBERS
    yield "clamp", lambda x, y: lax.clamp(y, x, jnp.ones((), x.dtype)), 2, NUMBERS
    yield "switch", switched, 2, INTEGERS
    yield "switch of rows", switched_rows, 2, INTEGERS
    yield "while", loop, 2, ("int32", "uint32")
    yield "while of rows", loop_in_rows, 2, ("int32",)
    yield "scan", scanned, 2, ("int32", "uint32", "float32"), True
    for mode in ("fill", "clip", "wrap"):
        yield (
            f"take with {mode}",
            lambda x, y, m=mode: jnp.take(x, places(y), axis=0, mode=m),
            2,
            ROUGH,
        )
    yield "get", lambda x, y: x.at[places(y)[:, 0], 1].get(mode="fill", fill_value=7), 2, ROUGH
    for how in ("set", "add", "subtract", "max", "min", "multiply"):
        for mode in ("drop", "clip"):
            yield f"{how} with {mode}", partial(changed, how=how, mode=mode), 2, ROUGH, True
    yield "apply", applied, 2, ROUGH
    yield "rows", lambda x, y: x.at[jnp.array([3, 0])].add(y[:2]), 2, NUMBERS
    yield "windows", windows, 2, ALL
    yield "windows of rows", windows_in_rows, 2, INTEGERS
    yield "random numbers", streams, 1, ("int32", "uint32")
    yield "keys in rows", keys_in_rows, 1, ("int32", "uint32")


OPERATIONS = [Operation(*entry) for entry in _operations()]


def close(found, expected, loose):
    """Compare arrays of NumPy: integers and signs of zeros exactly. Differences of larger floats are loose."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if expected.dtype.kind in "biu":
        return bool((found == expected).all())
    tolerance = {"bfloat16": 3e-2, "float16": 3e-3}.get(expected.dtype.name, 1e-5)
    x, y = found.astype("float64"), expected.astype("float64")
    zeros = (x == 0) & (y == 0)
    near = np.allclose(x, y, rtol=tolerance, atol=tolerance * (1 if loose else 0.1), equal_nan=True)
    return near and bool((np.signbit(x) == np.signbit(y))[zeros].all())
