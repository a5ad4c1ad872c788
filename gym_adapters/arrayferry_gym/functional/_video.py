"""Videos: of the states that a rollout has collected, and of an agent."""

from __future__ import annotations

import contextlib
import numbers
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import AutoresetMode, VectorEnv

import arrayferry as af
from arrayferry.typing import Target
from arrayferry_gym._options.env_options import UNSET, check_flag, count_of

from ._contract.drawn import WithParams
from ._contract.dynamics import Dynamics, checked_dynamics
from ._contract.errors import EnvResultError
from ._progress import INSTALL, shown

if TYPE_CHECKING:
    from ._policies.stepping import Stepping


def video(
    env: Dynamics | type[Dynamics],
    states: Any,
    path: str | Path,
    *,
    index: int | None = 0,
    fps: float | None = None,
    progress: bool = True,
) -> Path:
    """Write a video of states, drawn by the environment's `render`.

    An existing file is replaced once the video is complete. `record` shows an agent, in environments of any kind.

    Args:
        env: the environment, or its class. A wrapped environment is drawn as the inner environment.
        states: `transitions.state` of a rollout with `collect=("state",)`: a tree of arrays (time, environment, ...).
        path: the file, which ends in ".mp4", ".webm", ".mov", ".mkv", ".avi" or ".gif".
        index: the index of the environment; None if the arrays are (time, ...), of a single one.
        fps: frames per second, by default `metadata["render_fps"]` of the environment, or 30.
        progress: whether to show progress in a terminal.

    Returns:
        The path.

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
        ...     path = video(CartPole(), transitions.state, os.path.join(folder, "cart.gif"))
        ...     path.name, path.exists()
        ('cart.gif', True)
    """
    dynamics = checked_dynamics(env).base
    check_flag("progress", progress)
    state, count = _of_one(states, index)
    images = _images(dynamics, state, count, progress)
    return _written(images, type(dynamics).__name__, path, fps, dynamics.metadata)


def record(
    env: Dynamics | type[Dynamics] | Env[Any, Any] | VectorEnv[Any, Any, Any],
    policy: Any,
    policy_params: Any,
    path: str | Path,
    key: Any = 0,
    *,
    episodes: int = 1,
    num_steps: int | None = None,
    index: int = 0,
    fps: float | None = None,
    env_params: Any = None,
    max_episode_steps: Any = UNSET,
    policy_state: Any = None,
    wrapper_state: Any = None,
    policy_xp: Target | None = None,
    progress: bool = True,
) -> Path:
    """Write a video of an agent, of any library, in an environment of any kind.

    Environments are stepped as by `evaluate`: they are reset first, stay open, and statistics of wrappers are not updated. A
    vector environment that resets in the same step does not show the last state of an episode.

    An existing file is replaced once the video is complete.

    Args:
        env: a `FunctionalEnv`; or a vector environment, an adapter or a single environment of Gymnasium, made with
            `render_mode="rgb_array"`.
        policy: as in `evaluate`.
        policy_params: as in `evaluate`: None for the weights that a module has.
        path: the file, as in `video`.
        key: as in `evaluate`.
        episodes: how many episodes to show.
        num_steps: after how many steps to stop anyway, None for no limit.
        index: which of several environments to show.
        fps: frames per second, by default `metadata["render_fps"]` of the environment, or 30.
        env_params: as in `evaluate`, for a `FunctionalEnv`.
        max_episode_steps: as in `evaluate`, for a `FunctionalEnv`.
        policy_state: as in `evaluate`. A `FunctionalEnv` is one environment: arrays (1, ...).
        wrapper_state: as in `evaluate`.
        policy_xp: as in `evaluate`.
        progress: whether to show progress in a terminal.

    Returns:
        The path.

    Raises:
        TypeError: `env` is no such environment.
        arrayferry.OptionError: an argument is invalid, the environment has no images, or a package that videos need is not
            installed.
        EnvResultError: an image is no array of dtype uint8 and shape (height, width, 3).

    Examples:
        >>> import os, tempfile
        >>> import gymnasium as gym
        >>> import torch
        >>> from arrayferry_gym import record
        >>> class Agent(torch.nn.Linear):
        ...     def forward(self, observation):
        ...         return super().forward(observation).argmax(-1)
        >>> env = gym.make("CartPole-v1", render_mode="rgb_array")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = record(env, Agent(4, 2), None, os.path.join(folder, "cart.gif"))
        ...     path.name, path.exists()
        ('cart.gif', True)
    """
    # its converters load the plugins
    from ._policies.stepping import EnvOptions, Stepping, is_functional, library_of

    episodes = count_of("episodes", episodes)
    num_steps = None if num_steps is None else count_of("num_steps", num_steps)
    check_flag("progress", progress)
    library = library_of(
        "record", policy, policy_xp, key, policy_state, functional=is_functional(env)
    )
    own = EnvOptions(
        1 if is_functional(env) else None, env_params, max_episode_steps, wrapper_state
    )
    steps = Stepping(
        "record", env, own, library, policy, policy_params, policy_state, key, AutoresetMode.DISABLED,
        "rgb_array",
    )  # fmt: skip
    if steps.envs.render_mode != "rgb_array":
        raise af.OptionError(
            f"{env!r:.80} has the render mode {steps.envs.render_mode!r}, but a video needs 'rgb_array'",
            remedy="Make the environment with render_mode='rgb_array'.",
        )
    index = _index(index, steps.envs.num_envs)
    images = _images_of_agent(steps, index, episodes, num_steps, progress)
    return _written(images, f"{steps.envs!r:.80}", path, fps, steps.envs.metadata)


