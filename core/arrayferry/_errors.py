"""Every error that arrayferry raises, as one tree.

    ArrayFerryError
    |-- OptionError (ValueError)                an option has a value it cannot have
    |-- UnknownBackendError (LookupError)       nothing is known under that name
    |-- BackendUnavailableError (ImportError)   known, but not installed or not usable here
    |-- PluginError (TypeError)                 a plugin registered at run time is at fault
    |-- NotAnArrayError (TypeError)             an array was needed
    `-- ConversionError (ValueError)            a value cannot cross
        |-- CopyRequiredError (BufferError)     copy=False, and only a copy would do
        |-- DeviceError (LookupError)           the target has no such device
        |-- NarrowingError (OverflowError)      the target's dtypes cannot hold the numbers
        |-- StructureError (ValueError)         a tree is cyclic, too deep, or cannot be rebuilt
        |-- TracedValueError (TypeError)        a value inside jit, grad or vmap has no numbers yet
        `-- UnsupportedDtypeError (TypeError)   the target has no dtype of that kind

Errors hold what they say as attributes, and survive pickling, since they cross process borders
in vectorised environments. `PluginWarning` is what a plugin left out is reported with.

This module knows nothing of arrays.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ArrayFerryError",
    "BackendUnavailableError",
    "ConversionError",
    "CopyRequiredError",
    "DeviceError",
    "NarrowingError",
    "NotAnArrayError",
    "OptionError",
    "PluginError",
    "PluginWarning",
    "StructureError",
    "TracedValueError",
    "UnknownBackendError",
    "UnsupportedDtypeError",
]


class ArrayFerryError(Exception):
    """The root of all errors of arrayferry.

    Args:
        reason: what went wrong, as a clause without a full stop.
        remedy: what to do about it, as a sentence.

    Attributes:
        reason: as given.
        remedy: as given, "" if there is none.
    """

    def __init__(self, reason: str, *, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.reason}. {self.remedy}" if self.remedy else self.reason

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.reason, self.__dict__)


def _restore(cls: type[ArrayFerryError], reason: str, state: dict[str, Any]) -> ArrayFerryError:
    error = cls.__new__(cls, reason)
    Exception.__init__(error, reason)
    error.__dict__.update(state)
    return error


class OptionError(ArrayFerryError, ValueError):
    """An option was given a value that it cannot have."""


class UnknownBackendError(ArrayFerryError, LookupError):
    """No backend is known under a name.

    Attributes:
        name: the name that was asked for.
        nearest: known names that look like it, the best first.
    """

    def __init__(
        self, reason: str, *, remedy: str = "", name: str = "", nearest: tuple[str, ...] = ()
    ) -> None:
        super().__init__(reason, remedy=remedy)
        self.name = name
        self.nearest = nearest


class BackendUnavailableError(ArrayFerryError, ImportError):
    """A backend is known, but its library is not installed or cannot be used on this machine.

    Attributes:
        backend: the backend's name.
    """

    def __init__(self, reason: str, *, remedy: str = "", backend: str = "") -> None:
        super().__init__(reason, remedy=remedy)
        self.backend = backend


class PluginError(ArrayFerryError, TypeError):
    """A plugin, or a part of one, cannot be registered."""


class NotAnArrayError(ArrayFerryError, TypeError):
    """A value is no array of any backend, where one was needed."""


class ConversionError(ArrayFerryError, ValueError):
    """A value cannot cross from one backend to another.

    Attributes:
        path: where in the tree, written as Python would (`"['obs']['camera'][2]"`), "" at the top.
        source: the name of the backend that the value came from, "" if that was not reached.
        target: the name of the backend that it was to become an array of.
    """

    def __init__(
        self, reason: str, *, remedy: str = "", path: str = "", source: str = "", target: str = ""
    ) -> None:
        super().__init__(reason, remedy=remedy)
        self.path = path
        self.source = source
        self.target = target

    def locate(self, *, path: str = "", source: str = "", target: str = "") -> ConversionError:
        """Fill in what is not known yet of the place, the source and the target."""
        self.path = self.path or path
        self.source = self.source or source
        self.target = self.target or target
        return self

    def __str__(self) -> str:
        text = self.reason
        if self.path:
            text += f", at {self.path}"
        if self.source and self.target:
            text += f", from {self.source} to {self.target}"
        elif self.target:
            text += f", on the way to {self.target}"
        return f"{text}. {self.remedy}" if self.remedy else text


class CopyRequiredError(ConversionError, BufferError):
    """`copy=False` was asked for, and the target cannot share the source's memory."""


class DeviceError(ConversionError, LookupError):
    """The target has no such device, or none of that name here.

    Attributes:
        device: the device that was asked for, as text.
    """

    def __init__(self, reason: str, *, remedy: str = "", device: str = "", **place: str) -> None:
        super().__init__(reason, remedy=remedy, **place)
        self.device = device


class NarrowingError(ConversionError, OverflowError):
    """The target lacks the dtype, and the one that it has cannot hold the numbers.

    Attributes:
        dtype: the name of the source's dtype.
        narrowed: the name of the dtype that the target has in its place.
    """

    def __init__(
        self, reason: str, *, remedy: str = "", dtype: str = "", narrowed: str = "", **place: str
    ) -> None:
        super().__init__(reason, remedy=remedy, **place)
        self.dtype = dtype
        self.narrowed = narrowed


class StructureError(ConversionError):
    """A tree contains itself, is nested too deeply, or cannot be taken apart or rebuilt."""


class TracedValueError(ConversionError, TypeError):
    """A value inside `jit`, `grad`, `vmap` or the like stands for numbers that are not there yet."""


class UnsupportedDtypeError(ConversionError, TypeError):
    """The target has no dtype of the array's kind.

    Attributes:
        dtype: the name of the source's dtype.
    """

    def __init__(self, reason: str, *, remedy: str = "", dtype: str = "", **place: str) -> None:
        super().__init__(reason, remedy=remedy, **place)
        self.dtype = dtype


class PluginWarning(UserWarning):
    """A plugin, or a part of one, was left out; the text names it and says why."""


for _name in __all__:  # users meet them as arrayferry.ConversionError, in tracebacks too
    globals()[_name].__module__ = "arrayferry"
