"""The results of the step of an environment, checked and brought into one form."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from array_api_compat import is_numpy_namespace

import arrayferry as af
from arrayferry_gym._arrays import cast_numbers, plain_name

from .errors import EnvResultError


class StepResults:
    """Checks the results of the step of a batch of environments, and brings them into one form.

    Args:
        name: the name of the environment in messages.
        xp: the namespace of the library.
        n: the number of environments.
    """

    def __init__(self, name: str, xp: Any, n: int) -> None:
        self._name = name
        self._xp = xp
        self._n = n
        self._in_numpy = is_numpy_namespace(xp)
        self._float: Any = None  # the dtype of the last reward, which needs no check
        self._warned: set[str] = set()

    def parts(self, result: Any) -> tuple[Any, Any, Any, Any]:
        """Return the state, the reward, and the flags of termination and of truncation, which may be None."""
        if type(result) is tuple and len(result) == 3:
            return (*result, None)
        try:
            state, reward, terminated, *rest = result
            (truncated,) = rest or (None,)
        except (TypeError, ValueError):
            got = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
            raise EnvResultError(
                f"{self._name}.step() returned {got}, not three or four values",
                remedy="Return the state, the reward, whether it has terminated, and optionally whether it is truncated.",
            ) from None
        return state, reward, terminated, truncated

    def reward(self, reward: Any) -> Any:
        """Return a reward as floats that begin with the environments.

        Whole numbers become float32. If that loses digits, an error is raised. In JAX and on a GPU, where reading them
        would wait for the device, there is a warning instead, once for each dtype.
        """
        if type(reward) is float:
            return self._full(reward, self._xp.float32)
        if isinstance(reward, (int, float)):
            if isinstance(reward, int) and reward.bit_length() > 24:
                self._check_exact(np.asarray(reward))
            return self._full(float(reward), self._xp.float32)
        dtype = getattr(reward, "dtype", None)
        if dtype is None or tuple(reward.shape)[:1] != (self._n,):
            raise EnvResultError(
                f"the reward of {self._name}.step() is {reward!r:.80}, but must begin with {self._n} environments",
                remedy=f"Return an array of shape ({self._n},).",
            )
        if dtype == self._float:
            return reward
        kind = plain_name(dtype)
        if "float" in kind:
            self._float = dtype
            return reward
        if kind.startswith("complex"):
            raise EnvResultError(
                f"the reward of {self._name}.step() is of dtype {kind}",
                remedy="Return its real part.",
            )
        if kind not in _SHORT:
            backend = af.backend_of(reward)
            reads = backend.name != "jax" and not backend.is_traced(reward)
            if reads and backend.device_of(reward) == "cpu":
                values = reward.detach() if backend.name == "torch" else reward
                self._check_exact(backend.to_numpy(values))
            elif kind not in self._warned and not getattr(reward, "weak_type", False):
                self._warned.add(kind)
                warnings.warn(
                    f"the rewards of {self._name}.step() are of dtype {kind}. They become float32, which is exact up to "
                    "16,777,216. Return xp.astype(reward, xp.float32) if they never exceed that",
                    stacklevel=2,
                )
        return self._xp.astype(reward, self._xp.float32)

    def flag(self, which: str, value: Any) -> Any:
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

    def _full(self, value: Any, dtype: Any) -> Any:
        """Return a new array with this number for each environment."""
        if self._in_numpy:  # several times as fast as xp.full
            x = np.empty(self._n, dtype)
            x.fill(value)
            return x
        return self._xp.full((self._n,), value, dtype=dtype)

    def _check_exact(self, reward: Any) -> None:
        """Check that whole numbers fit float32."""
        try:
            cast_numbers(reward, np.dtype(np.float32))
        except ValueError as error:
            raise EnvResultError(
                f"the reward of {self._name}.step() loses digits: {error}",
                remedy="Return floats: xp.astype(reward, xp.float64), or smaller numbers.",
            ) from None


_SHORT = {"bool", "int8", "uint8", "int16", "uint16"}
"""Integer dtypes whose values all fit float32."""
