"""The conformance kit for bridges: tests that the author of a bridge inherits.

A bridge makes environments of one project usable by the trainers of another. Put it around a probe, an environment whose
observations identify their episode and step; define how it is reset and stepped; and run pytest:

    from arrayferry_gym.testing import BridgeContract, BridgeStep, Probe

    class TestMyBridge(BridgeContract):
        def make(self):
            return MyBridge(Probe().make_vec(self.num_envs, autoreset_mode="SameStep"))

        def reset(self, bridge, seed):
            return bridge.reset(seed)

        def step(self, bridge, actions):
            observation, reward, done, infos = bridge.step(actions)
            ...
            return BridgeStep(observation, reward, terminated, truncated, final_observation)

A bridge from environments of another project is put around a probe that is written as that project asks, with the same
observations, rewards and ends. The name of each test says what it checks, and the message of a failure what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces

import arrayferry as af

from .functional import FunctionalEnv

__all__ = ["LIMIT", "BridgeContract", "BridgeStep", "Probe"]

LIMIT = 4
"""The number of steps after which an episode of the probe is truncated."""


class ProbeState(NamedTuple):
    """The state of `Probe`: arrays of shape (n,) and dtype float32."""

    start: Any
    count: Any


class Probe(FunctionalEnv):
    """An environment whose observations identify their episode and step.

    Observations are float32 of shape (2,): a number from 0 to 1 that is drawn for each episode, and the count of its
    steps so far. Action 1 terminates the episode; 0 and 2 do not. The reward is the count after the step plus half the action. An
    episode is truncated after 4 steps.

    Examples:
        >>> from arrayferry_gym.testing import Probe
        >>> env = Probe().make()
        >>> observation, info = env.reset(seed=1)
        >>> observation, reward, terminated, truncated, info = env.step(1)
        >>> observation[1], reward, terminated, truncated
        (np.float32(1.0), 1.5, True, False)
    """

    observation_space: Space[Any] = spaces.Box(
        np.zeros(2, np.float32), np.array([1, LIMIT], np.float32)
    )
    action_space: Space[Any] = spaces.Discrete(3)
    max_episode_steps: int | None = LIMIT

    def reset(self, xp: Any, rng: Any, n: int, params: Any) -> ProbeState:
        """Draw the number of each episode."""
        return ProbeState(rng.uniform((n,), 0.0, 1.0), xp.zeros((n,), dtype=xp.float32))

    def step(
        self, xp: Any, rng: Any, state: ProbeState, action: Any, params: Any
    ) -> tuple[ProbeState, Any, Any]:
        """Count the step."""
        count = state.count + 1
        reward = count + 0.5 * xp.astype(action, xp.float32)
        return ProbeState(state.start, count), reward, action == 1

    def observe(self, xp: Any, state: ProbeState, params: Any) -> Any:
        """Return the number of the episode, and the count."""
        return xp.stack([state.start, state.count], axis=1)


class BridgeStep(NamedTuple):
    """What a trainer receives from a step, as arrays of any library or lists.

    Attributes:
        observation: (n, 2). Where an episode has ended, the first observation of the next.
        reward: (n,).
        terminated: (n,), booleans.
        truncated: (n,), booleans.
        final_observation: (n, 2), the observations after the step and before any reset. Only rows whose episode has ended
            count; others may be anything, also None.
    """

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    final_observation: Any


class _Seen(NamedTuple):
    """A step in NumPy."""

    observation: np.ndarray[Any, Any]
    reward: np.ndarray[Any, Any]
    terminated: np.ndarray[Any, Any]
    truncated: np.ndarray[Any, Any]
    final_observation: Any


class BridgeContract:
    """The tests that every bridge must pass. Name your subclass `Test...`.

    The default methods are right for a Gymnasium vector environment that resets in the same step.

    Attributes:
        num_envs: the number of rows: environments, or the agents of one game.
        exclusive: whether the trainer wants at most one of the two flags. If so, an episode that does both has
            terminated.
        together: whether the rows are agents of one game, which begins and ends for all of them at once.

    Examples:
        >>> from arrayferry_gym.testing import BridgeContract, Probe
        >>> class TestServed(BridgeContract):
        ...     def make(self):
        ...         return Probe().make_vec(self.num_envs, xp="torch", autoreset_mode="SameStep")
        >>> TestServed().test_final_observations_are_of_the_last_state()
    """

    num_envs: int = 3
    exclusive: bool = False
    together: bool = False

    def make(self) -> Any:
        """Return a new bridge around `num_envs` probes."""
        raise NotImplementedError(
            f"{type(self).__name__} needs a method make() that returns the bridge"
        )

    def reset(self, bridge: Any, seed: int | None) -> Any:
        """Reset all rows, and return the observations (n, 2).

        Args:
            bridge: the result of `make`.
            seed: the seed, None to continue the random sequence.
        """
        return bridge.reset(seed=seed)[0]

    def step(self, bridge: Any, actions: np.ndarray[Any, Any]) -> BridgeStep:
        """Take a step, and reset the rows that have ended if the bridge leaves that to the trainer.

        Args:
            bridge: the result of `make`.
            actions: int64 (n,).
        """
        observation, reward, terminated, truncated, infos = bridge.step(actions)
        return BridgeStep(observation, reward, terminated, truncated, infos.get("final_obs"))

    def spaces(self, bridge: Any) -> tuple[Space[Any] | None, Space[Any] | None]:
        """Return the observation and action space of one row, None for one that the trainer does not have."""
        return bridge.single_observation_space, bridge.single_action_space

    def close(self, bridge: Any) -> None:
        """Close the bridge."""
        getattr(bridge, "close", lambda: None)()

    # helpers

    @contextmanager
    def _playing(self, seed: int | None = 1) -> Iterator[_Game]:
        bridge = self.make()
        try:
            yield _Game(self, bridge, seed)
        finally:
            self.close(bridge)

    def _play(self, *steps: Sequence[int]) -> None:
        """Take steps with these actions, and check each."""
        with self._playing() as game:
            for actions in steps:
                game.play(actions)

    def _row(self, chosen: int, other: int = 0) -> list[int]:
        """Return actions: one for the last row, another for all others."""
        return [other] * (self.num_envs - 1) + [chosen]

    # the tests

    def test_spaces_and_dtypes_agree(self) -> None:
        """Observations have the shape and dtype of their space and are in it, and actions are the probe's."""
        with self._playing() as game:
            observed, acted = self.spaces(game.bridge)
            seen = [game.first]
            for _ in range(LIMIT + 1):
                seen.append(game.step(self._row(0)).observation)
                if game.ended.any():
                    seen.append(_chosen(game.given.final_observation, game.ended))
            for observation in seen:
                assert observation.dtype == np.float32, (
                    f"observations are {observation.dtype}, not float32"
                )
                for row in observation:
                    assert observed is None or _is_in(observed, row), (
                        f"the observation {row!r} of dtype {row.dtype} is not in the space {observed}"
                    )
            if acted is not None:
                assert isinstance(acted, spaces.Discrete), (
                    f"the space of actions is {acted}, not Discrete(3)"
                )
                numbers = int(acted.start), int(acted.n)
                assert numbers == (0, 3), f"the space of actions is {acted}, not Discrete(3)"

    def test_rewards_and_flags_have_their_dtypes(self) -> None:
        """Rewards are float32 or float64 and flags booleans, one for each row."""
        with self._playing() as game:
            for number in range(1, LIMIT + 2):
                step = game.step(self._row(int(number == 1)))
                where = f"in step {number}"
                assert step.reward.dtype in (np.float32, np.float64), (
                    f"{where}, rewards are {step.reward.dtype}, not float32 or float64"
                )
                for name in ("terminated", "truncated"):
                    flag = getattr(step, name)
                    assert flag.dtype == bool, f"{where}, {name} is {flag.dtype}, not bool"
                for name in ("reward", "terminated", "truncated"):
                    shape = getattr(step, name).shape
                    assert shape == (self.num_envs,), (
                        f"{where}, {name} has the shape {shape}, not {(self.num_envs,)}"
                    )

    def test_episodes_begin_at_the_beginning(self) -> None:
        """The first observations are those of reset, and each environment has its own."""
        with self._playing() as game:
            game.check_first(game.first)
            if self.num_envs > 1 and not self.together:
                starts = game.first[:, 0].tolist()
                assert len(set(starts)) == self.num_envs, (
                    f"environments begin alike: their starts are {starts}"
                )

    def test_each_action_reaches_its_environment(self) -> None:
        """Rewards match the step and the row's action."""
        rows = range(self.num_envs)
        self._play(*([2 * (row % 3 == number) for row in rows] for number in range(3)))

    def test_termination_is_no_truncation(self) -> None:
        """An episode that terminates before the limit is not truncated, and no other episode ends."""
        self._play(self._row(0), self._row(1))

    def test_the_time_limit_is_no_termination(self) -> None:
        """An episode that reaches the limit is truncated, and has not terminated."""
        self._play(*[self._row(2, 2)] * LIMIT)

    def test_both_at_once(self) -> None:
        """An episode that terminates at the limit has both flags, or has terminated where the trainer wants one."""
        self._play(*[self._row(0)] * (LIMIT - 1), self._row(1))

    def test_final_observations_are_of_the_last_state(self) -> None:
        """Where an episode has ended, the final observation is the one after its last step."""
        self._play(self._row(0), self._row(1), self._row(0), self._row(0))

    def test_each_episode_is_new(self) -> None:
        """After an episode ends, the observation is the first of a new episode, and each row draws its own, in float32."""
        starts: list[float] = []
        with self._playing() as game:
            rows = slice(1) if self.together else slice(None)
            for number in range(4 * LIMIT):
                game.play(self._row(1, number % 2))
                if number % 2:
                    starts.extend(game.starts[rows].tolist())
        kinds = len(set(starts))
        assert 3 * kinds > 2 * len(starts), (
            f"episodes begin alike: {len(starts)} of them, of which some have ended together, begin with {kinds} numbers"
        )
        drawn = np.array(starts, np.float32)
        assert (drawn.astype(np.float16) != drawn).any(), (
            f"no observation needs more than float16, but these are drawn in float32: {starts[:3]}"
        )

    def test_later_episodes_count_anew(self) -> None:
        """The limit and the rewards of a second and third episode are those of a first."""
        self._play(self._row(1), *[self._row(0)] * (2 * LIMIT + 1))

    def test_a_reset_begins_anew(self) -> None:
        """A reset in the middle of episodes, or after their end, begins new ones, and counts from 0."""
        with self._playing() as game:
            starts = [game.first[:, 0]]
            for actions in (self._row(0), self._row(1), self._row(1, 1)):
                game.play(actions)
                game.reset(None)
                start = game.first[:, 0]
                assert all((start != other).all() for other in starts), (
                    f"after reset number {len(starts) + 1}, episodes begin as before"
                )
                starts.append(start)
                for _ in range(LIMIT):
                    game.play(self._row(0))

    def test_seeds_repeat(self) -> None:
        """The same seed gives the same episodes, later ones and those of later resets too; another seed gives others."""
        seeds = (5, 5, 6, 0, 0)
        runs = []
        for seed in seeds:
            with self._playing(seed) as game:
                run = self._later(game)
                game.reset(None)
                runs.append(np.stack([*run, *self._later(game)]))
                game.reset(seed)
                again = np.stack(self._later(game))
            assert (again[0] == run[0]).all(), (
                f"a second reset with the seed {seed} gave other episodes"
            )
            assert (again == run).all(), (
                f"after a second reset with the seed {seed}, later episodes differ"
            )
        for first, second in ((0, 1), (3, 4)):
            same = (runs[first] == runs[second]).all(axis=(1, 2))
            assert same[: LIMIT + 1].all(), f"the same seed {seeds[first]} gave other episodes"
            assert same.all(), "after a reset without a seed, the same seed gave other episodes"
        one, other = runs[0][:, :, 0], runs[2][:, :, 0]
        assert (one[0] != other[0]).all(), "another seed gave the same episodes"
        later = (
            one[1 : LIMIT + 1, -1] == other[1 : LIMIT + 1, -1]
        )  # the last row, which ends at each step
        assert later.mean() < 0.5, "another seed gave the same later episodes"

    def _later(self, game: _Game) -> list[np.ndarray[Any, Any]]:
        """Return the first observations, and those of some steps at which episodes end."""
        return [game.first, *(game.step(self._row(1)).observation for _ in range(LIMIT))]

    def test_results_are_not_overwritten(self) -> None:
        """The results of a step are unchanged by later steps and resets."""
        with self._playing() as game:
            kept: list[tuple[Any, Any, Any]] = [(game.first_given, None, game.first.copy())]
            for _ in range(LIMIT + 2):
                step = game.step(self._row(1))
                for given, seen in zip(game.given[:4], step[:4], strict=True):
                    kept.append((given, None, np.array(seen)))
                if game.ended.any():
                    final = game.given.final_observation
                    kept.append((final, game.ended, _chosen(final, game.ended)))
            game.reset(None)
        for given, rows, then in kept:
            now = _as_numpy(given) if rows is None else _chosen(given, rows)
            assert np.array_equal(now, then), (
                "a later step or reset has overwritten what an earlier one returned"
            )

    def test_actions_and_results_belong_to_the_trainer(self) -> None:
        """The array of actions is unchanged by a step. Writing to it or to results after a step does not affect later steps."""
        with self._playing() as game:
            game.overwrites = True
            _overwrite(game.first_given)
            for number in range(2 * LIMIT + 1):
                game.play(self._row(1 if number % 3 == 1 else 2))

    def test_bridges_share_nothing(self) -> None:
        """Two bridges at a time, such as one for training and one for evaluation, do not affect each other, nor does the end of one."""
        runs = []
        for others in (False, True):
            with self._playing() as game:
                run = []
                with self._playing(2) as other:
                    for number in range(LIMIT + 2):
                        run.append(game.play(self._row(number % 2)).observation)
                        if others:
                            other.play(self._row(1))
                        if others and number == 2:
                            other.reset(3)
                runs.append(np.stack([*run, game.play(self._row(0)).observation]))
        assert (runs[0] == runs[1]).all(), "another bridge has changed the episodes of this one"

    def test_one_row_is_a_batch(self) -> None:
        """A bridge around one environment returns batches of one row. This test passes if `make` ignores `num_envs`."""
        count, self.num_envs = self.num_envs, 1
        try:
            bridge = self.make()
            try:
                first = _as_numpy(self.reset(bridge, 1))
                if first.shape == (count, 2) and count > 1:
                    return
                game = _Game(self, bridge, 1)
                for action in (0, 2, 1, *[0] * LIMIT):
                    seen = game.step([action])
                    assert seen.reward.shape == (1,), (
                        f"rewards have the shape {seen.reward.shape}, not (1,)"
                    )
                    game.check(seen)
            finally:
                self.close(bridge)
        finally:
            self.num_envs = count

    def test_a_long_game(self) -> None:
        """Three hundred steps of random actions match the probe."""
        rng = np.random.default_rng(0)
        self._play(*rng.choice(3, (300, self.num_envs), p=[0.6, 0.2, 0.2]).tolist())


