"""`to_minari`: stores trajectories as a dataset of whole episodes."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import Space
from gymnasium.vector import VectorEnv

import arrayferry as af
from arrayferry.typing import AnyTree
from arrayferry_envs._contract.functional_env import FunctionalEnv
from arrayferry_gym.extending import build, leaves, mapped, split

FIELDS = (
    "observation", "action", "final_observation", "reward", "terminated", "truncated", "began",
    "episode_length",
)  # fmt: skip
"""The required fields of a trajectory."""
OF_VECTORS = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers")
"""The keywords in specs of vector environments that `gymnasium.make` does not accept."""


class Stored(NamedTuple):
    """The dataset that `to_minari` stored, and the numbers of stored and omitted episodes.

    Attributes:
        dataset: the `MinariDataset`.
        episodes: the number of stored episodes.
        steps: the number of stored steps.
        begun_before: the number of episodes omitted because they began before the first step.
        unfinished: the number of episodes omitted because they have no end.
        steps_left_out: the number of steps in the omitted episodes.
    """

    dataset: Any
    episodes: int
    steps: int
    begun_before: int
    unfinished: int
    steps_left_out: int


def to_minari(steps: Any, name: str, *, env: Any, **metadata: Any) -> Stored:
    """Store trajectories as a Minari dataset of whole episodes.

    Consecutive trajectories are called segments. Episodes are joined across segments. An episode of n steps has n + 1
    observations (the last is from before the reset), and n actions, rewards, terminations and truncations. Dtypes are
    unchanged. Actions are stored as the policy chose them. Images are stored without loss. Infos are omitted.

    Episodes are in the order in which they end. Each segment is written before the next is read, so that `steps` may be
    larger than memory. If an error occurs, the episodes written before the error remain in the dataset.

    Args:
        steps: a trajectory, or an iterable of consecutive trajectories. A trajectory is the `Trajectory` that `rollout`
            or a `Collector` returns, or an object with the same fields: arrays (time, environment, ...) of any library.
            Trajectories of several groups of a `Collector` must be in the order in which the `Collector` yields them.
        name: the name of the dataset, with a version: "cart_pole/random-v0".
        env: a `FunctionalEnv`, or a single or vector environment of Gymnasium. Its spaces are stored. Its spec is
            stored if the spec can be written as JSON.
        **metadata: further arguments of `minari.create_dataset_from_buffers`. Minari recommends `author`, `author_email`,
            `code_permalink`, `algorithm_name`, `description` and `eval_env`.

    Raises:
        arrayferry.BackendUnavailableError: Minari, h5py or Pillow is not installed.
        arrayferry.OptionError: the steps do not fit the spaces, or have no final observations; segments are not
            consecutive; or no episode is complete.
        ValueError: a dataset of this name exists.

    Examples:
        >>> import os, tempfile
        >>> import jax
        >>> from arrayferry_envs import CartPole, rollout, to_minari
        >>> def policy(params, observation, key):
        ...     return jax.random.randint(key, observation.shape[:1], 0, 2), None
        >>> env, segments, carry = CartPole(), [], None
        >>> for key in jax.random.split(jax.random.key(0), 3):
        ...     carry, transitions = rollout(env, policy, None, key, 20, 4, carry=carry)
        ...     segments.append(transitions)
        >>> stored = to_minari(segments, "cart_pole/random-v0", env=env)  # doctest: +SKIP
        >>> stored.dataset[0].observations.shape  # doctest: +SKIP
        (19, 4)
    """
    create_dataset, buffer_class = _minari()
    trajectories = [steps] if hasattr(steps, "terminated") else steps
    if not isinstance(trajectories, Iterable):
        raise _wrong(
            f"steps={steps!r:.80} is not a Trajectory", "Pass a Trajectory, or an iterable of them."
        )
    bare_env = _described(env)
    spaces = bare_env.observation_space, bare_env.action_space
    dataset, counts = None, Counter[str]()
    for episodes in _joined(trajectories, spaces, counts):
        buffers = [buffer_class(infos={}, **episode) for episode in episodes]
        if dataset is not None:
            dataset.update_dataset_from_buffer(buffers)
        elif buffers:
            options = {"jpeg_encoding": False, **metadata}
            with warnings.catch_warnings():  # Minari warns of each missing entry of the metadata
                warnings.filterwarnings("ignore", ".*(is set to None|env_spec is None)")
                dataset = create_dataset(name, buffers, env=bare_env, **options)
    if dataset is None:
        raise _wrong(
            f"no episode is complete: {counts['begun_before']} began before the first step, and {counts['unfinished']} have "
            "no end",
            "Pass more consecutive segments, or longer ones.",
        )
    return Stored(dataset, *(counts[name] for name in Stored._fields[1:]))


def _minari() -> tuple[Any, Any]:
    """Return the function that creates a dataset, and the class of episode buffers.

    Raises:
        arrayferry.BackendUnavailableError: a package is not installed.
    """
    try:
        import h5py  # noqa: F401
        import minari
        import PIL  # noqa: F401
        from minari.data_collector import EpisodeBuffer
    except ImportError as error:
        raise af.BackendUnavailableError(
            f"to_minari needs Minari 0.5.4 or newer, with h5py and Pillow ({error})",
            remedy="Run: pip install minari h5py pillow",
            backend="minari",
        ) from None
    return minari.create_dataset_from_buffers, EpisodeBuffer


def _described(env: Any) -> gym.Env[Any, Any]:
    """Return an `Env` that has only the spaces and the spec of one environment in `env`.

    A spec that cannot be written as JSON becomes None.
    """
    bare_env, is_batch = gym.Env[Any, Any](), isinstance(env, VectorEnv)
    if not isinstance(env, (FunctionalEnv, gym.Env, VectorEnv)):
        raise TypeError(
            f"env must be a FunctionalEnv or an environment of Gymnasium, but is {env!r:.80}"
        )
    for name in ("observation_space", "action_space"):
        space = getattr(env, f"single_{name}" if is_batch else name)
        setattr(bare_env, name, getattr(space, "original", space))
    try:
        spec = copy.deepcopy(getattr(env, "spec", None))
        if is_batch and spec is not None:
            kwargs = {name: x for name, x in spec.kwargs.items() if name not in OF_VECTORS}
            limit = kwargs.pop("max_episode_steps", spec.max_episode_steps)
            spec.max_episode_steps, spec.kwargs = limit, kwargs
        if spec is not None:
            spec.to_json()
    except Exception:  # specs may contain any object, so any error may occur
        spec = None
    bare_env.spec = spec
    return bare_env


def _joined(
    trajectories: Iterable[Any], spaces: tuple[Space[Any], Space[Any]], counts: Counter[str]
) -> Iterator[list[dict[str, Any]]]:
    """For each trajectory, yield a list of the episodes that end in it, and count episodes and steps in `counts`."""
    # maps each environment to the parts of its current episode: [] if the episode has ended, or
    # None if its beginning is missing
    episodes: dict[Any, list[Any] | None] = {}

    def count_unfinished(parts: list[Any]) -> None:
        counts["unfinished"] += 1
        counts["steps_left_out"] += _length(parts)

    for number, trajectory in enumerate(trajectories):
        columns, keys, done, began, lengths = _arrays(trajectory, spaces, f"segment {number}")
        complete_episodes = []
        for row, key in enumerate(keys):
            starts, ends = np.flatnonzero(began[:, row]), np.flatnonzero(done[:, row]) + 1
            for start, stop in pairwise(sorted({0, len(done), *starts, *ends})):
                parts = episodes.get(key)
                if began[start, row]:
                    if parts:  # the episode has no end, since its environment was restarted
                        count_unfinished(parts)
                    parts = []
                elif key not in episodes:
                    counts["begun_before"] += 1
                elif parts is not None and lengths[start, row] != _length(parts) + 1:
                    raise _wrong(
                        f"step {start} of segment {number} does not continue the episode of environment {row}",
                        "Pass segments in the order in which they were collected, each once.",
                    )
                if parts is None:
                    counts["steps_left_out"] += int(stop - start)
                else:
                    parts.append([x[start:stop, row].copy() for x in columns])
                episodes[key] = [] if done[stop - 1, row] else parts
                if parts and done[stop - 1, row]:
                    complete_episodes.append(_episode(parts, spaces))
                    counts["episodes"] += 1
                    counts["steps"] += _length(parts)
        yield complete_episodes
    for parts_left in filter(None, episodes.values()):
        count_unfinished(parts_left)


def _length(parts: list[Any]) -> int:
    return sum(len(part[-1]) for part in parts)


def _episode(parts: list[Any], spaces: tuple[Space[Any], Space[Any]]) -> dict[str, Any]:
    """Concatenate the parts of an episode, and return them as the arguments of an `EpisodeBuffer` of Minari."""
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    observations, actions, finals = (build(space, columns) for space in (*spaces, spaces[0]))
    rewards, terminations, truncations = columns
    return {
        "observations": mapped(lambda x, y: np.concatenate([x, y[-1:]]), observations, finals),
        "actions": actions,
        "rewards": rewards,
        "terminations": terminations,
        "truncations": truncations,
    }


def _arrays(trajectory: Any, spaces: tuple[Space[Any], Space[Any]], where: str) -> Any:
    """Return (arrays to store, keys of the environments, done, began, lengths) of a trajectory, in NumPy.

    The key of an environment is (group or None, index in the group). `began` is true at the first step
    of an episode, and `done` at the last. `lengths` numbers the steps of an episode, from 1.
    """
    for name in FIELDS:
        if getattr(trajectory, name, None) is None:
            remedy = "Pass the Trajectory that rollout or a Collector returns with final_observation=True."
            raise _wrong(f"{where} has no {name}: its type is {type(trajectory).__name__}", remedy)
    values = af.convert([getattr(trajectory, name) for name in FIELDS], "numpy")
    *trees, reward, terminated, truncated, began, lengths = values
    columns = []
    for name, space, tree in zip(FIELDS, (*spaces, spaces[0]), trees, strict=False):

        def mismatch(value: AnyTree, path: str, wanted: str, name: str = name) -> Exception:
            got = f"has the shape {value.shape}" if hasattr(value, "shape") else f"is {value!r:.80}"
            remedy = "Pass the environment that the steps were taken in."
            return _wrong(
                f"{name}{path} of {where} {got}, but the space of env is {wanted}", remedy
            )

        for (leaf, path), x in zip(leaves(space), split(space, tree, mismatch), strict=True):
            shape = (*terminated.shape, *(leaf.shape or ()))
            if getattr(x, "shape", None) != shape:
                raise mismatch(x, path, f"{leaf}, which needs arrays of shape {shape}")
            columns.append(x)
    group_counts, groups = Counter[Any](), getattr(trajectory, "group", None)
    env_keys = []
    for group in [None] * terminated.shape[1] if groups is None else np.asarray(groups).tolist():
        env_keys.append((group, group_counts[group]))
        group_counts[group] += 1
    columns += [reward, terminated, truncated]
    return columns, env_keys, terminated | truncated, began, lengths


def _wrong(reason: str, remedy: str) -> af.OptionError:
    return af.OptionError(reason, remedy=remedy)
