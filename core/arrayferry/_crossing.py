"""`Crossing`: takes arrays of one source to one target under fixed options.

It knows the direct way, if there is one, and the careful way behind it, and tells plans which to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._backend import Backend
from ._catalog import Catalog
from ._converter import Converter
from ._devices import resolve_device
from ._errors import ArrayFerryError, ConversionError, UnsupportedDtypeError
from ._options import Options
from ._plan import Inline, Ways, plain
from ._route import describe_route
from ._travel import travel
from ._tree import say

__all__ = ["Crossing"]


class Crossing:
    """Takes arrays of one source to one target under fixed options."""

    def __init__(
        self, catalog: Catalog, source: Backend, target: Backend, options: Options
    ) -> None:
        self.catalog = catalog
        self.source = source
        self.target = target
        self.options = options
        self._tried: frozenset[object] = frozenset()
        self._takes: Callable[[type], bool] = lambda cls: False
        self.fast: Callable[[Any], Any] | None = None
        self.fast_many: Callable[[list[Any]], list[Any]] | None = None
        self._direct_way: Converter | None = None
        direct = self._direct()
        if direct is not None:
            try:
                self.fast = direct.bind(self.options)
                self.fast_many = direct.bind_many(self.options)
            except Exception:
                self.fast = self.fast_many = None
            self._takes = direct.takes
            self._direct_way = direct
            self._tried = frozenset((direct,))

    def _direct(self) -> Any:
        """The direct converter on the host, if that is the whole route under these options."""
        device = self.options.device
        if self.target.name == self.source.name or (device is not None and device != "cpu"):
            return None
        if device is None and "cpu" not in self.target.devices():
            return None
        route = describe_route(self.catalog, self.source, self.target, "cpu", "cpu")
        return route.steps[0].converter if len(route.steps) == 1 else None

    def one(self, x: Any) -> Any:
        """Take one array across: by the direct way if that serves it, else the careful one."""
        if self.fast is not None and self._takes(type(x)):
            try:
                y = self.fast(x)
            except Exception:
                y = NotImplemented
            if y is not NotImplemented:
                return y
        return self.careful(x)

    def careful(self, x: Any, values: Any = None) -> Any:
        """Take one array across by the general way."""
        try:
            return travel(
                self.catalog,
                x,
                self.source,
                self.target,
                self.options,
                without=self._tried,
                values=values,
            )
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
            raise ConversionError(
                f"{_describe(x)} could not be carried ({say(error)})",
                source=self.source.name,
                target=self.target.name,
            ) from error

    def ways(self, cls: type) -> Ways:
        """How arrays of exactly this type cross, for a plan."""
        import numpy

        no_objects = "{x}.dtype.kind != 'O'" if issubclass(cls, numpy.ndarray) else ""
        if self.target.name == self.source.name and not self.options.copy:
            if self.options.device is None:
                return Ways(Inline(no_objects, "{x}", {}))
            return Ways(self._already_there(no_objects))
        if self.fast is not None and self._direct_way is not None and self._takes(cls):
            inline = self._direct_way.inline(self.options)
            return Ways(inline or plain(self.fast), self.fast_many)
        if self.source.memory == "lazy":
            return Ways(plain(self.one), self.many)
        test, result, names = plain(self.one)
        return Ways(Inline(f"{no_objects} and {test}" if no_objects else test, result, names))

    def _already_there(self, test: str) -> Inline:
        """Within one library: the array itself if it lies on the device that was asked for."""
        there, _ = resolve_device(self.target, self.options.device, "cpu")
        names = {"cross": self.one, "device_of": self.source.device_of, "there": there}
        return Inline(test, "{x} if {device_of}({x}) == {there} else {cross}({x})", names)

    def many(self, xs: list[Any]) -> list[Any]:
        """Take several arrays across, in one call where the way has one for many."""
        if self.fast_many is not None and all(self._takes(cls) for cls in set(map(type, xs))):
            try:
                return self.fast_many(xs)
            except Exception:
                return [self.one(x) for x in xs]
        if len(xs) > 1 and self.source.memory == "lazy" and self.target.name != self.source.name:
            try:
                values = list(self.source.to_numpy_many(xs))
            except Exception:
                return [self.one(x) for x in xs]
            return [self.careful(x, n) for x, n in zip(xs, values, strict=True)]
        return [self.one(x) for x in xs]


def _describe(x: Any) -> str:
    dtype = getattr(x, "dtype", None)
    shape = getattr(x, "shape", None)
    text = f"a {type(x).__module__}.{type(x).__qualname__}"
    try:
        return f"{text} of dtype {dtype} and shape {shape}" if dtype is not None else text
    except Exception:
        return text
