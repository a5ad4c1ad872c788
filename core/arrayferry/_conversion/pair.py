"""`Pair`: converts arrays of one backend to another under fixed options.

It knows the direct way, if there is one, and falls back to executing a route.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from arrayferry._errors import (
    ArrayFerryError,
    ConversionError,
    UnsupportedDtypeError,
    describe_error,
)
from arrayferry._options import Options
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import describe_array
from arrayferry._plugin.converter import Converter, Inline
from arrayferry._registry.catalog import Catalog
from arrayferry._route.devices import resolve_device
from arrayferry._route.execute import Executor
from arrayferry._route.route import describe_route

from .plan import Ways

__all__ = ["Pair", "inline_call"]


class _Direct(NamedTuple):
    """A direct converter, bound to the options.

    Attributes:
        converter: the converter.
        one: converts one array, None if the converter does not serve these options.
        many: converts several, if there is a function for that.
    """

    converter: Converter
    one: Callable[[Any], Any] | None = None
    many: Callable[[list[Any]], list[Any]] | None = None


class Pair:
    """Converts arrays of one backend to another under fixed options."""

    def __init__(
        self, catalog: Catalog, source: Backend, target: Backend, options: Options
    ) -> None:
        self.catalog = catalog
        self.source = source
        self.target = target
        self.options = options
        self._executor = Executor(catalog, source, target, options)
        self._direct = self._find_direct()
        self._without = frozenset((self._direct.converter,)) if self._direct else frozenset()

    def _find_direct(self) -> _Direct | None:
        """Find the direct converter on the host, if it is the whole route under these options."""
        device = self.options.device
        if self.target.name == self.source.name or (device is not None and device != "cpu"):
            return None
        if device is None and "cpu" not in self.target.devices():
            return None
        route = describe_route(self.catalog, self.source, self.target, "cpu", "cpu")
        converter = route.steps[0].converter if len(route.steps) == 1 else None
        if converter is None:
            return None
        try:
            return _Direct(
                converter, converter.bind(self.options), converter.bind_many(self.options)
            )
        except Exception:
            return _Direct(converter)

    def _takes(self, direct: _Direct | None, cls: type) -> bool:
        return direct is not None and direct.one is not None and direct.converter.takes(cls)

    def one(self, x: Any) -> Any:
        """Convert one array, directly if possible."""
        direct: Any = self._direct
        if self._takes(direct, type(x)):
            try:
                y = direct.one(x)
            except Exception as error:
                self._raise_out_of_memory(error)
                y = NotImplemented
            if y is not NotImplemented:
                return y
        return self.fallback(x)

    def many(self, xs: list[Any], path_of: Callable[[int], str]) -> list[Any]:
        """Convert several arrays, in one call if possible.

        Args:
            xs: the arrays.
            path_of: tells the place of an array in the tree, for errors, by its index in `xs`.
        """
        direct: Any = self._direct
        if self._takes_many(xs):
            try:
                return list(direct.many(xs))
            except Exception as error:
                self._raise_out_of_memory(error)
        values: list[Any] = [None] * len(xs)
        if self.source.memory == "lazy" and self.target.name != self.source.name and len(xs) > 1:
            values = self._computed(xs)
        results = []
        for index, (x, n) in enumerate(zip(xs, values, strict=True)):
            try:
                results.append(self.one(x) if n is None else self.fallback(x, n))
            except ConversionError as error:
                error.locate(path=path_of(index))
                raise
        return results

    def _takes_many(self, xs: list[Any]) -> bool:
        direct = self._direct
        return (
            direct is not None
            and direct.many is not None
            and all(self._takes(direct, cls) for cls in set(map(type, xs)))
        )

    def _computed(self, xs: list[Any]) -> list[Any]:
        """Compute several lazy arrays in one call."""
        try:
            return list(self.source.to_numpy_many(xs))
        except Exception:
            return [None] * len(xs)

    def fallback(self, x: Any, values: Any = None) -> Any:
        """Convert one array by its route, without the direct converter.

        Args:
            x: the array.
            values: the result of `to_numpy(x)`, if that was called already.
        """
        try:
            return self._executor.run(x, without=self._without, values=values)
        except UnsupportedDtypeError as error:
            if self.options.unsupported == "keep":
                return x
            error.locate(source=self.source.name, target=self.target.name)
            raise
        except ConversionError as error:
            error.locate(source=self.source.name, target=self.target.name)
            raise
        except ArrayFerryError:
            raise
        except Exception as error:
            self._raise_out_of_memory(error)
            raise ConversionError(
                f"{describe_array(x)} could not be converted ({describe_error(error)})",
                source=self.source.name,
                target=self.target.name,
            ) from error

    def _raise_out_of_memory(self, error: Exception) -> None:
        if self.source.is_out_of_memory(error) or self.target.is_out_of_memory(error):
            raise error

    def ways(self, cls: type) -> Ways:
        """Return how code converts arrays of exactly this type."""
        import numpy

        no_objects = "{x}.dtype.kind != 'O'" if issubclass(cls, numpy.ndarray) else ""
        if self.target.name == self.source.name and not self.options.copy:
            if self.options.device is None:
                return Ways(Inline(no_objects, "{x}", {}))
            return Ways(self._already_there(no_objects))
        if self._direct is not None and self._takes(self._direct, cls):
            inline = self._direct.converter.inline(self.options)
            return Ways(inline or inline_call(self._direct.one), self._direct.many)
        return Ways(Inline(no_objects, "{convert}({x})", {"convert": self.one}))

    def _already_there(self, test: str) -> Inline:
        """Within one library: the array itself if it is on the device that was asked for."""
        there, _ = resolve_device(self.target, self.options.device, "cpu")
        names = {"convert": self.one, "device_of": self.source.device_of, "there": there}
        return Inline(test, "{x} if {device_of}({x}) == {there} else {convert}({x})", names)


def inline_call(convert: Any) -> Inline:
    """Return expressions for a function that returns `NotImplemented` for what it does not handle."""
    test = "({y} := {convert}({x})) is not NotImplemented"
    return Inline(test, "{y}", {"convert": convert})
