"""What is kept of an environment of another library: a copy, and the key of its contents."""

from __future__ import annotations

import copy
import copyreg
import hashlib
import sys
from collections.abc import Hashable, Iterable
from typing import Any

import jax
import numpy as np

import arrayferry as af
from arrayferry.adapting import Same, attributes, compares
from arrayferry_gym._keys.identity import EnvironmentKeys


def copied(env: Any, params: Any) -> tuple[Any, Any]:
    """Copy an environment and its parameters, so that later changes of both do not matter to compiled code.

    Raises:
        arrayferry.OptionError: the environment cannot be copied.
    """
    try:
        modules = {id(module): module for module in sys.modules.values()}  # which stay as they are
        return copy.deepcopy((env, params), modules)
    except Exception as error:  # of any kind, as it is the code of others
        raise af.OptionError(
            f"{type(env).__module__}.{type(env).__qualname__} cannot be copied ({type(error).__name__}: {error!s:.200})",
            remedy="Do not keep in it what cannot be copied, such as open files.",
        ) from error


class Contents(Same):
    """The key of the contents of a value that does not change. It does not keep the value alive."""

    __slots__ = ("_hash",)

    def __init__(self, value: Any) -> None:
        super().__init__(_ContentKeys().of(value))
        self._hash = hash(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contents) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return self._hash


class _ContentKeys(EnvironmentKeys):
    """Keys of environments by their contents. What cannot be looked into equals only itself."""

    def array(self, x: Any) -> Hashable:
        """Take the contents of JAX's arrays, too."""
        if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
            return super().array(x)
        data = jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        digest = hashlib.blake2b(np.asarray(data).tobytes(), digest_size=32).digest()
        return str(x.dtype), x.shape, x.weak_type, x.sharding, digest

    def parts(self, value: Any, cls: type) -> Iterable[tuple[str, Any]] | None:
        """Take the attributes of objects that Python's classes have made, and that hold nothing else."""
        if not compares(cls) and _is_plain(value, cls):
            return [(f".{name}", part) for name, part in attributes(value)]
        return super().parts(value, cls)


def _is_plain(value: Any, cls: type) -> bool:
    """Tell whether an object is nothing but its attributes."""
    try:
        made: Any = object.__reduce_ex__(value, 2)
    except Exception:  # it holds what only C sees
        return False
    return isinstance(made, tuple) and made[:2] == (getattr(copyreg, "__newobj__"), (cls,))  # noqa: B009
