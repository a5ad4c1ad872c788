"""`Container`: a structure to search for arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from arrayferry._types import AnyTree


class Container(ABC):
    """A kind of structure that may hold arrays. Subclass it.

    Attributes:
        types: the classes that it handles, or their dotted paths, which are looked up only after their
            package has been imported. Subclasses are handled too.
        transparent: whether a container without any array is still rebuilt, as a dict is. If not, the value itself is
            returned.

    Examples:
        >>> import arrayferry as af
        >>> class Pair:
        ...     def __init__(self, left, right):
        ...         self.left, self.right = left, right
        >>> class Pairs(af.Container):
        ...     types = (Pair,)
        ...     def children(self, value):
        ...         return [value.left, value.right]
        ...     def rebuild(self, value, children):
        ...         return Pair(*children)
        ...     def steps(self, value):
        ...         return [".left", ".right"]
    """

    types: tuple[Any, ...]
    transparent: bool = False

    def takes(self, cls: type) -> bool:
        """Return whether this container also handles a class that is not derived from any of `types`.

        arrayferry calls this for each class that is neither an array nor a registered container nor a type of Python,
        and again for objects that are kept unchanged, so the method must be quick. The method must also
        work while the packages of `types` are not imported.
        """
        return False

    @abstractmethod
    def children(self, value: AnyTree) -> Sequence[Any]:
        """Return the values inside, in a fixed order."""

    @abstractmethod
    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        """Return a new container of the same type as `value`, with `children` in place of the children of `value`."""

    def steps(self, value: AnyTree) -> Sequence[str]:
        """Return how each child is reached, as Python would write it: `"['a']"`, `"[0]"`, `".x"`."""
        return [f"[{index}]" for index in range(len(self.children(value)))]

    def static(self, value: AnyTree) -> Any:
        """Return the parts of a value that `rebuild` keeps besides its children: keys, sizes, settings.

        Code compiled for one value is reused for another only if these are the same, types included. By default the
        attributes of the result of `rebuild` are compared, with placeholders in place of the children. Override this
        if `rebuild` does not accept placeholders, or if some attributes should not count.
        """
        return NotImplemented

    def __repr__(self) -> str:
        return f"<Container {type(self).__name__}>"
