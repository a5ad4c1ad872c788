"""`record`: writes a video of an agent."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import numpy as np
from gymnasium import Env
from gymnasium.vector import AutoresetMode, VectorEnv

import arrayferry as af
from arrayferry._utilities.options import UNSET, check_flag, check_keywords, count_of
from arrayferry.typing import AnyTree, Target

from ._contract.errors import EnvResultError
from ._contract.functional_env import FunctionalEnv, is_functional
from ._contract.policies import Run
from ._progress import INSTALL, shown

if TYPE_CHECKING:
    from ._policies.stepping import Stepping


def record(
    env: FunctionalEnv | type[FunctionalEnv] | Env[Any, Any] | VectorEnv[Any, Any, Any],
    policy: Any,
    policy_params: AnyTree = None,
    key: Any = 0,
    *_misplaced: Never,
    path: str | Path,
    episodes: int = 1,
    num_steps: int | None = None,
    index: int = 0,
    fps: float | None = None,
    env_params: AnyTree = None,
    max_episode_steps: Any = UNSET,
    policy_state: AnyTree = None,
    wrapper_state: AnyTree = None,
    policy_xp: Target | None = None,
    progress: bool = True,
) -> Path:
    """Write a video of an agent of any library, in an environment of any kind.

    As in `evaluate`, environments of Gymnasium are first reset and remain open, and their wrappers do not update
    statistics. With a vector environment in SAME_STEP mode, the video lacks the last state of each episode.

    An existing file is replaced when the video is complete.

    Args:
        env: a `FunctionalEnv`; or a vector environment, an adapter or a single environment of Gymnasium, made with
            `render_mode="rgb_array"`.
        policy: as in `evaluate`.
        path: the file, whose name ends in ".mp4" or ".gif".
        policy_params: as in `evaluate`.
        key: as in `evaluate`.
        episodes: the number of episodes to show.
        num_steps: the maximum number of steps, or None for no limit.
        index: the index of the environment to show.
        fps: frames per second, by default `metadata["render_fps"]` of the environment, or 30.
        env_params: as in `evaluate`, for a `FunctionalEnv`.
        max_episode_steps: as in `evaluate`, for a `FunctionalEnv`.
        policy_state: as in `evaluate`. For a `FunctionalEnv`, which runs as one environment, arrays (1, ...).
        wrapper_state: as in `evaluate`.
        policy_xp: as in `evaluate`.
        progress: whether to show progress in a terminal.

    Returns:
        The path.

    Raises:
        TypeError: `env` is not an environment, or an argument after the key was passed without a keyword.
        arrayferry.OptionError: an argument is invalid, the environment has no images, or a package for videos is not
            installed.
        EnvResultError: an image is not an array of dtype uint8 and shape (height, width, 3).

    Examples:
        >>> import os, tempfile
        >>> import gymnasium as gym
        >>> import torch
        >>> from arrayferry_envs import record
        >>> class Agent(torch.nn.Linear):
        ...     def forward(self, observation):
        ...         return super().forward(observation).argmax(-1)
        >>> env = gym.make("CartPole-v1", render_mode="rgb_array")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = record(env, Agent(4, 2), path=os.path.join(folder, "cart.gif"))
        ...     path.name, path.exists()
        ('cart.gif', True)
    """
    # imported here, since importing `stepping` makes converters, which loads the plugins
    from ._policies.stepping import Stepping, library_of

    check_keywords("record", _misplaced, "path= or episodes=")
    episodes = count_of("episodes", episodes)
    num_steps = None if num_steps is None else count_of("num_steps", num_steps)
    check_flag("progress", progress)
    functional = is_functional(env)
    library = library_of("record", policy, policy_xp, key, policy_state, functional=functional)
    run = Run(
        "record", env, policy, policy_params, key, 1 if functional else None, env_params, max_episode_steps,
        policy_state, wrapper_state,
    )  # fmt: skip
    stepping = Stepping(run, library, AutoresetMode.DISABLED, "rgb_array")
    envs = stepping.envs
    rate = (envs.metadata or {}).get("render_fps", 30) if fps is None else fps
    path = Path(path)
    if envs.render_mode != "rgb_array":
        reason = (
            f"{env!r:.80} has the render mode {envs.render_mode!r}, but a video needs 'rgb_array'"
        )
        raise af.OptionError(reason, remedy="Make the environment with render_mode='rgb_array'.")
    if isinstance(index, bool) or index not in range(-envs.num_envs, envs.num_envs):
        reason = f"index={index!r:.80}, but there are {envs.num_envs} environments"
        raise af.OptionError(reason, remedy=f"Pass a number from 0 to {envs.num_envs - 1}.")
    if isinstance(rate, bool) or not isinstance(rate, numbers.Real) or not 0 < float(rate) < 1000:
        reason = f"fps={rate!r:.80} is not a number of images per second"
        raise af.OptionError(
            reason, remedy="Pass a number greater than 0 and less than 1000, such as 30."
        )
    if path.suffix.lower() not in (".mp4", ".gif"):
        reason = f"path={str(path)!r} does not end in '.mp4' or '.gif'"
        raise af.OptionError(reason, remedy="Use one of these endings.")
    temp_path = path.with_name(f"{path.stem}.unfinished{path.suffix}")
    frames = _images(stepping, index, episodes, num_steps, progress)
    try:
        with _writer(temp_path, float(rate)) as append, contextlib.closing(frames) as images:
            shape: tuple[int, ...] = ()
            for image_index, image in enumerate(images):
                shape = image.shape if image_index == 0 else shape
                if image.dtype != np.uint8 or image.shape[2:] != (3,) or image.shape != shape:
                    raise EnvResultError(
                        f"{envs!r:.80}.render() returned {image.dtype} of shape {image.shape} as image {image_index}",
                        remedy="Return uint8 of shape (height, width, 3), with the same size for all states.",
                    )
                append(image)
        temp_path.replace(path)
    finally:
        temp_path.unlink(missing_ok=True)
    return path


def _images(
    steps: Stepping, index: int, episodes: int, num_steps: int | None, progress: bool
) -> Generator[Any, None, None]:
    """Yield an image of environment `index` after each of its resets and steps."""
    from ._policies.stepping import TO_HOST

    num_ended = num_taken = 0
    last_step = None
    with shown(progress, "drawing", num_steps) as show, contextlib.closing(iter(steps)) as taking:
        for step in taking:
            if step is None and last_step is not None and not last_step.ended[index]:
                continue  # another environment was reset, so the image is unchanged
            last_step = step
            num_ended += 0 if step is None else bool(step.ended[index])
            if num_ended == episodes and steps.episodes.rule.same_step:
                return
            images = steps.envs.render()
            yield np.asarray(None if images is None else TO_HOST([images[index]])[0])
            num_taken += step is not None
            show(num_taken)
            if num_ended == episodes or num_taken == num_steps:
                return


@contextlib.contextmanager
def _writer(path: Path, rate: float) -> Iterator[Callable[[Any], object]]:
    """Open a file, and yield a function that appends an image to it."""
    is_mp4 = path.suffix.lower() == ".mp4"
    options: dict[str, Any] = {"duration": 1000 / rate, "loop": 0}
    try:
        import imageio.v2

        if is_mp4 and find_spec("av") is not None:
            options = {"codec": "libx264", "fps": rate, "format": "pyav", "is_batch": False}
        elif is_mp4:
            import imageio_ffmpeg  # type: ignore[import-untyped]  # noqa: F401

            options = {"codec": "libx264", "fps": rate, "format": "FFMPEG", "macro_block_size": 2}
    except ImportError as error:
        raise af.OptionError(
            f"a video needs imageio, and an .mp4 also PyAV or imageio-ffmpeg ({error})",
            remedy=f"{INSTALL}.",
        ) from None
    writer: Any = imageio.v2.get_writer(path, **options)
    with writer as file:
        yield lambda image: file.append_data(_even(image) if is_mp4 else image)


def _even(image: Any) -> Any:
    """Pad an image to an even height and width, which codecs need."""
    height, width, _ = image.shape
    padded = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), "edge")
    return np.ascontiguousarray(padded)
