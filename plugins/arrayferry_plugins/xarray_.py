"""xarray: the data of its objects is converted, and everything else is unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arrayferry import Container, ConversionError, Source, hookimpl
from arrayferry._utilities.text import type_name
from arrayferry.typing import AnyArray, AnyTree

from ._sources import StoredSource


class DataArrays(Container):
    """`DataArray` and `Variable`."""

    types: tuple[Any, ...] = ("xarray.DataArray", "xarray.Variable")

    def children(self, value: AnyTree) -> list[Any]:
        return [value.data]

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        cls, cause = type(children[0]), None
        try:
            new = value.copy(deep=False, data=children[0])
            # xarray turns arrays that it does not support into NumPy arrays
            if isinstance(new.data, cls):
                return new
        except Exception as error:
            cause = error
        index = type(getattr(value, "variable", value)).__name__ == "IndexVariable"
        what = "the coordinate of a dimension" if index else f"a {type(value).__name__} of xarray"
        raise ConversionError(
            f"{what} cannot hold a {type_name(cls)}",
            remedy="Convert the arrays alone: x.data, or of a Dataset {name: y.data for name, y in x.data_vars.items()}.",
        ) from cause

    def steps(self, value: AnyTree) -> list[str]:
        return [".data"]


class Datasets(Container):
    """`Dataset`: its data variables, each as a `Variable`."""

    types: tuple[Any, ...] = ("xarray.Dataset",)

    def children(self, value: AnyTree) -> list[Any]:
        return [value.variables[name] for name in value.data_vars]

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        return value.assign(dict(zip(value.data_vars, children, strict=True)))

    def steps(self, value: AnyTree) -> list[str]:
        return [f"[{name!r}]" for name in value.data_vars]


class DataTrees(Container):
    """`DataTree`: the datasets of its nodes."""

    types: tuple[Any, ...] = ("xarray.DataTree",)

    def children(self, value: AnyTree) -> list[Any]:
        return list(value.to_dict().values())

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        root_path = value.path  # paths begin at the root of the tree, also for a child
        paths = [path.removeprefix(root_path) or "/" for path in value.to_dict()]
        nodes = dict(zip(paths, children, strict=True))
        return type(value).from_dict(nodes, name=value.name)

    def steps(self, value: AnyTree) -> list[str]:
        return [f"[{path!r}].dataset" for path in value.to_dict()]


class Views(Container):
    """Views of the coordinates or data variables of another object, which are not converted."""

    types: tuple[Any, ...] = (
        "xarray.Coordinates",
        "xarray.core.coordinates.Coordinates",
        "xarray.core.dataset_variables.DataVariables",
        "xarray.core.dataset.DataVariables",
    )

    def children(self, value: AnyTree) -> list[Any]:
        return []

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        return value


class Stored:
    """A variable whose values are still in a file. Indexing reads them, and nothing is cached.

    Args:
        variable: the `Variable`.

    Attributes:
        variable: the `Variable`.
        shape: its shape.
        dtype: its dtype.
    """

    def __init__(self, variable: Any) -> None:
        self.variable = variable
        self.shape: tuple[int, ...] = variable.shape
        self.dtype: Any = variable.dtype

    def __getitem__(self, index: Any) -> Any:
        return self.variable[index].to_numpy()


def _streamed(value: Any) -> Any:
    """Return the array of a `DataArray` or `Variable`, without reading it."""
    variable = getattr(value, "variable", value)
    lazy = variable.chunks is None and not getattr(variable, "_in_memory", True)
    return Stored(variable) if lazy else variable.data


def _variables(dataset: Any) -> dict[Any, Any]:
    return {name: _streamed(dataset.variables[name]) for name in dataset.data_vars}


def _nodes(tree: AnyTree) -> dict[str, Any]:
    return {path: dataset for path, dataset in tree.to_dict().items() if dataset.data_vars}


class XarraySource(StoredSource):
    """Reads a `Stored`."""

    name = "xarray"
    package = install = "xarray"
    array_types: tuple[str, ...] = ("arrayferry_plugins.xarray_.Stored",)
    what = "a variable of xarray"
    remedy = "Leave it out: dataset.drop_vars(name)."

    def stored(self, x: AnyArray) -> Sequence[int] | None:
        encoding = x.variable.encoding
        stored = encoding.get("shards") or encoding.get("chunks") or encoding.get("chunksizes")
        fits = isinstance(stored, (tuple, list)) and len(stored) == len(x.shape) and all(stored)
        return stored if fits else None


_SOURCE = XarraySource()


def arrayferry_containers() -> list[Container]:
    """Return the containers of this module."""
    return [DataArrays(), Datasets(), DataTrees(), Views()]


def arrayferry_sources() -> list[Source]:
    """Return the source of this module."""
    return [_SOURCE]


@hookimpl(optionalhook=True)
def arrayferry_blocks() -> list[Any]:
    """Return how streams read its objects."""
    from ._streaming import ContainerStreaming, StoredStreaming

    return [
        StoredStreaming(_SOURCE),
        ContainerStreaming(DataArrays, _streamed),
        ContainerStreaming(Datasets, _variables),
        ContainerStreaming(DataTrees, _nodes),
    ]
