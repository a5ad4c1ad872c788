"""Videos of the states that a rollout has collected."""

from __future__ import annotations

import contextlib
import numbers
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import arrayferry as af
from arrayferry_gym._options.env_options import check_flag
from arrayferry_gym.functional._contract.drawn import WithParams
from arrayferry_gym.functional._contract.dynamics import Dynamics, checked_dynamics
from arrayferry_gym.functional._contract.errors import EnvResultError

_INSTALL = "pip install 'arrayferry[video]', or in the folder of its source pip install '.[video]'"


def video(
    env: Dynamics | type[Dynamics],
    states: Any,
    path: str | Path,
    *,
    index: int | None = 0,
    fps: float | None = None,
    progress: bool = True,
) -> None:
    """Write a video of states, drawn by the environment's `render`.

    An existing file is replaced once the video is complete.

    Args:
        env: the environment, or its class. A wrapped environment is drawn as the inner environment.
        states: `transitions.state` of a rollout with `collect=("state",)`: a tree of arrays (time, environment, ...).
        path: the file, which ends in ".mp4", ".webm", ".mov", ".mkv", ".avi" or ".gif".
        index: the index of the environment; None if the arrays are (time, ...), of a single one.
        fps: frames per second, by default `metadata["render_fps"]` of the environment, or 30.
        progress: whether to show progress in a terminal.

    Raises:
        arrayferry.OptionError: an argument is invalid, or a package that videos need is not installed.
        EnvResultError: `render` did not return an image.

    Examples:
        >>> import jax, os, tempfile
        >>> from arrayferry_gym.functional import CartPole, rollout, video
        >>> def policy(params, observation, key):
        ...     return (observation[:, 2] > 0).astype(int), None
        >>> _, transitions = rollout(
        ...     CartPole(), policy, None, jax.random.key(0), 20, 4, collect=("state",)
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "cart.gif")
        ...     video(CartPole(), transitions.state, path)
        ...     os.path.exists(path)
        True
    """
    dynamics = checked_dynamics(env).base
    check_flag("progress", progress)
    state, count = _of_one(states, index)
    rate = dynamics.metadata.get("render_fps", 30) if fps is None else fps
    if isinstance(rate, bool) or not isinstance(rate, numbers.Real) or not 0 < float(rate) < 1000:
        raise af.OptionError(
            f"fps={rate!r:.80} is not a number of images per second",
            remedy="Pass 30, for instance.",
        )
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in _FORMATS:
        raise af.OptionError(
            f"path={str(path)!r} has no ending of a video that is known",
            remedy=f"Use one of {', '.join(_FORMATS)}.",
        )
    unfinished = path.with_name(f"{path.stem}.unfinished{path.suffix}")
    try:
        with (
            _writer(unfinished, _FORMATS[ending], float(rate)) as append,
            contextlib.closing(_images(dynamics, state, range(count), progress)) as images,
        ):
            for image in images:
                append(image)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


_FORMATS = {
    ".mp4": "libx264",
    ".mov": "libx264",
    ".mkv": "libx264",
    ".avi": "libx264",
    ".webm": "libvpx-vp9",
    ".gif": None,
}
"""The codec of each format."""


@contextlib.contextmanager
def _writer(path: Path, codec: str | None, rate: float) -> Iterator[Callable[[Any], object]]:
    """Open a file, and yield a function that appends an image to it."""
    try:
        import imageio.v2
        import imageio.v3

        if codec is not None:
            import av  # noqa: F401
    except ImportError as error:
        raise af.OptionError(
            f"a video needs imageio and PyAV ({error})", remedy=f"{_INSTALL}."
        ) from None
    if codec is None:
        opened: Any = imageio.v2.get_writer(path, duration=1000 / rate, loop=0)
        with opened as file:
            yield file.append_data
        return
    with imageio.v3.imopen(path, "w", plugin="pyav") as stream:
        stream.init_video_stream(codec, fps=rate)
        yield lambda image: stream.write_frame(_even(image))


def _even(image: Any) -> Any:
    """Return an image whose sides are even, as codecs need them."""
    height, width, _ = image.shape
    if height % 2 or width % 2:
        image = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), "edge")
    return np.ascontiguousarray(image)


def _of_one(states: Any, index: int | None) -> tuple[Any, int]:
    """Return the states of one environment, whose arrays begin with the time, and how many there are."""
    if "jax" in sys.modules:
        from arrayferry_gym.functional._compiled.functions import from_pytree

        states = from_pytree(states)
    state = af.convert(states, "numpy")
    state = state.state if isinstance(state, WithParams) else state
    arrays, layout = af.flatten(state)
    fewest = 1 if index is None else 2
    shapes = {tuple(x.shape[:fewest]) for x in arrays}
    if len(shapes) != 1 or len(next(iter(shapes))) != fewest or 0 in next(iter(shapes)):
        axes = "(time, ...)" if index is None else "(time, environment, ...)"
        raise af.OptionError(
            f"states={states!r:.80} are not arrays {axes}",
            remedy='Pass transitions.state of rollout(..., collect=("state",)), or index=None for one environment.',
        )
    count, *rest = next(iter(shapes))
    if index is None:
        return state, count
    if isinstance(index, bool) or not isinstance(index, int) or not -rest[0] <= index < rest[0]:
        raise af.OptionError(
            f"index={index!r:.80}, but there are {rest[0]} environments",
            remedy=f"Pass a number from 0 to {rest[0] - 1}.",
        )
    return layout.unflatten([x[:, index] for x in arrays]), count


def _images(
    env: Dynamics, state: Any, times: Iterable[int], progress: bool
) -> Generator[Any, None, None]:
    """Draw states."""
    first = None
    with _shown(times, progress) as shown:
        for time in shown:
            image = np.asarray(env.render(state, time))
            first = image.shape if first is None else first
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape != first:
                raise EnvResultError(
                    f"{type(env).__name__}.render() returned {image.dtype} of shape {image.shape} at step {time}",
                    remedy="Return uint8 of shape (height, width, 3), of the same size for all states.",
                )
            yield image


@contextlib.contextmanager
def _shown(times: Iterable[int], progress: bool) -> Iterator[Iterable[int]]:
    """Show the progress of a loop over numbers in a terminal."""
    if not progress:
        yield times
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError as error:
        raise af.OptionError(
            f"the progress of a video needs rich ({error})",
            remedy=f"{_INSTALL}, or pass progress=False.",
        ) from None
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        yield bar.track(times, description="drawing")
