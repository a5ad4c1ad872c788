"""`Host`: several environments in one process, stepped one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import AutoresetMode

from arrayferry_gym._episodes import only_begins
from arrayferry_gym._episodes import turn as turn_of

from .hosted_groups import HostedGroups
from .messages import (
    Call,
    Close,
    Collect,
    Configure,
    Description,
    Drop,
    EnvSetup,
    Failure,
    MadeEnv,
    Make,
    MakeGroup,
    Render,
    Request,
    Reset,
    Save,
    SetAttr,
    Step,
    StepResult,
    from_bytes,
    to_bytes,
)
from .observations import stacked
from .progress import Progress, SetupError, setting_up


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
        self._hosted: dict[int, _HostedEnv] = {}
        self._groups = HostedGroups(self._progress, keep)
        self._mode = AutoresetMode.NEXT_STEP
        self._space: Any = None

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
        reply: Any
        try:
            reply = self._do(from_bytes(request))
        except SetupError as unusable:
            cause = unusable.__cause__ or unusable
            reply = Failure.of(cause, self.current, setup=True, place=self._progress.place)
        except BaseException as error:  # also SystemExit, which must not end the worker
            reply = Failure.of(error, self.current, place=self._progress.place)
        self._progress.env = self._progress.place = None
        try:
            return to_bytes(reply)
        except Exception as error:
            return to_bytes(Failure.of(error, _first_unpicklable(reply)))

    def _do(self, request: Request) -> Any:
        match request:
            case Step():
                return self._step(request)
            case Reset():
                return self._reset(request)
            case Call():
                return self._call(request)
            case SetAttr():
                return self._set_attr(request)
            case Render():
                return self._render(request.indices)
            case Make():
                return self._make(request.setup, request.describe)
            case Configure():
                self._mode, self._space = request.autoreset_mode, request.observation_space
                return None
            case MakeGroup():
                return self._groups.make(request)
            case Collect():
                return self._groups.collect(request)
            case Save():
                return self._groups.save(request)
            case Drop():
                return self._drop(request.indices)
            case Close():
                return self._drop([*self._hosted, *self._groups])

    def _make(self, setup: EnvSetup, describe: bool) -> MadeEnv:
        self._progress.env = setup.index
        with setting_up():
            env = from_bytes(setup.factory)()
        hosted = _HostedEnv(env, ended=setup.reset_pending)
        try:
            for name, value in setup.attributes.items():
                env.set_wrapper_attr(name, value)
            info: dict[str, Any] = {}
            if setup.start is not None:
                seed, options = setup.start
                hosted.observation, info = _sent(env.reset(seed=seed, options=options))
                hosted.first_info = info if setup.reset_pending else None
            description = None
            if describe:
                description = Description.of(env)
        except BaseException:
            _close_quietly(env)
            raise
        self._hosted[setup.index] = hosted
        return MadeEnv(description, hosted.observation, _snapshot(info))

    def _reset(self, request: Reset) -> StepResult:
        infos = []
        for index, seed in request.seeds.items():
            self._progress.env = index
            hosted = self._hosted[index]
            hosted.observation, info = hosted.env.reset(seed=seed, options=request.options)
            hosted.ended, hosted.first_info = False, None
            if info:
                infos.append((index, _snapshot(info)))
        return StepResult(self._observations(request.indices), infos)

    def _step(self, request: Step) -> StepResult:
        mode, indices, skipped = self._mode, request.indices, request.skipped
        rewards = np.zeros(len(indices), dtype=np.float64)
        terminations = np.zeros(len(indices), dtype=np.bool_)
        truncations = np.zeros(len(indices), dtype=np.bool_)
        infos: list[tuple[int, dict[str, Any]]] = []
        for row, (index, action) in enumerate(zip(indices, request.actions, strict=True)):
            if index in skipped:
                continue
            self._progress.env = index
            self._progress.steps += 1
            hosted = self._hosted[index]
            env = hosted.env
            if only_begins(mode, hosted.ended):
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
                turn = turn_of(mode, None, terminations[row], truncations[row])
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

    def _call(self, request: Call) -> list[Any]:
        results = []
        for index in request.indices:
            self._progress.env = index
            attribute = self._hosted[index].env.get_wrapper_attr(request.attribute)
            called = callable(attribute)
            results.append(attribute(*request.args, **request.kwargs) if called else attribute)
        return results

    def _set_attr(self, request: SetAttr) -> None:
        for index, value in request.values.items():
            self._progress.env = index
            self._hosted[index].env.set_wrapper_attr(request.attribute, value)

    def _render(self, indices: Sequence[int]) -> list[Any]:
        images = []
        for index in indices:
            self._progress.env = index
            images.append(self._hosted[index].env.render())
        return images

    def _drop(self, indices: Iterable[int]) -> None:
        """Close environments and forget them. The error of one leaves none of the others open."""
        failed: Exception | None = None
        for index in indices:
            hosted = self._hosted.pop(index, None) or self._groups.pop(index, None)
            if hosted is not None:
                try:
                    self._progress.env = index
                    hosted.close()
                except Exception as error:
                    failed = failed or error
        if failed is not None:
            raise failed


def _close_quietly(env: Any) -> None:
    """Close an environment that is of no use. Another error is being raised already."""
    try:
        env.close()
    except Exception:
        pass


def _sent(value: Any) -> Any:
    """Return what arrives if a value is sent now. If it cannot be sent, the answer says so later."""
    try:
        return from_bytes(to_bytes(value))
    except Exception:
        return value


def _snapshot(info: Any) -> Any:
    """Copy what an environment may change in its infos before they are sent."""
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
