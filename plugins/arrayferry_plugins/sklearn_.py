"""scikit-learn: fitted estimators that support the Array API. Their learned arrays are converted."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

from arrayferry import Container
from arrayferry.typing import AnyArray, AnyTree


class Estimators(Container):
    """Fitted estimators, also in pipelines. The result is a copy with other arrays.

    An estimator that does not support the Array API is returned unchanged, since it cannot use other arrays. If an
    estimator has `__sklearn_array_api_convert__`, scikit-learn's own method for conversions, this method replaces the
    arrays.
    """

    types: tuple[Any, ...] = ("sklearn.base.BaseEstimator",)

    def children(self, value: AnyTree) -> list[Any]:
        if not hasattr(value, "__sklearn_array_api_convert__"):
            return list(_learned(value).values())
        arrays: list[Any] = []

        def collect(x: AnyArray) -> Any:
            arrays.append(x)
            return x

        value.__sklearn_array_api_convert__(collect)
        return arrays

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        if not children:
            return value
        if hasattr(value, "__sklearn_array_api_convert__"):
            remaining = iter(children)
            return value.__sklearn_array_api_convert__(lambda _: next(remaining))
        copied = copy.copy(value)
        vars(copied).update(zip(_learned(value), children, strict=True))
        return copied

    def steps(self, value: AnyTree) -> list[str]:
        if hasattr(value, "__sklearn_array_api_convert__"):
            return [f".{index}" for index in range(len(self.children(value)))]
        return [f".{name}" for name in _learned(value)]


def _learned(estimator: Any) -> dict[str, Any]:
    """Return the attributes of an estimator that contain numeric arrays or other estimators with such attributes."""
    supports_array_api = False
    # scikit-learn has no tags before 1.6, and estimators of other packages may raise an error
    with suppress(Exception):
        supports_array_api = bool(estimator.__sklearn_tags__().array_api_support)
    return {name: x for name, x in vars(estimator).items() if _holds_arrays(x, supports_array_api)}


def _holds_arrays(value: AnyTree, supports: bool) -> bool:
    if isinstance(value, (list, tuple, dict)):
        members = value.values() if isinstance(value, dict) else value
        return any(_holds_arrays(member, supports) for member in members)
    if hasattr(value, "get_params") and not isinstance(value, type):
        return hasattr(value, "__sklearn_array_api_convert__") or bool(_learned(value))
    # do not convert arrays of strings, such as names of classes: other libraries have no strings
    return (
        supports and hasattr(value, "__dlpack__") and getattr(value.dtype, "kind", "f") in "biufc"
    )


def arrayferry_containers() -> list[Container]:
    """Return the container of this module."""
    return [Estimators()]
