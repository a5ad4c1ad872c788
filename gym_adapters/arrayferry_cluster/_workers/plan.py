"""What groups do, as it is sent to workers: pickled once, and loaded once in each process."""

from __future__ import annotations

import contextlib
import functools
import pickle
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cloudpickle

import arrayferry as af
from arrayferry.typing import AnyTree
from arrayferry_cluster._trajectories import Trajectory


@dataclass(frozen=True)
class Plan:
    """What all groups of a collector do.

    Attributes:
        env: the `FunctionalEnv`, None for ordinary environments.
        policy: the policy.
        library: the library of the policy.
        num_steps: the steps of a segment.
        seed: the seed.
        env_params: the parameters of the `FunctionalEnv`.
        max_episode_steps: after how many steps its episodes are truncated.
        infos: the names of the infos that are collected.
        final_observation: whether the observations before resets are collected.
        wrapper_state: the statistics of the kernels with which each group begins, None for new ones.
    """

    env: Any
    policy: Any
    library: Any
    num_steps: int
    seed: int
    env_params: Any
    max_episode_steps: Any
    infos: tuple[str, ...]
    final_observation: bool
    wrapper_state: Any


@dataclass(frozen=True)
class GroupSetup:
    """Which environments a group has.

    Attributes:
        index: its number.
        first: the number of its first environment.
        num_envs: how many it has.
        factories: the functions that make them, pickled; none for a `FunctionalEnv`.
        policy_state: the rows of the policy's state with which episodes begin, None if it has none.
    """

    index: int
    first: int
    num_envs: int
    factories: Sequence[bytes]
    policy_state: Any

    @property
    def indices(self) -> range:
        """The numbers of its environments."""
        return range(self.first, self.first + self.num_envs)


class Segment(NamedTuple):
    """A segment of a group.

    Attributes:
        steps: its steps, without what is the same for the whole group.
        version: the version of the weights.
        state: the carry with which a `FunctionalEnv` continues after it, in NumPy.
    """

    steps: Trajectory
    version: int
    state: Any = None


class SetupError(Exception):
    """An environment, a policy or its weights cannot be loaded in this process. The cause says why."""


def to_bytes(value: AnyTree, what: str = "the value") -> bytes:
    """Pickle a value, with the classes and functions that only this process has.

    Args:
        value: the value.
        what: what it is, for the error.

    Raises:
        arrayferry.OptionError: it cannot be pickled.
    """
    try:
        return bytes(cloudpickle.dumps(value, protocol=5))
    except Exception as error:
        raise af.OptionError(
            f"{what} cannot be pickled ({type(error).__name__}: {error})",
            remedy="Create the objects that it uses inside the function, and pass arrays and numbers in policy_params.",
        ) from error


@contextlib.contextmanager
def setting_up() -> Iterator[None]:
    """Turn errors into `SetupError` that say what this process lacks."""
    try:
        yield
    except ImportError as error:
        raise SetupError from error
    except AttributeError as error:
        if "Can't get attribute" in str(error):  # an older version of a module
            raise SetupError from error
        raise


_loading = threading.Lock()


@functools.lru_cache(maxsize=8)
def _loaded(data: bytes) -> Any:
    return pickle.loads(data)


def loaded(data: bytes) -> Any:
    """Load what `to_bytes` has written, once in each process, since JAX compiles again for each new function object.

    Raises:
        SetupError: this process lacks something that it needs.
    """
    with _loading, setting_up():
        return _loaded(data)