class _Game:
    """A bridge, and the expected state of its episodes.

    Args:
        contract: resets and steps the bridge.
        bridge: the bridge.
        seed: for the first reset.

    Attributes:
        overwrites: whether the trainer writes to arrays that it has passed or received.
    """

    overwrites = False

    def __init__(self, contract: BridgeContract, bridge: Any, seed: int | None) -> None:
        self.contract = contract
        self.bridge = bridge
        self.reset(seed)

    def reset(self, seed: int | None) -> None:
        self.first_given = self.contract.reset(self.bridge, seed)
        self.first = self._observations("reset", self.first_given)
        self.starts = self.first[:, 0].copy()
        self.counts = np.zeros(self.contract.num_envs, int)
        self.last = self.first.copy()

    def _observations(self, source: str, given: Any) -> np.ndarray[Any, Any]:
        observation, n = _as_numpy(given), self.contract.num_envs
        assert observation.shape == (n, 2), (
            f"{source} gave observations of shape {observation.shape}, not {(n, 2)}"
        )
        return observation

    def check_first(self, observation: np.ndarray[Any, Any]) -> None:
        for index, (start, count) in enumerate(observation.tolist()):
            assert (count, 0 <= start < 1) == (0, True), (
                f"row {index} begins with the observation {[start, count]}, which is not of a first state: its count must be 0"
            )

    def step(self, actions: Sequence[int]) -> _Seen:
        """Take a step."""
        self.actions = np.asarray(actions, np.int64)
        passed = self.actions.copy()
        self.given = self.contract.step(self.bridge, passed)
        if self.overwrites:
            assert np.array_equal(passed, self.actions), (
                f"the step has changed the array of actions that it was given, from {self.actions} to {passed}"
            )
            passed[...] = 1
        observation, reward, terminated, truncated, final = self.given
        seen = _Seen(
            self._observations("step", observation),
            reward=_as_numpy(reward),
            terminated=_as_numpy(terminated),
            truncated=_as_numpy(truncated),
            final_observation=final,
        )
        self.before, self.last = self.last, seen.observation.copy()
        self.ended = np.logical_or(seen.terminated, seen.truncated)
        if self.overwrites:
            seen = _copied(seen, self.ended)
            for part in self.given:
                _overwrite(part)
        return seen

    def play(self, actions: Sequence[int]) -> _Seen:
        """Take a step, and check it."""
        seen = self.step(actions)
        self.check(seen)
        return seen

    def check(self, seen: _Seen) -> None:
        """Compare a step with what the probe does."""
        contract = self.contract
        counts = self.counts + 1
        terminated, truncated = self.actions == 1, counts >= LIMIT
        if contract.together:
            terminated[:] = terminated.any()
        ended = terminated | truncated
        if contract.exclusive:
            truncated &= ~terminated
        for index in range(contract.num_envs):
            where = (
                f"row {index}, step {counts[index]} of its episode, action {self.actions[index]}"
            )
            flags = bool(seen.terminated[index]), bool(seen.truncated[index])
            wanted = bool(terminated[index]), bool(truncated[index])
            assert flags == wanted, (
                f"{where}: (terminated, truncated) is {flags}, but must be {wanted}"
                f"{', since the limit is no termination' if flags[0] and not wanted[0] else ''}"
            )
            reward = counts[index] + self.actions[index] / 2
            assert seen.reward[index] == reward, (
                f"{where}: the reward is {seen.reward[index]}, but must be {reward}, that of this step and this player"
            )
            if not ended[index]:
                right = np.array([self.starts[index], counts[index]], np.float32)
                assert np.array_equal(seen.observation[index], right), (
                    f"{where}: the observation is {seen.observation[index]}, but must be {right}"
                )
                self.counts[index] = counts[index]
                continue
            self._check_end(seen, index, where, counts[index])
            self.counts[index] = 0
            self.starts[index] = seen.observation[index, 0]

    def _check_end(self, seen: _Seen, index: int, where: str, count: int) -> None:
        first = seen.observation[index]
        self.check_first(first[None])
        assert first[0] != self.starts[index], (
            f"{where}: the next episode begins like the last, with {first}. Draw a new first state at each reset"
        )
        right = np.array([self.starts[index], count], np.float32)
        found = _chosen(seen.final_observation, np.arange(self.contract.num_envs) == index)
        what = ""
        if np.array_equal(found[0], first):
            what = ", which is the first observation of the next episode"
        elif np.array_equal(found[0], self.before[index]):
            what = ", which is the observation before the last step"
        assert np.array_equal(found[0], right), (
            f"{where}: the final observation is {found[0]}{what}. It must be {right}, of the state after the last step"
        )


