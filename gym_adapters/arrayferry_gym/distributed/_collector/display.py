"""The progress of a collector on a terminal."""

from __future__ import annotations

from typing import Any

import arrayferry as af


class Display:
    """Shows the progress of a collector on a terminal.

    Args:
        shown: whether to show it.
    """

    def __init__(self, shown: bool) -> None:
        self._live: Any = None
        if not shown:
            return
        try:
            from rich.console import Console
            from rich.live import Live
        except ImportError as error:
            raise af.OptionError(
                f"the progress of a collector needs rich ({error})",
                remedy="Run: pip install rich, or pass progress=False.",
            ) from None
        console = Console(stderr=True)
        if console.is_terminal:
            self._live = Live(console=console, transient=True)

    def show(self, collector: Any) -> None:
        """Show the newest numbers."""
        if self._live is None:
            return
        stats = collector.stats
        workers = [
            f"{name}: {own.steps_per_second:,.0f} steps/s, idle {own.idle:.0%}, "
            f"weights {own.weights_age} old"
            for name, own in sorted(stats.workers.items())
        ]
        lost = f", {stats.lost} groups lost" if stats.lost else ""
        first = f"{stats.steps:,} steps, {stats.steps_per_second:,.0f} steps/s{lost}"
        self._live.start()  # does nothing if it is shown already
        self._live.update("\n".join([first, *workers]))

    def close(self) -> None:
        """Stop showing it."""
        if self._live is not None:
            self._live.stop()
