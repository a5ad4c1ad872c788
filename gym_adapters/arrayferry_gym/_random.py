"""`Random`: random numbers of one array library, for code that supports any library."""

from __future__ import annotations

import copy
import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from arrayferry import Backend, OptionError, registry
from arrayferry._utilities.cache import once
from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import stream_seed
from arrayferry._utilities.text import never_raises
from arrayferry.extending import Part, dtype_name
from arrayferry.typing import AnyArray, AnyTree, Device, Target

Seed = int | Sequence[int] | None
"""An integer of at least 0, a sequence of such integers, or None for a seed from the operating system."""


FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))


class Random(ABC):
    """A random number generator whose results are arrays of one library. `make_rng` returns it.

    A seed determines the numbers within a library. In another library, the same seed gives other numbers. In all
    libraries, methods raise an `OptionError` for a shape to which the other arguments do not broadcast, and for a dtype
    that the method does not support.

    Examples:
        >>> from arrayferry_gym import make_rng
        >>> rng = make_rng("numpy", seed=1)
        >>> rng.uniform((2, 3), -1.0, 1.0).shape
        (2, 3)
        >>> sorted(set(rng.integers((1000,), 0, 3).tolist()))
        [0, 1, 2]
    """

    @abstractmethod
    def uniform(
        self,
        shape: Sequence[int],
        low: AnyArray = 0.0,
        high: AnyArray = 1.0,
        dtype: str = "float32",
    ) -> Any:
        """Return numbers uniformly distributed in [low, high).

        Args:
            shape: the shape of the result.
            low: the lower bound, a number or an array that broadcasts to the shape.
            high: the upper bound, a number or an array that broadcasts to the shape. Rounded results may be equal to
                it.
            dtype: the name of a real floating-point dtype.
        """

    @abstractmethod
    def normal(
        self,
        shape: Sequence[int],
        mean: AnyArray = 0.0,
        std: AnyArray = 1.0,
        dtype: str = "float32",
    ) -> Any:
        """Return normally distributed numbers.

        Args:
            shape: the shape of the result.
            mean: the mean, a number or an array that broadcasts to the shape.
            std: the standard deviation, a number or an array that broadcasts to the shape.
            dtype: the name of a real floating-point dtype.
        """

    @abstractmethod
    def integers(
        self, shape: Sequence[int], low: AnyArray, high: AnyArray, dtype: str = "int32"
    ) -> Any:
        """Return integers uniformly distributed in [low, high).

        Args:
            shape: the shape of the result.
            low: the lowest integer, as a number or an array that broadcasts to the shape.
            high: the highest integer plus 1, as a number or an array that broadcasts to the shape.
            dtype: the name of an integer dtype.

        Raises:
            OptionError: `low` is not less than `high`, or the dtype cannot represent every integer of the range. Arrays
                that are traced or on an accelerator are not checked.
        """

    @abstractmethod
    def categorical(self, shape: Sequence[int], logits: AnyArray, dtype: str = "int32") -> Any:
        """Return indices, each with the probability `softmax(logits)[..., index]`.

        Args:
            shape: the shape of the result.
            logits: an array of unnormalised log-probabilities along the last axis. Its other axes broadcast
                to the shape.
            dtype: the name of an integer dtype.

        Raises:
            OptionError: the last axis of `logits` is empty, or longer than the dtype can count.
        """

    @staticmethod
    def _checked(method: str, shape: Any, dtype: Any, *arrays: Any) -> Any:
        """Check the arguments of a method. Return the shape as a tuple, the name of the dtype, and all arrays.

        Args:
            method: the name of the method.
            shape: the shape of the result.
            dtype: the dtype of the result.
            arrays: numbers, arrays or lists that must broadcast to the shape, for logits without the last axis. Lists
                are converted to NumPy arrays.

        Raises:
            OptionError: the method does not support the shape or the dtype, or an array does not broadcast.
        """
        arrays = tuple(np.asarray(x) if isinstance(x, (list, tuple)) else x for x in arrays)
        dtypes = FLOATS if method in ("uniform", "normal") else INTEGERS
        name = dtype if isinstance(dtype, str) else dtype_name(dtype)
        problem, remedy = "", "Pass a tuple of integers of 0 or more, such as (3,)."
        try:
            sizes = tuple(shape)
            if not all(hasattr(n, "__index__") and n >= 0 for n in sizes):
                raise TypeError
        except TypeError:
            sizes, problem = (), f"the shape {shape!r:.80}"
        if name not in dtypes:
            problem, remedy = f"the dtype {dtype!r:.80}", f"Pass one of {', '.join(dtypes)}."
        for array_shape in [tuple(getattr(x, "shape", ())) for x in arrays] if not problem else ():
            batch_shape = array_shape[:-1] if method == "categorical" else array_shape
            length_pairs = zip(reversed(batch_shape), reversed(sizes), strict=False)
            if len(batch_shape) > len(sizes) or any(a not in (1, b) for a, b in length_pairs):
                problem = f"the shape {sizes} with an array of shape {array_shape}, which does not broadcast to it"
                remedy = (
                    "Pass the shape of the whole result, or an array that broadcasts to the shape."
                )
            elif method == "categorical":
                check_integers(0, array_shape[-1] if array_shape else 0, name)
        if problem:
            raise OptionError(f"rng.{method} does not support {problem}", remedy=remedy)
        return sizes, name, *arrays

    def getstate(self) -> Any:
        """Return the current state, which `setstate` restores. The state can be pickled.

        Examples:
            >>> from arrayferry_gym import make_rng
            >>> rng = make_rng("numpy", seed=1)
            >>> state = rng.getstate()
            >>> first = rng.uniform((3,))
            >>> rng.setstate(state)
            >>> bool((rng.uniform((3,)) == first).all())
            True
        """
        return copy.deepcopy(vars(self))

    def setstate(self, state: AnyTree) -> None:
        """Continue from a state that `getstate` returned."""
        vars(self).clear()
        vars(self).update(copy.deepcopy(state))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def key(self) -> Any:
        """Return a new JAX key, for functions of JAX that draw numbers. Other libraries do not use keys.

        Raises:
            OptionError: the library is not JAX.
        """
        raise OptionError(
            "rng.key() was called, but only JAX has keys",
            remedy="Draw numbers by rng.uniform, normal, integers or categorical, which any library has.",
        )


