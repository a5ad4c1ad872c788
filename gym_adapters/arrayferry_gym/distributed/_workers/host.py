"""`Host`: several environments in one process, stepped one after another."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Env, Space
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry_gym._episodes import only_begins
from arrayferry_gym._episodes import turn as turn_of

from .env_group import EnvGroup
from .hosted_group import HostedGroup
from .messages import (
    Description,
    EnvSetup,
    Failure,
    GroupPlace,
    GroupSetup,
    MadeEnv,
    Plan,
    Request,
    Segment,
    SegmentSetup,
    StepResult,
    from_bytes,
    to_bytes,
)
from .observations import stacked
from .progress import Progress, close_all, make_env, setting_up
from .trajectories import Trajectories


@dataclass
class _HostedEnv:
    """An environment, and where it is in its episode.

    Attributes:
        env: the environment.
        observation: the last one.
        ended: whether the next step is the reset of NEXT_STEP mode.
        first_info: the info of a reset that was done early, which that step returns.
    """

    env: Env[Any, Any]
    observation: Any = None
    ended: bool = False
    first_info: dict[str, Any] | None = None

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class Host:
    """Holds environments, and carries out the requests of a vector environment.

    An engine makes hosts, in any process, and passes the requests to `answer`, one at a time.

    Args:
        keep: stores a tree of arrays in this process and returns a reference to it.

    Other threads may read `current`, `steps` and `place` in the meantime.
    """

    def __init__(self, keep: Callable[[Any], Any] | None = None) -> None:
        self._progress = Progress()
        self._hosted = Hosted(self._progress, keep)

    @property
    def current(self) -> int | None:
        """The index of the environment in use, None if there is none."""
        return self._progress.env

    @property
    def steps(self) -> int:
        """The number of steps taken here, which shows progress."""
        return self._progress.steps

    @property
    def place(self) -> str | None:
        """Where the group of a collector is that is being worked on, None if there is none."""
        place = self._progress.place
        return None if place is None else str(place)

    def answer(self, request: bytes) -> bytes:
        """Carry out a request. Errors are part of the answer."""
        progress = self._progress
        reply: Any = None
        try:
            do: Request = from_bytes(request)
            reply = do(self._hosted)
        except BaseException as error:  # also SystemExit, which must not end the worker
            reply = Failure.of(error, progress.env, progress.place)
        progress.env = progress.place = None
        try:
            return to_bytes(reply)
        except Exception as error:
            return to_bytes(Failure.of(error, _first_unpicklable(reply)))


class Hosted:
    """The environments of a host, or groups of a collector with theirs, and all requests to them.

    Args:
        progress: where the host is.
        keep: stores a tree of arrays in this process and returns a reference to it.
    """

    def __init__(self, progress: Progress, keep: Callable[[Any], Any] | None) -> None:
        self._progress = progress
        self._keep = keep
        self._hosted: dict[int, Any] = {}
        self._mode = AutoresetMode.NEXT_STEP
        self._space: Any = None
        self._plan: Plan | None = None
        self._weights: tuple[int, Any] = (-1, None)

    def configure(self, mode: AutoresetMode, space: Space[Any]) -> None:
        """Set the properties that all environments share.

        Args:
            mode: when episodes that have ended are reset.
            space: the space of one observation.
        """
        self._mode, self._space = mode, space

    def make(self, setup: EnvSetup | GroupSetup) -> MadeEnv | list[Description]:
        """Make an environment, or a group."""
        if isinstance(setup, GroupSetup):
            return self._make_group(setup)
        return self._make_env(setup)

    def _make_env(self, setup: EnvSetup) -> MadeEnv:
        env = make_env(self._progress, setup.index, setup.factory)
        hosted = _HostedEnv(env, ended=setup.reset_pending)
        try:
            for name, value in setup.attributes.items():
                env.set_wrapper_attr(name, value)
            info: dict[str, Any] = {}
            if setup.start is not None:
                seed, options = setup.start
                hosted.observation, info = _sent(env.reset(seed=seed, options=options))
                hosted.first_info = info if setup.reset_pending else None
            description = Description.of(env)
        except BaseException:
            with contextlib.suppress(Exception):  # another error is being raised already
                env.close()
            raise
        self._hosted[setup.index] = hosted
        return MadeEnv(description, hosted.observation, _snapshot(info))

    def _make_group(self, setup: GroupSetup) -> list[Description]:
        self._progress.place = GroupPlace(setup.index, setup.indices)
        if self._plan is None:  # all groups share it, so that JAX compiles once
            with setting_up():
                self._plan = from_bytes(setup.plan)
        plan: Any = self._plan
        if plan.env is None:
            group: HostedGroup = EnvGroup(setup, plan, self._progress)
        else:
            from .functional_group import FunctionalGroup

            group = FunctionalGroup(setup, plan, self._progress)
        self._hosted[setup.index] = group
        return group.describe()

    def collect(self, setup: SegmentSetup) -> Segment | None:
        """Collect a segment. The answer is None if the group has failed since it was restarted, or if weights are missing."""
        group: HostedGroup = self._hosted[setup.group]
        self._progress.place = GroupPlace(setup.group, group.indices, setup.number)
        if setup.weights is not None:
            with setting_up():
                self._weights = setup.version, from_bytes(setup.weights)
        version, weights = self._weights
        if version != setup.version:  # they came with another request, and could not be loaded
            return None
        if group.restarts != setup.restarts:
            group.restart(setup.restarts)
        elif group.failed:
            return None
        begun = time.perf_counter()
        try:
            steps = group.collect(setup, weights)
        except BaseException:
            group.failed = True
            raise
        arrays, layout = af.flatten(Trajectories._make([*steps, None, None, None]))
        kept = tuple(arrays)
        if group.plan.keep and self._keep is not None:
            kept = self._keep(kept)
        return Segment(layout, kept, time.perf_counter() - begun)

    def save(self, index: int, number: int) -> Any:
        """Return the state from which a group began a segment, None if there is none."""
        group: HostedGroup = self._hosted[index]
        self._progress.place = GroupPlace(index, group.indices)
        return group.save(number)

    def reset(
        self,
        indices: Sequence[int],
        seeds: dict[int, int | None],
        options: dict[str, Any] | None,
    ) -> StepResult:
        """Reset some environments.

        Args:
            indices: the environments whose observations are returned.
            seeds: the environments that are reset, and their seeds.
            options: passed to each.
        """
        infos = []
        for index, seed in seeds.items():
            self._progress.env = index
            hosted = self._hosted[index]
            hosted.observation, info = hosted.env.reset(seed=seed, options=options)
            hosted.ended, hosted.first_info = False, None
            if info:
                infos.append((index, _snapshot(info)))
        return StepResult(self._observations(indices), infos)

    def step(self, indices: Sequence[int], actions: Any, skipped: frozenset[int]) -> StepResult:
        """Step environments as `SyncVectorEnv` does.

        Args:
            indices: the environments.
            actions: one for each.
            skipped: those of them that take no step.
        """
        rewards = np.zeros(len(indices), dtype=np.float64)
        terminations = np.zeros(len(indices), dtype=np.bool_)
        truncations = np.zeros(len(indices), dtype=np.bool_)
        infos: list[tuple[int, dict[str, Any]]] = []
        for row, (index, action) in enumerate(zip(indices, actions, strict=True)):
            if index in skipped:
                continue
            self._progress.env = index
            self._progress.steps += 1
            hosted = self._hosted[index]
            env = hosted.env
            if only_begins(self._mode, hosted.ended):
                if hosted.first_info is None:
                    hosted.observation, info = env.reset()
                else:
                    info, hosted.first_info = hosted.first_info, None
                hosted.ended = False
            else:
                (
                    hosted.observation,
                    rewards[row],
                    terminations[row],
                    truncations[row],
                    info,
                ) = env.step(action)
                turn = turn_of(self._mode, None, terminations[row], truncations[row])
                hosted.ended = bool(turn.ended)
                if turn.begins:
                    final = {"final_obs": hosted.observation, "final_info": info}
                    infos.append((index, _sent(final)))  # which the reset may change
                    hosted.observation, info = env.reset()
            if info:
                infos.append((index, _snapshot(info)))
        observations = self._observations(indices)
        return StepResult(observations, infos, rewards, terminations, truncations)

    def _observations(self, indices: Sequence[int]) -> Any:
        self._progress.env = None
        observations = [self._hosted[index].observation for index in indices]
        return stacked(self._space, observations, indices, self._progress)

    def call(
        self, indices: Sequence[int], attribute: str, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Call a method of environments, or get an attribute, and return a value for each."""
        results = []
        for index in indices:
            self._progress.env = index
            found = self._hosted[index].env.get_wrapper_attr(attribute)
            results.append(found(*args, **kwargs) if callable(found) else found)
        return results

    def set_attr(self, attribute: str, values: Mapping[int, Any]) -> None:
        """Set an attribute of environments, to the values by index."""
        for index, value in values.items():
            self._progress.env = index
            self._hosted[index].env.set_wrapper_attr(attribute, value)

    def render(self, indices: Sequence[int]) -> list[Any]:
        """Return an image of each environment."""
        return self.call(indices, "render", (), {})

    def close(self, indices: Iterable[int] | None = None) -> None:
        """Close environments or groups, None for all, and forget them. If closing one fails, the others are closed too."""
        closed = list(self._hosted) if indices is None else indices
        there = ((index, self._hosted.pop(index)) for index in closed if index in self._hosted)
        close_all(self._progress, there)


def _sent(value: Any) -> Any:
    """Return a value as it would arrive if sent now. If it cannot be sent, the answer says so later."""
    try:
        return from_bytes(to_bytes(value))
    except Exception:
        return value


def _snapshot(info: Any) -> Any:
    """Copy the values in infos that an environment may change before they are sent."""
    if isinstance(info, dict):
        return {key: _snapshot(value) for key, value in info.items()}
    if type(info) is list:
        return [_snapshot(value) for value in info]
    return info.copy() if isinstance(info, np.ndarray) else info


def _first_unpicklable(reply: Any) -> int | None:
    """Find the environment whose infos cannot be pickled."""
    for index, info in reply.infos if isinstance(reply, StepResult) else ():
        try:
            to_bytes(info)
        except Exception:
            return int(index)
    return None
