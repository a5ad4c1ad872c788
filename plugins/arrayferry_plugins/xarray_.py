"""xarray: the data of its objects is converted, and everything else is kept as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arrayferry import Container, ConversionError, Source

from ._stored import StoredSource


class DataArrays(Container):
    """`DataArray` and `Variable`."""

    types: tuple[Any, ...] = ("xarray.DataArray", "xarray.Variable")

    def children(self, value: Any) -> list[Any]:
        return [value.data]

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        cls, cause = type(children[0]), None
        try:
            new = value.copy(deep=False, data=children[0])
            if isinstance(
                new.data, cls
            ):  # xarray turns arrays that it cannot hold into NumPy arrays
                return new
        except Exception as error:
            cause = error
        index = type(getattr(value, "variable", value)).__name__ == "IndexVariable"
        what = "the coordinate of a dimension" if index else f"a {type(value).__name__} of xarray"
        raise ConversionError(
            f"{what} cannot hold a {cls.__module__}.{cls.__qualname__}",
            remedy="Convert the arrays alone: x.data, or of a Dataset {name: y.data for name, y in x.data_vars.items()}.",
        ) from cause

    def steps(self, value: Any) -> list[str]:
        return [".data"]

    def streamed(self, value: Any) -> Any:
        return _streamed(getattr(value, "variable", value))


class Datasets(Container):
    """`Dataset`: its data variables, each as a `Variable`."""

    types: tuple[Any, ...] = ("xarray.Dataset",)

    def children(self, value: Any) -> list[Any]:
        return [value.variables[name] for name in value.data_vars]

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        return value.assign(dict(zip(value.data_vars, children, strict=True)))

    def steps(self, value: Any) -> list[str]:
        return [f"[{name!r}]" for name in value.data_vars]

    def streamed(self, value: Any) -> Any:
        return {name: _streamed(value.variables[name]) for name in value.data_vars}


class DataTrees(Container):
    """`DataTree`: the datasets of its nodes."""

    types: tuple[Any, ...] = ("xarray.DataTree",)

    def children(self, value: Any) -> list[Any]:
        return list(value.to_dict().values())

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        nodes = dict(zip(value.to_dict(), children, strict=True))
        return type(value).from_dict(nodes, name=value.name)

    def steps(self, value: Any) -> list[str]:
        return [f"[{path!r}].dataset" for path in value.to_dict()]

    def streamed(self, value: Any) -> Any:
        return {path: dataset for path, dataset in value.to_dict().items() if dataset.data_vars}


class Views(Container):
    """The coordinates and the data variables of another object, which are kept as they are."""

    types: tuple[Any, ...] = (
        "xarray.Coordinates",
        "xarray.core.coordinates.Coordinates",
        "xarray.core.dataset_variables.DataVariables",
        "xarray.core.dataset.DataVariables",
    )

    def children(self, value: Any) -> list[Any]:
        return []

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        return value


class Stored:
    """A variable whose values are still in a file. Indexing reads them, and nothing is kept.

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


def _streamed(variable: Any) -> Any:
    """Return the array of a variable, without reading it."""
    lazy = variable.chunks is None and not getattr(variable, "_in_memory", True)
    return Stored(variable) if lazy else variable.data


class XarraySource(StoredSource):
    """Reads a `Stored`."""

    name = "xarray"
    package = install = "xarray"
    array_types: tuple[str, ...] = ("arrayferry_plugins.xarray_.Stored",)
    what = "a variable of xarray"
    remedy = "Leave it out: dataset.drop_vars(name)."

    def stored(self, x: Any) -> Sequence[int] | None:
        encoding = x.variable.encoding
        stored = encoding.get("shards") or encoding.get("chunks") or encoding.get("chunksizes")
        fits = isinstance(stored, (tuple, list)) and len(stored) == len(x.shape) and all(stored)
        return stored if fits else None


def arrayferry_containers() -> list[Container]:
    """Return the containers of this module."""
    return [DataArrays(), Datasets(), DataTrees(), Views()]


def arrayferry_sources() -> list[Source]:
    """Return the source of this module."""
    return [XarraySource()]
