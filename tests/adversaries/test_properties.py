"""Properties that hold for any tree of arrays of any libraries."""

from __future__ import annotations

import collections
import dataclasses
import types
from typing import Any, NamedTuple

import array_api_strict as strict
import dask.array as da
import hypothesis
import hypothesis.extra.numpy as arrays
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import arrayferry as af

pytestmark = pytest.mark.needs("torch")
MAKE = {
    "numpy": lambda n: n,
    "torch": lambda n: torch.from_numpy(n.copy()),
    "jax": jnp.array,
    "dask": lambda n: da.from_array(n.copy(), name=False),
    "array_api_strict": lambda n: strict.asarray(n.copy()),
}
READ = {
    "numpy": np.asarray,
    "torch": lambda x: x.numpy(),
    "jax": np.asarray,
    "dask": lambda x: np.asarray(x.compute()),
    "array_api_strict": np.from_dlpack,
}
TARGETS = st.sampled_from(sorted(MAKE))
DTYPES = st.sampled_from(
    ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float32", "complex64"]
)


class Pair(NamedTuple):
    left: Any
    right: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    first: Any
    second: Any


@dataclasses.dataclass
class Node:
    child: Any
    note: str = "note"


class DictSubclass(dict):
    pass


class Opaque:
    """An object that is neither array nor container."""


@st.composite
def numpy_arrays(draw: Any) -> np.ndarray:
    x = draw(
        arrays.arrays(
            draw(DTYPES),
            arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
        )
    )
    x = np.asarray(x)
    if x.ndim and draw(st.booleans()):
        x = x[tuple(slice(None, None, draw(st.sampled_from((1, -1, 2)))) for _ in x.shape)]
    return x.T if draw(st.booleans()) else x


class Leaf:
    """An array in a tree, and the values that it was made from."""

    def __init__(self, library: str, values: np.ndarray) -> None:
        self.values = np.array(values)
        self.array = MAKE[library](values)


leaves = st.builds(Leaf, TARGETS, numpy_arrays())
others = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5),
    st.binary(max_size=5), st.builds(Opaque), st.frozensets(st.integers(), max_size=3), st.just(range(3)),
)  # fmt: skip
keys = st.one_of(st.text(max_size=4), st.integers(), st.tuples(st.integers(), st.text(max_size=2)))


def containers(children: Any) -> Any:
    dicts = st.dictionaries(keys, children, max_size=4)
    lists = st.lists(children, max_size=4)
    return st.one_of(
        dicts,
        dicts.map(collections.OrderedDict),
        dicts.map(lambda d: collections.defaultdict(list, d)),
        dicts.map(DictSubclass),
        dicts.map(types.MappingProxyType),
        dicts.map(collections.UserDict),
        lists,
        lists.map(tuple),
        lists.map(lambda items: collections.deque(items, maxlen=7)),
        st.builds(Pair, children, children),
        st.builds(Frozen, children, children),
        st.builds(Node, children),
    )


trees = st.recursive(st.one_of(leaves, others), containers, max_leaves=12)


def filled(tree: Any) -> Any:
    """The same tree, with each `Leaf` replaced by its array."""
    return _mapped(tree, lambda leaf: leaf.array)


def _mapped(tree: Any, function: Any) -> Any:
    if isinstance(tree, Leaf):
        return function(tree)
    if isinstance(tree, collections.defaultdict):
        return collections.defaultdict(
            tree.default_factory, {k: _mapped(v, function) for k, v in tree.items()}
        )
    if isinstance(tree, (dict, types.MappingProxyType, collections.UserDict)):
        return type(tree)({k: _mapped(v, function) for k, v in tree.items()})
    if isinstance(tree, Pair):
        return Pair(*(_mapped(v, function) for v in tree))
    if isinstance(tree, collections.deque):
        return collections.deque((_mapped(v, function) for v in tree), tree.maxlen)
    if isinstance(tree, (list, tuple)):
        return type(tree)(_mapped(v, function) for v in tree)
    if dataclasses.is_dataclass(tree):
        return dataclasses.replace(
            tree,
            **{f.name: _mapped(getattr(tree, f.name), function) for f in dataclasses.fields(tree)},
        )
    return tree


def check(tree: Any, found: Any, target: str | None) -> None:
    """Check both trees: same structure, order and types, equal values, all else the same object."""
    if isinstance(tree, Leaf):
        if target is not None:
            assert af.backend_of(found).name == target
        n = READ[af.backend_of(found).name](found)
        assert n.dtype == tree.values.dtype
        np.testing.assert_array_equal(n, tree.values)
        return
    if not isinstance(
        tree, (dict, types.MappingProxyType, collections.UserDict, list, tuple, collections.deque)
    ) and not dataclasses.is_dataclass(tree):
        assert found is tree
        return
    assert type(found) is type(tree)
    if isinstance(tree, (dict, types.MappingProxyType, collections.UserDict)):
        assert list(found) == list(tree)
        assert [type(k) for k in found] == [type(k) for k in tree]
        for key in tree:
            check(tree[key], found[key], target)
        if isinstance(tree, collections.defaultdict):
            assert found.default_factory is tree.default_factory
    elif dataclasses.is_dataclass(tree):
        for field in dataclasses.fields(tree):
            check(getattr(tree, field.name), getattr(found, field.name), target)
    else:
        assert len(found) == len(tree)
        for ours, theirs in zip(found, tree, strict=True):
            check(theirs, ours, target)
        if isinstance(tree, collections.deque):
            assert found.maxlen == tree.maxlen


@hypothesis.given(trees, TARGETS)
def test_structure_values_and_identity(tree, target):
    given = filled(tree)
    check(tree, af.convert(given, target), target)
    check(tree, given, None)


@hypothesis.given(trees, TARGETS, TARGETS)
def test_round_trip(tree, one, two):
    given = filled(tree)
    check(tree, af.convert(af.convert(given, one), two), two)


@hypothesis.given(trees, TARGETS)
def test_copy_true_copies(tree, target):
    made: list[Any] = []
    given = _mapped(tree, lambda leaf: made.append(leaf.array) or leaf.array)
    found = af.convert(given, target, copy=True)
    for array in made:
        if isinstance(array, np.ndarray) and array.flags.writeable:
            array[...] = 1
        elif isinstance(array, torch.Tensor):
            array.fill_(1)
    check(tree, found, target)


@hypothesis.given(st.lists(trees, min_size=2, max_size=4), TARGETS)
def test_one_conversion_for_changing_structures(several, target):
    conversion = af.converter(target)
    for _ in range(3):
        for tree in several:
            check(tree, conversion(filled(tree)), target)
