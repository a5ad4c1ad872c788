"""Functions that cross to and from JAX: calls from traced code, and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, TypeVar

from arrayferry import Autodiff, ConversionError, Crossing, Differentiable, Flat, TracedValueError
from arrayferry.adapting import CostlyCache, dtype_info

F = TypeVar("F", bound=Callable[..., Any])

MAX_MADE = 64
"""How many derived functions are kept for each function: gradients, and maps over axes of different lengths."""

PIECE = 64 * 1024
"""Size in bytes of the largest argument of a callback. JAX copies those of more than 100 kB in its thread pool,
and waits forever if all of the pool's threads are busy with callbacks. Small ones are passed together, since
each costs 30 microseconds."""


def call_host(
    function: Callable[[list[Any]], Sequence[Any]],
    arrays: Sequence[Any],
    results: Sequence[tuple[tuple[int, ...], str]],
    *,
    name: str,
    ordered: bool = False,
) -> list[Any]:
    """Call a function from a traced one. See `arrayferry.Backend.callback`."""
    import jax
    import numpy as np
    from jax.experimental import io_callback

    for x in arrays:
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
            raise ConversionError(
                f"a JAX PRNG key array cannot be passed to {name}",
                remedy="Call jax.random.key_data(x) first.",
            )
    guarded = _guard()(name, ordered, list(arrays))
    groups = _grouped(guarded)
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]

    placed = _placed(guarded, groups)

    def host(pieces: list[list[Any]]) -> Sequence[Any]:
        # copies, since the memory is reused after the call
        buffers = [
            np.array(chunks[0])
            if len(chunks) == 1
            else np.concatenate([np.asarray(x) for x in chunks])
            for chunks in pieces
        ]
        return function(
            [
                buffers[group][part].view(dtype).reshape(shape)
                for group, part, dtype, shape in placed
            ]
        )

    pieces = [parts for _, parts in groups]
    if ordered:
        return list(io_callback(host, shapes, pieces, ordered=True))
    return list(jax.pure_callback(host, shapes, pieces, vmap_method="sequential"))


def _placed(arrays: Sequence[Any], groups: Sequence[Any]) -> list[tuple[int, slice, Any, Any]]:
    """Return for each array its group, its part of the group, its dtype and its shape."""
    placed: list[Any] = [None] * len(arrays)
    for group, (places, pieces) in enumerate(groups):
        start = 0
        for place in places:
            x = arrays[place]
            end = start + x.size * x.dtype.itemsize // pieces[0].dtype.itemsize
            placed[place] = group, slice(start, end), x.dtype, x.shape
            start = end
    return placed


def _grouped(arrays: Sequence[Any]) -> list[tuple[list[int], list[Any]]]:
    """Join arrays whose numbers are of the same size, and cut them into pieces that are small enough.

    Returns:
        For each group, the places of its arrays, and its pieces.
    """
    import jax.numpy as jnp

    places: dict[Any, list[int]] = {}
    words = [_as_words(x) for x in arrays]
    for index, x in enumerate(words):
        places.setdefault(x.dtype, []).append(index)
    groups = []
    for dtype, members in places.items():
        joined = jnp.concatenate([words[index] for index in members])
        step = PIECE // dtype.itemsize
        pieces = [joined[start : start + step] for start in range(0, joined.size, step)]
        groups.append((members, pieces or [joined]))
    return groups


def _as_words(x: Any) -> Any:
    """Return the numbers of an array as unsigned ones of the same size, or as they are where that is not possible."""
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
def _guard() -> Callable[[str, bool, list[Any]], list[Any]]:
    """Return a function that returns its arrays, but refuses gradients, and also `vmap` if there are effects."""
    import jax

    @partial(jax.custom_jvp, nondiff_argnums=(0, 1))
    def guard(name: str, ordered: bool, arrays: list[Any]) -> list[Any]:
        if not ordered:
            return arrays
        passed = jax.custom_batching.custom_vmap(lambda arrays: arrays)

        @passed.def_vmap  # type: ignore[untyped-decorator]
        def refuse(size: int, batched: Any, arrays: Any) -> Any:
            raise TracedValueError(
                f"{name} cannot be batched by vmap, since it has effects",
                remedy="Call it outside of vmap; for several environments, use a vector environment.",
            )

        return passed(arrays)  # type: ignore[no-any-return]

    @guard.defjvp  # type: ignore[untyped-decorator]
    def refuse(name: str, ordered: bool, arrays: Any, tangents: Any) -> Any:
        remedy = "Apply jax.lax.stop_gradient to its arguments"
        if not ordered:
            remedy += ", or write it for a library with gradients, and pass differentiable=True"
        raise TracedValueError(
            f"{name} runs outside of JAX, so JAX cannot differentiate it", remedy=f"{remedy}."
        )

    return guard  # type: ignore[no-any-return]


class JaxAutodiff(Autodiff):
    """Differentiates functions of JAX for other libraries, and makes their functions work in `jax.grad`."""

    def compiles(self, function: Callable[..., Any]) -> bool:
        import jax

        return isinstance(function, jax.stages.Wrapped)

    def function(self, function: Callable[[list[Any]], Flat], *, compiled: bool) -> Differentiable:
        return JaxFunction(function, compiled)

    def call(self, crossing: Crossing, arrays: Sequence[Any]) -> list[Any]:
        if not any(map(_is_traced, arrays)):
            return crossing.run(arrays)
        return _reversible(crossing, list(arrays))


def _kept(make: F) -> F:
    """Let a method of `JaxFunction` return the same object each time for the same arguments, while there is room."""

    def kept(self: JaxFunction, *args: Any) -> Any:
        key = make.__name__, args
        made = self._made.get(key)
        if made is None:
            if self._made.make_room(key) is None:
                return make(JaxFunction(self._function, False), *args)
            made = self._made[key] = make(self, *args)
        self._made.used.add(made)
        return made

    return kept  # type: ignore[return-value]


class JaxFunction(Differentiable):
    """A function of JAX.

    Args:
        function: the function.
        compiled: whether it and the functions derived from it are compiled.
    """

    def __init__(self, function: Callable[[list[Any]], Flat], compiled: bool) -> None:
        self._function = function
        self._compiled: bool = compiled
        self.takes_numpy: bool = compiled
        self._made: CostlyCache[Any, Any] = CostlyCache(MAX_MADE)

    def __call__(self, arrays: list[Any]) -> Flat:
        return Flat(*self._runner()(arrays))

    @_kept
    def _runner(self) -> Any:
        return self._jitted(lambda arrays: _FlatPytree(*self._function(arrays)))

    def _jitted(self, function: Any) -> Any:
        import jax

        return jax.jit(function) if self._compiled else function

    def vjp(
        self, arrays: list[Any], wanted: tuple[int, ...]
    ) -> tuple[Flat, Callable[[list[Any]], list[Any]]]:
        import jax

        flat, pullback = self._forward(wanted)(arrays)
        kept = self._compiled and ("_forward", (wanted,)) in self._made
        backward, wide = _backward() if kept else _pull, jax.config.jax_enable_x64

        def pull(cotangents: list[Any]) -> list[Any]:
            if wide and not jax.config.jax_enable_x64:
                raise ConversionError(
                    "a function was called with jax_enable_x64 on, and its gradient is taken with it off",
                    remedy="Set it once at the start, or take the gradient in the same with block.",
                )
            gradients: list[Any] = backward(pullback, cotangents)
            return gradients

        return Flat(*flat), pull

    @_kept
    def _forward(self, wanted: tuple[int, ...]) -> Any:
        import jax

        def forward(arrays: list[Any]) -> Any:
            chosen = [arrays[index] for index in wanted]
            _, pullback, flat = jax.vjp(self._restricted(arrays, wanted), *chosen, has_aux=True)
            return flat, pullback

        return self._jitted(forward)

    def _restricted(self, arrays: list[Any], wanted: tuple[int, ...]) -> Any:
        """Return a function of the wanted arguments. It returns the results of inexact dtype, and also all results."""

        def restricted(*chosen: Any) -> Any:
            every = list(arrays)
            for index, x in zip(wanted, chosen, strict=True):
                every[index] = x
            flat = self._function(every)
            return [y for y in flat.arrays if _is_inexact(y)], _FlatPytree(*flat)

        return restricted

    @_kept
    def transposed(self, count: int, wanted: tuple[int, ...]) -> JaxFunction:
        import jax

        def transposed(values: list[Any]) -> Flat:
            arrays, cotangents = values[:count], values[count:]
            chosen = [arrays[index] for index in wanted]
            _, pullback, _ = jax.vjp(self._restricted(arrays, wanted), *chosen, has_aux=True)
            return Flat(_pull(pullback, cotangents))

        return JaxFunction(transposed, self._compiled)

    @_kept
    def pushed(self, count: int, wanted: tuple[int, ...]) -> JaxFunction:
        import jax

        def pushed(values: list[Any]) -> Flat:
            arrays, tangents = values[:count], values[count:]
            chosen = [arrays[index] for index in wanted]
            _, outgoing, _ = jax.jvp(
                self._restricted(arrays, wanted), chosen, tangents, has_aux=True
            )
            return Flat(outgoing)

        return JaxFunction(pushed, self._compiled)

    @_kept
    def mapped(self, axes: tuple[int | None, ...], size: int) -> JaxFunction:
        import jax

        mapped = jax.vmap(
            lambda arrays: _FlatPytree(*self._function(arrays)), (list(axes),), axis_size=size
        )
        return JaxFunction(lambda arrays: Flat(*mapped(arrays)), self._compiled)


class _FlatPytree:
    """Results, as a pytree whose layout is static, so that they pass through `jit` and `vmap`."""

    def __init__(self, arrays: list[Any], layout: Any = None) -> None:
        _register()
        self.arrays = arrays
        self.layout = layout

    def __iter__(self) -> Any:
        return iter((self.arrays, self.layout))


@cache
def _register() -> None:
    from jax.tree_util import register_pytree_node

    kinds: tuple[tuple[Any, Any, Any], ...] = (
        (
            _FlatPytree,
            lambda flat: (flat.arrays, flat.layout),
            lambda layout, arrays: _FlatPytree(list(arrays), layout),
        ),
        (_Residuals, lambda residuals: ((), residuals), lambda residuals, _: residuals),
    )
    for kind in kinds:
        with suppress(ValueError):  # another thread was faster
            register_pytree_node(*kind)


def _pull(pullback: Any, cotangents: list[Any]) -> list[Any]:
    """Call a pullback of JAX, whose cotangents of complex numbers are conjugates of ours."""
    return [_conjugate(x) for x in pullback([_conjugate(x) for x in cotangents])]


@cache
def _backward() -> Any:
    import jax

    return jax.jit(_pull)


def _conjugate(x: Any) -> Any:
    return x.conj() if x.dtype.kind == "c" else x


def _is_inexact(x: Any) -> bool:
    import jax.numpy as jnp

    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def _is_traced(x: Any) -> bool:
    import jax

    return isinstance(x, jax.core.Tracer)


class _Residuals:
    """Passed unchanged from the forward to the backward pass.

    Args:
        wanted: the numbers of the arguments whose gradients are wanted.
        pullback: computed with the values, None if they were traced.
    """

    def __init__(self, wanted: tuple[int, ...], pullback: Any) -> None:
        self.wanted = wanted
        self.pullback = pullback


def _reversible(crossing: Crossing, arrays: list[Any]) -> list[Any]:
    """Call a crossing with traced arrays."""
    try:
        try:
            return _crossed(symbolic=True)(crossing, arrays)  # type: ignore[no-any-return]
        except NotImplementedError as error:
            if "symbolic_zeros" not in str(error):
                raise
            return _crossed(symbolic=False)(crossing, arrays)  # type: ignore[no-any-return]
    except TypeError as error:
        if "custom_vjp" not in str(error) or isinstance(error, TracedValueError):
            raise
        raise TracedValueError(
            f"{crossing.name} cannot be differentiated in forward mode (jvp, jacfwd, linearize, hessian)",
            remedy="Use reverse mode: jax.grad, jax.vjp or jax.jacrev; for second derivatives, twice.",
        ) from error


@cache
def _crossed(*, symbolic: bool) -> Any:
    """Return the function that calls a crossing, with its rule for `jax.grad`.

    Args:
        symbolic: whether only the gradients asked for are computed, which `shard_map` does not support.
    """
    import jax

    def values(crossing: Crossing, arrays: list[Any]) -> list[Any]:
        if not any(map(_is_traced, arrays)):
            return crossing.run(arrays)
        results = crossing.shapes(arrays)
        return call_host(crossing.on_host, arrays, results, name=crossing.name)

    crossed = jax.custom_vjp(values, nondiff_argnums=(0,))

    def forward(crossing: Crossing, primals: list[Any]) -> Any:
        _register()
        arrays = [primal.value for primal in primals] if symbolic else primals
        asked = [primal.perturbed for primal in primals] if symbolic else [True] * len(primals)
        wanted = tuple(index for index, x in enumerate(arrays) if asked[index] and _is_inexact(x))
        pullback = None
        if any(map(_is_traced, arrays)):
            results = _reversible(crossing, arrays)
        elif crossing.prepared:
            results = crossing.run(arrays)
        else:
            results, pullback = crossing.vjp(arrays, wanted)
        return results, (_Residuals(wanted, pullback), arrays)

    def backward(crossing: Crossing, kept: Any, cotangents: list[Any]) -> Any:
        residuals, arrays = kept
        given = [_conjugate(_full(x)) for x in cotangents if x.dtype != jax.dtypes.float0]
        if residuals.pullback is not None and not any(map(_is_traced, given)):
            pulled = residuals.pullback(given)
        else:
            transposed = crossing.transposed(len(arrays), residuals.wanted, residuals.pullback)
            pulled = _reversible(transposed, [*arrays, *given])
        gradients: list[Any] = [None] * len(arrays)
        for index, x in zip(residuals.wanted, pulled, strict=True):
            gradients[index] = _varying(_conjugate(x), arrays[index]).astype(arrays[index].dtype)
        return (gradients,)

    crossed.defvjp(forward, backward, symbolic_zeros=symbolic)
    return crossed


def _full(cotangent: Any) -> Any:
    """Return a cotangent as an array, even if it is known to be zero."""
    import jax

    if isinstance(cotangent, jax.custom_derivatives.SymbolicZero):
        return jax.numpy.zeros(cotangent.shape, cotangent.dtype)
    return cotangent


def _varying(x: Any, like: Any) -> Any:
    """Return an array that varies over the same axes of a mesh as another one, as `shard_map` requires."""
    import jax.numpy as jnp

    return jnp.where(False, like.astype(x.dtype), x) if _is_traced(like) else x
