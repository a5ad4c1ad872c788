"""Checks and normalizes the results of an environment's step."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from array_api_compat import is_numpy_namespace

import arrayferry as af
from arrayferry.extending import dtype_name
from arrayferry.typing import AnyArray, AnyTree, Namespace
from arrayferry_gym.extending import cast_clipped, cast_fitting, held_dtype

from .errors import EnvResultError
from .functional_env import FunctionalEnv


class StepResults:
    """Checks and normalizes the results of the steps of a batch of environments.

    Args:
        env: the environment whose steps return the results.
        xp: the namespace of the library.
        n: the number of environments.
    """

    def __init__(self, env: FunctionalEnv, xp: Namespace, n: int) -> None:
        self._name = type(env).__name__
        self._xp = xp
        self._n = n
        shape, dtype = env.reward_shape, env.reward_dtype
        valid = isinstance(shape, (tuple, list)) and all(type(x) is int and x >= 0 for x in shape)
        if not valid:
            raise EnvResultError(
                f"reward_shape of {self._name} is {shape!r:.80}",
                remedy="Set it to a tuple of whole numbers: () for one number, (2,) for two objectives.",
            )
        self._shape = (n, *shape)
        self._whole_name = "float32"  # the dtype to which whole numbers are cast
        if dtype is not None:
            self._whole_name = _stated_dtype(self._name, xp, dtype)
        self._whole: Any = getattr(xp, self._whole_name)
        self._dtype = None if dtype is None else self._whole
        self._exact = 2 ** (np.finfo(self._whole_name).nmant + 1)
        self._in_numpy = is_numpy_namespace(xp)
        self._float: Any = None  # float rewards of this dtype need no check and no cast
        self._warned: set[str] = set()

    def __call__(self, result: AnyTree) -> tuple[Any, Any, Any, Any]:
        """Return the state, the reward, the termination flags, and the truncation flags or None."""
        try:
            if type(result) is tuple and len(result) == 3:
                (state, reward, terminated), truncated = result, None
            else:
                state, reward, terminated, *rest = result
                (truncated,) = rest or (None,)
        except (TypeError, ValueError):
            got = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
            raise EnvResultError(
                f"{self._name}.step() returned {got}, not three or four values",
                remedy="Return the state, the reward, whether it has terminated, and optionally whether it is truncated.",
            ) from None
        if truncated is not None:
            truncated = self._flag("truncated", truncated)
        return state, self._reward(reward), self._flag("terminated", terminated), truncated

    def cast(self, x: AnyArray, dtype: Any, what: str) -> Any:
        """Cast an array of rewards or observations, without checks of its numbers."""
        return cast_clipped(x, dtype)

    def _reward(self, reward: AnyArray) -> Any:
        """Return a reward as floats of shape (n, *reward_shape).

        Whole numbers become float32, unless `reward_dtype` is set. If the cast loses digits, an error is raised. In JAX
        and on a GPU, this check would wait for the device. Instead, one warning for each dtype says that digits may be
        lost.
        """
        if isinstance(reward, (int, float)):
            if len(self._shape) > 1:
                raise self._of_another_shape(reward)
            if abs(reward) > self._exact:
                self._check_exact(np.asarray(reward))
            return self._full(float(reward), self._whole)
        dtype = getattr(reward, "dtype", None)
        if dtype is None or tuple(reward.shape) != self._shape:
            raise self._of_another_shape(reward)
        # None is excluded first, since np.dtype("float64") == None is true
        if self._float is not None and dtype == self._float:
            return reward
        name = dtype_name(dtype)
        if "float" in name:
            if self._dtype is not None and self._dtype != dtype:
                return self.cast(reward, self._dtype, "reward")
            self._float = dtype
            return reward
        if name.startswith("complex"):
            raise EnvResultError(
                f"the reward of {self._name}.step() is of dtype {name}",
                remedy="Return its real part.",
            )
        if 2 ** _DIGITS.get(name, 64) > self._exact:
            backend = af.backend_of(reward)
            is_readable = backend.name != "jax" and not backend.is_traced(reward)
            if is_readable and backend.device_of(reward) == "cpu":
                values = reward.detach() if backend.name == "torch" else reward
                self._check_exact(backend.to_numpy(values))
            elif name not in self._warned and not getattr(reward, "weak_type", False):
                self._warned.add(name)
                warnings.warn(
                    f"the rewards of {self._name}.step() are of dtype {name}. They become {self._whole_name}, which is exact up to "
                    f"{self._exact:,}. Return xp.astype(reward, xp.{self._whole_name}) if they "
                    "never exceed that",
                    stacklevel=2,
                )
        return self.cast(reward, self._whole, "reward")

    def _of_another_shape(self, reward: AnyArray) -> EnvResultError:
        """Return the error for a reward whose shape differs from `reward_shape`."""
        reward_shape, shape = self._shape[1:], np.shape(reward)
        remedy = f"Return an array of shape {self._shape}."
        if hasattr(reward, "dtype") and shape[:1] == (self._n,):
            remedy = f"Set reward_shape = {tuple(shape[1:])} in the class, or return an array of shape {self._shape}."
            if shape[1:] == (1,) and not reward_shape:
                remedy = (
                    f"Return one number for each environment, of shape {self._shape}: reward[:, 0]."
                )
            got = f"has the shape {tuple(shape)}"
        else:
            got = f"is {reward!r:.80}"
        return EnvResultError(
            f"the reward of {self._name}.step() {got}, but with {self._n} environments and reward_shape = {reward_shape} it must "
            f"have the shape {self._shape}",
            remedy=remedy,
        )

    def _flag(self, which: str, value: AnyTree) -> Any:
        """Return "terminated" or "truncated" as booleans of shape (n,)."""
        xp, n = self._xp, self._n
        if isinstance(value, bool):
            return self._full(value, xp.bool)
        if not hasattr(value, "dtype") or value.dtype != xp.bool or tuple(value.shape) != (n,):
            raise EnvResultError(
                f"{which} of {self._name}.step() is {value!r:.80}, but must be {n} booleans",
                remedy=f"Return an array of shape ({n},) and dtype bool.",
            )
        return value

    def _full(self, value: AnyTree, dtype: Any) -> Any:
        """Return a new array with the same value for each environment."""
        if self._in_numpy:  # this is several times as fast as xp.full
            x = np.empty(self._n, dtype)
            x.fill(value)
            return x
        return self._xp.full((self._n,), value, dtype=dtype)

    def _check_exact(self, reward: AnyArray) -> None:
        """Check that numbers fit the dtype of rewards, and that whole numbers keep all digits."""
        try:
            cast_fitting(reward, np.dtype(self._whole_name), "it")
        except af.NarrowingError as error:
            raise EnvResultError(
                f"the reward of {self._name}.step() loses digits: {error.reason.partition(': ')[2]}",
                remedy='Set reward_dtype = "float64" in the class, or return smaller numbers.',
            ) from None


def _stated_dtype(name: str, xp: Namespace, dtype: Any) -> str:
    """Check `reward_dtype`. Return the name of the dtype in the library: "float32" for "float64" in 32-bit JAX."""
    try:
        kind = np.dtype(dtype).kind
    except TypeError:
        kind = ""
    if kind != "f":
        raise EnvResultError(
            f"reward_dtype of {name} is {dtype!r:.80}",
            remedy='Set it to the name of a float dtype, such as "float64", or to None.',
        )
    return held_dtype(dtype, af.backend_of(xp.zeros((1,))))


_DIGITS = {"bool": 1, "int8": 7, "uint8": 8, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32}
"""The numbers of binary digits of integer dtypes, without the sign."""
