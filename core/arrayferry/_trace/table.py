"""The table of a trace, as text."""

from __future__ import annotations

from collections.abc import Sequence

from .rows import TraceRow, on_device

HEADS = ("time", "calls", "arrays", "size", "how", "from -> to", "place")


def table_lines(rows: Sequence[TraceRow]) -> list[str]:
    """Return the rows as lines of a table, and below each row why its arrays crossed as they did."""
    lines: list[tuple[str, ...]] = [HEADS]
    for row in rows:
        sides = (row.source, row.source_device), (row.target, row.target_device)
        way = " -> ".join(on_device(*side) for side in sides)
        counts = time_text(row.seconds), f"{row.calls}", f"{row.arrays}", size_text(row.bytes)
        lines.append((*counts, row.how, way, row.place))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = []
    for *cells, place in lines:
        numbers = [cell.rjust(width) for cell, width in zip(cells[:4], widths[:4], strict=True)]
        words = [cell.ljust(width) for cell, width in zip(cells[4:], widths[4:6], strict=True)]
        text.append(" ".join([*numbers, *words, place]))
    for number, row in enumerate(rows, 1):
        for reason, count in row.why.items():
            text[number] += f"\n{' ' * widths[0]} {reason}, {counted(count, 'time')}"
    return text


def counted(count: int, noun: str) -> str:
    """Write a number of things."""
    return f"{count} {noun}{'s' * (count != 1)}"


def time_text(seconds: float) -> str:
    """Write a time with three digits."""
    return _scaled(seconds * 1e6, "us", "ms", "s")


def size_text(size: float) -> str:
    """Write a size in bytes with three digits."""
    return f"{size} B" if size < 1000 else _scaled(size / 1000, "kB", "MB", "GB", "TB")


def _scaled(number: float, *units: str) -> str:
    """Write a number with three digits, in the first unit in which it is less than 1000."""
    power = 0
    while number >= 999.5 and power < len(units) - 1:
        number, power = number / 1000, power + 1
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:.{digits}f} {units[power]}"
