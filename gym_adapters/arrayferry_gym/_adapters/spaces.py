"""Converted spaces, which sample and contain arrays of the agent's library.

A converted space equals the original space, and is an instance of the same class. The two spaces share one random
generator, so seeding either space seeds both.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, unflatten
from gymnasium.vector.utils import (
    batch_differing_spaces,
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)
from gymnasium.wrappers.utils import create_zero_array

import arrayferry as af
from arrayferry.extending import dtype_name, map_arrays
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym._actions.fitter import Fitter
from arrayferry_gym._options.libraries import Libraries
from arrayferry_gym._spaces.trees import ARRAYS, branches, build, leaves, split


def converted_space(original: Space[Any], libraries: Libraries, observed: bool = True) -> Any:
    """Return a space that samples and contains arrays of the agent's library.

    Args:
        original: a space of the environment, or a converted space.
        libraries: the libraries of the adapter. Samples are converted as soon as the agent's library is known.
        observed: has no effect. Older code and pickles pass it.
    """
    if isinstance(original, Converted):
        original = original.original

    new_space: Any = object.__new__(_converted_class(type(original)))
    new_space.__dict__.update(original.__dict__)
    new_space.original, new_space.libraries = original, libraries
    if isinstance(original, spaces.Dict):
        inner = ((key, converted_space(x, libraries)) for key, x in original.spaces.items())
        new_space.spaces = type(original.spaces)(inner)
    elif isinstance(original, (spaces.Tuple, spaces.OneOf)):
        new_space.spaces = tuple(converted_space(x, libraries) for x in original.spaces)
    elif isinstance(original, spaces.Sequence):
        new_space.feature_space = converted_space(original.feature_space, libraries)
    return new_space


_CLASSES: dict[type, type] = {}


def _converted_class(cls: type) -> type:
    """Return the class that derives from `Converted` and `cls`. All threads use the same class."""
    converted = _CLASSES.get(cls)
    if converted is None:
        new_cls = type(cls.__name__, (Converted, cls), {"__module__": cls.__module__})
        # in these two functions, Gymnasium's entry for `cls` would precede that for `Converted`
        for function in (iterate, batch_differing_spaces):
            if cls in function.registry:
                function.register(new_cls, _FUNCTIONS[function])
        converted = _CLASSES.setdefault(cls, new_cls)
    return converted


class Converted:
    """The methods in which a converted space differs from its original."""

    original: Any
    libraries: Libraries

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Return a sample in the agent's library. Masks and probabilities may be of any library."""
        if args or kwargs:
            args, kwargs = map_arrays(_as_probabilities, af.convert((args, kwargs), "numpy"))
        return self.libraries.to_agent(self.original.sample(*args, **kwargs))

    def contains(self, x: AnyTree) -> bool:
        """Tell whether the space contains a value. The arrays in the value may be of any library."""
        try:
            parts = split(self.original, af.convert(x, "numpy"), TypeError)
            leaf_parts = zip(leaves(self.original), parts, strict=True)
            return all(_leaf_contains(space, part) for (space, _), part in leaf_parts)
        except Exception:
            return False

    def seed(self, seed: Any = None) -> Any:
        """Seed the original space. The converted space uses the same random generator."""
        return self.original.seed(seed)

    @property
    def np_random(self) -> Any:
        """The random generator of the original space."""
        return self.original.np_random

    def to_jsonable(self, sample_n: Any) -> Any:
        """Convert samples of any library to values for JSON, as the original space does."""
        samples = af.convert(list(sample_n), "numpy")
        return self.original.to_jsonable([Fitter(self.original).fit(x) for x in samples])

    def from_jsonable(self, sample_n: Any) -> Any:
        """Convert a result of `to_jsonable` back to samples, in the agent's library."""
        return self.libraries.to_agent(self.original.from_jsonable(sample_n))

    def __copy__(self) -> Any:
        return converted_space(copy.copy(self.original), self.libraries)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return converted_space(copy.deepcopy(self.original, memo), self.libraries)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if _target_of(self.libraries) in (None, "numpy"):
            # pickle only the original space, so that the pickle can be loaded without this package
            return copy.copy, (self.original,)
        return converted_space, (self.original, self.libraries)