class RandomFactory(Part):
    """Makes the random number generators of a library. A plugin's hook `arrayferry_random` returns a list of factories.

    Attributes:
        name: the name of the backend.
    """

    contract = "arrayferry_gym._contract:RandomTests"

    @abstractmethod
    def make(self, seed: Seed = None, device: Device = None) -> Random:
        """Return a random number generator.

        Args:
            seed: an integer of at least 0, a sequence of them, or None for a seed from the operating system.
            device: the device of the numbers, or None for the library's default device.
        """


def make_rng(to: Target, seed: Seed = None, device: Device = None) -> Random:
    """Return a random number generator for a library.

    If no plugin has a generator for this library, NumPy draws the numbers, and they are converted.

    Args:
        to: the library, as a name, a namespace module or a `Backend`.
        seed: an integer of at least 0, a sequence of them, or None for a seed from the operating system.
        device: the device of the numbers, or None for the library's default device.

    Raises:
        UnknownBackendError: the library is unknown.

    Examples:
        >>> from arrayferry_gym import make_rng
        >>> make_rng("torch", seed=0).uniform((2,)).shape
        torch.Size([2])
    """
    backend = registry.backend(to)
    if isinstance(seed, (list, tuple)):
        seed = stream_seed("numbers", *seed)
    factory: RandomFactory | None = registry.parts("arrayferry_random").of(backend)
    return HostRandom(backend, seed, device) if factory is None else factory.make(seed, device)


def check_integers(low: AnyArray, high: AnyArray, dtype: str) -> None:
    """Check the arguments of `Random.integers`.

    Args:
        low: the lowest integer, as a number or a NumPy array. Arrays of other libraries are not checked.
        high: the highest integer plus 1, as a number or a NumPy array.
        dtype: the name of the dtype.

    Raises:
        OptionError: `low` is not less than `high`, or the dtype cannot represent every integer of the range.
    """
    limits = _limits(dtype)
    lower, upper = _extreme(low, min), _extreme(high, max)
    if limits is not None:
        least, most = limits
        if (lower is not None and lower < least) or (upper is not None and upper > most + 1):
            raise OptionError(
                f"integers from {lower if lower is not None else 'low'} to below {upper if upper is not None else 'high'} "
                f"do not fit {dtype}, whose range is {least} to {most}",
                remedy="Pass other bounds, or a wider dtype.",
            )
    if lower is not None and upper is not None:
        is_empty: Any = low >= high
        if is_empty if isinstance(is_empty, bool) else is_empty.any():
            raise OptionError(
                f"there are no integers from {low!r:.80} to below {high!r:.80}",
                remedy="Pass a `high` that is greater than `low`.",
            )


