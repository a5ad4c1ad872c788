"""How objects are written for people: short, without computing anything, and without raising."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

MOST = 200
"""The maximum number of characters of a written tree, or of one fact."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def shown(value: Any, most: int = 40) -> str:
    """Write a value: text and numbers as Python does, cut if they are long; anything else by its type alone."""
    if type(value) not in _PLAIN:
        return f"<{type(value).__name__}>"
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"<int of {value.bit_length()} bits>"
    text = repr(value[:most] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    """Replace characters that would break a line, control a terminal or cannot be encoded."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def often(count: int) -> str:
    """Write how often something happened."""
    return "once" if count == 1 else f"{count} times"


def given(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Write the options that are not the default, as arguments of a call."""
    return ", ".join(
        f"{name}={shown(value)}"
        for name, value in values.items()
        if type(value) is not type(defaults[name]) or value != defaults[name]
    )


def never_raises(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """Make a `__repr__` that also works if the object's constructor failed, or the `__repr__` of a part does."""

    @functools.wraps(write)
    def written(self: Any) -> str:
        try:
            return write(self)
        except Exception:
            return f"<{type(self).__name__}, incomplete>"

    return written


def html_view(write: Callable[[Any], str]) -> Callable[[Any], str | None]:
    """Make a `_repr_html_` that falls back to the object's text if it fails.

    Args:
        write: the method.

    Example:
        >>> from arrayferry.adapting import html_facts, html_view
        >>> class Reader:
        ...     @html_view
        ...     def _repr_html_(self):
        ...         return html_facts("Reader", {"file": self.file})
        >>> print(Reader()._repr_html_())  # it has no file
        None
    """

    @functools.wraps(write)
    def written(self: Any) -> str | None:
        try:
            return write(self)
        except Exception:
            return None

    return written


def html_table(
    heads: Sequence[str], rows: Iterable[Sequence[str | tuple[str, str]]], numbers: int = 0
) -> str:
    """Write a table for a notebook, in the notebook's own colours.

    Args:
        heads: the names of the columns.
        rows: the cells: a text of one or several lines, or a text and its tooltip.
        numbers: the number of columns, from the first, that are aligned to the right.
    """
    aligned = [
        f' style="text-align: {"right" if n < numbers else "left"}"' for n in range(len(heads))
    ]
    parts = ['<table style="color: inherit">']
    if any(heads):
        named = [f"<th{a}>{_html(head)}</th>" for a, head in zip(aligned, heads, strict=True)]
        parts += ["<tr>", *named, "</tr>"]
    for row in rows:
        cells = [f"<td{a}>{_cell(cell)}</td>" for a, cell in zip(aligned, row, strict=True)]
        parts += ["<tr>", *cells, "</tr>"]
    return "".join([*parts, "</table>"])


def html_facts(title: str, facts: Mapping[str, str], more: str = "") -> str:
    """Describe an object in HTML for a notebook.

    Args:
        title: a name for the object.
        facts: names and values. Those without a value are left out, and long lines are cut.
        more: HTML that follows, such as another table.

    Returns:
        HTML in the notebook's own colours. The title, the names and the values are escaped.

    Example:
        >>> from arrayferry.adapting import html_facts
        >>> html_facts("<b>", {})
        '<div><strong>&lt;b&gt;</strong></div>'
    """
    rows = [
        (name, "\n".join(map(_cut, value.split("\n")))) for name, value in facts.items() if value
    ]
    table = html_table(("", ""), rows) if rows else ""
    return f"<div><strong>{_html(title)}</strong>{table}{more}</div>"


def html_code(title: str, codes: Sequence[str]) -> str:
    """Write code for a notebook, folded up. Without code, return ""."""
    if not codes:
        return ""
    import html

    text = html.escape("\n\n".join(codes))
    return f"<details><summary>{_html(title)}: {len(codes)}</summary><pre>{text}</pre></details>"


def _cell(cell: str | tuple[str, str]) -> str:
    if isinstance(cell, tuple):
        text, title = cell
        return f'<span title="{_html(title)}">{_html(text)}</span>'
    return "<br>".join(map(_html, cell.split("\n")))


def _cut(text: str) -> str:
    return text if len(text) <= MOST else f"{text[: MOST - 3]}..."


def _html(text: str) -> str:
    import html

    return html.escape(printable(text))
