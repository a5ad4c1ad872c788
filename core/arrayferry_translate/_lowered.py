"""Expresses primitives by other primitives, and JAX's random keys by the arrays of uint32 that they contain."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import random
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from arrayferry.typing import AnyArray, AnyTree

Lowered = Callable[..., Any]
"""A function that computes a primitive by other primitives. It accepts the parameters, and then the arrays."""

ERF_INV = (
    (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
     -0.00417768164, 0.246640727, 1.50140941),
    (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
     0.00943887047, 1.00167406, 2.83297682),
)  # fmt: skip
"""The coefficients of two polynomials for `erf_inv`: for x near 0, and for x near -1 and 1.

XLA uses these coefficients too. They are from Giles, "Approximating the erfinv function", 2012.
"""


def _erf_inv(params: AnyTree, x: AnyArray) -> Any:
    if x.dtype == "float64":
        raise NotImplementedError("only float32 and narrower floats are supported")
    dtype, x = x.dtype, x.astype("float32")
    log_term = -jnp.log1p(-x * x)
    is_near = log_term < 5
    log_term = jnp.where(is_near, log_term - 2.5, jnp.sqrt(log_term) - 3)
    coefficients = (jnp.where(is_near, *pair) for pair in zip(*ERF_INV, strict=True))
    polynomial = functools.reduce(lambda sum_, term: term + sum_ * log_term, coefficients)
    infinity = jnp.where(x > 0, jnp.inf, -jnp.inf).astype("float32")
    return jnp.where(abs(x) == 1, infinity, polynomial * x).astype(dtype)


def _integer_pow(params: AnyTree, x: AnyArray) -> Any:
    exponent, result, repeated_square = abs(params["y"]), None, x
    while exponent:
        if exponent & 1:
            result = repeated_square if result is None else result * repeated_square
        exponent >>= 1
        repeated_square = repeated_square * repeated_square if exponent else repeated_square
    if result is None:
        return jnp.ones_like(x)
    return 1 / result if params["y"] < 0 else result


def _clamp(params: AnyTree, low: AnyArray, x: AnyArray, high: AnyArray) -> Any:
    low, high = (lax.broadcast(edge, x.shape) if not edge.ndim else edge for edge in (low, high))
    return lax.min(lax.max(x, low), high)


def _top_k(params: AnyTree, x: AnyArray) -> Any:
    axis = params.get("axis", -1)
    x = jnp.moveaxis(x, axis, -1)
    # lax.sort is ascending, so flip its input and its result: the largest values are then first,
    # and equal values are in their original order
    indices = jnp.broadcast_to(jnp.arange(x.shape[-1], dtype="int32"), x.shape)
    flipped_arrays = (value[..., ::-1] for value in (_ranks(x), x, indices))
    _, *sorted_arrays = lax.sort((*flipped_arrays,), num_keys=1, is_stable=True)
    return [jnp.moveaxis(value[..., ::-1][..., : params["k"]], -1, axis) for value in sorted_arrays]


def _ranks(x: AnyArray) -> Any:
    """Map floats to integers of the same order: -NaN, -inf, ... -0, 0, ... inf, NaN. Return other dtypes unchanged."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    int_dtype = jnp.dtype(f"int{8 * x.dtype.itemsize}")
    bits = lax.bitcast_convert_type(x, int_dtype)
    return jnp.where(bits < 0, bits ^ jnp.iinfo(int_dtype).max, bits)


def _count_leading_zeros(params: AnyTree, x: AnyArray) -> Any:
    shifts = range(8 * x.dtype.itemsize)
    nonzero_flags = (lax.shift_right_logical(x, jnp.full_like(x, shift)) != 0 for shift in shifts)
    return jnp.full_like(x, len(shifts)) - sum(flag.astype(x.dtype) for flag in nonzero_flags)


def _reduce_xor(params: AnyTree, x: AnyArray) -> Any:
    for axis in sorted(params["axes"], reverse=True):
        parts = [lax.index_in_dim(x, index, axis, keepdims=False) for index in range(x.shape[axis])]
        x = functools.reduce(lax.bitwise_xor, parts)
    return x


