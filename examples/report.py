"""What the examples show: a bar for each agent that learns, a table, and a picture of learning curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = ["Add", "Line", "Result", "Show", "bars", "draw", "table"]

GOAL = 450.0
"""The score from which on an agent has learned CartPole. The highest is 500."""

FAR = 5.0
"""How many times as much an update of one line takes as one of another where the axis is logarithmic."""

Show = Callable[[Any, Any], None]
"""Takes how many updates are done, and the last score."""

Add = Callable[[str, int], Show]
"""Adds a bar, with a name and a number of updates. Returns what moves it."""


class Result(NamedTuple):
    """What one or several agents have reached, and in which time.

    Attributes:
        name: the agents, and their environments.
        compiling: the seconds of compilation. Where this is part of the first update, those of the first update.
        seconds: the seconds of learning after that.
        steps: the steps of environments in these seconds.
        scores: of each agent, the mean return of 100 episodes without exploration.
        curves: of each agent, after each update, the mean return of the episodes that have ended in it; nan if none has.
    """

    name: str
    compiling: float
    seconds: float
    steps: int
    scores: list[float]
    curves: list[Sequence[float]]

    @property
    def rate(self) -> float:
        """The steps a second."""
        return self.steps / self.seconds

    @property
    def learned(self) -> bool:
        """Whether all agents have learned."""
        return all(score >= GOAL for score in self.scores)


class Line(NamedTuple):
    """Learning curves to draw.

    Attributes:
        name: whose they are.
        unit: how much of what is counted an update takes.
        curves: the scores after each update.
        start: how much of it passes before the first update, such as the time of compilation.
    """

    name: str
    unit: float
    curves: Sequence[Sequence[float]]
    start: float = 0.0


@contextmanager
def bars() -> Iterator[Add]:
    """Show bars.

    Examples:
        >>> with bars() as add:
        ...     show = add("agent", 2)
        ...     show(2, 20.5)
        agent ... 2/2 score  20.50 ...
    """
    columns = (
        TextColumn("{task.description:36}"), BarColumn(16), MofNCompleteColumn(),
        TextColumn("score {task.fields[score]:6.2f}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns) as progress:

        def add(name: str, updates: int) -> Show:
            task = progress.add_task(name, total=updates, score=math.nan)

            def show(done: Any, score: Any) -> None:
                known = {} if math.isnan(score) else {"score": float(score)}
                progress.update(task, completed=int(done), **known)

            return show

        yield add


def table(results: Sequence[Result]) -> None:
    """Print what was measured, with the lowest score of several agents.

    Examples:
        >>> table([Result("agent", 1.0, 0.5, 1000, [500.0, 490.0], [])])
        <BLANKLINE>
        ... agent ... 490 ... 1.0 s ... 0.50 s ... 2,000 ...
    """
    found = Table(box=SIMPLE)
    found.add_column(no_wrap=True)
    for title in ("score", "compiling", "learning", "steps/s"):
        found.add_column(title, justify="right")
    for result in results:
        found.add_row(
            result.name, f"{min(result.scores):.0f}", f"{result.compiling:.1f} s",
            f"{result.seconds:.2f} s", f"{result.rate:,.0f}",
        )  # fmt: skip
    Console(width=80).print(found)


def draw(path: str, lines: Sequence[Line], xlabel: str, mean_of: int = 1) -> None:
    """Save a picture of learning curves, those of one name in one colour, and print where it is.

    If an update of one line takes far more of what is counted than one of another, and all start at 0, the axis is
    logarithmic. Where a line starts later, a dotted line leads to it.

    Args:
        path: where to save it.
        lines: what to draw.
        xlabel: what is counted.
        mean_of: each point is the mean of so many scores, the last ones.
    """
    figure = Figure(figsize=(7, 4.5), dpi=150, layout="constrained")
    axes = figure.subplots()
    for number, (name, unit, curves, start) in enumerate(lines):
        for index, scores in enumerate(curves):
            points = ((start + unit * update, y) for update, y in enumerate(scores, 1))
            x, y = zip(*((x, y) for x, y in points if not math.isnan(y)), strict=True)
            means = [fmean(y[max(0, end - mean_of) : end]) for end in range(1, len(y) + 1)]
            axes.plot(
                x, means, ("-", "--")[number % 2], color=f"C{number}",
                linewidth=1.4 if len(curves) == 1 else 0.7, zorder=10 - number, label="" if index else name,
            )  # fmt: skip
            if start and not index:
                axes.plot((0, x[0]), (y[0],) * 2, ":", color=f"C{number}", linewidth=1)
    units = [line.unit for line in lines]
    if max(units) > FAR * min(units) and not any(line.start for line in lines):
        axes.set_xscale("log")
        axes.set_xlim(left=min(units) * mean_of)  # before that, few scores are known
        axes.xaxis.set_major_formatter("{x:g}")
        xlabel += " (logarithmic)"
    axes.set(xlabel=xlabel, ylabel="score" if mean_of == 1 else f"score, mean of {mean_of} updates")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside upper left", ncols=min(2, len(lines)), frameon=False)
    figure.savefig(path)
    print(f"The learning curves are in {path}.")
