"""`Converter`: converts arrays of one backend to another without the general path through NumPy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from arrayferry._options import Options
from arrayferry._types import AnyArray
from arrayferry._utilities.text import never_raises, short_repr

from .types import resolve_types

Cost = Literal["share", "copy", "transfer", "compute"]

COSTS: dict[str, int] = {"share": 1, "copy": 10, "transfer": 100, "compute": 1000}
"""The cost of one step of a route, by kind. Up to nine steps of a kind cost less than one step of the next kind."""


class Inline(NamedTuple):
    """Python expressions that convert one array. `{x}` stands for the array, and `{y}` for a temporary variable.

    Attributes:
        test: an expression that is true if `result` is correct for the array, or "" if no test is needed.
        result: an expression whose value is the array of the target.
        names: the objects that the expressions refer to, by name.
    """

    test: str
    result: str
    names: dict[str, Any]

    def __repr__(self) -> str:
        return f"Inline(test={short_repr(self.test)}, result={short_repr(self.result)})"


class Converter(ABC):
    """Converts arrays of one backend to another directly. Subclass it.

    A converter handles ordinary arrays. For any other array, it may return `NotImplemented` or raise an error, and the
    array takes the general path through NumPy. So a converter need not handle rare cases. A result must have the
    values, shape and dtype of the array, and follow the option `copy`.

    Attributes:
        source: name of the backend whose arrays it accepts.
        target: name of the backend whose arrays it returns.
        cost: "share" (no copy), "copy" (on the device), "transfer" (between host and device) or
            "compute" (of a lazy array).
        source_device: the kind of device that it converts arrays from, "cpu" or "cuda".
        target_device: the kind of device that its results are on. If it is not "cpu", the argument `device` of
            `convert` and the option `device` of `bind` name the device of the result, or are None for the default
            device of the target.
        types: dotted paths of the exact types that it accepts, such as `"torch.Tensor"`. Arrays of other
            types, including subclasses, take the general path. If empty, all types of the source are accepted.

    Examples:
        >>> import arrayferry as af
        >>> class TorchToMine(af.Converter):
        ...     source, target, cost = "torch", "mine", "copy"
        ...     def convert(self, x, device=None, copy=None):
        ...         if copy is False:
        ...             return NotImplemented
        ...         import mine
        ...         return mine.Array(x.tolist())
        >>> TorchToMine()
        <Converter torch -> mine>
    """

    source: str
    target: str
    cost: Cost = "copy"
    source_device: str = "cpu"
    target_device: str = "cpu"
    types: tuple[str, ...] = ()

    @abstractmethod
    def convert(self, x: AnyArray, device: Any = None, copy: bool | None = None) -> Any:
        """Return an array of `target` with the values of `x`, or `NotImplemented`."""

    def bind(self, options: Options) -> Callable[[Any], Any] | None:
        """Return the function to call for each ordinary array, or None if the converter does not support these options.

        Override this method to check the options before any call. The function must raise an error or return
        `NotImplemented` for an array on another kind of device than `source_device`, and for an array whose
        dtype the target lacks. Such an array takes the general path, which changes the dtype.
        """
        return lambda x: self.convert(x, options.device, options.copy)

    def bind_many(self, options: Options) -> Callable[[list[Any]], list[Any]] | None:
        """Return a function that converts a list of arrays, or None if this is not cheaper than a call for each array.

        If `target_device` is not "cpu", the list that the function returns may have `NotImplemented` in the place of
        an array that it does not handle.
        """
        return None

    def inline(self, options: Options) -> Inline | None:
        """Return Python expressions to insert into generated code, or None if that code must call a function instead.

        The expressions save one call for each array. They may raise an error for an array that they do not handle.
        """
        return None

    def takes(self, cls: type) -> bool:
        """Return whether this converter accepts arrays of exactly this type."""
        return not self.types or cls in resolve_types(self.types)

    @never_raises
    def __repr__(self) -> str:
        return f"<Converter {self.source} -> {self.target}>"
