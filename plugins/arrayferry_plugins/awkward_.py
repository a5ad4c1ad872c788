"""Awkward Array: rectangular arrays, as read-only views where Awkward can return a view."""

from __future__ import annotations

from typing import Any

from arrayferry import Source
from arrayferry.typing import AnyArray

from ._sources import read_only, refused


class AwkwardSource(Source):
    """`awkward.Array` of numbers, bools, dates and time spans, where all lists along an axis have the same length."""

    name = "awkward"
    package = install = "awkward"
    array_types: tuple[str, ...] = ("awkward.Array",)
    # `memory` keeps its default "writable": users often write to the NumPy arrays in Awkward arrays

    def to_numpy(self, x: AnyArray) -> Any:
        import awkward as ak

        _refuse_type(x)
        try:
            return read_only(ak.to_numpy(x, allow_missing=False))
        except ValueError as error:
            flaw = "it is ragged"
            first_call = "ak.fill_none(ak.pad_none(x, n, clip=True), 0) for each ragged axis"
            if any(ak.any(ak.is_none(x, axis=axis), axis=None) for axis in range(x.ndim)):
                flaw, first_call = "it has missing values", "ak.fill_none(x, 0), or ak.drop_none(x)"
            noun = f"an Awkward array of type {x.type!s:.80}"
            raise refused(noun, first_call, why=f": {flaw}") from error

    def is_traced(self, x: AnyArray) -> bool:
        import awkward as ak

        return bool(ak.backend(x) == "typetracer")


def _refuse_type(x: AnyArray) -> None:
    """Raise an error if an array contains text, categories, records, or values of several types."""
    layout = x.layout
    contents = remedy = ""
    while not contents:
        array_kind = layout.parameter("__array__")
        if array_kind == "categorical":
            contents, remedy = "categories", "Call ak.from_categorical(x) first."
        elif array_kind is not None:
            contents, remedy = (
                "text",
                "If the text consists of numbers, call ak.strings_astype(x, float) first.",
            )
        elif layout.is_record:
            contents, remedy = "records", "Select a field first: x[name]."
        elif layout.is_union:
            contents = "values of several types"
            remedy = "First select the values of one type, and call ak.enforce_type(x, type)."
        elif layout.is_list or layout.is_option or layout.is_indexed:
            layout = layout.content
        else:
            return
    noun = f"an Awkward array of type {x.type!s:.80}"
    raise refused(noun, dtype=x.type, why=f": it contains {contents}", remedy=remedy)


def arrayferry_sources() -> list[Source]:
    """Return the source of this module."""
    return [AwkwardSource()]
