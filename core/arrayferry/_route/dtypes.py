"""The choice of another dtype for an array whose dtype the target lacks.

The kind of numbers never changes: an integer stays an integer, and an unsigned integer stays unsigned. If the target
has dtypes of this kind that represent every value of the source's dtype, the smallest of them is used. Otherwise the
widest dtype of the kind is used, and `narrowing.py` handles values that do not fit.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from arrayferry._dtypes import dtype_info, dtype_named
from arrayferry._errors import NarrowingError, UnsupportedDtypeError
from arrayferry._options import Narrowing
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import call_backend, wrong_result

if TYPE_CHECKING:
    import numpy as np


_NOUNS = {
    "bool": "bools",
    "U": "text",
    "S": "bytes",
    "M": "dates",
    "m": "time spans",
    "V": "records",
    "O": "objects",
    "T": "text",
}


@functools.lru_cache(maxsize=4096)
def _choose(dtype: np.dtype[Any], names: frozenset[str]) -> tuple[Any, bool]:
    """Return the dtype to use, and whether this dtype can represent every value of `dtype`.

    If no dtype is suitable, return None and False. If `names` contains the name of `dtype`, the dtype to use is `dtype`
    itself, whatever its byte order.
    """
    if dtype.name in names:
        return dtype, True
    info = dtype_info(dtype)
    candidates = [each for each in map(dtype_named, sorted(names, key=str)) if each is not None]
    kind_dtypes = [each for each in candidates if info.kind and dtype_info(each).kind == info.kind]
    lossless_dtypes = [each for each in kind_dtypes if dtype_info(each).holds(info)]
    if lossless_dtypes:
        return min(lossless_dtypes, key=_size), True
    return max(kind_dtypes, key=lambda candidate: _size(candidate)[0], default=None), False


def _size(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return a key that sorts smaller dtypes first.

    Of two dtypes of equal size, the one with more digits is first: float16 before bfloat16.
    """
    limits = dtype_info(dtype).limits
    return getattr(limits, "bits", 8), -getattr(limits, "nmant", 0)


def target_dtype(
    dtype: np.dtype[Any], target: Backend, narrowing: Narrowing
) -> tuple[np.dtype[Any], bool]:
    """Choose the dtype of the result for an array of the dtype `dtype`, without reading its numbers.

    Returns:
        The dtype, and whether the numbers must be checked. They must be checked if `narrowing` is "checked" and the
        returned dtype cannot represent all numbers of `dtype`.

    Raises:
        NarrowingError: `narrowing` is "forbid", and the dtype would change.
        UnsupportedDtypeError: the target has no dtype of the same kind.
    """
    dtype_names = call_backend(target, "dtypes")
    if dtype_names is None:
        return dtype, False
    if type(dtype_names) is not frozenset:
        dtype_names = _names(dtype_names, target)
    chosen_dtype, lossless = _choose(dtype, dtype_names)
    if chosen_dtype is None:
        raise _unsupported(dtype, target)
    if narrowing == "forbid" and chosen_dtype != dtype:
        raise NarrowingError(
            f"{target.name} has no {dtype.name} here, so the dtype would become {chosen_dtype.name}, which is "
            'forbidden (narrowing="forbid")',
            remedy=f"Convert the array to a dtype of {target.name} first, or pass "
            f'narrowing="checked".' + hint_for(target, dtype.name),
            dtype=dtype.name,
            narrowed=chosen_dtype.name,
        )
    return chosen_dtype, narrowing != "allow" and not lossless


def _names(names: Any, target: Backend) -> frozenset[str]:
    """Return the names that `dtypes` of a backend returned, as a set."""
    try:
        return frozenset((names,) if isinstance(names, str) else names)
    except TypeError as error:
        duty = 'It must return names of dtypes, such as {"float32"}, or None for all NumPy dtypes.'
        raise wrong_result(target, "dtypes", f"a {type(names).__name__}", duty) from error


def _unsupported(dtype: np.dtype[Any], target: Backend) -> UnsupportedDtypeError:
    noun = _NOUNS.get(dtype_info(dtype).kind or dtype.kind, "numbers of that kind")
    return UnsupportedDtypeError(
        f"{target.name} has no dtype for {noun} (an array of dtype {dtype})",
        remedy='Pass unsupported="keep" to leave such arrays unchanged.',
        dtype=str(dtype),
    )


def hint_for(target: Backend, dtype: str) -> str:
    """Return a space and a sentence on how to make the target support a dtype, or "" if its plugin has no hint."""
    hint = call_backend(target, "dtype_hint", dtype)
    return f" {hint}" if hint else ""