def _as_probabilities(x: AnyArray) -> Any:
    """Cast floats to float64, as Gymnasium requires. Probabilities are scaled if their sum is only about 1."""
    if "float" not in dtype_name(x.dtype) or x.dtype == np.float64:
        return x
    tolerance, x = 1e-5 if x.dtype.itemsize == 4 else 1e-2, x.astype(np.float64)
    total = x.sum(axis=-1, keepdims=True)
    return x / np.where(abs(total - 1) < tolerance, total, 1)


# The functions below implement Gymnasium's functions on spaces for converted spaces.


class _Batch:
    """A substitute for `Libraries` in a space of batches. Batches in shared memory are converted only for PyTorch.

    Args:
        libraries: the `Libraries` of the space of one environment.

    Attributes:
        shared: whether the batches are views of memory that processes share.
    """

    def __init__(self, libraries: Any) -> None:
        self.libraries = libraries
        self.shared = False

    @property
    def target_backend(self) -> af.Backend | None:
        stays_numpy = self.shared and _target_of(self.libraries) != "torch"
        return af.registry.backend("numpy") if stays_numpy else self.libraries.target_backend

    def to_agent(self, value: AnyTree) -> Any:
        """Convert a sample or a batch to the agent's library."""
        if not self.shared:
            return self.libraries.to_agent(value)
        return _over_shared_memory(value, self.libraries)


def _target_of(libraries: Any) -> str | None:
    """Return the name of the agent's library, or None until it is known."""
    target = libraries.target_backend
    return None if target is None else target.name


def _batched(space: Any, batch: Space[Any]) -> Any:
    """Return a space of batches as a converted space, for batches of observations or actions of `space`."""
    libraries = space.__dict__.setdefault("batch", _Batch(space.libraries))
    return converted_space(batch, libraries)


def _batch_differing(several: Sequence[Any]) -> Any:
    originals = [getattr(space, "original", space) for space in several]
    return _batched(several[0], batch_differing_spaces(originals))


def _empty_array(space: Any, *args: Any, **options: Any) -> Any:
    return space.libraries.to_agent(create_empty_array(space.original, *args, **options))


def _concatenate(space: Any, items: Any, out: Any) -> Any:
    items = list(items)
    _, backend = af.first_array(items)
    if backend is None or backend.name == "numpy":
        _, backend = af.first_array(out)
        if backend is not None and backend.name != "numpy":
            out = create_empty_array(space.original, len(items))
        return concatenate(space.original, items, out)
    return _stacked(space.original, items, backend)


def _stacked(space: Space[Any], items: list[Any], backend: af.Backend) -> Any:
    item_parts = [split(space, item) for item in items]
    stacked = []
    for index, (leaf, _) in enumerate(leaves(space)):
        values = [parts[index] for parts in item_parts]
        if isinstance(leaf, ARRAYS):
            arrays = af.convert(values, backend, scalars="convert")
            stacked.append(af.namespace_of(arrays[0]).stack(arrays))
        else:
            stacked.append(tuple(values))
    return build(space, stacked)


def _flatten(space: Any, x: AnyArray) -> Any:
    array, backend = af.first_array(x)
    if backend is None:  # the value has no array, as in a Text space
        return space.libraries.to_agent(flatten(space.original, x))
    if backend.name == "numpy":  # a wrapper may have added NumPy arrays to the agent's tensors
        agent_arrays = (x for x in af.flatten(x)[0] if not isinstance(x, (np.ndarray, np.generic)))
        array = next(agent_arrays, None)
        if array is None:
            return flatten(space.original, x)
    original = space.original
    # unlike Gymnasium's `flatten`, `reshape` preserves gradients and the device
    if isinstance(original, (spaces.Box, spaces.MultiBinary)):
        return af.namespace_of(x).reshape(x, (-1,))
    numpy_value = Fitter(original).fit(af.convert(x, "numpy"))
    return af.convert(flatten(original, numpy_value), like=array)


def _unflatten(space: Any, x: AnyArray) -> Any:
    array, backend = af.first_array(x)
    if backend is None or backend.name == "numpy":
        return unflatten(space.original, x)
    if isinstance(space.original, (spaces.Box, spaces.MultiBinary)):
        return af.namespace_of(x).reshape(x, space.original.shape)
    value = unflatten(space.original, af.convert(x, "numpy"))
    return af.convert(value, like=array, scalars="convert")


