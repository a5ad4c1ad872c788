"""Plots of the table: ours, Gymnasium's and calls by hand as ratios on one scale, and growing batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pairs import ADAPTERS, ONE, TREE
from row import Row
from scaling import COUNTS, KINDS, SECTION

__all__ = ["DARK", "LIGHT", "draw", "draw_growth"]


class Colours(NamedTuple):
    """The colours of a picture, for light or for dark pages."""

    paper: str
    ink: str
    quiet: str
    rule: str
    ours: str
    peer: str
    other: str


LIGHT = Colours("#ffffff", "#1f2933", "#6b7680", "#dfe3e7", "#0b6e99", "#c2571a", "#7a4fa3")
DARK = Colours("#0a0c10", "#e4e7eb", "#98a2ad", "#2b323a", "#4cb3e0", "#f0894a", "#b48ee0")
TITLES = {
    TREE: "A tree of five arrays and a string",
    ONE: "One small array",
    ADAPTERS: "What an adapter adds to a step",
}


def draw(rows: list[Row], path: Path, colours: Colours) -> None:
    """Draw the rows that compare the three ways.

    Args:
        rows: all rows; other sections, and rows without one of the three, are left out.
        path: where to write the plot, as PNG.
        colours: `LIGHT` or `DARK`.
    """
    matplotlib.rcParams.update(
        {
            "font.family": "DejaVu Sans",
            "font.size": 9,
            "text.color": colours.ink,
            "axes.facecolor": colours.paper,
        }
    )
    compared = [row for row in rows if {"ours", "peer", "hand"} <= set(row.numbers)]
    groups = {section: [row for row in compared if row.section == section] for section in TITLES}
    heights = [len(group) + 0.9 for group in groups.values()]
    figure = Figure(figsize=(8, 0.34 * sum(heights) + 1.25), dpi=160, facecolor=colours.paper)
    panels = figure.subplots(
        len(groups), 1, sharex=True, gridspec_kw={"height_ratios": heights, "hspace": 0.32}
    )
    ratios = [
        row.numbers[way] / row.numbers["hand"]
        for group in groups.values()
        for row in group
        for way in ("ours", "peer")
    ]
    most, least = max(ratios), min(1.0, *ratios)
    for panel, (section, group) in zip(panels, groups.items(), strict=True):
        _panel(panel, TITLES[section], group, colours)
    last = panels[-1]
    last.set_xscale("log")
    last.set_xlim(least * 0.68, most * 1.3)
    ticks = [tick for tick in (1, 2, 3, 5, 10, 20, 50) if tick < most * 1.4]
    last.set_xticks(ticks, [f"{tick} x" for tick in ticks])
    last.minorticks_off()
    last.set_xlabel("time, in multiples of calls written by hand (log scale)", color=colours.quiet)
    figure.subplots_adjust(
        left=0.27, right=0.97, top=1 - 0.75 / figure.get_figheight(), bottom=0.085
    )
    _heading(figure, colours)
    figure.savefig(path, metadata={"Software": None})


def _heading(figure: Figure, colours: Colours) -> None:
    height = figure.get_figheight()
    top = 1 - 0.24 / height
    for x, text, color in (
        (0.27, "| calls by hand", colours.ink),
        (0.44, "\u25cf arrayferry", colours.ours),
        (0.58, "\u25c6 Gymnasium", colours.peer),
    ):
        figure.text(x, top, text, color=color, fontsize=10, fontweight="bold", va="center")
    figure.text(0.735, top, "further left is faster", color=colours.quiet, va="center")


def _panel(panel: Axes, title: str, group: list[Row], colours: Colours) -> None:
    panel.set_title(title, loc="left", fontsize=10, fontweight="bold", pad=6)
    for place, row in enumerate(group):
        hand = row.numbers["hand"]
        ours, peer = row.numbers["ours"] / hand, row.numbers["peer"] / hand
        panel.annotate(
            _time(hand),
            (1, place),
            (-5, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            color=colours.ink,
            fontsize=8,
        )
        panel.plot([1, peer], [place, place], color=colours.rule, linewidth=3, zorder=1)
        panel.plot([peer], [place], "D", color=colours.peer, markersize=6, zorder=3)
        panel.plot([ours], [place], "o", color=colours.ours, markersize=7.5, zorder=4)
        panel.annotate(
            _time(row.numbers["peer"]),
            (peer, place),
            (7, 0),
            textcoords="offset points",
            va="center",
            color=colours.peer,
            fontsize=8,
        )
        panel.annotate(
            _time(row.numbers["ours"]),
            (ours, place),
            (8, 0),
            textcoords="offset points",
            va="center",
            color=colours.ours,
            fontsize=8,
            bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.6},
            zorder=2,
        )
    panel.axvline(1, color=colours.ink, linewidth=1.2, zorder=2)
    panel.set_yticks(range(len(group)), [row.what for row in group])
    panel.set_ylim(len(group) - 0.4, -0.6)
    panel.tick_params(length=0, colors=colours.ink)
    panel.tick_params(axis="x", colors=colours.quiet)
    panel.grid(axis="x", color=colours.rule, linewidth=0.6, zorder=0)
    for side in panel.spines.values():
        side.set_visible(False)


def _time(microseconds: float) -> str:
    digits = 2 if microseconds < 1 else 1 if microseconds < 100 else 0
    return f"{microseconds:.{digits}f} \u00b5s"


SERIES = {
    "rollout": ("rollout in JAX", "ours", "-", "o"),
    "jax": ("steps in JAX", "ours", "--", "s"),
    "torch": ("steps in PyTorch", "ours", ":", "^"),
    "numpy": ("steps in NumPy", "ours", "-.", "v"),
    "gymnax": ("gymnax, rollout", "other", "-", "D"),
    "gymnasium": ("Gymnasium, steps", "peer", "-", "D"),
}


def draw_growth(rows: list[Row], path: Path, colours: Colours) -> None:
    """Draw how many environment steps are taken a second, by the number of environments.

    Args:
        rows: all rows; other sections are left out.
        path: where to write the plot, as PNG.
        colours: `LIGHT` or `DARK`.
    """
    known = {row.what: row.numbers for row in rows if row.section == SECTION}
    matplotlib.rcParams.update(
        {
            "font.family": "DejaVu Sans",
            "font.size": 9,
            "text.color": colours.ink,
            "axes.facecolor": colours.paper,
        }
    )
    figure = Figure(figsize=(10, 6.4), dpi=160, facecolor=colours.paper)
    panels = figure.subplots(
        2, 3, sharex=True, sharey=True, gridspec_kw={"hspace": 0.25, "wspace": 0.08}
    )
    lines: dict[str, Any] = {}
    for panel, kind in zip(panels.flat, KINDS, strict=True):
        panel.set_title(kind, loc="left", fontsize=10, fontweight="bold")
        for way, (label, colour, style, marker) in SERIES.items():
            points = [
                (count, known[f"{count:,} of {kind}"][f"{way} a second"])
                for count in COUNTS
                if f"{way} a second" in known.get(f"{count:,} of {kind}", {})
            ]
            if points:
                x, y = zip(*points, strict=True)
                (lines[label],) = panel.plot(
                    x,
                    y,
                    style,
                    color=getattr(colours, colour),
                    marker=marker,
                    markersize=4.5,
                    linewidth=1.4,
                )
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(COUNTS, [f"{count:,}" for count in COUNTS])
        panel.minorticks_off()
        panel.grid(color=colours.rule, linewidth=0.6)
        panel.tick_params(length=0, colors=colours.quiet)
        for side in panel.spines.values():
            side.set_visible(False)
    for panel in panels[-1]:
        panel.set_xlabel("environments at once", color=colours.quiet)
    for panel in panels[:, 0]:
        panel.set_ylabel("environment steps a second", color=colours.quiet)
    figure.legend(
        lines.values(),
        lines.keys(),
        loc="upper center",
        ncols=6,
        frameon=False,
        fontsize=9,
        handlelength=2.6,
    )
    figure.subplots_adjust(left=0.08, right=0.98, top=0.88, bottom=0.09)
    figure.savefig(path, metadata={"Software": None})
