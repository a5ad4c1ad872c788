"""Primitives that are translated as functions of other primitives, and keys as the numbers that they consist of."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

Lowered = Callable[..., Any]
"""Takes the parameters of a primitive, and arrays. It is traced, too."""

ERF_INV = (
    (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
     -0.00417768164, 0.246640727, 1.50140941),
    (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
     0.00943887047, 1.00167406, 2.83297682),
)  # fmt: skip
"""Giles, "Approximating the erfinv function", 2012, as XLA has it: near 0, and near -1 and 1."""


def _erf_inv(params: Any, x: Any) -> Any:
    import jax.numpy as jnp

    if x.dtype == "float64":
        raise NotImplementedError("of float64")
    given, x = x, x.astype("float32")
    w = -jnp.log1p(-x * x)
    near = w < 5
    w = jnp.where(near, w - 2.5, jnp.sqrt(w) - 3)
    pairs = zip(*ERF_INV, strict=True)
    result = functools.reduce(lambda p, pair: pair + p * w, (jnp.where(near, *p) for p in pairs))
    edge = jnp.where(x > 0, jnp.inf, -jnp.inf).astype("float32")
    return jnp.where(abs(x) == 1, edge, result * x).astype(given.dtype)


def _integer_pow(params: Any, x: Any) -> Any:
    import jax.numpy as jnp

    power, result = abs(params["y"]), None
    square = x
    while power:
        if power & 1:
            result = square if result is None else result * square
        power >>= 1
        square = square * square if power else square
    if result is None:
        return jnp.ones_like(x)
    return 1 / result if params["y"] < 0 else result


def _clamp(params: Any, low: Any, x: Any, high: Any) -> Any:
    from jax import lax

    low, high = (lax.broadcast(edge, x.shape) if not edge.ndim else edge for edge in (low, high))
    return lax.min(lax.max(x, low), high)


def _rsqrt(params: Any, x: Any) -> Any:
    import jax.numpy as jnp

    return 1 / jnp.sqrt(x)


def _exp2(params: Any, x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.exp(jnp.asarray(0.6931471805599453, x.dtype) * x)  # as JAX does


def _expanded(params: Any, *arrays: Any) -> Any:
    """Return what a primitive of JAX 0.12 consists of."""
    import jax

    primitive = params["_prim"]
    return primitive.expand(*jax.tree.unflatten(primitive.in_tree, arrays))


def _logistic(params: Any, x: Any) -> Any:
    import jax.numpy as jnp

    return 1 / (1 + jnp.exp(-x))


def _cbrt(params: Any, x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.where(x == 0, x, jnp.sign(x) * jnp.exp(jnp.log(abs(x)) / 3))


def _top_k(params: Any, x: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    axis = params.get("axis", x.ndim - 1)
    if axis != x.ndim - 1:
        raise NotImplementedError(f"along the axis {axis}")
    # of equal ones, the first comes first
    places = jnp.broadcast_to(jnp.arange(x.shape[-1], dtype="int32"), x.shape)
    values = lax.sort((x[..., ::-1], places[..., ::-1]), num_keys=1, is_stable=True)
    return [value[..., ::-1][..., : params["k"]] for value in values]


def _ordered(compare: str) -> Lowered:
    """Compare in the total order of floats: -NaN, -inf, ... -0, 0, ... inf, NaN."""

    def lowered(params: Any, x: Any, y: Any) -> Any:
        import jax.numpy as jnp
        from jax import lax

        if jnp.issubdtype(x.dtype, jnp.floating):
            kind = jnp.dtype(f"int{8 * x.dtype.itemsize}")
            bits = (lax.bitcast_convert_type(value, kind) for value in (x, y))
            x, y = (jnp.where(b < 0, b ^ jnp.iinfo(kind).max, b) for b in bits)
        return getattr(lax, compare)(x, y)

    return lowered


def _population_count(params: Any, x: Any) -> Any:
    bits = 8 * x.dtype.itemsize
    return sum((x >> shift) & 1 for shift in range(bits))


def _count_leading_zeros(params: Any, x: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    bits = 8 * x.dtype.itemsize
    shifted = [lax.shift_right_logical(x, jnp.full_like(x, shift)) != 0 for shift in range(bits)]
    return jnp.full_like(x, bits) - sum(part.astype(x.dtype) for part in shifted)


def _reduce_xor(params: Any, x: Any) -> Any:
    import jax.numpy as jnp

    for axis in sorted(params["axes"], reverse=True):
        parts = [jnp.take(x, index, axis=axis) for index in range(x.shape[axis])]
        shape = x.shape[:axis] + x.shape[axis + 1 :]
        x = functools.reduce(lambda a, b: a ^ b, parts, jnp.zeros(shape, x.dtype))
    return x


def _cumlogsumexp(params: Any, x: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    return lax.associative_scan(jnp.logaddexp, x, axis=params["axis"], reverse=params["reverse"])


LOWERED: Mapping[str, Lowered] = {
    "erf_inv": _erf_inv,
    "integer_pow": _integer_pow,
    "square": lambda params, x: x * x,
    "rsqrt": _rsqrt,
    "exp2": _exp2,
    "logistic": _logistic,
    "cbrt": _cbrt,
    "clamp": _clamp,
    "top_k": _top_k,
    "eq_to": _ordered("eq"),
    "lt_to": _ordered("lt"),
    "le_to": _ordered("le"),
    "population_count": _population_count,
    "clz": _count_leading_zeros,
    "reduce_xor": _reduce_xor,
    "cumlogsumexp": _cumlogsumexp,
    "call_hi_primitive": _expanded,
}
"""What rules need not know."""

INSIDE = frozenset(("cond", "while", "scan"))
"""Primitives whose programs deal with keys by themselves."""


def is_key(value: Any) -> bool:
    import jax

    return jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)  # type: ignore[no-any-return]


def _implementation(dtype: Any) -> Any:
    """Return how keys of a dtype are made and used."""
    import jax
    from jax.extend import random

    found: list[Any] = []

    def ask(key: Any) -> int:
        found.append(jax.random.key_impl(key))
        return 0

    jax.eval_shape(ask, jax.ShapeDtypeStruct((), dtype))
    name = str(found[0])
    known = random.threefry_prng_impl, random.rbg_prng_impl, random.unsafe_rbg_prng_impl
    for implementation in known:
        if implementation.name == name:
            return implementation
    raise NotImplementedError(f"keys of {name}")


def key_shape(dtype: Any) -> tuple[int, ...]:
    """Return the shape of the numbers that a key consists of."""
    return _implementation(dtype).key_shape  # type: ignore[no-any-return]


def of_keys(equation: Any) -> Lowered | None:
    """Return what an equation does with the numbers that its keys consist of. None if it has no keys."""
    import jax
    import jax.numpy as jnp

    name, bind = equation.primitive.name, equation.primitive.bind
    keys = [is_key(var.aval) for var in equation.invars]
    made = [is_key(var.aval) for var in equation.outvars]
    if not any((*keys, *made)) or name in INSIDE:
        return None
    if name in ("random_wrap", "random_unwrap", "random_clone"):
        return lambda params, x: x
    if name == "random_seed":
        seed = equation.params["impl"].seed
        dims = equation.invars[0].aval.ndim
        return lambda params, x: _over(seed, dims)(x)
    if name == "random_bits":
        bits = _implementation(equation.invars[0].aval.dtype).random_bits
        dims = equation.invars[0].aval.ndim
        return lambda p, x: _over(lambda k: bits(k, p["bit_width"], p["shape"]), dims)(x)
    if name == "random_split":
        split = _implementation(equation.invars[0].aval.dtype).split
        dims = equation.invars[0].aval.ndim
        return lambda p, x: _over(lambda k: split(k, p["shape"]), dims)(x)
    if name == "random_fold_in":
        fold_in = _implementation(equation.invars[0].aval.dtype).fold_in
        shape = equation.outvars[0].aval.shape

        def folded(params: Any, key: Any, number: Any) -> Any:
            key = jnp.broadcast_to(key, (*shape, key.shape[-1]))
            number = jnp.broadcast_to(number, shape).astype("uint32")
            return _over(fold_in, len(shape))(key, number)

        return folded
    if name.startswith("random_"):
        return _unknown
    if name in ("eq", "ne"):
        return lambda params, x, y: (x == y).all(-1) if name == "eq" else (x != y).any(-1)

    def each_number(params: Any, *arrays: Any) -> Any:
        axes = [-1 if key else None for key in keys]
        return jax.vmap(lambda *x: bind(*x, **params), axes, -1)(*arrays)

    return each_number


def _unknown(params: Any, *arrays: Any) -> Any:
    raise NotImplementedError("it has no rule")


def _over(function: Callable[..., Any], dims: int) -> Callable[..., Any]:
    """Map a function over leading axes."""
    import jax

    for _ in range(dims):
        function = jax.vmap(function)
    return function