def _images_of_agent(
    steps: Stepping, index: int, episodes: int, num_steps: int | None, progress: bool
) -> Generator[Any, None, None]:
    """Draw one of the environments before and after each step."""
    from ._policies.stepping import TO_HOST

    ended = taken = 0
    with shown(progress, "drawing", num_steps) as show, contextlib.closing(iter(steps)) as taking:
        for step in taking:
            ended += 0 if step is None else bool(step.turn.done[index])
            if ended == episodes and steps.mode is AutoresetMode.SAME_STEP:
                return
            images = steps.envs.render()
            yield None if images is None else TO_HOST([images[index]])[0]
            taken += step is not None
            show(taken)
            if ended == episodes or taken == num_steps:
                return


def _written(
    images: Generator[Any, None, None], name: str, path: str | Path, fps: float | None, metadata: Any
) -> Path:  # fmt: skip
    """Write the images of an environment to a file. An existing one is replaced when the new one is complete."""
    rate = (metadata or {}).get("render_fps", 30) if fps is None else fps
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
    shape: tuple[int, ...] = ()
    unfinished = path.with_name(f"{path.stem}.unfinished{path.suffix}")
    try:
        with (
            _writer(unfinished, _FORMATS[ending], float(rate)) as append,
            contextlib.closing(images),
        ):
            for number, given in enumerate(images):
                image = np.asarray(given)
                shape = image.shape if number == 0 else shape
                if image.dtype != np.uint8 or image.shape[2:] != (3,) or image.shape != shape:
                    raise EnvResultError(
                        f"{name}.render() returned {image.dtype} of shape {image.shape} as image {number}",
                        remedy="Return uint8 of shape (height, width, 3), of the same size for all states.",
                    )
                append(image)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


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
            f"a video needs imageio and PyAV ({error})", remedy=f"{INSTALL}."
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
    row = _index(index, rest[0])
    return layout.unflatten([x[:, row] for x in arrays]), count


def _index(index: Any, count: int) -> int:
    """Check the index of an environment, and return it."""
    if isinstance(index, bool) or not isinstance(index, int) or not -count <= index < count:
        raise af.OptionError(
            f"index={index!r:.80}, but there are {count} environments",
            remedy=f"Pass a number from 0 to {count - 1}.",
        )
    return index


def _images(env: Dynamics, state: Any, count: int, progress: bool) -> Generator[Any, None, None]:
    """Draw states."""
    with shown(progress, "drawing", count) as show:
        for time in range(count):
            yield env.render(state, time)
            show(time + 1)
