"""Recorded runs of vector environments. A record has the results of each call, and copies of them in NumPy."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

import arrayferry as af
from arrayferry._utilities.caller import authors_line
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym.extending import Episodes, original_space

REST = 8
"""After a run, all environments are reset twice without a seed, and take this many steps after each reset."""

to_numpy = af.converter("numpy", copy=True, scalars="convert", unsupported="keep")


class VectorProblem(NamedTuple):
    """A problem of vector environments.

    Attributes:
        env: the index of the environment, or None if the problem concerns all environments.
        step: the step of the run, counted from 1, or 0 for the first reset. None if the problem concerns all steps.
        what: what is wrong.
        remedy: what to do.
        times: how often the problem was found. `env` and `step` are those of its first occurrence.
        check: the name of the check that found the problem.
    """

    env: int | None
    step: int | None
    what: str
    remedy: str
    times: int = 1
    check: str = ""

    @property
    def place(self) -> str:
        """The environment and the step as text, such as "environment 0, step 3"."""
        env_text = "all environments" if self.env is None else f"environment {self.env}"
        step_text = f"step {self.step}" if self.step else "reset"
        return env_text if self.step is None else f"{env_text}, {step_text}"

    def __str__(self) -> str:
        times_text = f" ({self.times} times)" if self.times > 1 else ""
        return f"{self.place}: {self.what}{times_text}. {self.remedy}".rstrip()


class UnreadableError(Exception):
    """Raised if a run cannot continue because of a problem. The argument is the `VectorProblem`."""


class Call(NamedTuple):
    """A call of `reset` or `step`, and its results.

    Attributes:
        step: the number of steps of the run so far, including this call.
        actions: one action for each environment, or [] for a reset.
        began: where a new episode begins with this call, bool (n,).
        counts: where the step belongs to an episode, bool (n,).
        ended: where the step ends an episode, bool (n,).
        given: observation, reward, terminated, truncated and infos, as the environments returned them. For a reset, the
            reward and the flags are None.
        seen: copies of the values in `given`, in NumPy.
        observations: one observation for each environment.
        finals: for each environment, the last observation of the episode that this call has ended, or else None.
        firsts: for each environment, a digest of its entry in `observations`.
        rows: for each environment, digests of all its results except infos.
        is_reset: whether the call is a reset of all environments.
        keeps_actions: whether the step has left the array of actions unchanged.
    """

    step: int
    actions: list[Any]
    began: Any
    counts: Any
    ended: Any
    given: tuple[Any, ...]
    seen: tuple[Any, ...]
    observations: list[Any]
    finals: list[Any]
    firsts: list[Any]
    rows: list[Any]
    is_reset: bool = False
    keeps_actions: bool = True

    @property
    def infos(self) -> dict[Any, Any]:
        return self.seen[4] if isinstance(self.seen[4], dict) else {}


class Recorder:
    """Runs vector environments, and records their calls.

    Args:
        envs: the vector environment to check.
        mode: the autoreset mode of the environments.
    """

    def __init__(self, envs: Any, mode: Any) -> None:
        self.mode, self.episodes = mode, Episodes(envs, mode)
        self.envs, self.n = envs, int(envs.num_envs)
        self.observed = space_of(envs, "observation_space")
        self.acted = copy.deepcopy(space_of(envs, "action_space"))

    def drawn(self, seed: int, steps: int) -> list[list[Any]]:
        """Draw the actions of a run. Return a list of steps, each a list with one action for each environment."""
        self.acted.seed(seed)
        return [[self.acted.sample() for _ in range(self.n)] for _ in range(steps + 2 * REST)]

    def run(self, seed: int, table: list[list[Any]], *, overwrites: bool = False) -> Iterator[Call]:
        """Reset the environments with a seed, take all steps, and yield each call.

        Args:
            seed: the seed of the first reset.
            table: the actions, from `drawn`.
            overwrites: whether to write to the arrays of actions and results after each step, as an agent might.

        Raises:
            UnreadableError: the environments raised an error, or results do not have a row for each environment.
        """
        num_steps = len(table) - 2 * REST
        yield self.reset(0, seed)
        for step, actions in enumerate(table, 1):
            if step in (num_steps + 1, num_steps + REST + 1):
                yield self.reset(step - 1)
            call = self.step(step, actions, overwrites)
            yield call
            if not self.episodes.rule.by_itself and call.ended.any():
                yield self.reset(step, mask=call.ended)
        yield self.reset(len(table))

    def reset(self, step: int, seed: Any = None, mask: AnyArray = None) -> Call:
        """Reset the environments in a mask, or all environments if the mask is None. Return the call.

        Args:
            step: the number of steps so far.
            seed: the seed, or None.
            mask: the environments to reset, bool (n,), or None.
        """
        no_rows = np.zeros(self.n, bool)
        began = ~no_rows if mask is None else mask
        self.episodes.begin(mask)
        with _reading(step):
            options = {} if mask is None else {"options": {"reset_mask": mask.copy()}}
            observation, infos = self.envs.reset(seed=seed, **options)
            results, masks = (observation, None, None, None, infos), (began, no_rows, no_rows)
            return self._call(step, [], results, in_numpy(results), masks, is_reset=mask is None)

    def step(self, step: int, actions: list[Any], overwrites: bool = False) -> Call:
        """Take a step, and return the call.

        Args:
            step: the number of the step.
            actions: one action for each environment.
            overwrites: as for `run`.
        """
        with _reading(step):
            action_batch = self._batch(actions)
            digest_before = digest(to_numpy(action_batch))
            observation, reward, terminated, truncated, infos = self.envs.step(action_batch)
            results = (observation, reward, terminated, truncated, infos)
            seen = in_numpy(results)
            shapes = [seen[1].shape[:1], seen[2].shape, seen[3].shape]
            if shapes != [(self.n,)] * 3:
                raise ValueError(
                    f"reward, terminated and truncated have the shapes {shapes}, but need {self.n} rows"
                )
            outcome, no_rows = self.episodes.step((None, *seen[1:4], None)), np.zeros(self.n, bool)
            began = self.episodes.masks.reset
            counts = ~no_rows if outcome.valid is None else outcome.valid
            masks = no_rows if began is None else began, counts, outcome.ended
            keeps_actions = digest(to_numpy(action_batch)) == digest_before
            call = self._call(step, actions, results, seen, masks, keeps_actions=keeps_actions)
            if overwrites:
                _overwrite((action_batch, results))
        return call

    def _batch(self, actions: list[Any]) -> Any:
        """Return a list of actions as a batch, in the library of `action_space.sample()`."""
        empty_batch: Any = create_empty_array(self.acted, self.n)
        batch = concatenate(self.acted, actions, empty_batch)
        _, backend = af.first_array(self.envs.action_space.sample())
        return batch if backend is None else af.convert(batch, backend, narrowing="allow")

    def _call(
        self, step: int, actions: AnyTree, results: Any, seen: Any, masks: Any, **told: Any
    ) -> Call:
        observations, ended = self._split(seen[0]), masks[2]
        final = seen[4].get("final_obs") if isinstance(seen[4], dict) else None
        finals: list[Any] = [None] * self.n
        if final is not None and ended.any():
            is_list = isinstance(final, list) or getattr(final, "dtype", None) == np.dtype(object)
            finals = list(final) if is_list else self._split(final)
            finals = [x if is_ended else None for x, is_ended in zip(finals, ended, strict=True)]
        firsts = [digest(observation) for observation in observations]
        digests = [[digest(np.asarray(x)) for x in part] for part in seen[1:4] if part is not None]
        rows = list(zip(firsts, map(digest, finals), *digests, strict=True))
        call_fields: Any = *masks, results, seen, observations, finals, firsts, rows
        return Call(step, actions, *call_fields, **told)

    def _split(self, observation: AnyTree) -> list[Any]:
        """Return a batch of observations as a list of one observation for each environment."""
        rows = list(iterate(self._batches, observation))
        if len(rows) != self.n:
            raise ValueError(f"a batch of observations has {len(rows)} rows, but needs {self.n}")
        return rows

    @cached_property
    def _batches(self) -> Any:
        return batch_space(self.observed, self.n)


class Episode(NamedTuple):
    """An episode that has ended.

    Attributes:
        env: the index of the environment.
        length: the number of steps in the episode.
        total: the sum of the rewards in the episode.
        is_first: whether the episode began with a reset of all environments.
        before: the call before the last step of the episode.
        last: the last step of the episode.
    """

    env: int
    length: int
    total: Any
    is_first: bool
    before: Call
    last: Call

    @property
    def is_cut(self) -> bool:
        """Whether the episode was truncated, and not terminated."""
        return bool(self.last.seen[3][self.env] and not self.last.seen[2][self.env])


def rows_in(mask: AnyArray) -> list[int]:
    """Return the indices of the environments in a mask."""
    return np.flatnonzero(mask).tolist()


class Run:
    """A recorded run.

    Args:
        recorder: the recorder of the run.
        calls: the calls of the run, in order.
    """

    def __init__(self, recorder: Recorder, calls: list[Call]) -> None:
        self.envs, self.rule, self.n = recorder.envs, recorder.episodes.rule, recorder.n
        self.mode = recorder.mode
        self.observed, self.calls = recorder.observed, calls
        self.steps = [call for call in calls if call.actions]
        self.pairs = list(pairwise(calls))

    @cached_property
    def episodes(self) -> list[Episode]:
        """All episodes that have ended."""
        episodes: list[Episode] = []
        rewards: list[list[Any]] = [[] for _ in range(self.n)]
        is_first = np.ones(self.n, bool)
        for previous, call in self.pairs:
            for row in rows_in(call.counts):
                rewards[row].append(call.seen[1][row])
            for row in rows_in(call.ended):
                length, total = len(rewards[row]), sum(rewards[row])
                episodes.append(Episode(row, length, total, bool(is_first[row]), previous, call))
            for row in rows_in(call.ended | call.began):
                rewards[row] = []
            is_first = is_first & ~call.ended | call.is_reset
        return episodes

    @property
    def truncated(self) -> list[Episode]:
        """The episodes that were truncated, including those that were also terminated."""
        return [episode for episode in self.episodes if episode.last.seen[3][episode.env]]

    @cached_property
    def usual(self) -> list[tuple[Call, Call, int]]:
        """The steps that do not end their episode, as tuples (previous call, call, environment)."""
        return [
            (x, call, row) for x, call in self.pairs for row in rows_in(call.counts & ~call.ended)
        ]

    @cached_property
    def begins(self) -> list[tuple[Call, Call, int]]:
        """The starts of episodes without a reset of all environments, as tuples (previous call, call, environment)."""
        pairs = [(previous, call) for previous, call in self.pairs if not call.is_reset]
        return [(previous, call, row) for previous, call in pairs for row in rows_in(call.began)]

    @cached_property
    def unique(self) -> bool:
        """Whether observations rarely recur in the run, as is usual for continuous observations."""
        first_digests = [first_digest for call in self.steps for first_digest in call.firsts]
        all_move = all(before.firsts[row] != call.firsts[row] for before, call, row in self.usual)
        return all_move and len(set(first_digests)) > 0.7 * len(first_digests)


@contextmanager
def _reading(step: int) -> Iterator[None]:
    """Convert an error inside the context to an `UnreadableError` with a problem."""
    try:
        yield
    except Exception as error:
        message = f"the call raised, or its results cannot be read: {type(error).__name__}: {error!s:.200}"
        message, line = message.rstrip(". "), authors_line(error)
        remedy = "Return a row for each environment, as gymnasium.vector.VectorEnv requires."
        if line is not None:
            message, remedy = f"{message}, at {line}", ""
        raise UnreadableError(
            VectorProblem(None, step, message, remedy, check="calls_can_be_read")
        ) from error


def space_of(envs: Any, name: str) -> Any:
    """Return the space of one environment. Its samples are NumPy arrays, also if `envs` has a converted space."""
    return original_space(getattr(envs, f"single_{name}", None) or getattr(envs, name))


def in_numpy(results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return copies of the results of a call in NumPy."""
    observation, *arrays, infos = to_numpy(results)
    return observation, *(None if x is None else np.asarray(x) for x in arrays), infos


def digest(value: AnyTree) -> Any:
    """Return a digest of a value. Digests are equal if the structures, dtypes, shapes and bits are equal."""
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        return _bits(value)
    arrays, layout = af.flatten(value)
    return layout, *(_bits(np.asarray(x)) for x in arrays)


def _bits(x: AnyArray) -> tuple[Any, ...]:
    bits = repr(x.tolist()).encode() if x.dtype.hasobject else x.tobytes()
    return x.dtype.str, x.shape, hashlib.sha1(bits, usedforsecurity=False).digest()


def _overwrite(trees: Any) -> None:
    """Write ones to all writable arrays in trees."""
    for x in af.flatten(trees)[0]:
        fill = getattr(x, "fill_", None)
        if isinstance(x, np.ndarray) and x.flags.writeable:
            x[...] = 1
        elif callable(fill):  # PyTorch tensors have `fill_`
            fill(1)
