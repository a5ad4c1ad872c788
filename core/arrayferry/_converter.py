"""`Converter`: a direct crossing between two backends that beats the general way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from ._imports import resolve_types

if TYPE_CHECKING:
    from ._options import Options
    from ._plan import Inline

__all__ = ["COSTS", "Converter", "Cost"]

Cost = Literal["share", "copy", "transfer", "compute"]

COSTS: dict[str, int] = {"share": 1, "copy": 10, "transfer": 100, "compute": 1000}
"""What a step of a route costs: a cheaper kind is taken over any few of the next dearer one."""


class Converter(ABC):
    """A direct crossing from one backend to another. Subclass it.

    A converter serves ordinary arrays and may leave any other to the general way, by answering
    `NotImplemented` or raising: so it needs no care for what is rare. What it does answer must keep
    the same promises as the general way: equal values, the same shape and dtype, the `copy` rule.

    Attributes:
        source: name of the backend whose arrays it takes.
        target: name of the backend whose arrays it gives.
        cost: "share" (no copy), "copy" (on the device), "transfer" (between host and device) or
            "compute" (of a lazy array).
        source_device: the kind of device that it takes arrays from, "cpu" or "cuda".
        target_device: the kind of device that it leaves them on.
        types: dotted paths of the exact types that it takes, `"torch.Tensor"`; arrays of other types, of
            subclasses too, go the general way. Empty for all types of the source.

    Example:
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
    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        """Give an array of `target` with the values of `x`, or `NotImplemented`."""

    def bind(self, options: Options) -> Callable[[Any], Any] | None:
        """Give the call to make for each ordinary array under these options, None if there is none.

        Override it where options can be looked at once instead of at each call. The call must raise
        or answer `NotImplemented` for an array on another kind of device than `source_device`, and
        for one whose dtype the target does not have: narrowing is not its business.
        """
        return lambda x: self.convert(x, options.device, options.copy)

    def bind_many(self, options: Options) -> Callable[[list[Any]], list[Any]] | None:
        """Likewise for a list of arrays in one call, where that is cheaper than one call each."""
        return None

    def inline(self, options: Options) -> Inline | None:
        """Likewise as Python expressions to be written into the code for a structure, None if not.

        They save a call for each array. The expressions may raise for what they do not serve.
        """
        return None

    def takes(self, cls: type) -> bool:
        """Whether it takes arrays of exactly this type."""
        return not self.types or cls in resolve_types(self.types)

    def __repr__(self) -> str:
        return f"<Converter {self.source} -> {self.target}>"
