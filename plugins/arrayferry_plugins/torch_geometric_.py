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
        new, rest = copy.copy(value), iter(children)
        for holder in (new.__dict__, *(store.__dict__ for store in new.stores)):
            # these dicts contain the indices of the graphs in a batch, and the copy must not share them
            for name in ("_slice_dict", "_inc_dict"):
                if name in holder:
                    holder[name] = copy.deepcopy(holder[name])
        for store in new.stores:
            for key in store._mapping:
                store._mapping[key] = next(rest)  # store[key] = None would remove the key
        return new

    def steps(self, value: AnyTree) -> list[str]:
        return [_step(store, key) for store in value.stores for key in store._mapping]

    def static(self, value: AnyTree) -> Any:
        batch = {key: attribute for key, attribute in vars(value).items() if "store" not in key}
        return batch, [
            (type(store), vars(store).get("_key"), list(store._mapping)) for store in value.stores
        ]


def _step(store: Any, key: Any) -> str:
    """Return the path from a graph to a value in one of its stores: `.x`, or `['paper'].x` for a node type."""
    of_type = vars(store).get("_key")
    place = "" if of_type is None else f"[{of_type!r}]"
    return f"{place}.{key}" if str(key).isidentifier() else f"{place}[{key!r}]"


def arrayferry_containers() -> list[Container]:
    """Return the container of this module."""
    return [Graphs()]
