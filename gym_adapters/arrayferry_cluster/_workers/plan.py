"""What the collector sends to workers and gets back: `Plan`, `GroupSetup` and `Segment`, and how values are pickled."""

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

Settings = tuple[tuple[str, Any], ...]
"""Names and values of settings of JAX."""

_SETTINGS = (
    "enable_x64", "default_matmul_precision", "default_prng_impl", "numpy_dtype_promotion",
    "threefry_partitionable",
)  # fmt: skip


def jax_settings() -> Settings:
    """Return the settings of JAX that determine results, as they are in this thread."""
    import jax

    return tuple((name, getattr(jax.config, f"jax_{name}")) for name in _SETTINGS)


@contextlib.contextmanager
def applied(settings: Settings) -> Iterator[None]:
    """In this context, JAX computes with these settings in this thread."""
    if not settings:
        yield
        return
    import jax.experimental

    with contextlib.ExitStack() as stack:
        for name, value in settings:
            if getattr(jax.config, f"jax_{name}") != value:  # a comparison takes less time
                # older versions of JAX have `enable_x64` only in `jax.experimental`
                place = jax if hasattr(jax, name) else jax.experimental
                stack.enter_context(getattr(place, name)(value))
        yield


@dataclass(frozen=True)
class Plan:
    """The environments, the policy and the options that all groups of a collector share.

    Attributes:
        env: the `FunctionalEnv`, or None for ordinary environments.
        policy: the policy, as passed to the collector.
        library: the library of the policy.
        num_steps: the number of steps of a segment.
        seed: the seed of all random numbers of the collector.
        env_params: the parameters of the `FunctionalEnv`.
        max_episode_steps: the number of steps after which an episode of the `FunctionalEnv` is truncated.
        infos: the names of the infos to collect.
        final_observation: whether the observations before resets are collected.
        wrapper_state: the initial statistics of the kernels in each group, or None for new statistics.
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
    """The environments of a group.

    Attributes:
        index: the number of the group.
        first: the number of the first environment in the group.
        num_envs: the number of environments in the group.
        factories: the pickled functions that make the environments, or [] for a `FunctionalEnv`.
        policy_state: the rows of the policy's initial state for this group, or None for a policy without a state.
        settings: the collector's settings of JAX for a policy in JAX, or () for a policy of another library. The plan
            is unpickled with these settings, so they are not a part of the plan.
    """

    index: int
    first: int
    num_envs: int
    factories: Sequence[bytes]
    policy_state: Any
    settings: Settings

    @property
    def indices(self) -> range:
        """The numbers of the environments of this group in the collector."""
        return range(self.first, self.first + self.num_envs)


class Segment(NamedTuple):
    """A segment of a group.

    Attributes:
        steps: the steps. `version`, `group` and `restarted` are None.
        version: the version of the weights.
        state: the carry from which a `FunctionalEnv` continues, as NumPy arrays, or None for ordinary environments.
    """

    steps: Trajectory
    version: int
    state: Any = None


class SetupError(Exception):
    """This process cannot load an environment, a policy or its weights. `__cause__` is the original error."""


def to_bytes(value: AnyTree, what: str = "the value") -> bytes:
    """Pickle a value. Classes and functions of the user's script are pickled by value, as workers lack the script.

    Args:
        value: the value to pickle.
        what: a description of the value, for the error.

    Raises:
        arrayferry.OptionError: the value cannot be pickled.
    """
    try:
        return bytes(cloudpickle.dumps(value, protocol=5))
    except Exception as error:
        raise af.OptionError(
            f"{what} cannot be pickled ({type(error).__name__}: {error})",
            remedy="Make objects that cannot be pickled in the function that is called on the worker, and pass only "
            "arrays and numbers in policy_params.",
        ) from error


@contextlib.contextmanager
def setting_up() -> Iterator[None]:
    """In this context, replace an error by a `SetupError` if this process lacks a module or class that is pickled."""
    try:
        yield
    except ImportError as error:
        raise SetupError from error
    except AttributeError as error:
        if "Can't get attribute" in str(error):  # a module here lacks a pickled class or function
            raise SetupError from error
        raise


_loading = threading.Lock()


@functools.lru_cache(maxsize=8)
def _loaded(data: bytes, settings: Settings) -> Any:
    with applied(settings):
        return pickle.loads(data)


def loaded(data: bytes, settings: Settings) -> Any:
    """Unpickle the result of `to_bytes`, with these settings of JAX.

    Values are cached, since JAX would compile again for another copy of a function.

    Raises:
        SetupError: this process lacks a module or class.
    """
    with _loading, setting_up():
        return _loaded(data, settings)
