"""xarray: the data variables of its objects are converted. Coordinates, names and attributes are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arrayferry import Container, ConversionError, Source, hookimpl
from arrayferry._utilities.text import type_name
from arrayferry.typing import AnyArray, AnyTree

from ._sources import StoredSource


class DataArrays(Container):
    """`DataArray` and `Variable`. Each has one child: its array."""

    types: tuple[Any, ...] = ("xarray.DataArray", "xarray.Variable")

    def children(self, value: AnyTree) -> list[Any]:
        return [value.data]

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        cls, cause = type(children[0]), None
        try:
            rebuilt = value.copy(deep=False, data=children[0])
            # false if xarray has turned an unsupported array into a NumPy array
            if isinstance(rebuilt.data, cls):
                return rebuilt
        except Exception as error:
            cause = error
        is_axis = type(getattr(value, "variable", value)).__name__ == "IndexVariable"
        noun = "the coordinate of a dimension" if is_axis else f"a {type(value).__name__} of xarray"
        raise ConversionError(
            f"{noun} cannot contain a {type_name(cls)}",
            remedy="Convert only the arrays: x.data, or for a Dataset {name: y.data for name, y in x.data_vars.items()}.",
        ) from cause

    def steps(self, value: AnyTree) -> list[str]:
        return [".data"]


class Datasets(Container):
    """`Dataset`. Its children are its data variables, each as a `Variable`."""

    types: tuple[Any, ...] = ("xarray.Dataset",)

    def children(self, value: AnyTree) -> list[Any]:
        return [value.variables[name] for name in value.data_vars]

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        return value.assign(dict(zip(value.data_vars, children, strict=True)))

    def steps(self, value: AnyTree) -> list[str]:
        return [f"[{name!r}]" for name in value.data_vars]


class DataTrees(Container):
    """`DataTree`. Its children are the datasets of its nodes."""

    types: tuple[Any, ...] = ("xarray.DataTree",)

    def children(self, value: AnyTree) -> list[Any]:
        return list(value.to_dict().values())

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        root_path = value.path  # to_dict() of a child uses paths from the root of the tree
        paths = [path.removeprefix(root_path) or "/" for path in value.to_dict()]
        nodes = dict(zip(paths, children, strict=True))
        return type(value).from_dict(nodes, name=value.name)

    def steps(self, value: AnyTree) -> list[str]:
        return [f"[{path!r}].dataset" for path in value.to_dict()]


class Views(Container):
    """Views of the coordinates or data variables of another object. They are returned unchanged."""

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
    """An array whose values are in a file. Each indexing reads them from the file again.

    Args:
        variable: the `xarray.Variable`.

    Attributes:
        variable: the `xarray.Variable`.
        shape: the shape of the array.
        dtype: the dtype of the array.
    """

    def __init__(self, variable: Any) -> None:
        self.variable = variable
        self.shape: tuple[int, ...] = variable.shape
        self.dtype: Any = variable.dtype

    def __getitem__(self, index: Any) -> Any:
        return self.variable[index].to_numpy()


def _streamed(value: Any) -> Any:
    """Return the array of a `DataArray` or `Variable`, or a `Stored` if the array is in a file. Nothing is read."""
    variable = getattr(value, "variable", value)
    is_lazy = variable.chunks is None and not getattr(variable, "_in_memory", True)
    return Stored(variable) if is_lazy else variable.data


def _variables(dataset: Any) -> dict[Any, Any]:
    return {name: _streamed(dataset.variables[name]) for name in dataset.data_vars}


def _nodes(tree: AnyTree) -> dict[str, Any]:
    return {path: dataset for path, dataset in tree.to_dict().items() if dataset.data_vars}


class XarraySource(StoredSource):
    """The source for `Stored`, which reads the array when it is converted."""

    name = "xarray"
    package = install = "xarray"
    array_types: tuple[str, ...] = ("arrayferry_plugins.xarray_.Stored",)
    what = "a variable of xarray"
    remedy = "Leave the variable out: dataset.drop_vars(name)."

    def stored(self, x: AnyArray) -> Sequence[int] | None:
        encoding = x.variable.encoding
        chunks = encoding.get("shards") or encoding.get("chunks") or encoding.get("chunksizes")
        is_valid = isinstance(chunks, (tuple, list)) and len(chunks) == len(x.shape) and all(chunks)
        return chunks if is_valid else None


_SOURCE = XarraySource()


def arrayferry_containers() -> list[Container]:
    """Return the containers of this module."""
    return [DataArrays(), Datasets(), DataTrees(), Views()]


def arrayferry_sources() -> list[Source]:
    """Return the source of this module."""
    return [_SOURCE]


@hookimpl(optionalhook=True)
def arrayferry_blocks() -> list[Any]:
    """Return the `Streaming` of arrays in files, and of the objects of xarray that contain them."""
    from ._streaming import ContainerStreaming, StoredStreaming

    return [
        StoredStreaming(_SOURCE),
        ContainerStreaming(DataArrays, _streamed),
        ContainerStreaming(Datasets, _variables),
        ContainerStreaming(DataTrees, _nodes),
    ]
