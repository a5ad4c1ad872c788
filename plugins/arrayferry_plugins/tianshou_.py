"""tianshou: batches, which can contain arrays of NumPy and PyTorch only."""

from __future__ import annotations

from typing import Any

from arrayferry import Container
from arrayferry.typing import AnyTree


class Batches(Container):
    """`Batch`. It becomes a dict if its arrays become arrays of a library that a `Batch` cannot contain."""

    types: tuple[Any, ...] = ("tianshou.data.Batch",)
    transparent: bool = True

    def children(self, value: AnyTree) -> list[Any]:
        return list(vars(value).values())

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        members = dict(zip(vars(value), children, strict=True))
        if all(child is vars(value)[key] or _fits_batch(child) for key, child in members.items()):
            rebuilt = object.__new__(type(value))
            vars(rebuilt).update(members)
            return rebuilt
        return {key: c.to_dict() if isinstance(c, type(value)) else c for key, c in members.items()}

    def steps(self, value: AnyTree) -> list[str]:
        return [f"[{key!r}]" for key in vars(value)]

    def static(self, value: AnyTree) -> Any:
        return list(vars(value))


def _fits_batch(child: Any) -> bool:
    """Return whether a `Batch` can contain a value. It cannot contain object arrays of tensors."""
    import numpy as np
    from tianshou.data import Batch
    from torch import Tensor

    if isinstance(child, np.ndarray) and child.dtype == object:
        return not any(isinstance(element, Tensor) for element in child.flat)
    return child is None or isinstance(child, (Batch, np.ndarray, np.generic, Tensor))


def arrayferry_containers() -> list[Container]:
    """Return the container of this module."""
    return [Batches()]
