"""`Host`: several environments in one process, stepped one after another."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
from gymnasium import Env, Space
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array

__all__ = ["Description", "Failure", "Host", "Order", "Outcome", "pack", "unpack"]


def pack(value: Any) -> bytes:
    """Pickle a value, with the classes and functions that only this process has."""
    try:
        data = pickle.dumps(value, protocol=5)
    except Exception:
        return bytes(cloudpickle.dumps(value, protocol=5))
    return bytes(cloudpickle.dumps(value, protocol=5)) if b"__main__" in data else data


def unpack(data: bytes) -> Any:
    """Load what `pack` has written."""
    return pickle.loads(data)


@dataclass(frozen=True)
class Order:
    """What a host needs to make one environment.

    Attributes:
        index: its number in the vector environment.
        factory: the function that makes it, pickled.
        attributes: values to set, in this order.
        start: the seed and the options to reset it with at once, None not to reset it.
        pending: whether its next step is the reset of NEXT_STEP mode.
    """

    index: int
    factory: bytes
    attributes: tuple[tuple[str, Any], ...] = ()
    start: tuple[int | None, dict[str, Any] | None] | None = None
    pending: bool = False


class Description(NamedTuple):
    """What a vector environment has to know of an environment."""

    observation_space: Space[Any]
    action_space: Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None


class Outcome(NamedTuple):
    """The results of a step or reset: arrays with a row for each environment, and infos by index."""

    observations: Any
    infos: list[tuple[int, dict[str, Any]]]
    rewards: Any = None
    terminations: Any = None
    truncations: Any = None


@dataclass(frozen=True)
class Failure:
    """An error in a host, sent instead of an answer.

    Attributes:
        index: the environment that was being worked on, None if it was none.
        type: the name of the type of the error.
        text: the text of the error.
        traceback: where it was raised.
        error: the error itself, pickled, None if that is not possible.
        setup: whether the process lacks what the environment needs.
        module: the module that it lacks, "" if it is something else.
    """

    index: int | None
    type: str
    text: str
    traceback: str
    error: bytes | None
    setup: bool = False
    module: str = ""

    @classmethod
    def of(cls, error: BaseException, index: int | None, setup: bool = False) -> Failure:
        """Describe an error."""
        try:
            text = str(error)
        except Exception:
            text = ""
        try:
            packed = pack(error)
        except Exception:
            packed = None
        lines = "".join(traceback.format_exception(error)).rstrip()
        module = (error.name or "") if isinstance(error, ImportError) else ""
        return cls(index, type(error).__name__, text, lines, packed, setup, module)


class _SetupError(Exception):
    """An environment cannot be made in this process. The cause says why."""


@dataclass
class _Record:
    env: Env[Any, Any]
    observation: Any = None
    ended: bool = False
    fresh: dict[str, Any] | None = None
    """The infos of a reset that the agent has not seen yet."""


class Host:
    """Holds environments, and does with them what a vector environment asks for.

    An engine makes hosts, in any process, and passes the requests to `answer`, one at a time.

    Args:
        keep: stores a tree of arrays in this process and returns a reference to it.

    Attributes:
        current: the environment that is being worked on. Other threads may read it.
    """

    current: int | None = None

    def __init__(self, keep: Callable[[Any], Any] | None = None) -> None:
        self._records: dict[int, _Record] = {}
        self._keep = keep
        self._mode = AutoresetMode.NEXT_STEP
        self._space: Any = None

    def answer(self, request: bytes) -> bytes:
        """Do what a request says. Errors are part of the answer."""
        reply: Any
        try:
            method, arguments = unpack(request)
            reply = getattr(self, f"_{method}")(*arguments)
        except _SetupError as unusable:
            reply = Failure.of(unusable.__cause__ or unusable, self.current, setup=True)
        except BaseException as error:  # also SystemExit, which must not end the worker
            reply = Failure.of(error, self.current)
        self.current = None
        try:
            return pack(reply)
        except Exception as error:
            return pack(Failure.of(error, _culprit(reply)))

    def _make(self, orders: Sequence[Order], describe: bool) -> list[Any]:
        """Make environments. Return their descriptions, or their first observations and infos."""
        made: list[Any] = []
        for order in orders:
            self.current = order.index
            try:
                env = unpack(order.factory)()
            except ImportError as error:
                raise _SetupError from error
            except AttributeError as error:
                if "Can't get attribute" in str(error):  # an older version of a module
                    raise _SetupError from error
                raise
            record = self._records[order.index] = _Record(env, ended=order.pending)
            for name, value in order.attributes:
                env.set_wrapper_attr(name, value)
            info: dict[str, Any] = {}
            if order.start is not None:
                seed, options = order.start
                record.observation, info = env.reset(seed=seed, options=options)
                record.fresh = info if order.pending else None
            if describe:
                spaces = env.observation_space, env.action_space
                made.append(Description(*spaces, dict(env.metadata), env.render_mode))
            else:
                made.append((order.index, record.observation, _snapshot(info)))
        return made

    def _configure(self, mode: AutoresetMode, space: Space[Any]) -> None:
        self._mode, self._space = mode, space

    def _reset(
        self,
        indices: Sequence[int],
        seeds: dict[int, int | None],
        options: dict[str, Any] | None,
        keep: bool,
    ) -> Outcome:
        infos = []
        for index, seed in seeds.items():
            self.current = index
            record = self._records[index]
            record.observation, info = record.env.reset(seed=seed, options=options)
            record.ended, record.fresh = False, None
            if info:
                infos.append((index, _snapshot(info)))
        return Outcome(self._observations(indices, keep), infos)

    def _step(
        self,
        indices: Sequence[int],
        actions: Iterable[Any],
        skipped: frozenset[int],
        leaving: frozenset[int],
        keep: bool,
    ) -> Outcome:
        """Step environments as `SyncVectorEnv` does.

        Those that are `skipped` do nothing. Those that are `leaving` are not reset at the end of an
        episode, as another host does it.
        """
        next_step = self._mode == AutoresetMode.NEXT_STEP
        same_step = self._mode == AutoresetMode.SAME_STEP
        rewards = np.zeros(len(indices), dtype=np.float64)
        terminations = np.zeros(len(indices), dtype=np.bool_)
        truncations = np.zeros(len(indices), dtype=np.bool_)
        infos: list[tuple[int, dict[str, Any]]] = []
        for row, (index, action) in enumerate(zip(indices, actions, strict=True)):
            if index in skipped:
                continue
            self.current = index
            record = self._records[index]
            env = record.env
            if next_step and record.ended:
                if record.fresh is None:
                    record.observation, info = env.reset()
                else:
                    info, record.fresh = record.fresh, None
                record.ended = False
            else:
                (
                    record.observation,
                    rewards[row],
                    terminations[row],
                    truncations[row],
                    info,
                ) = env.step(action)
                record.ended = bool(terminations[row] or truncations[row])
                if same_step and record.ended:
                    final = {"final_obs": record.observation, "final_info": _snapshot(info)}
                    infos.append((index, final))
                    if index in leaving:
                        continue
                    record.observation, info = env.reset()
            if info:
                infos.append((index, _snapshot(info)))
        observations = self._observations(indices, keep)
        return Outcome(observations, infos, rewards, terminations, truncations)

    def _observations(self, indices: Sequence[int], keep: bool) -> Any:
        self.current = None
        found = [self._records[index].observation for index in indices]
        batch: Any = create_empty_array(self._space, len(found), fn=np.zeros)
        batch = concatenate(self._space, found, batch)
        return self._keep(batch) if keep and self._keep is not None else batch

    def _call(
        self, indices: Sequence[int], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Any]:
        results = []
        for index in indices:
            self.current = index
            found = self._records[index].env.get_wrapper_attr(name)
            results.append(found(*args, **kwargs) if callable(found) else found)
        return results

    def _set_attr(self, name: str, values: dict[int, Any]) -> None:
        for index, value in values.items():
            self.current = index
            self._records[index].env.set_wrapper_attr(name, value)

    def _render(self, indices: Sequence[int]) -> list[Any]:
        frames = []
        for index in indices:
            self.current = index
            frames.append(self._records[index].env.render())
        return frames

    def _drop(self, indices: Iterable[int]) -> None:
        """Close environments and forget them. The error of one leaves none of the others open."""
        failed: Exception | None = None
        for index in indices:
            record = self._records.pop(index, None)
            if record is not None:
                try:
                    self.current = index
                    record.env.close()
                except Exception as error:
                    failed = failed or error
        if failed is not None:
            raise failed

    def _close(self) -> None:
        self._drop(list(self._records))


def _snapshot(info: Any) -> Any:
    """Copy what an environment may change in its infos before they are sent."""
    if isinstance(info, dict):
        return {key: _snapshot(value) for key, value in info.items()}
    return info.copy() if type(info) is np.ndarray else info


def _culprit(reply: Any) -> int | None:
    """Find the environment whose infos cannot be pickled."""
    for index, info in reply.infos if isinstance(reply, Outcome) else ():
        try:
            pack(info)
        except Exception:
            return int(index)
    return None