def _as_numpy(given: Any) -> np.ndarray[Any, Any]:
    return np.asarray(af.convert(given, "numpy", scalars="convert"))


def _chosen(batch: Any, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return some rows of a batch. Other rows may be missing."""
    chosen = []
    for index in map(int, np.flatnonzero(rows)):
        row = None if batch is None else batch[index]
        assert row is not None, f"row {index} has ended, but has no final observation"
        chosen.append(_as_numpy(row))
    return np.stack(chosen)


def _copied(seen: _Seen, ended: np.ndarray[Any, Any]) -> _Seen:
    """Return a step in memory of its own, with the final observations of rows that have ended."""
    finals: list[Any] = [None] * len(ended)
    if ended.any():
        chosen = _chosen(seen.final_observation, ended)
        for index, row in zip(np.flatnonzero(ended), chosen, strict=True):
            finals[index] = row
    observation, reward, terminated, truncated = map(np.array, seen[:4])
    return _Seen(observation, reward, terminated, truncated, finals)


def _overwrite(given: Any) -> None:
    """Write ones to all arrays that can be written."""
    if isinstance(given, (list, tuple)) or str(getattr(given, "dtype", None)) == "object":
        for part in given:
            _overwrite(part)
    elif isinstance(given, np.ndarray):
        if given.flags.writeable:
            given[...] = 1
    elif callable(getattr(given, "fill_", None)):  # a tensor of PyTorch
        given.fill_(1)


def _is_in(space: Space[Any], row: np.ndarray[Any, Any]) -> bool:
    return space.dtype == row.dtype and bool(space.contains(row))
