"""Gradients of translated functions: one crossing, whose backward pass is the translated `jax.vjp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from arrayferry import Backend, registry
from arrayferry._utilities.cache import Cache
from arrayferry.extending import kept_conversion
from arrayferry_functions import Autodiff, Flat


class Differentiable:
    """A function of JAX, and what its gradients compute. All are translated when they are first called.

    Args:
        name: the name of the function in errors.
        function: takes a list of arrays, and a list of numbers and of other arrays.
        translate: translates such a function.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], translate: Callable[[Any], Any]
    ) -> None:
        self.name = name
        self.run = translate(function)
        self._function = function
        self._translate = translate
        self._derived: Cache[Any, Differentiable] = Cache(32)

    def pullback(self, count: int, wanted: tuple[int, ...]) -> Differentiable:
        """Return the function of `count` arguments and cotangents of results that returns the wanted cotangents."""
        function = self._function

        def pullback(values: list[Any], others: list[Any]) -> list[Any]:
            import jax

            def results(*chosen: Any) -> list[Any]:
                arrays = values[:count]
                for index, x in zip(wanted, chosen, strict=True):
                    arrays[index] = x
                made = jax.tree.leaves(function(arrays, others))
                return [y for y in made if jax.numpy.issubdtype(y.dtype, jax.numpy.inexact)]

            _, pull = jax.vjp(results, *[values[index] for index in wanted])
            return list(pull(values[count:]))

        return self._kept((count, wanted), f"the gradient of {self.name}", pullback)

    def mapped(self, axes: tuple[int | None, ...], size: int) -> Differentiable:
        """Return the function that maps over an axis of its arrays."""
        function = self._function

        def mapped(arrays: list[Any], others: list[Any]) -> Any:
            import jax

            over = jax.vmap(lambda arrays: function(arrays, others), [list(axes)], axis_size=size)
            return over(arrays)

        return self._kept((axes, size), self.name, mapped)

    def _kept(self, key: Any, name: str, function: Callable[..., Any]) -> Differentiable:
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = Differentiable(name, function, self._translate)
        return found


class Call:
    """One call of a translated function. See `arrayferry_functions.Crossing`.

    Args:
        function: the function.
        others: the numbers among its arguments.
    """

    def __init__(self, function: Differentiable, others: list[Any]) -> None:
        self.name = function.name
        self._function = function
        self._others = others

    def __call__(self, arrays: Sequence[Any], wanted: tuple[int, ...]) -> tuple[Flat, Call | None]:
        import jax

        results, structure = jax.tree.flatten(self._function.run(list(arrays), self._others))
        flat = Flat(results, lambda arrays: jax.tree.unflatten(structure, arrays))
        return flat, self.pullback(len(arrays), wanted) if wanted else None

    def pullback(self, count: int, wanted: tuple[int, ...]) -> Call:
        """See `Crossing`."""
        return Call(self._function.pullback(count, wanted), self._others)

    def mapped(self, axes: tuple[int | None, ...], size: int) -> Call:
        """See `Crossing`."""
        return Call(self._function.mapped(axes, size), self._others)


def call(
    functions: Cache[Any, Differentiable],
    make: Callable[[Callable[..., Any]], Differentiable],
    own: Backend,
    autodiff: Autodiff,
    leaves: list[Any],
    treedef: Any,
) -> Any:
    """Call a function so that a library differentiates through it.

    Args:
        functions: what was made for other arguments.
        make: makes it of a function of two lists.
        own: the library.
        autodiff: how it differentiates.
        leaves: all arguments.
        treedef: their structure.
    """
    import jax

    from ._lowered import is_key

    kinds: list[Any] = [registry.kind(x).backend for x in leaves]
    places = tuple(n for n, kind in enumerate(kinds) if kind is not None)
    keys = {
        n: jax.random.key_impl(leaves[n])
        for n in places
        if kinds[n].name == "jax" and is_key(leaves[n])
    }
    key = treedef, places, *keys.items()
    function = functions.get(key)
    if function is None:

        def rebuilt(arrays: list[Any], others: list[Any]) -> Any:
            rest, given = iter(others), dict(zip(places, arrays, strict=True))
            given |= {n: jax.random.wrap_key_data(given[n], impl=impl) for n, impl in keys.items()}
            parts = [given[n] if n in given else next(rest) for n in range(treedef.num_leaves)]
            return jax.tree.unflatten(treedef, parts)

        function = functions[key] = make(rebuilt)
    convert = kept_conversion(own)
    numbers = [jax.random.key_data(leaves[n]) if n in keys else leaves[n] for n in places]
    arrays = [x if kinds[n] is own else convert(x) for n, x in zip(places, numbers, strict=True)]
    others = [x for x, kind in zip(leaves, kinds, strict=True) if kind is None]
    flat = autodiff.call(Call(function, others), arrays)
    return flat.build(flat.arrays)
