"""`Part`: a part of a plugin for a layer. A layer is a package that builds on arrayferry and has its own hooks."""

from __future__ import annotations

from typing import ClassVar

from arrayferry._utilities.text import never_raises


class Part:
    """A base class for the parts that hooks of layers return. Layers subclass it, and plugins subclass those classes.

    Attributes:
        name: what the part is about: the name of a backend or source, or the dotted path of a class of backends,
            sources or containers, as in `"mylib.plugin.MyContainer"`. A layer may define other names.
        replaces: names of parts that this part replaces if both are installed.

    Examples:
        >>> from arrayferry.extending import Part
        >>> class Units(Part):
        ...     def unit(self, x):
        ...         return ""
        >>> class PintUnits(Units):
        ...     name = "pint"
        ...     def unit(self, x):
        ...         return str(x.units)
        >>> PintUnits()
        <Units pint>
    """

    name: str
    replaces: tuple[str, ...] = ()
    contract: ClassVar[str] = ""
    """The class with the layer's tests for parts of this class, as `"module:Class"`, or "" for no tests. Subclasses of
    `arrayferry.testing.BackendContract` and `SourceContract` inherit those tests."""

    @never_raises
    def __repr__(self) -> str:
        layer_classes = [cls for cls in type(self).__mro__ if Part in cls.__bases__]
        return f"<{(layer_classes or [Part])[0].__name__} {self.name:.80}>"