@functools.lru_cache(64)
def _limits(dtype: str) -> tuple[int, int] | None:
    """Return the lowest and the highest integer of an integer dtype, or None for other dtypes."""
    dtype_match = re.fullmatch(r"(u?)int(\d+)", dtype)
    if dtype_match is None:
        return None
    bits = int(dtype_match[2])
    return (0, 2**bits - 1) if dtype_match[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _extreme(bound: AnyArray, extreme: Any) -> Any:
    """Return the lowest or the highest number of a bound as a Python number.

    Args:
        bound: a number or an array.
        extreme: `min` or `max`.

    Returns:
        The number, or None for an empty array and for arrays of other libraries than NumPy, which are not read.
    """
    if isinstance(bound, (int, float)):
        return bound
    if not isinstance(bound, (np.ndarray, np.generic)) or bound.size == 0:
        return None
    return extreme(bound.min().item(), bound.max().item())


@uncompiled
class HostRandom(Random):
    """A `Random` for any library. NumPy draws the numbers in host memory, and they are converted.

    Args:
        backend: the library of the results.
        seed: the seed, as for `make_rng`.
        device: the device of the results, or None for the library's default device.
    """

    def __init__(self, backend: Backend, seed: Seed = None, device: Device = None) -> None:
        self._seed = seed
        self._backend = backend
        self._device = device

    @once
    def _generator(self) -> Any:
        """NumPy's generator, created at its first use, since its creation takes longer than an environment's step."""
        return np.random.default_rng(self._seed)

    def getstate(self) -> Any:
        return self._generator.bit_generator.state

    def setstate(self, state: AnyTree) -> None:
        self._generator.bit_generator.state = state

    @never_raises
    def __repr__(self) -> str:
        return f"<HostRandom of {self._backend.name}>"

    def _values(self, parameter: Any) -> Any:
        """Return an argument as a NumPy array. Python numbers stay Python numbers, so that they do not widen a dtype."""
        if type(parameter) in (bool, int, float):
            return parameter
        if isinstance(parameter, (np.ndarray, np.generic, list, tuple)):
            return np.asarray(parameter)
        return self._backend.to_numpy(parameter)

    def _converted(self, values: AnyTree, dtype: str) -> Any:
        if values.dtype != dtype:
            values = values.astype(dtype)
        return self._backend.from_numpy(values, self._device)

    def uniform(
        self,
        shape: Sequence[int],
        low: AnyArray = 0.0,
        high: AnyArray = 1.0,
        dtype: str = "float32",
    ) -> Any:
        low, high = _as_floats(self._values(low)), _as_floats(self._values(high))
        shape, dtype, low, high = self._checked("uniform", shape, dtype, low, high)
        values = self._generator.random(shape, _drawn_dtype(dtype))
        values = values * (high - low)
        values += low
        return self._converted(values, dtype)

    def normal(
        self,
        shape: Sequence[int],
        mean: AnyArray = 0.0,
        std: AnyArray = 1.0,
        dtype: str = "float32",
    ) -> Any:
        mean, std = self._values(mean), self._values(std)
        shape, dtype, mean, std = self._checked("normal", shape, dtype, mean, std)
        values = self._generator.standard_normal(shape, _drawn_dtype(dtype))
        return self._converted(values * std + mean, dtype)

    def integers(
        self, shape: Sequence[int], low: AnyArray, high: AnyArray, dtype: str = "int32"
    ) -> Any:
        low, high = self._values(low), self._values(high)
        shape, dtype, low, high = self._checked("integers", shape, dtype, low, high)
        check_integers(low, high, dtype)
        try:
            values = self._generator.integers(low, high, shape)
        except (OverflowError, ValueError):  # a bound is out of the range of int64, NumPy's default
            values = self._generator.integers(low, high, shape, "uint64")
        return self._converted(values, dtype)

    def categorical(self, shape: Sequence[int], logits: AnyArray, dtype: str = "int32") -> Any:
        logits = self._values(logits)
        shape, dtype, logits = self._checked("categorical", shape, dtype, logits)
        # if `waits` are exponential, argmax(logits - log(waits)) has probabilities softmax(logits)
        waits = self._generator.standard_exponential((*shape, logits.shape[-1])) + 1e-300
        return self._converted((logits - np.log(waits)).argmax(-1), dtype)


def _as_floats(bound: AnyArray) -> Any:
    """Cast an integer array to floats, since `high - low` may overflow in its dtype. Other bounds stay unchanged."""
    is_float = type(bound) in (bool, int, float) or bound.dtype.kind == "f"
    return bound if is_float else bound.astype("float64")


def _drawn_dtype(dtype: str) -> Any:
    """Return the dtype in which NumPy draws numbers before a cast to `dtype`. It is float32 or float64."""
    return dtype if dtype == "float64" else "float32"
