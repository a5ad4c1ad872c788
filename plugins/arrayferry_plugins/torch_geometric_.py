"""PyTorch Geometric: graphs, whose stores can contain arrays of any library."""

from __future__ import annotations

import copy
from typing import Any

from arrayferry import Container
from arrayferry.typing import AnyTree


class Graphs(Container):
    """`Data`, `HeteroData`, `TemporalData` and their batches. The result is a copy with other values in its stores."""

    types: tuple[Any, ...] = ("torch_geometric.data.data.BaseData",)

    def children(self, value: AnyTree) -> list[Any]:
        return [child for store in value.stores for child in store._mapping.values()]

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        copied, remaining = copy.copy(value), iter(children)
        for attributes in (copied.__dict__, *(store.__dict__ for store in copied.stores)):
            # these dicts contain the indices of the graphs in a batch, and the copy must not share them
            for name in ("_slice_dict", "_inc_dict"):
                if name in attributes:
                    attributes[name] = copy.deepcopy(attributes[name])
        for store in copied.stores:
            for key in store._mapping:
                store._mapping[key] = next(remaining)  # store[key] = None would remove the key
        return copied

    def steps(self, value: AnyTree) -> list[str]:
        return [_step(store, key) for store in value.stores for key in store._mapping]

    def static(self, value: AnyTree) -> Any:
        own_attrs = {key: attribute for key, attribute in vars(value).items() if "store" not in key}
        return own_attrs, [
            (type(store), vars(store).get("_key"), list(store._mapping)) for store in value.stores
        ]


def _step(store: Any, key: Any) -> str:
    """Return the path from a graph to a value in one of its stores: `.x`, or `['paper'].x` for a node type."""
    node_type = vars(store).get("_key")
    prefix = "" if node_type is None else f"[{node_type!r}]"
    return f"{prefix}.{key}" if str(key).isidentifier() else f"{prefix}[{key!r}]"


def arrayferry_containers() -> list[Container]:
    """Return the container of this module."""
    return [Graphs()]
