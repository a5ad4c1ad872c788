"""The ways to compare: ours, Gymnasium's, and calls written by hand, for six pairs of libraries.

Calls by hand are the fastest that keep the same promises: arrays are copied into JAX, and from JAX
to PyTorch, since JAX arrays never change and PyTorch tensors may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from gymnasium.wrappers.array_conversion import array_conversion, module_namespace
from timing import Statement

import arrayferry as af

__all__ = ["LIBRARIES", "PAIRS", "Pair", "array_in", "enter_jax", "one_array", "tree", "ways"]

LIBRARIES = {"numpy": np, "torch": torch, "jax": jnp}

enter_jax = jax.jit(lambda xs: xs)
"""The fastest way into JAX: a compiled identity function."""


class Pair(NamedTuple):
    """Two libraries, and how to convert from the first to the second by hand.

    Attributes:
        source: its name.
        target: its name.
        one: an expression for one array `x`.
        tree: a function for a value made by `tree`.
        bare_one, bare_tree: the same without the copy that keeps the promise, if there is one.
    """

    source: str
    target: str
    one: str
    tree: Callable[[Any], Any]
    bare_one: str = ""
    bare_tree: Callable[[Any], Any] | None = None

    def __str__(self) -> str:
        names = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX"}
        return f"{names[self.source]} to {names[self.target]}"


def one_array(source: str) -> Any:
    """A small array of a library."""
    return array_in(source, np.arange(4, dtype=np.float32))


def tree(source: str) -> dict[str, Any]:
    """Five small arrays of a library and a string, in nested dicts and a tuple."""
    arrays = [np.arange(size, dtype=np.float32) for size in (4, 9, 16, 10)]
    a, b, c, d = (array_in(source, array) for array in arrays)
    e = array_in(source, np.arange(8, dtype=np.int32))
    return {
        "position": a,
        "camera": {"image": b, "depth": c},
        "joints": (d, e),
        "mission": "pick up the red ball",
    }


def array_in(source: str, array: np.ndarray[Any, Any]) -> Any:
    """The same values as an array of a library, made by its own functions."""
    if source == "torch":
        return torch.from_numpy(array.copy())
    return jnp.array(array) if source == "jax" else array


def _numpy_to_torch(v: Any) -> Any:
    convert = torch.from_numpy
    camera, (d, e) = v["camera"], v["joints"]
    return {
        "position": convert(v["position"]),
        "camera": {"image": convert(camera["image"]), "depth": convert(camera["depth"])},
        "joints": (convert(d), convert(e)),
        "mission": v["mission"],
    }


def _torch_to_numpy(v: Any) -> Any:
    camera, (d, e) = v["camera"], v["joints"]
    return {
        "position": v["position"].numpy(),
        "camera": {"image": camera["image"].numpy(), "depth": camera["depth"].numpy()},
        "joints": (d.numpy(), e.numpy()),
        "mission": v["mission"],
    }


def _jax_to_numpy(v: Any) -> Any:
    convert = np.asarray
    camera, (d, e) = v["camera"], v["joints"]
    return {
        "position": convert(v["position"]),
        "camera": {"image": convert(camera["image"]), "depth": convert(camera["depth"])},
        "joints": (convert(d), convert(e)),
        "mission": v["mission"],
    }


def _jax_to_torch(v: Any) -> Any:
    take, copy = torch.from_numpy, np.array
    camera, (d, e) = v["camera"], v["joints"]
    return {
        "position": take(copy(v["position"])),
        "camera": {"image": take(copy(camera["image"])), "depth": take(copy(camera["depth"]))},
        "joints": (take(copy(d)), take(copy(e))),
        "mission": v["mission"],
    }


def _built(v: Any, arrays: list[Any]) -> Any:
    a, b, c, d, e = arrays
    return {
        "position": a,
        "camera": {"image": b, "depth": c},
        "joints": (d, e),
        "mission": v["mission"],
    }


def _numpy_to_jax(v: Any) -> Any:
    camera, (d, e) = v["camera"], v["joints"]
    a, b, c = v["position"], camera["image"], camera["depth"]
    return _built(v, enter_jax([a.copy(), b.copy(), c.copy(), d.copy(), e.copy()]))


def _numpy_to_jax_bare(v: Any) -> Any:
    camera, (d, e) = v["camera"], v["joints"]
    return _built(v, enter_jax([v["position"], camera["image"], camera["depth"], d, e]))


def _torch_to_jax(v: Any) -> Any:
    camera, (d, e) = v["camera"], v["joints"]
    a, b, c = v["position"], camera["image"], camera["depth"]
    arrays = [x.numpy().copy() for x in (a, b, c, d, e)]
    return _built(v, enter_jax(arrays))


def _torch_to_jax_bare(v: Any) -> Any:
    camera, (d, e) = v["camera"], v["joints"]
    a, b, c = v["position"], camera["image"], camera["depth"]
    return _built(v, enter_jax([a.numpy(), b.numpy(), c.numpy(), d.numpy(), e.numpy()]))


PAIRS = (
    Pair("numpy", "torch", "from_numpy(x)", _numpy_to_torch),
    Pair("torch", "numpy", "x.numpy()", _torch_to_numpy),
    Pair("numpy", "jax", "enter_jax(x.copy())", _numpy_to_jax, "enter_jax(x)", _numpy_to_jax_bare),
    Pair("jax", "numpy", "asarray(x)", _jax_to_numpy),
    Pair("jax", "torch", "from_numpy(array(x))", _jax_to_torch),
    Pair(
        "torch",
        "jax",
        "enter_jax(x.numpy().copy())",
        _torch_to_jax,
        "enter_jax(x.numpy())",
        _torch_to_jax_bare,
    ),
)


def ways(pair: Pair, value: Any) -> dict[str, Statement]:
    """Every way to convert a value: `tree(source)` or `one_array(source)`.

    Returns:
        "ours", "convert" (ours, called with the name of the target), "peer", "hand", and "bare"
        (by hand without the copy) if that differs.
    """
    names = {
        "x": value,
        "from_numpy": torch.from_numpy,
        "asarray": np.asarray,
        "array": np.array,
        "enter_jax": enter_jax,
    }
    single = not isinstance(value, dict)
    peer = {"f": array_conversion, "x": value, "xp": module_namespace(LIBRARIES[pair.target])}
    found = {
        "ours": Statement("f(x)", {"f": af.converter(pair.target), "x": value}),
        "convert": Statement(f"f(x, {pair.target!r})", {"f": af.convert, "x": value}),
        "peer": Statement("f(x, xp)", peer),
        "hand": Statement(pair.one, names)
        if single
        else Statement("f(x)", {"f": pair.tree, "x": value}),
    }
    if pair.bare_tree is not None:
        found["bare"] = (
            Statement(pair.bare_one, names)
            if single
            else Statement("f(x)", {"f": pair.bare_tree, "x": value})
        )
    return found
