"""The messages between a vector environment and its hosts, as bytes."""

from __future__ import annotations

import functools
import pickle
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import cloudpickle
from gymnasium import Space


def to_bytes(value: Any) -> bytes:
    """Pickle a value, with the classes and functions that only this process has."""
    try:
        data = pickle.dumps(value, protocol=5)
    except Exception:
        return bytes(cloudpickle.dumps(value, protocol=5))
    return bytes(cloudpickle.dumps(value, protocol=5)) if b"__main__" in data else data


def from_bytes(data: bytes) -> Any:
    """Load what `to_bytes` has written."""
    return pickle.loads(data)


class Start(NamedTuple):
    """The arguments of the first reset of an environment."""

    seed: int | None
    options: dict[str, Any] | None


@dataclass(frozen=True)
class EnvSetup:
    """What a host needs to make one environment.

    Attributes:
        index: its number in the vector environment.
        factory: the function that makes it, pickled.
        attributes: values to set, in this order.
        start: what to reset it with at once, None not to reset it.
        reset_pending: whether its next step is the reset of NEXT_STEP mode.
    """

    index: int
    factory: bytes
    attributes: dict[str, Any] = field(default_factory=dict)
    start: Start | None = None
    reset_pending: bool = False


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
        check_actions: as for the adapters of this package.
        keep: whether the arrays stay in the processes of the hosts.
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
    check_actions: str
    keep: bool


@dataclass(frozen=True)
class GroupSetup:
    """What a host needs to make a group of a collector.

    Attributes:
        index: its number.
        first: the number of its first environment.
        num_envs: how many it has.
        factories: the functions that make them, pickled; none for a `FunctionalEnv`.
        plan: the `Plan`, pickled.
        policy_state: the rows of the policy's state with which episodes begin, None if it has none.
        restarts: how often it was restarted.
        state: the state from which it continues, None to begin.
    """

    index: int
    first: int
    num_envs: int
    factories: tuple[bytes, ...]
    plan: bytes
    policy_state: Any = None
    restarts: int = 0
    state: Any = None

    @property
    def indices(self) -> Sequence[int]:
        """The numbers of its environments."""
        return range(self.first, self.first + self.num_envs)


@dataclass(frozen=True)
class SegmentSetup:
    """What a host needs to collect a segment.

    Attributes:
        group: the number of the group.
        number: the number of the segment, on which the random numbers depend.
        restarts: how often the group was restarted.
        needed: the first segment from which the group may have to continue again. Earlier states are forgotten.
        version: the version of the weights.
        weights: the weights, pickled, None if the host has them.
    """

    group: int
    number: int
    restarts: int
    needed: int
    version: int
    weights: bytes | None


@dataclass
class GroupPlace:
    """Where a group of a collector is.

    Attributes:
        group: its number.
        indices: the numbers of its environments.
        segment: the segment that it collects, None before the first.
        step: the step in it, None if it is in none.
        policy: whether the policy is computing.
    """

    group: int
    indices: Sequence[int]
    segment: int | None = None
    step: int | None = None
    policy: bool = False

    def __str__(self) -> str:
        parts = [] if self.step is None else [f"step {self.step}"]
        parts += [] if self.segment is None else [f"segment {self.segment}"]
        return " of ".join([*parts, f"group {self.group}"])


Request: TypeAlias = functools.partial[Any]
"""A method of `Hosted`, and all its arguments by name. Messages of errors give the name of the method."""


# Answers.


class Description(NamedTuple):
    """The properties of an environment that a vector environment needs."""

    observation_space: Space[Any]
    action_space: Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None

    @classmethod
    def of(cls, env: Any) -> Description:
        """Describe an environment."""
        return cls(env.observation_space, env.action_space, dict(env.metadata), env.render_mode)


class MadeEnv(NamedTuple):
    """An environment that was made, and the results of its first reset."""

    description: Description
    observation: Any
    info: dict[str, Any]


class StepResult(NamedTuple):
    """The results of a step or reset: arrays with a row for each environment, and infos by index."""

    observations: Any
    infos: list[tuple[int, dict[str, Any]]]
    rewards: Any = None
    terminations: Any = None
    truncations: Any = None


class Segment(NamedTuple):
    """The steps of a group.

    Attributes:
        layout: the structure of a `Trajectories`.
        arrays: its arrays, or references to arrays in the process of the host.
        seconds: how long it took.
    """

    layout: Any
    arrays: tuple[Any, ...]
    seconds: float


class SetupError(Exception):
    """An environment or a policy cannot be made in this process. The cause says why."""


@dataclass(frozen=True)
class Failure:
    """An error in a host, sent instead of an answer.

    Attributes:
        index: the environment in which it was raised, None if it was in none.
        type: the name of the type of the error.
        text: the text of the error.
        traceback: where it was raised.
        error: the error itself, pickled, None if that is not possible.
        setup: whether the process lacks what the environment needs.
        module: the missing module, "" if something else is missing.
        place: where a group of a collector was, None for other requests.
    """

    index: int | None
    type: str
    text: str
    traceback: str
    error: bytes | None
    setup: bool = False
    module: str = ""
    place: GroupPlace | None = None

    @classmethod
    def of(
        cls, error: BaseException, index: int | None, place: GroupPlace | None = None
    ) -> Failure:
        """Describe an error."""
        setup = isinstance(error, SetupError)
        error = (setup and error.__cause__) or error
        try:
            text = str(error)
        except Exception:
            text = ""
        try:
            pickled = to_bytes(error)
        except Exception:
            pickled = None
        lines = "".join(traceback.format_exception(error)).rstrip()
        module = (error.name or "") if isinstance(error, ImportError) else ""
        return cls(index, type(error).__name__, text, lines, pickled, setup, module, place)
