"""A row of the table: its figures, their goals, and whether they are met."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Check", "Row", "microseconds"]


@dataclass(frozen=True)
class Check:
    """One figure and its limit.

    Attributes:
        value: the figure.
        limit: what it is compared with.
        unit: the text after the figure.
        sense: whether the figure must be at most or at least the limit.
    """

    value: float
    limit: float
    unit: str
    sense: Literal["at most", "at least"] = "at most"

    @property
    def passes(self) -> bool:
        """Whether the figure is within the limit."""
        return self.value <= self.limit if self.sense == "at most" else self.value >= self.limit

    @property
    def figure(self) -> str:
        """The figure as text."""
        return f"{_short(self.value)} {self.unit}"

    @property
    def goal(self) -> str:
        """The limit as text."""
        return f"{self.sense} {self.limit:g}"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        section: the heading that it is listed under.
        what: what was measured.
        checks: the figures that have limits.
        note: figures without limits, as text.
        numbers: the measurements, times in microseconds.
    """

    section: str
    what: str
    checks: tuple[Check, ...] = ()
    note: str = ""
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Whether all goals are met."""
        if not self.checks:
            return ""
        return "pass" if all(check.passes for check in self.checks) else "falls short"

    @property
    def figure(self) -> str:
        """All figures as text."""
        figures = ", ".join(check.figure for check in self.checks)
        if self.note:
            return f"{figures} ({self.note})" if figures else self.note
        return figures

    @property
    def goal(self) -> str:
        """All limits as text."""
        return ", ".join(check.goal for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """The row as a dict, for JSON."""
        return {
            "section": self.section,
            "what": self.what,
            "figure": self.figure,
            "goal": self.goal,
            "verdict": self.verdict,
            "checks": [
                {"value": check.value, "sense": check.sense, "limit": check.limit}
                for check in self.checks
            ],
            "numbers": self.numbers,
        }


def microseconds(times: dict[str, float]) -> dict[str, float]:
    """Convert seconds to microseconds, rounded to nanoseconds."""
    return {name: round(seconds * 1e6, 3) for name, seconds in times.items()}
