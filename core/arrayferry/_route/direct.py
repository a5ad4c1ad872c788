"""`Direct`: a direct converter with options, used as the whole route or as one step of a route.

If a converter raises an error or returns `NotImplemented`, the array takes another route. If a converter returns a
wrong result, the converter is no longer used, and a warning says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arrayferry._errors import describe_error
from arrayferry._observers import note, observers, open_conversion
from arrayferry._options import Options
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import describe_array, is_out_of_memory, warn_of_plugin
from arrayferry._plugin.converter import Converter, Inline
from arrayferry._plugin.origin import Origin
from arrayferry._registry.discovery import is_built_in
from arrayferry._tree.kind import Kind
from arrayferry._types import AnyArray

from .devices import device_if_known, resolve_device
from .memory import share_memory
from .queued import let_go

MAX_TYPES = 64
"""The maximum number of array types for which the result of `Converter.takes` is cached."""


class _WrongResultError(Exception):
    """A converter returned an object that is not an array of the target."""


@dataclass(eq=False, repr=False)
class Direct:
    """A direct converter, bound to options.

    Args:
        converter: the converter.
        source: the backend or source of the arrays to convert.
        target: the backend of the results.
        options: the user's options.
        kind_of: a function that returns the `Kind` of a value.
        forget: a function to call without arguments when the converter is no longer used.

    Attributes:
        target_device: the name of the device on which results must be, or None if the device is not checked.
        trusted: whether the converter is built in. If True, the types of its results are not checked.
        disabled: whether the converter is no longer used.
        one: a function that converts one array, or None if the converter does not support these options.
        many: a function that converts several arrays in one call, or None if the converter has no such function.
        inline: Python expressions that convert one array, or None if the converter has no such expressions.
    """

    converter: Converter
    source: Origin
    target: Backend
    options: Options
    kind_of: Callable[[Any], Kind]
    forget: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        converter, options = self.converter, self.options
        self.target_device: str | None = None
        if options.device is not None and converter.target_device != "cpu":
            self.target_device, _ = resolve_device(self.target, options.device, "")
        self.trusted: bool = is_built_in(converter)
        self.disabled: bool = False
        self.one: Any = _bound(converter, "bind", options)
        self.many: Any = _bound(converter, "bind_many", options) if self.one is not None else None
        self.inline: Any = _bound(converter, "inline", options)
        self._copies = bool(options.copy)
        self._right: set[type] = set()
        self._taken = functools.lru_cache(MAX_TYPES)(self._asked)
        if not self.trusted:
            self._check_results()

    def _check_results(self) -> None:
        """Replace `one`, `many` and `inline` with versions that check their results."""
        one, many, inline, check_result = self.one, self.many, self.inline, self._checked
        if one is not None:
            self.one = lambda x: check_result(one(x))
        if many is not None:
            self.many = lambda xs: [check_result(y) for y in many(xs)]
        if inline is not None:
            check_name = "checked"
            while check_name in inline.names:
                check_name += "_"
            result_code = f"{{{check_name}}}({inline.result})"
            # parentheses are needed, since the generated code joins several tests by `and`
            test = inline.test and f"({inline.test})"
            self.inline = Inline(test, result_code, {**inline.names, check_name: check_result})

    def _checked(self, y: AnyArray) -> Any:
        cls = type(y)
        if cls in self._right or y is NotImplemented:
            return y
        if not self.kind_of(y).is_array_of(self.target):
            self._give_up(f"returned {describe_array(y)}, which is not an array of the target")
            raise _WrongResultError
        if len(self._right) < MAX_TYPES:
            self._right.add(cls)
        return y

    def _give_up(self, why: str) -> None:
        """Stop using the converter, and warn about it once."""
        if not self.disabled:
            self.disabled = True
            self.forget()
            _warn(self.converter, f"{why}, so it is not used")

    def takes(self, cls: type) -> bool:
        """Return whether the converter converts arrays of exactly this type."""
        return not self.disabled and self._taken(cls)

    def _asked(self, cls: type) -> bool:
        try:
            return self.one is not None and bool(self.converter.takes(cls))
        except MemoryError:  # not an answer, so it must not be cached
            raise
        except Exception as error:
            _warn(
                self.converter,
                f"failed in takes() ({describe_error(error)}), so it is not used for the array",
            )
            return False

    def convert(self, x: AnyArray) -> Any:
        """Convert one array. Return `NotImplemented` if the array must take another route."""
        if not self.takes(type(x)):
            return NotImplemented
        try:
            y = self.one(x)
        except Exception as error:
            return self.set_aside(error)
        return y if y is NotImplemented or self._follows_options(x, y) else NotImplemented

    def convert_many(self, xs: list[Any]) -> list[Any] | None:
        """Convert several arrays in one call.

        Returns:
            The results, with `NotImplemented` in place of arrays that must take another route. None if the arrays must
            be converted one by one.
        """
        if self.many is None or not all(map(self.takes, set(map(type, xs)))):
            return None
        try:
            ys = list(self.many(xs))
        except Exception as error:
            self.set_aside(error)
            return None
        all_valid = len(ys) == len(xs) and all(
            y is NotImplemented or self._follows_options(x, y) for x, y in zip(xs, ys, strict=True)
        )
        return ys if all_valid else None

    def _follows_options(self, x: AnyArray, y: AnyArray) -> bool:
        """Return whether a result follows the options `copy` and `device`.

        If the result is no copy despite `copy=True`, or is not on the requested GPU, stop using the converter.
        """
        if self.target_device is not None and device_if_known(self.target, y) != self.target_device:
            self._give_up(f"does not put arrays on {self.target_device}")
            return False
        if not self._copies or not share_memory(x, self.source, y, self.target):
            return True
        self._give_up("ignores copy=True")
        return False

    @property
    def is_checked(self) -> bool:
        """Whether `_follows_options` must check each result.

        This is necessary if a GPU was requested, or if `copy=True` and the converter is not built in.
        """
        return self.target_device is not None or (self._copies and not self.trusted)

    def set_aside(self, error: Exception) -> Any:
        """Return `NotImplemented` after an error. If memory ran out, and `let_go` freed nothing, raise the error."""
        if is_out_of_memory(error, self.source, self.target) and not let_go():
            raise error
        if observers and open_conversion.call is not None:
            open_conversion.call.raised = self
            library_names = self.source.name, self.target.name
            note(*library_names, self.converter, "failed", error=error)
        return NotImplemented


def _bound(converter: Converter, method: str, options: Options) -> Any:
    """Return the result of a method of a converter for these options, or None if the method fails."""
    try:
        bound = getattr(converter, method)(options)
        if method == "inline" and bound is not None:
            placeholders = {name: name for name in ("x", "y", *dict(bound.names))}
            compile(bound.test.format(**placeholders) or "True", "<test>", "eval")
            compile(bound.result.format(**placeholders), "<result>", "eval")
    except MemoryError:
        raise
    except Exception as error:
        _warn(
            converter, f"failed in {method}() ({describe_error(error)}), so {method}() is not used"
        )
        return None
    return bound


def _warn(converter: Converter, text: str) -> None:
    warn_of_plugin(f"{converter!r} ({type(converter).__module__}) {text}")
