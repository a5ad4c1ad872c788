"""`Container`: how arrays are found in a structure of some type, and how the structure is rebuilt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from arrayferry._types import AnyTree


class Container(ABC):
    """Describes a type of structure that may contain arrays. Subclass it.

    Attributes:
        types: the classes of the structures, or dotted paths of the classes. A path is looked up only after its
            top-level package has been imported. Subclasses are handled too.
        transparent: whether a structure without any array is also rebuilt, as a dict is. If False, such a structure is
            returned unchanged.

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

        arrayferry calls this method for each class except those of arrays, of registered containers and of Python
        itself. arrayferry calls the method again for each object that it leaves unchanged, so the method must be fast.
        The method must also work before the packages of `types` are imported.
        """
        return False

    @abstractmethod
    def children(self, value: AnyTree) -> Sequence[Any]:
        """Return the values inside a structure, in a fixed order."""

    @abstractmethod
    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        """Return a new structure of the same type as `value`, with `children` in place of the children of `value`."""

    def steps(self, value: AnyTree) -> Sequence[str]:
        """Return, for each child, the Python code that selects the child in `value`: `"['a']"`, `"[0]"`, `".x"`."""
        return [f"[{index}]" for index in range(len(self.children(value)))]

    def static(self, value: AnyTree) -> Any:
        """Return what `rebuild` copies from a value besides its children: keys, sizes, settings.

        Code compiled for one value is reused for another value only if both results of `static` are equal and have the
        same type. By default, arrayferry rebuilds both values with placeholders as children, and compares them.
        Override this method if `rebuild` does not accept placeholders, or if some attributes should not be compared.
        """
        return NotImplemented

    def __repr__(self) -> str:
        return f"<Container {type(self).__name__}>"