def _windows(params: AnyTree, combine: Any, arrays: AnyTree, fills: Any) -> Any:
    """Combine the elements of each window along one axis after another, from the last to the first.

    Another order of the axes could change results, such as the last digits of floats.
    """
    unit_sizes = (1,) * arrays[0].ndim
    base_dilation = params.get("base_dilation", unit_sizes)
    ends = [(*ends, step - 1) for ends, step in zip(params["padding"], base_dilation, strict=True)]
    array_fills = zip(arrays, fills, strict=True)
    arrays = [lax.pad(x, jnp.asarray(fill, x.dtype), ends) for x, fill in array_fills]
    param_names = "window_dimensions", "window_strides", "window_dilation"
    sizes, strides, steps = (params.get(name, unit_sizes) for name in param_names)
    for axis in reversed(range(len(unit_sizes))):
        size, stride, step, length = sizes[axis], strides[axis], steps[axis], arrays[0].shape[axis]
        span = max(0, (length - (size - 1) * step - 1) // stride * stride + 1)
        starts = [min(n, length - span) for n in range(0, size * step, step)]
        slices = [[lax.slice_in_dim(x, n, n + span, stride, axis) for x in arrays] for n in starts]
        arrays = functools.reduce(combine, slices)
    return arrays


def _reduce_window(params: AnyTree, *inputs: Any) -> Any:
    reducer = jaxpr_as_fun(ClosedJaxpr(params["jaxpr"], params["consts"]))
    arrays, fills = inputs[: len(inputs) // 2], inputs[len(inputs) // 2 :]
    combine = _over(lambda x, y: reducer(*x, *y), arrays[0].ndim)

    def combine_inside(first: Any, second: Any) -> Any:
        """Combine elements, but leave out those of the padding, as XLA does. The last array is a mask of the others."""
        (*first, inside), (*second, inside_2) = first, second
        triples = zip(combine(first, second), first, second, strict=True)
        selected = [jnp.where(inside & inside_2, x, jnp.where(inside, y, z)) for x, y, z in triples]
        return [*selected, inside | inside_2]

    inside = jnp.ones(arrays[0].shape, bool)
    *outputs, inside = _windows(params, combine_inside, [*arrays, inside], [*fills, False])
    start_arrays = [jnp.broadcast_to(x, y.shape) for x, y in zip(fills, outputs, strict=True)]
    where_args = zip(combine(start_arrays, outputs), start_arrays, strict=True)
    return [jnp.where(inside, *pair) for pair in where_args]


def _reduce_window_by(reduce: Any, combine: Any) -> Lowered:
    """Return a function that reduces windows by `combine`. `reduce` of an empty array is the value of the padding."""

    def reduce_windows(params: AnyTree, x: AnyArray) -> Any:
        fill_value = reduce(jnp.zeros(0, x.dtype), axes=(0,))
        return _windows(params, lambda x, y: [combine(x[0], y[0])], [x], [fill_value])[0]

    return reduce_windows


def _selected(params: AnyTree, x: AnyArray) -> Any:
    """Return the flat index of the element that each window selects, or the size of `x` if a window selects padding."""

    def better(first: Any, second: Any) -> Any:
        (x, x_place), (y, y_place) = first, second
        keeps_x = (y_place == size) | (x_place < size) & params["select_prim"].bind(x, y)
        return [jnp.where(keeps_x, x, y), jnp.where(keeps_x, x_place, y_place)]

    size = x.size
    places = jnp.arange(size, dtype="int32").reshape(x.shape)
    return _windows(params, better, [x, places], [0, size])[1]


def _select_and_scatter_add(params: AnyTree, source: Any, x: AnyArray) -> Any:
    flat_sums = jnp.zeros(x.size, source.dtype).at[_selected(params, x)].add(source, mode="drop")
    return flat_sums.reshape(x.shape)


def _select_and_gather_add(params: AnyTree, tangents: Any, x: AnyArray) -> Any:
    return tangents.ravel().at[_selected(params, x)].get(mode="fill", fill_value=0)


def _applied(params: AnyTree, x: AnyArray, indices: AnyArray, updates: Any) -> Any:
    """Apply a function to each element as often as its index occurs, as `x.at[...].apply(function)` does."""
    function = jaxpr_as_fun(ClosedJaxpr(params["update_jaxpr"], params["update_consts"]))
    apply_each = _over(lambda x: function(x, x)[0], x.ndim)
    counts, ones = (jnp.full(shape, n, "int32") for n, shape in enumerate((x.shape, updates.shape)))
    scatter_numbers = params["dimension_numbers"]
    counts = lax.scatter_add(counts, indices, ones, scatter_numbers, mode=params["mode"])
    apply_once = lambda n, x: jnp.where(n < counts, apply_each(x), x)  # noqa: E731
    return lax.fori_loop(0, counts.max(initial=0), apply_once, x)


def _expanded(params: AnyTree, *arrays: AnyTree) -> Any:
    """Compute a composite primitive of JAX 0.12 by the primitives that it consists of."""
    primitive = params["_prim"]
    return primitive.expand(*jax.tree.unflatten(primitive.in_tree, arrays))


LOWERED: Mapping[str, Lowered] = {
    "erf_inv": _erf_inv,
    "integer_pow": _integer_pow,
    "square": lambda params, x: x * x,
    "one_minus_square": lambda params, x: (1 + x) * (1 - x),
    "polynomial": lambda params, x, *row: functools.reduce(lambda y, term: y * x + term, row[::-1]),
    "log2": lambda params, x: jnp.log(x) * jnp.asarray(1.4426950408889634, x.dtype),
    "name": lambda params, x: x,
    "sharding_constraint": lambda params, x: x,
    "rsqrt": lambda params, x: 1 / jnp.sqrt(x),
    # JAX computes exp2 by the same formula, so results differ little from those of JAX
    "exp2": lambda params, x: jnp.exp(jnp.asarray(0.6931471805599453, x.dtype) * x),
    "logistic": lambda params, x: 1 / (1 + jnp.exp(-x)),
    "cbrt": lambda params, x: jnp.where(x == 0, x, jnp.sign(x) * jnp.exp(jnp.log(abs(x)) / 3)),
    "clamp": _clamp,
    "top_k": _top_k,
    "eq_to": lambda params, x, y: lax.eq(_ranks(x), _ranks(y)),
    "lt_to": lambda params, x, y: lax.lt(_ranks(x), _ranks(y)),
    "le_to": lambda params, x, y: lax.le(_ranks(x), _ranks(y)),
    "population_count": lambda p, x: sum((x >> bit) & 1 for bit in range(8 * x.dtype.itemsize)),
    "clz": _count_leading_zeros,
    "reduce_xor": _reduce_xor,
    "cumlogsumexp": lambda params, x: lax.associative_scan(jnp.logaddexp, x, **params),
    "reduce_window": _reduce_window,
    "reduce_window_sum": _reduce_window_by(lax.reduce_sum, lax.add),
    "reduce_window_max": _reduce_window_by(lax.reduce_max, lax.max),
    "reduce_window_min": _reduce_window_by(lax.reduce_min, lax.min),
    "select_and_scatter_add": _select_and_scatter_add,
    "select_and_gather_add": _select_and_gather_add,
    "scatter": _applied,
    "call_hi_primitive": _expanded,
}
"""The primitives that have no rules, as functions of other primitives."""


def _over(function: Lowered, dims: int) -> Lowered:
    """Return the function, mapped over the first `dims` axes of its arguments."""
    for _ in range(dims):
        function = jax.vmap(function)
    return function


def _bits(impl: Any, params: AnyTree, x: AnyArray) -> Any:
    draw = functools.partial(impl.random_bits, bit_width=params["bit_width"], shape=params["shape"])
    return _over(draw, x.ndim - 1)(x)


def _fold_in(impl: Any, params: AnyTree, key: Any, number: Any) -> Any:
    shape = jnp.broadcast_shapes(key.shape[:-1], number.shape)
    key = jnp.broadcast_to(key, (*shape, *impl.key_shape))
    return _over(impl.fold_in, len(shape))(key, jnp.broadcast_to(number.astype("uint32"), shape))


OF_KEYS: Mapping[str, Lowered] = {
    "random_wrap": lambda impl, params, x: x,
    "random_unwrap": lambda impl, params, x: x,
    "random_clone": lambda impl, params, x: x,
    "random_seed": lambda impl, params, x: _over(impl.seed, x.ndim)(x),
    "random_bits": _bits,
    "random_split": lambda impl, params, x: _over(
        lambda key: impl.split(key, params["shape"]), x.ndim - 1
    )(x),
    "random_fold_in": _fold_in,
    "eq": lambda impl, params, x, y: (x == y).all(-1),
    "ne": lambda impl, params, x, y: (x != y).any(-1),
}
"""The primitives of keys, as functions of uint32 arrays: `function(implementation, params, *arrays)`."""

INSIDE = frozenset(("cond", "while", "scan"))
"""Primitives that run nested programs. In these programs, uint32 arrays replace keys too."""
IMPLEMENTATIONS = {
    f"key<{impl.tag}>": impl
    for impl in (random.threefry_prng_impl, random.rbg_prng_impl, random.unsafe_rbg_prng_impl)
}
"""The implementations of keys, by the name of the dtype of the keys."""


def is_key(value: AnyTree) -> bool:
    """Return whether an array or an abstract value of JAX has a dtype of random keys."""
    return jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)  # type: ignore[no-any-return]


def numbers_of(value: AnyTree) -> Any:
    """Return random keys as the array of uint32 that they contain, and any other array unchanged."""
    return jax.random.key_data(value) if is_key(value) else value


def implementation(dtype: Any) -> Any:
    """Return JAX's implementation of the keys of a dtype."""
    if dtype.name not in IMPLEMENTATIONS:
        raise NotImplementedError(f"keys of {dtype.name} are not supported")
    return IMPLEMENTATIONS[dtype.name]


def lowered(equation: Any) -> Lowered | None:
    """Return the function that replaces an equation's primitive, or None if the primitive needs a rule instead."""
    primitive, avals = equation.primitive, [var.aval for var in equation.invars]
    keys = [aval for aval in (*avals, *(var.aval for var in equation.outvars)) if is_key(aval)]
    if not keys or primitive.name in INSIDE:
        body = equation.params.get("update_jaxpr")
        if primitive.name == "scatter" and (body is None or body.outvars[0] is body.invars[1]):
            return None  # a scatter that replaces elements has a rule
        return LOWERED.get(primitive.name)
    if primitive.name in OF_KEYS:
        return functools.partial(OF_KEYS[primitive.name], implementation(keys[0].dtype))
    if primitive.name.startswith("random_"):
        raise NotImplementedError("it has no rule")
    axes = [-1 if is_key(aval) else None for aval in avals]
    return lambda params, *x: jax.vmap(functools.partial(primitive.bind, **params), axes, -1)(*x)
