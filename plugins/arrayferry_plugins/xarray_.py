"""xarray: the data of its objects is converted, and everything else is kept as it is."""

from __future__ import annotations

from typing import Any

from arrayferry import Container, ConversionError, hookimpl

__all__ = ["DataArrays", "Datasets", "arrayferry_containers"]


class DataArrays(Container):
    """`DataArray` and `Variable`."""

    types = ("xarray.DataArray", "xarray.Variable")

    def children(self, value: Any) -> list[Any]:
        return [value.data]

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        new, cls = value.copy(deep=False, data=children[0]), type(children[0])
        if not isinstance(new.data, cls):  # it makes NumPy arrays of what it cannot hold
            reason = f"xarray cannot hold a {cls.__module__}.{cls.__qualname__}"
            raise ConversionError(reason, remedy="Convert x.data instead of x.")
        return new

    def steps(self, value: Any) -> list[str]:
        return [".data"]


class Datasets(Container):
    """`Dataset`: its data variables, each as a `Variable`."""

    types = ("xarray.Dataset",)

    def children(self, value: Any) -> list[Any]:
        return [value.variables[name] for name in value.data_vars]

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        return value.assign(dict(zip(value.data_vars, children, strict=True)))

    def steps(self, value: Any) -> list[str]:
        return [f"[{name!r}]" for name in value.data_vars]


@hookimpl
def arrayferry_containers() -> list[Container]:
    """Return the container of this module."""
    return [DataArrays(), Datasets()]
