"""Calls of functions of other libraries from traced code of JAX, and gradients across libraries."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from arrayferry import ConversionError, TracedValueError
from arrayferry.extending import dtype_info, exact_key
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_functions import Autodiff, Crossing, Flat

from .arrays import is_traced
from .placement import put

PIECE = 64 * 1024
"""The maximum size in bytes of an argument of a callback.

JAX copies arguments of more than 100 kB in its thread pool. If callbacks occupy all threads of the pool, JAX
waits forever. Small arrays are joined into one argument, since each argument takes 30 microseconds.
"""

_HOLE = object()
"""Marks the places of arrays in the leaves of a pytree."""


def _whole(x: AnyArray) -> Any:
    """Return an array without a sharding over explicit axes of a mesh, since a callback needs the whole array."""
    import jax

    sharding = _explicit(x)
    if sharding is None:
        return x
    whole_sharding = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
    return jax.sharding.reshard(x, whole_sharding)


def _as_words(x: AnyArray) -> Any:
    """Return the bits of an array as a 1-d array of unsigned integers.

    If elements have fewer than 8 bits, such as int4, return the elements instead.
    """
    import jax
    import jax.numpy as jnp

    dtype = x.dtype
    if dtype == jnp.bool_:
        return x.astype("uint8").ravel()
    if dtype.kind == "c":
        x = jnp.stack([x.real, x.imag], -1)
    if dtype_info(x.dtype).limits.bits < 8:
        return x.ravel()
    return jax.lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}").ravel()


@cache
def _guard() -> Callable[[str, list[Any]], list[Any]]:
    """Return a function that returns its arrays unchanged, and raises an error if JAX differentiates it."""
    import jax

    @partial(jax.custom_jvp, nondiff_argnums=(0,))
    def guard(name: str, arrays: list[Any]) -> list[Any]:
        return arrays

    @guard.defjvp  # type: ignore[untyped-decorator]
    def refuse(name: str, arrays: AnyTree, tangents: Any) -> Any:
        raise TracedValueError(
            f"{name} runs outside of JAX, so JAX cannot differentiate it",
            remedy="Apply jax.lax.stop_gradient to its arguments, or write the function for a library with gradients, "
            "and pass differentiable=True to agnostic.",
        )

    return guard  # type: ignore[no-any-return]


class JaxAutodiff(Autodiff):
    """Differentiates functions of JAX for other libraries, and functions of other libraries for `jax.grad`."""

    name = "jax"
    takes_numpy = True

    def callback(
        self,
        function: Callable[[list[Any]], Sequence[Any]],
        arrays: Sequence[Any],
        results: Sequence[tuple[tuple[int, ...], str]],
        *,
        name: str,
    ) -> list[Any]:
        import jax
        import jax.numpy as jnp
        import numpy as np

        for x in arrays:
            if jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
                raise ConversionError(
                    f"a JAX PRNG key array cannot be passed to {name}",
                    remedy="Call jax.random.key_data(x) first.",
                )
        arrays = _guard()(name, [_whole(x) for x in arrays])
        words = [_as_words(x) for x in arrays]
        pieces = {}
        for name in sorted({x.dtype.name for x in words}):
            joined = jnp.concatenate([x for x in words if x.dtype.name == name])
            piece_size = PIECE // joined.dtype.itemsize
            pieces[name] = jnp.split(joined, list(range(piece_size, joined.size, piece_size)))
        word_pairs = zip(words, arrays, strict=True)
        word_forms = [(word.dtype.name, word.size, x.dtype, x.shape) for word, x in word_pairs]

        def host_call(pieces: dict[str, list[Any]]) -> Sequence[Any]:
            host_arrays = []
            # concatenate() also copies the pieces: JAX reuses their memory after the call
            rest_words = {name: np.concatenate(parts) for name, parts in pieces.items()}
            for name, size, dtype, shape in word_forms:
                host_arrays.append(rest_words[name][:size].view(dtype).reshape(shape))
                rest_words[name] = rest_words[name][size:]
            return function(host_arrays)

        result_shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]
        return list(jax.pure_callback(host_call, result_shapes, pieces, vmap_method="sequential"))

    def compiles(self, function: Callable[..., Any]) -> bool:
        import jax

        return isinstance(function, jax.stages.Wrapped)

    def flatten(self, value: Any) -> tuple[list[Any], Callable[[list[Any]], Any], Hashable] | None:
        import jax
        import numpy as np

        if jax.tree_util.all_leaves([value]):
            return None
        leaves, structure = jax.tree_util.tree_flatten(value)
        array_types = jax.Array, np.ndarray, np.generic
        arrays = [leaf for leaf in leaves if isinstance(leaf, array_types)]
        template = [_HOLE if isinstance(leaf, array_types) else leaf for leaf in leaves]

        def unflatten(arrays: list[Any]) -> Any:
            remaining_arrays = iter(arrays)
            return structure.unflatten(
                next(remaining_arrays) if leaf is _HOLE else leaf for leaf in template
            )

        return arrays, unflatten, exact_key((structure, template))

    def vjp(
        self, function: Callable[[list[Any]], Flat], wanted: tuple[int, ...], *, compiled: bool
    ) -> Callable[[list[Any]], tuple[Flat, Callable[[list[Any]], list[Any]]]]:
        import jax

        def forward(arrays: list[Any]) -> Any:
            def call_restricted(*chosen: Any) -> Any:
                all_arrays = dict(enumerate(arrays)) | dict(zip(wanted, chosen, strict=True))
                flat_results = function(list(all_arrays.values()))
                return [y for y in flat_results.arrays if _is_inexact(y)], _packed(flat_results)

            chosen_arrays = [arrays[index] for index in wanted]
            _, pullback, packed = jax.vjp(call_restricted, *chosen_arrays, has_aux=True)
            return packed, pullback

        run_forward: Any = forward
        backward: Any = _pull
        if compiled:
            run_forward = partial(_put, jax.jit(forward))
            backward = partial(_put, jax.jit(_pull))

        def run(arrays: list[Any]) -> tuple[Flat, Callable[[list[Any]], list[Any]]]:
            packed, pullback = run_forward(arrays)
            is_x64 = jax.config.jax_enable_x64

            def pull(cotangents: list[Any]) -> list[Any]:
                if is_x64 and not jax.config.jax_enable_x64:
                    raise ConversionError(
                        "a function was called with jax_enable_x64 on, so its gradient cannot be computed with "
                        "jax_enable_x64 off",
                        remedy="Set jax_enable_x64 at the start of the program, or call the function and compute its "
                        "gradient under the same setting.",
                    )
                return list(backward(pullback, cotangents))

            return _unpacked(packed), pull

        return run

    def vmap(
        self, function: Callable[[list[Any]], Flat], axes: tuple[int | None, ...], size: int
    ) -> Callable[[list[Any]], Flat]:
        import jax

        mapped_function = jax.vmap(lambda xs: _packed(function(xs)), (list(axes),), axis_size=size)
        return lambda arrays: _unpacked(mapped_function(arrays))

    def call(self, crossing: Crossing, arrays: Sequence[Any]) -> Flat:
        return _called(crossing, list(arrays), ())[0]


@dataclass(frozen=True)
class _Build:
    """The function `Flat.build` as part of a pytree.

    All objects of this class are equal. If they differed, JAX would compile again for each of them.
    """

    build: Callable[..., Any] = field(compare=False)

    def __call__(self, arrays: list[Any]) -> Any:
        return self.build(arrays)


def _packed(flat: Flat) -> Any:
    """Return results as a pytree, since JAX transforms only functions that return pytrees."""
    from jax.tree_util import Partial

    return flat.arrays, Partial(_Build(flat.build))


def _unpacked(packed: Any) -> Flat:
    arrays, build = packed
    return Flat(arrays, build.func.build)


def _put(compiled: Callable[..., Any], *args: Any) -> Any:
    """Call a compiled function, whose last argument is a list of arrays.

    If the list has NumPy arrays and `jax.transfer_guard` allows only explicit transfers, put these into JAX first.
    """
    try:
        return compiled(*args)
    except Exception as error:
        if "Disallowed host-to-device" not in str(error):
            raise
        return compiled(*args[:-1], [put(x, None) for x in args[-1]])


def _pull(pullback: Any, cotangents: list[Any]) -> list[Any]:
    """Call a pullback of JAX, whose complex cotangents are the conjugates of those in `Autodiff`."""
    return [_conjugate(x) for x in pullback([_conjugate(x) for x in cotangents])]


def _conjugate(x: AnyArray) -> Any:
    return x.conj() if x.dtype.kind == "c" else x


def _is_inexact(x: AnyArray) -> bool:
    import jax.numpy as jnp

    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def _called(
    crossing: Crossing, arrays: list[Any], wanted: tuple[int, ...]
) -> tuple[Flat, Crossing | None]:
    """Call a crossing. Return its results and its pullback. If arrays are traced, JAX can differentiate the call."""
    if not any(map(is_traced, arrays)):
        return crossing(arrays, wanted)
    try:
        # raise for jax.linearize now: JAX would raise only in the function that linearize returns
        if not all(getattr(getattr(x, "_trace", None), "is_vjp", True) for x in arrays):
            raise TypeError("custom_vjp")
        try:
            packed = _crossed(symbolic=True)(crossing, arrays)
        except NotImplementedError as error:
            if "symbolic_zeros" not in str(error):
                raise
            packed = _crossed(symbolic=False)(crossing, arrays)
    except TypeError as error:
        if "custom_vjp" not in str(error) or isinstance(error, TracedValueError):
            raise
        raise TracedValueError(
            f"{crossing.name} cannot be differentiated in forward mode (jvp, jacfwd, linearize, hessian)",
            remedy="Use reverse mode: jax.grad, vjp or jacrev. Instead of hessian(f), use jacrev(jacrev(f)).",
        ) from error
    return _unpacked(packed), crossing.pullback(len(arrays), wanted)


@cache
def _crossed(*, symbolic: bool) -> Any:
    """Return the function that calls a crossing, with its rule for `jax.grad`.

    Args:
        symbolic: whether JAX reports which gradients it needs, so that only these are computed. `shard_map` does not
            support True.
    """
    import jax
    from jax.tree_util import Partial

    def call_crossing(crossing: Crossing, arrays: list[Any]) -> Any:
        return _packed(crossing(arrays, ())[0])

    crossed_function = jax.custom_vjp(call_crossing, nondiff_argnums=(0,))

    def forward(crossing: Crossing, primals: list[Any]) -> Any:
        arrays = [primal.value for primal in primals] if symbolic else primals
        perturbed = [primal.perturbed for primal in primals] if symbolic else [True] * len(primals)
        wanted = tuple(
            index for index, x in enumerate(arrays) if perturbed[index] and _is_inexact(x)
        )
        flat_results, pullback = _called(crossing, arrays, wanted)
        return _packed(flat_results), (Partial(lambda: (pullback, wanted)), arrays)

    def backward(crossing: Crossing, residuals: Any, cotangents: Any) -> Any:
        saved_partial, arrays = residuals
        pullback, wanted = saved_partial.func()
        conjugates = [_conjugate(_full(x)) for x in cotangents[0] if x.dtype != jax.dtypes.float0]
        pulled_results, _ = _called(pullback, [*arrays, *conjugates], ())
        gradients: list[Any] = [None] * len(arrays)
        for index, x in zip(wanted, pulled_results.arrays, strict=True):
            gradients[index] = _placed_like(_conjugate(x), arrays[index])
        return (gradients,)

    crossed_function.defvjp(forward, backward, symbolic_zeros=symbolic)
    return crossed_function


def _full(cotangent: Any) -> Any:
    """Return a cotangent as an array. JAX may pass a `SymbolicZero` in place of an array of zeros."""
    import jax

    if isinstance(cotangent, jax.custom_derivatives.SymbolicZero):
        return jax.numpy.zeros(cotangent.shape, cotangent.dtype)
    return cotangent


def _placed_like(x: AnyArray, array: AnyArray) -> Any:
    """Return a gradient `x` with the dtype of its argument `array`, and with the same sharding over a mesh."""
    import jax
    import jax.numpy as jnp

    sharding = _explicit(array)
    if sharding is not None:
        x = jax.sharding.reshard(x, sharding)
    if is_traced(array):  # `shard_map` requires that `x` varies over the same mesh axes as `array`
        x = jnp.where(False, array.astype(x.dtype), x)
    return x.astype(array.dtype)


def _explicit(x: AnyArray) -> Any:
    """Return the sharding of an array over explicit axes of a mesh, or None if it has no such sharding."""
    import jax

    sharding = jax.typeof(x).sharding
    return sharding if any(axis is not None for axis in sharding.spec) else None
