"""Shows progress in a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import arrayferry as af

INSTALL = "In a checkout of arrayferry, run: pip install '.[video]'"


@contextlib.contextmanager
def shown(progress: bool, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show progress in a terminal. Yield a function that accepts the number of completed units, and shows it.

    Args:
        progress: whether to show progress.
        what: the name of the work, such as "drawing".
        total: the total number of units, or None if it is not known.

    Raises:
        arrayferry.OptionError: rich is not installed.
    """
    if not progress:
        yield lambda done: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError as error:
        raise af.OptionError(
            f"progress is shown by rich, which cannot be imported ({error})",
            remedy=f"{INSTALL}, or pass progress=False.",
        ) from None
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
