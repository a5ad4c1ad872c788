"""What the examples show: a bar for each agent that learns, a table, and a picture of learning curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = ["Add", "Result", "Show", "bars", "draw", "table"]

GOAL = 450.0
"""The score from which on an agent has learned CartPole. The highest is 500."""

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
    def learned(self) -> bool:
        """Whether all agents have learned."""
        return all(score >= GOAL for score in self.scores)


@contextmanager
def bars() -> Iterator[Add]:
    """Show bars.

    Example:
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
    """Print what was measured.

    Example:
        >>> table([Result("agent", 1.0, 0.5, 1000, [500.0, 490.0], [])])  # doctest: +ELLIPSIS
        <BLANKLINE>
        ...
    """
    found = Table("", box=SIMPLE)
    for title in ("agents", "lowest score", "compiling", "learning", "steps/s"):
        found.add_column(title, justify="right")
    for result in results:
        found.add_row(
            result.name, f"{len(result.scores)}", f"{min(result.scores):.0f}", f"{result.compiling:.1f} s",
            f"{result.seconds:.2f} s", f"{result.steps / result.seconds:,.0f}",
        )  # fmt: skip
    Console().print(found)


def draw(path: str, curves: dict[str, list[Sequence[float]]], xlabel: str, unit: int = 1) -> None:
    """Save a picture of learning curves, those of one name in one colour.

    Args:
        path: where to save it.
        curves: scores after each update, under a name for each group of agents.
        xlabel: what is counted.
        unit: how much of it an update takes.
    """
    figure = Figure(figsize=(7, 4), dpi=150, layout="constrained")
    axes = figure.subplots()
    for number, (name, group) in enumerate(curves.items()):
        for index, scores in enumerate(group):
            known = [(unit * i, y) for i, y in enumerate(scores, 1) if not math.isnan(y)]
            axes.plot(
                *zip(*known, strict=True),
                color=f"C{number}",
                linewidth=1,
                label="" if index else name,
            )
    axes.set(xlabel=xlabel, ylabel="score")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path)
