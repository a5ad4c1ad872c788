"""Gymnasium's functions for conversions. Unlike in Gymnasium, they also convert Python numbers to arrays."""

from __future__ import annotations

from typing import Any

import arrayferry as af
from arrayferry.typing import AnyTree, Device, Target


def array_conversion(value: AnyTree, xp: Target, device: Device = None, **options: Any) -> Any:
    """Convert every array and every number in a value to a library.

    Args:
        value: an array or number of any library, a tree of arrays and numbers, or any other object.
        xp: the library, as a namespace or by name.
        device: the device of the results.
        **options: `copy`, `narrowing`, `scalars`, `unsupported`, `unknown` and `sparse`, as in
            `arrayferry.convert`. By default, Python numbers become arrays, and sparse arrays become dense arrays.

    Raises:
        arrayferry.ArrayFerryError: as for `arrayferry.convert`.

    Examples:
        >>> from arrayferry_gym import array_conversion
        >>> array_conversion({"a": 1.5}, "numpy")
        {'a': array(1.5)}
    """
    options.setdefault("scalars", "convert")
    options.setdefault("sparse", "dense")
    return af.convert(value, xp, device=device, **options)


def jax_to_numpy(value: AnyTree, **options: Any) -> Any:
    """Convert the JAX arrays in a value to NumPy arrays. See `array_conversion`."""
    return array_conversion(value, "numpy", **options)


def torch_to_numpy(value: AnyTree, **options: Any) -> Any:
    """Convert the PyTorch tensors in a value to NumPy arrays. See `array_conversion`."""
    return array_conversion(value, "numpy", **options)


def numpy_to_jax(value: AnyTree, device: Device = None, **options: Any) -> Any:
    """Convert the NumPy arrays in a value to JAX arrays. See `array_conversion`."""
    return array_conversion(value, "jax", device, **options)


def torch_to_jax(value: AnyTree, device: Device = None, **options: Any) -> Any:
    """Convert the PyTorch tensors in a value to JAX arrays. See `array_conversion`."""
    return array_conversion(value, "jax", device, **options)


def numpy_to_torch(value: AnyTree, device: Device = None, **options: Any) -> Any:
    """Convert the NumPy arrays in a value to PyTorch tensors. See `array_conversion`."""
    return array_conversion(value, "torch", device, **options)


def jax_to_torch(value: AnyTree, device: Device = None, **options: Any) -> Any:
    """Convert the JAX arrays in a value to PyTorch tensors. See `array_conversion`."""
    return array_conversion(value, "torch", device, **options)
