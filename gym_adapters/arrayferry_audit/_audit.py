"""The audit of vector environments. It records and checks a run, and repeats the run with one change each time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry.typing import AnyArray
from arrayferry_gym.extending import autoreset_mode_of

from ._checks import CHECKS, problems_of
from ._record import Call, Episode, Recorder, Run, UnreadableError, VectorProblem, rows_in

SEEDS = 4
"""The number of seeds to test besides the seed of the first run."""

SEED = "Make reset(seed=...) seed all random numbers, also of later episodes, and clear everything else."
TELL = "Set terminated or truncated in the step that resets, and reset only environments whose episode has ended."
OWN = "Seed each environment separately, for example by seed + its index."
DRAW = "Draw a new first state for each environment at each reset, from seeded random numbers."

OTHER_CHECKS = (
    "calls_can_be_read", "modes_are_stated", "seeds_decide_all", "nothing_is_shared", "seeds_differ",
    "limits_are_of_each_episode", "resets_are_told", "rows_are_independent", "arrays_are_free",
    "actions_of_resets_do_not_count",
)  # fmt: skip
"""The names of the checks that are not functions in `CHECKS`, since they need the environments or further runs."""

Difference = tuple[int, int] | None
"""The environment and the step where two runs first differ, or None if the runs are equal."""


class Audit:
    """The audit of vector environments.

    Args:
        envs: the vector environment to check, or a function that makes new ones.
        steps: the number of steps of each run.
        seed: the seed of the first run.
        together: whether the environments are the agents of one game.
        also: further checks of the first run, as a dict from each check to the remedy for its problems.

    Raises:
        TypeError: `envs` is neither a vector environment nor a function.

    Attributes:
        problems: the problems that were found.
        ended: whether an episode ended in the first run.
    """

    def __init__(
        self,
        envs: Any,
        steps: int,
        seed: int,
        *,
        together: bool = False,
        also: Mapping[Any, str] | None = None,
    ) -> None:
        is_maker = callable(envs) and (isinstance(envs, type) or not hasattr(envs, "step"))
        if not is_maker and not (hasattr(envs, "step") and hasattr(envs, "num_envs")):
            raise TypeError(
                f"check_vector_env was given {envs!r:.80}, which is neither a vector environment nor a function that makes "
                "one. Pass what gymnasium.make_vec returns, or a function that calls it"
            )
        self.problems: list[VectorProblem] = []
        self._make: Any = envs if is_maker else None
        self._seed, self._together = seed, together
        self._made = list[Any]()
        try:
            self._audit(self._made_now() if is_maker else envs, steps, also or {})
        except UnreadableError as error:
            self.problems.append(error.args[0])
        finally:
            for made_envs in reversed(self._made):
                _close(made_envs)

    def _audit(self, envs: Any, steps: int, also: Mapping[Any, str]) -> None:
        """Record a run, check it, and repeat it."""
        stated_mode = (getattr(envs, "metadata", None) or {}).get("autoreset_mode")
        try:
            self._mode = autoreset_mode_of(stated_mode)
        except af.OptionError:
            self._mode = AutoresetMode.NEXT_STEP
            message = "metadata['autoreset_mode'] is missing or is not an autoreset mode, so NEXT_STEP is assumed"
            self._add("modes_are_stated", message, "Set it to a gymnasium.vector.AutoresetMode.")
        self._first = Recorder(envs, self._mode)
        self._table = self._first.drawn(self._seed, steps)
        calls: list[Call] = []
        try:
            calls.extend(self._first.run(self._seed, self._table))
        except UnreadableError as error:
            self.problems.append(error.args[0])
        self._run = run = Run(self._first, calls)
        self.ended = bool(run.episodes)
        if calls:
            self.problems += problems_of(run, {**CHECKS, **also})
        if len(run.steps) == len(self._table):
            self._repeat()

    def _add(self, check: str, what: str, remedy: str, place: Any = (None, None)) -> None:
        self.problems.append(VectorProblem(place[0], place[1], what, remedy, check=check))

    def _repeat(self) -> None:
        """Repeat the run with one change each time, and add the problems."""
        self._until("ended", self._seed + 1, self._table)
        repeat_diff = self._compared(self._first.run(self._seed, self._table))
        new_diff = None if self._make is None else self._compared(self._beside())
        if repeat_diff is None:
            self._seeds()
        else:
            fault = "the same seed and actions gave other results after a reset that followed the end of an episode"
            self._add("seeds_decide_all", fault, SEED, repeat_diff)
        if new_diff is not None:
            fault = "new environments gave other results while further environments were made, stepped and closed"
            remedy = f"Share nothing between environments. {SEED}"
            self._add("nothing_is_shared", fault, remedy, new_diff)
        num_problems = len(self.problems)
        if repeat_diff is None:
            self._hidden_resets()
        if repeat_diff is None or (self._make is not None and new_diff is None):
            self._variations(self._new if repeat_diff else lambda: self._first)
        # list the problems of `_hidden_resets` and `_variations` first, since they cause other problems
        self.problems = self.problems[num_problems:] + self.problems[:num_problems]
        self.problems.sort(key=lambda problem: problem.check != "infos_are_those_of_the_mode")

    def _made_now(self) -> Any:
        """Make environments, which are closed at the end of the audit."""
        self._made.append(self._make())
        return self._made[-1]

    def _new(self) -> Recorder:
        return Recorder(self._made_now(), self._mode)

    def _until(self, what: str, seed: int, table: Any) -> list[Call]:
        """Run the environments until a step ends or begins an episode, and return the calls.

        Args:
            what: "ended" or "began", the attribute of `Call` to check.
            seed: the seed of the reset.
            table: the actions, from `Recorder.drawn`.
        """
        calls: list[Call] = []
        for call in self._first.run(seed, table):
            calls.append(call)
            if call.step and getattr(call, what).any():
                break
        return calls

    def _compared(self, calls: Iterator[Call], changed: AnyArray = False) -> Difference:
        """Return the first difference of a repeated run from the first run.

        Stop where an episode of a changed environment ends at another step, since environments that share a generator
        draw other numbers from then on.

        Args:
            calls: the calls of the repeated run.
            changed: the environments to ignore, since their actions were changed, bool (n,), or False for none.
        """
        for first_call, call in zip(self._run.calls, calls, strict=False):
            has_diverged = ((first_call.ended != call.ended) & changed).any()
            ignored = changed | (first_call.began & call.began & has_diverged)
            for row in rows_in(~ignored):
                if first_call.rows[row] != call.rows[row]:
                    return row, call.step
            if has_diverged:
                return None
        return None

    def _beside(self) -> Iterator[Call]:
        """Repeat the run in new environments. Meanwhile, step a second new batch, and close this batch halfway."""
        main_recorder, other_recorder = self._new(), self._new()
        half, other_calls = len(self._table) // 2, other_recorder.run(self._seed + 1, self._table)
        for call in main_recorder.run(self._seed, self._table):
            if call.step < half:
                next(other_calls)
            elif call.step == half and call.actions:
                _close(self._made.pop())  # the last environments made are those of `other_recorder`
            yield call

    def _seeds(self) -> None:
        """Run with other seeds, and check that first observations depend on the seed and differ between episodes."""
        recorder, run, rows = self._first, self._run, 1 if self._together else self._first.n
        rerun = Run(recorder, list(recorder.run(self._seed + 1000, self._table)))
        self._limits([*run.truncated, *rerun.truncated])
        seeded = [run.calls[0].firsts, rerun.calls[0].firsts]
        seeded += [recorder.reset(0, self._seed + 1000 * k).firsts for k in range(2, SEEDS + 1)]
        unseeded = [call.firsts for call in run.calls if call.is_reset]
        later = [(row, x) for one in (run, rerun) for row in range(rows) for x in _later(one, row)]
        if all(firsts == seeded[0] for firsts in seeded):
            alike = [x == seeded[0] for x in unseeded] + [x == seeded[0][row] for row, x in later]
            if not all(alike) and [x.rows for x in run.calls] == [x.rows for x in rerun.calls]:
                message = "other seeds gave the same run, although its episodes begin with different observations"
                self._add("seeds_differ", message, SEED)
            return
        if rows > 1 and all(len(set(firsts)) == 1 for firsts in seeded):
            message = "with one seed, all environments begin with the same observation"
            self._add("seeds_differ", message, f"{DRAW} {OWN}")
        all_differ = len({x for firsts in seeded for x in firsts[:rows]}) == len(seeded) * rows
        firsts_by_reset = {
            "resets without a seed": [first for firsts in unseeded for first in firsts[:rows]],
            "automatic resets": [first for _, first in later],
        }
        # if the first observations of different seeds differ, those of later episodes should differ too
        for reset_text, firsts in firsts_by_reset.items() if all_differ else ():
            num_firsts, num_unique = len(firsts), len(set(firsts))
            if num_firsts > 5 and 3 * num_unique <= 2 * num_firsts:
                text = (
                    f"{num_firsts} {reset_text} returned only {num_unique} different observations"
                )
                self._add("seeds_differ", text, DRAW)
        seeds = [self._seed + 10 * row for row in range(recorder.n)]
        try:
            # three seeds for the last environment, since two seeds may give equal first observations by chance
            new_seeds = seeds[-1], 99_999, 77_777
            digests, *others = (recorder.reset(0, [*seeds[:-1], seed]).firsts for seed in new_seeds)
        except UnreadableError:  # many environments refuse a list of seeds, which is no problem
            return
        is_changed = [set(x) != {digests[row]} for row, x in enumerate(zip(*others, strict=True))]
        if not all(is_changed) and (any(is_changed[:-1]) or (all_differ and not is_changed[-1])):
            message = "its seed changes the observation of another environment, or does not change its own"
            self._add("seeds_differ", message, OWN, (recorder.n - 1, 0))

    def _limits(self, truncated: list[Episode]) -> None:
        """Check that later episodes are truncated after as many steps as the first episodes after a full reset."""
        limits = {each.length for each in truncated if each.is_first}
        later = [each for each in truncated if not each.is_first and each.length not in limits]
        if sum(each.is_first for each in truncated) > 2 and len(limits) == 1 and len(later) > 2:
            episode, limit = later[0], limits.pop()
            message = f"a later episode is truncated after {episode.length} steps, but the first episodes after reset() are truncated after {limit}"
            remedy = "Count the steps of each episode separately."
            place = episode.env, episode.last.step
            self._add("limits_are_of_each_episode", message, remedy, place)

    def _hidden_resets(self) -> None:
        """Find environments that were reset in a step whose flags end no episode.

        Runs with other actions stop at the first automatic reset. An observation that depends on the seed, but not on
        the actions, is the first observation after a reset.
        """
        run, table = self._run, self._table
        num_tries = len(table) // run.episodes[0].last.step if run.episodes and run.unique else 0
        runs = [
            [self._until("began", seed, table[k:] + table[:k])[-3:] for k in range(num_tries)]
            for seed in (self._seed, self._seed + 1000)
        ]
        for row, late in product(range(run.n), (True, False)):
            ends = [[x for x in run if len(x) > 2 and x[-1].began[row] == late] for run in runs]
            moves = [{x[1 - late].firsts[row]: x[2 - late].firsts[row] for x in y} for y in ends]
            digests, others = (set(x.values()) for x in moves)
            if min(map(len, moves)) > 2 and len(digests) == len(others) == 1 and digests != others:
                message = "it was reset in a step that sets neither terminated nor truncated"
                self._add("resets_are_told", message, TELL, (row, None))
                return

    def _variations(self, new: Callable[[], Recorder]) -> None:
        """Repeat the run with one change each time.

        If results differ, the change is made again, since a difference that does not recur is not an effect of the
        change.
        """
        run = self._run
        other_actions = self._first.drawn(self._seed + 1, len(self._table))

        def changed_where(masks: Iterable[Any]) -> list[list[Any]]:
            """Return the actions of the run, with other actions in the mask of each step."""
            return [
                [y if is_changed else x for is_changed, x, y in zip(*step, strict=True)]
                for step in zip(masks, self._table, other_actions, strict=False)
            ]

        variations: list[Any] = []  # check, message, remedy, changed environments, options of `run`
        for mask in [] if self._together else _parts(run.n):
            env_names = ", ".join(map(str, rows_in(mask)))
            message = f"its results depend on the actions of environment {env_names:.60}"
            remedy = "Compute each environment separately, and return rows in their order."
            options: dict[str, Any] = {"table": changed_where(itertools.repeat(mask))}
            variations.append(("rows_are_independent", message, remedy, mask, options))
        message = (
            "the results depend on what the agent writes to arrays that it has passed or received"
        )
        remedy = "Copy actions that are stored, and arrays that are read later."
        options = {"table": self._table, "overwrites": True}
        variations.append(("arrays_are_free", message, remedy, False, options))
        if not all(call.counts.all() for call in run.steps):
            message = f"the action affects a step that only resets ({self._mode.name})"
            remedy = "Ignore the action; or state SAME_STEP, if the step that ends an episode also resets."
            options = {"table": changed_where(~call.counts for call in run.steps)}
            variations.append(("actions_of_resets_do_not_count", message, remedy, False, options))

        def vary(changed: Any, options: Any) -> Difference:
            return self._compared(new().run(self._seed, **options), changed)

        for check, message, remedy, changed, options in variations:
            difference = vary(changed, options)
            if difference is not None and vary(changed, options) == difference:
                self._add(check, message, remedy, difference)
            elif difference is not None:
                message = "the same seed and actions gave other results"
                self._add("seeds_decide_all", message, SEED, difference)
                return


def _parts(n: int) -> list[Any]:
    """Return a few masks (n,). For any two environments, at least one mask has the first but not the second."""
    count = next(count for count in itertools.count(1) if math.comb(count, count // 2) >= n)
    codes = [*itertools.islice(itertools.combinations(range(count), count // 2), n)]
    masks = [np.array([index in code for code in codes]) for index in range(count)]
    return [mask for mask in masks[::-1] if mask.any()]


def _later(run: Run, env: int) -> list[Any]:
    """Return digests of the observations of an environment after automatic resets, for at most `SEEDS` resets."""
    return [call.firsts[env] for call in run.calls if call.began[env] and not call.is_reset][:SEEDS]


def _close(envs: Any) -> None:
    getattr(envs, "close", lambda: None)()
