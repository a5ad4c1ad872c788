"""What one line of the table is: a figure, a goal, and whether it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Check", "Row", "microseconds"]


@dataclass(frozen=True)
class Check:
    """One figure against one limit.

    Attributes:
        value: the figure.
        limit: what it is held against.
        unit: what stands behind the figure.
        sense: whether the figure shall be at most or at least the limit.
    """

    value: float
    limit: float
    unit: str
    sense: Literal["at most", "at least"] = "at most"

    @property
    def holds(self) -> bool:
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
    """One line of the table.

    Attributes:
        section: the row of the issue that it belongs to.
        what: what was measured.
        checks: the figures with their limits; none for what is only told.
        told: figures without a limit, as text.
        numbers: what was measured, times in microseconds.
    """

    section: str
    what: str
    checks: tuple[Check, ...] = ()
    told: str = ""
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Whether all goals hold."""
        if not self.checks:
            return ""
        return "pass" if all(check.holds for check in self.checks) else "falls short"

    @property
    def figure(self) -> str:
        """All figures as text."""
        figures = ", ".join(check.figure for check in self.checks)
        if self.told:
            return f"{figures} ({self.told})" if figures else self.told
        return figures

    @property
    def goal(self) -> str:
        """All limits as text."""
        return ", ".join(check.goal for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """All of it, to be written to a file."""
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
    """Seconds as microseconds, rounded to the nanosecond."""
    return {name: round(seconds * 1e6, 3) for name, seconds in times.items()}
