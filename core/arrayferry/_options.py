"""`Options`: the options of a conversion. They are checked when an `Options` is created."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from arrayferry._types import AnyTree

from ._errors import OptionError
from ._utilities.text import changed_arguments

if TYPE_CHECKING:
    from typing import TypedDict, Unpack

Narrowing = Literal["checked", "forbid", "allow"]
Scalars = Literal["keep", "convert"]
Unsupported = Literal["raise", "keep"]
Unknown = Literal["keep", "raise", "convert"]
Sparse = Literal["raise", "dense"]

_CHOICES: dict[str, tuple[Any, ...]] = {
    "copy": (None, True, False),
    "narrowing": get_args(Narrowing),
    "scalars": get_args(Scalars),
    "unsupported": get_args(Unsupported),
    "unknown": get_args(Unknown),
    "sparse": get_args(Sparse),
}


if TYPE_CHECKING:

    class Keywords(TypedDict, total=False):
        """The options of a conversion, as keyword arguments."""

        device: Any
        copy: bool | None
        narrowing: Narrowing
        scalars: Scalars
        unsupported: Unsupported
        unknown: Unknown
        sparse: Sparse


class _Options(NamedTuple):
    device: Any = None
    copy: bool | None = None
    narrowing: Narrowing = "checked"
    scalars: Scalars = "keep"
    unsupported: Unsupported = "raise"
    unknown: Unknown = "keep"
    sparse: Sparse = "raise"


class Options(_Options):
    """The options of a conversion, without the target, as a named tuple. They are checked when it is created.

    Attributes:
        device: a name ("cpu", "cuda:0"), a device object of the target, "default" for the default device of the target,
            or None to keep arrays on an accelerator, and to use the default device for all others.
        copy: True to always copy, False to share memory or raise an error, or None to share memory where
            this is possible and safe.
        narrowing: how to handle an array if the target lacks the dtype, but has another dtype of the same kind.
        scalars: whether Python numbers and bools become 0-d arrays.
        unsupported: how to handle an array if the target has no dtype of the same kind, as for text.
        unknown: how to handle an object in a tree that could become an array, but is not an array of a known library.
        sparse: how to handle a sparse array of a library other than the target.

    Raises:
        OptionError: an option has an invalid value.

    Examples:
        >>> import arrayferry as af
        >>> af.Options(device="cpu").copy is None
        True
    """

    __slots__ = ()

    def __new__(cls, *args: Any, **options: Unpack[Keywords]) -> Options:
        """Create the options, and check them."""
        keywords: Any = options  # typed as Any, since options may also be positional
        checked_options = super().__new__(cls, *args, **keywords)
        for option, choices in _CHOICES.items():
            value = getattr(checked_options, option)
            if not any(type(value) is type(choice) and value == choice for choice in choices):
                choices_text = ", ".join(map(repr, choices))
                raise OptionError(
                    f"{option}={value!r} is not valid", remedy=f"Pass one of {choices_text}."
                )
        return checked_options

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Options:  # type: ignore[override]
        # `_replace` calls this method. The method of the base class does not check the options
        return cls(*iterable)

    def __repr__(self) -> str:
        return f"Options({changed_arguments(self._asdict(), self._field_defaults)})"


def checked_count(option: str, value: AnyTree, least: int | None, more: str = "") -> int:
    """Return the value of an option as an `int`. Raise `OptionError` if it is not a whole number, or is too small.

    Args:
        option: the name of the option.
        value: the value of the option. Whole numbers of every type except bool are valid.
        least: the smallest value that is valid, or None for no limit.
        more: text to append to the remedy.
    """
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or (least is not None and value < least):
        limit_text = "" if least is None else f" of {least} or more"
        raise OptionError(
            f"{option}={value!r:.80} is not valid", remedy=f"Pass a whole number{limit_text}.{more}"
        )
    return int(value)
