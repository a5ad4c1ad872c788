"""The error classes of arrayferry, as one tree. In brackets: the built-in class that is also a base class.

    ArrayFerryError
    |-- OptionError (ValueError)                an option has an invalid value
    |-- UnknownBackendError (LookupError)       no backend has the requested name
    |-- BackendUnavailableError (ImportError)   a backend is not installed or not usable here
    |-- PluginError (TypeError)                 a plugin is faulty
    |   `-- ContractError                       a plugin broke its contract; also a ConversionError
    `-- ConversionError (ValueError)            a value cannot be converted
        |-- CopyRequiredError (BufferError)     copy=False, but a copy is necessary
        |-- DeviceError (LookupError)           the target has no such device
        |-- NarrowingError (OverflowError)      the numbers do not fit the target's dtypes
        |-- NotAnArrayError (TypeError)         an array of a known library was expected
        |-- StructureError (ValueError)         a tree is cyclic, too deep, or cannot be rebuilt
        |-- TracedValueError (TypeError)        a traced value, as inside jit, grad or vmap
        `-- UnsupportedDtypeError (TypeError)   the target has no dtype of the same kind

Errors store their data in attributes. They can be pickled, since vector environments send them between processes.
`PluginWarning` reports a faulty plugin, `UnconvertedWarning` an object that was not converted, and `TraceWarning` a
finding of a trace.

This module knows nothing about arrays.
"""

from __future__ import annotations

import os
import sys
from copy import copy
from typing import Any


class ArrayFerryError(Exception):
    """The base class of all errors of arrayferry.

    Args:
        reason: the problem, as a clause without a full stop.
        remedy: how to fix it, as one or more sentences.

    Attributes:
        reason: the problem.
        remedy: how to fix it, or "".
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
    # only `OSError.__new__` can create an OSError, or an instance of a subclass such as TimeoutError
    create = OSError.__new__ if issubclass(cls, OSError) else cls.__new__
    error = create(cls, reason)
    Exception.__init__(error, reason)
    error.__dict__.update(state)
    return error


class OptionError(ArrayFerryError, ValueError):
    """An option has an invalid value."""


class UnknownBackendError(ArrayFerryError, LookupError):
    """No backend has the requested name.

    Attributes:
        name: the requested name.
        nearest: similar names that are known, the best match first.
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
    """A plugin is faulty: it cannot be registered, or it broke its contract in a conversion (`ContractError`)."""


class ConversionError(ArrayFerryError, ValueError):
    """A value cannot be converted from one backend to another.

    Attributes:
        path: the path of the value in the tree, as in Python code (`"['obs']['camera'][2]"`). It is "" for the whole
            tree.
        source: the name of the backend or source of the value, or "" if it is not known.
        target: the name of the backend of the result, or "" if it is not known.
    """

    def __init__(
        self, reason: str, *, remedy: str = "", path: str = "", source: str = "", target: str = ""
    ) -> None:
        super().__init__(reason, remedy=remedy)
        self.path: str = path
        self.source: str = source
        self.target: str = target

    def locate(self, *, path: str = "", source: str = "", target: str = "") -> ConversionError:
        """Return a copy of the error with this path, source and target. Values that the error already has are kept.

        The error itself is not changed, since a plugin may raise the same object again.
        """
        located = copy(self).with_traceback(self.__traceback__)
        located.__cause__ = self.__cause__
        self.with_traceback(None)
        located.path = self.path or path
        located.source = self.source or source
        located.target = self.target or target
        return located

    def __str__(self) -> str:
        text = self.reason
        if self.path:
            text += f", at {self.path}"
        if self.source and self.target:
            text += f", from {self.source} to {self.target}"
        elif self.target:
            text += f", to {self.target}"
        return f"{text}. {self.remedy}" if self.remedy else text


class ContractError(ConversionError, PluginError):
    """A plugin broke its contract in a conversion: a method raised an error, or returned a wrong result.

    Args:
        duty: the rule that the method must follow, as one or more sentences.
        part: the backend or source that broke its contract. If its code is not in an installed package, the user is
            probably its author, so the message does not ask to report the error.

    Attributes:
        duty: the rule that the method must follow.
        method: the name of the method, or "".
    """

    def __init__(
        self,
        reason: str,
        *,
        remedy: str = "",
        duty: str = "",
        method: str = "",
        part: object = None,
        **place: str,
    ) -> None:
        report = "" if in_checkout(part) else remedy or "Report this to the author of the plugin."
        super().__init__(reason, remedy=f"{duty} {report}".strip(), **place)
        self.duty = duty
        self.method = method


def in_checkout(part: object) -> bool:
    """Return whether the code of a backend or source is outside the folders of installed packages, as in a checkout."""
    module = sys.modules.get(type(part).__module__)
    folders = (getattr(module, "__file__", None) or "").split(os.sep)
    return part is not None and not {"site-packages", "dist-packages"}.intersection(folders)


class CopyRequiredError(ConversionError, BufferError):
    """`copy=False` was passed, but the target cannot share the memory of the array."""


class DeviceError(ConversionError, LookupError):
    """The target has no such device on this machine.

    Attributes:
        device: the name of the requested device.
    """

    def __init__(self, reason: str, *, remedy: str = "", device: str = "", **place: str) -> None:
        super().__init__(reason, remedy=remedy, **place)
        self.device = device


class NarrowingError(ConversionError, OverflowError):
    """The target lacks the dtype of an array, and the numbers do not fit the dtype that would replace it.

    With `narrowing="forbid"`, this error is also raised if the numbers fit.

    Attributes:
        dtype: the name of the source's dtype.
        narrowed: the name of the dtype of the target that would replace `dtype`.
    """

    def __init__(
        self, reason: str, *, remedy: str = "", dtype: str = "", narrowed: str = "", **place: str
    ) -> None:
        super().__init__(reason, remedy=remedy, **place)
        self.dtype = dtype
        self.narrowed = narrowed


class NotAnArrayError(ConversionError, TypeError):
    """A value is not an array of any known library, where an array was expected."""


class StructureError(ConversionError):
    """A tree contains itself or is nested too deeply, or one of its containers cannot be read or rebuilt."""


class TracedValueError(ConversionError, TypeError):
    """A value is traced, as inside `jit`, `grad` or `vmap`, so its numbers are not known yet."""


class UnsupportedDtypeError(ConversionError, TypeError):
    """The target has no dtype of the same kind as the dtype of the array, or its device lacks the array's dtype.

    Attributes:
        dtype: the name of the source's dtype.
    """

    def __init__(self, reason: str, *, remedy: str = "", dtype: str = "", **place: str) -> None:
        super().__init__(reason, remedy=remedy, **place)
        self.dtype = dtype


class PluginWarning(UserWarning):
    """A plugin, or one of its parts, is faulty. The text says why, and which part is not used or what is done instead.

    Warnings of this class about the registration of plugins are also logged by the logger "arrayferry".
    """


class UnconvertedWarning(UserWarning):
    """An object in a tree, such as a pandas Series, was not converted, although its numbers could be read as an array.

    The warning is issued for the first object of each class. `unknown="convert"` converts such objects.
    """


class TraceWarning(UserWarning):
    """A trace found round trips of arrays, or avoidable copies in a loop."""


for _public in [value for value in globals().values() if isinstance(value, type)]:
    if issubclass(_public, (ArrayFerryError, UserWarning)):
        _public.__module__ = "arrayferry"  # tracebacks and pickles then name the public module


def describe_error(error: BaseException) -> str:
    """Format an error as `Type: text`, even if `str(error)` fails."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
