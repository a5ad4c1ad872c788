"""Gradients of translated functions, which the translated `jax.vjp` of a function computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

from arrayferry import Backend, registry
from arrayferry.extending import kept_conversion
from arrayferry_functions import Autodiff, Flat

from ._lowered import is_key


class Call:
    """One call of a translated function. See `arrayferry_functions.Crossing`.

    Args:
        name: the name of the function in errors.
        run: the translated function. It accepts a list of arrays, and the list `others`.
        others: the arguments that have no gradients: numbers and keys.
    """

    def __init__(self, name: str, run: Any, others: list[Any]) -> None:
        self.name = name
        self._run = run
        self._others = others

    def __call__(self, arrays: Sequence[Any], wanted: tuple[int, ...]) -> tuple[Flat, Call | None]:
        leaves, structure = jax.tree.flatten(self._run([*arrays], self._others))
        flat_results = Flat(leaves, partial(jax.tree.unflatten, structure))
        return flat_results, self.pullback(len(arrays), wanted) if wanted else None

    def pullback(self, count: int, wanted: tuple[int, ...]) -> Call:
        """Return the pullback of the function, as a `Call`. See `Crossing.pullback`."""
        pullback_run = self._run.derived(_pullback, count, wanted)
        return Call(f"the gradient of {self.name}", pullback_run, self._others)

    def mapped(self, axes: tuple[int | None, ...], size: int) -> Call:
        """Return the vectorised function, as a `Call`. See `Crossing.mapped`."""
        return Call(self.name, self._run.derived(_mapped, axes, size), self._others)


def call(
    name: str, run: Any, target: Backend, autodiff: Autodiff, leaves: list[Any], treedef: Any
) -> Any:
    """Call a translated function so that its library can differentiate through the call.

    Args:
        name: the name of the function in errors.
        run: the translated function.
        target: the library of the translated function.
        autodiff: the `Autodiff` of this library.
        leaves: the leaves of all arguments.
        treedef: the structure of the arguments, as `jax.tree.flatten` returns it.
    """
    array_places, arrays, others, convert = [], [], [], kept_conversion(target)
    for place, x in enumerate(leaves):
        backend = registry.kind(x).backend
        if backend is None or (backend.name == "jax" and is_key(x)):
            others.append(x)
        else:
            array_places.append(place)
            arrays.append(x if backend is target else convert(x))
    list_run = run.derived(_of_lists, treedef, tuple(array_places))
    flat_results = autodiff.call(Call(name, list_run, others), arrays)
    return flat_results.build(flat_results.arrays)


def _of_lists(function: Callable[..., Any], treedef: Any, places: tuple[int, ...]) -> Any:
    """Return `function` as a function of two lists: the leaves with the indices `places`, and all other leaves."""

    def of_lists(arrays: list[Any], others: list[Any]) -> Any:
        by_place, rest = dict(zip(places, arrays, strict=True)), iter(others)
        leaves = [by_place[n] if n in by_place else next(rest) for n in range(treedef.num_leaves)]
        args, kwargs = jax.tree.unflatten(treedef, leaves)
        return function(*args, **kwargs)

    return of_lists


def _pullback(function: Callable[..., Any], count: int, wanted: tuple[int, ...]) -> Any:
    """Return the pullback of `function`, as a function of two lists.

    The first list contains the `count` arrays that `function` accepts, followed by the cotangents of its results. The
    second list is passed to `function` unchanged. The pullback returns the cotangents of the `wanted` arrays.
    """

    def pullback(values: list[Any], others: list[Any]) -> list[Any]:
        def inexact_results(*chosen: Any) -> list[Any]:
            arrays = values[:count]
            for index, x in zip(wanted, chosen, strict=True):
                arrays[index] = x
            outputs = jax.tree.leaves(function(arrays, others))
            return [y for y in outputs if jax.numpy.issubdtype(y.dtype, jax.numpy.inexact)]

        _, vjp_function = jax.vjp(inexact_results, *[values[index] for index in wanted])
        return [*vjp_function(values[count:])]

    return pullback


def _mapped(function: Callable[..., Any], axes: tuple[int | None, ...], size: int) -> Any:
    """Return `function`, mapped over `axes` of its arrays by `jax.vmap`."""

    def mapped(arrays: list[Any], others: list[Any]) -> Any:
        vmapped = jax.vmap(lambda arrays: function(arrays, others), [list(axes)], axis_size=size)
        return vmapped(arrays)

    return mapped
