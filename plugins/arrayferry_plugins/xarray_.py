"""xarray: the data of its objects is converted, and everything else is kept as it is."""

from __future__ import annotations

from typing import Any

from arrayferry import Container, ConversionError, hookimpl

__all__ = ["DataArrays", "DataTrees", "Datasets", "Views", "arrayferry_containers"]


class DataArrays(Container):
    """`DataArray` and `Variable`."""

    types: tuple[Any, ...] = ("xarray.DataArray", "xarray.Variable")

    def children(self, value: Any) -> list[Any]:
        return [value.data]

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        cls, cause = type(children[0]), None
        try:
            new = value.copy(deep=False, data=children[0])
            if isinstance(new.data, cls):  # it makes NumPy arrays of what it cannot hold
                return new
        except Exception as error:
            cause = error
        index = type(getattr(value, "variable", value)).__name__ == "IndexVariable"
        what = "the coordinate of a dimension" if index else f"a {type(value).__name__} of xarray"
        raise ConversionError(
            f"{what} cannot hold a {cls.__module__}.{cls.__qualname__}",
            remedy="Convert x.data instead of x.",
        ) from cause

    def steps(self, value: Any) -> list[str]:
        return [".data"]


class Datasets(Container):
    """`Dataset`: its data variables, each as a `Variable`."""

    types: tuple[Any, ...] = ("xarray.Dataset",)

    def children(self, value: Any) -> list[Any]:
        return [value.variables[name] for name in value.data_vars]

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        return value.assign(dict(zip(value.data_vars, children, strict=True)))

    def steps(self, value: Any) -> list[str]:
        return [f"[{name!r}]" for name in value.data_vars]


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


@hookimpl
def arrayferry_containers() -> list[Container]:
    """Return the container of this module."""
    return [DataArrays(), Datasets(), DataTrees(), Views()]
