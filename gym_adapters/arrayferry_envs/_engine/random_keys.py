"""Converts JAX keys, typed or raw, and integers to typed keys."""

from __future__ import annotations

import contextlib
import functools
import numbers
from typing import Any

import jax
import jax.numpy as jnp

import arrayferry as af
from arrayferry._utilities.options import count_of
from arrayferry.typing import AnyTree


@functools.cache
def _type_of_keys() -> Any:
    with jax.ensure_compile_time_eval():
        return type(jax.random.key(0))


def as_key(value: AnyTree) -> Any:
    """Return a typed key for a typed or raw key, or None for other values.

    A raw key, as returned by `jax.random.PRNGKey`, becomes a key of JAX's default generator (`jax_default_prng_impl`)
    if it has the length of such keys. Otherwise, it becomes a key of "threefry2x32" (length 2) or "rbg" (length 4).
    """
    if not isinstance(value, jax.Array):
        return None
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value if value.shape == () else None
    if value.dtype != jnp.uint32 or value.ndim != 1:
        return None
    for generator in (str(jax.config.jax_default_prng_impl), "threefry2x32", "rbg"):
        with contextlib.suppress(
            TypeError
        ):  # JAX raises a TypeError if keys of this generator have another length
            return jax.random.wrap_key_data(value, impl=generator)
    return None


def key_of(key: Any) -> Any:
    """Return a typed key for a JAX key, or for an integer as its seed.

    Raises:
        arrayferry.OptionError: `key` is neither a JAX key nor an integer of 0 or more.
    """
    if isinstance(key, numbers.Integral):
        return jax.random.key(count_of("key", key, "an integer of 0 or more, or a JAX key", 0))
    return checked_key(key)


def checked_key(key: Any) -> Any:
    """Return a typed key for a JAX key.

    Raises:
        arrayferry.OptionError: the value is not a key.
    """
    # comparing types is faster than comparing dtypes
    if type(key) is _type_of_keys() and key.shape == ():
        return key
    typed_key = as_key(jnp.asarray(key) if getattr(key, "dtype", None) == "uint32" else key)
    if typed_key is None:
        key_text = str(key.aval) if isinstance(key, jax.core.Tracer) else repr(key)
        raise af.OptionError(
            f"key={key_text:.80} is not a JAX key", remedy="Pass jax.random.key(0), for instance."
        )
    return typed_key