def _read_from_shared_memory(space: Any, shared_memory: Any, n: int = 1) -> Any:
    batch = read_from_shared_memory(space.original, shared_memory, n)
    if "batch" in space.__dict__:
        space.batch.shared = True
    return _over_shared_memory(batch, space.libraries)


def _write_to_shared_memory(space: Any, index: int, value: AnyTree, shared_memory: Any) -> None:
    write_to_shared_memory(space.original, index, af.convert(value, "numpy"), shared_memory)


def _over_shared_memory(batch: AnyTree, libraries: Any) -> Any:
    """Convert a batch in shared memory to tensors of the same memory if the agent uses PyTorch.

    For other libraries, the batch is returned in NumPy, since immutable arrays, as in JAX, would not show observations
    that processes write to the memory later.
    """
    if _target_of(libraries) == "torch":
        try:
            return af.convert(batch, "torch", copy=False)
        except af.ConversionError:  # PyTorch lacks the dtype, so the agent gets NumPy arrays
            pass
    return batch


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    batch_space: lambda space, n=1: _batched(space, batch_space(space.original, n)),
    batch_differing_spaces: _batch_differing,
    create_empty_array: _empty_array,
    concatenate: _concatenate,
    iterate: lambda space, items: iterate(space.original, items),
    create_zero_array: lambda space: space.libraries.to_agent(create_zero_array(space.original)),
    flatten: _flatten,
    unflatten: _unflatten,
    flatten_space: lambda space: converted_space(flatten_space(space.original), space.libraries),
    flatdim: lambda space: flatdim(space.original),
    create_shared_memory: lambda space, *args, **options: create_shared_memory(
        space.original, *args, **options
    ),
    read_from_shared_memory: _read_from_shared_memory,
    write_to_shared_memory: _write_to_shared_memory,
}


def _leaf_contains(space: Space[Any], x: AnyArray) -> bool:
    """Tell whether a space without subspaces contains `x`.

    The bounds of a Box are cast to the dtype of `x`, since JAX may have narrowed `x` to float32.
    """
    if isinstance(space, spaces.Box):
        x = np.asarray(x)
        if x.dtype != space.dtype and x.dtype.kind == space.dtype.kind == "f":
            low, high = space.low.astype(x.dtype), space.high.astype(x.dtype)
            return bool(x.shape == space.shape and np.all(x >= low) and np.all(x <= high))
        return bool(space.contains(x))
    if not isinstance(space, ARRAYS):
        x = Fitter(space, strict=True).fit(x)
    return bool(space.contains(x))


def first_converted(space: Any) -> Any:
    """Return the space if it is converted, otherwise the first converted space inside it, or None if there is none."""
    if isinstance(space, Converted):
        return space
    candidates = (first_converted(part) for _, part in branches(space) or ())
    return next((candidate for candidate in candidates if candidate is not None), None)


def original_space(space: Any) -> Any:
    """Return a space in which the original spaces replace all converted spaces."""
    subspaces = branches(space)
    if isinstance(space, Converted) or subspaces is None or first_converted(space) is None:
        return getattr(space, "original", space)
    parts = {key: original_space(part) for key, part in subspaces}
    return spaces.Dict(parts) if isinstance(space, spaces.Dict) else spaces.Tuple(parts.values())


def _around_converted(function: Any, cls: type) -> None:
    """Register a function of this module in Gymnasium, for a class of spaces that contain spaces, such as Dict.

    If a space inside is converted, the function treats the whole space as converted. Otherwise, it calls Gymnasium's
    function.
    """
    theirs, ours = function.dispatch(cls), _FUNCTIONS[function]

    def call_either(space: Any, *args: Any) -> Any:
        found = first_converted(space)
        if found is None:
            return theirs(space, *args)
        return ours(converted_space(original_space(space), found.libraries), *args)

    function.register(cls, call_either)


for _function in (flatten, unflatten, flatten_space):
    for _class in (spaces.Dict, spaces.Tuple):
        _around_converted(_function, _class)

# registered at import, since another thread could look up a function during a later registration
for _function, _ours in _FUNCTIONS.items():
    _function.register(Converted, _ours)
for _class in {*iterate.registry, *batch_differing_spaces.registry}:
    if issubclass(_class, Space):
        _converted_class(_class)
