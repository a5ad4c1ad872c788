"""`TabularEnv`: an environment whose states, transitions and rewards are in a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces

import arrayferry as af
from arrayferry_envs import FunctionalEnv


class Transitions(NamedTuple):
    """The table of a `TabularEnv`: for S states and A actions, up to K outcomes each.

    Attributes:
        probability: the probability of each outcome, float32 (S, A, K), summing to 1 along K.
        next_state: int32 (S, A, K).
        reward: float32 (S, A, K).
        terminated: whether the episode ends, bool (S, A, K).
        action_mask: which actions make sense in a state, 1 or 0, int8 (S, A).
        starts: the initial states, all equally probable, int32 (m,).
    """

    probability: Any
    next_state: Any
    reward: Any
    terminated: Any
    action_mask: Any
    starts: Any

    @classmethod
    def of(
        cls, table: Mapping[int, Mapping[int, Sequence[Any]]], starts: Iterable[int]
    ) -> Transitions:
        """Return the transitions of a table in the form of Gymnasium's tabular environments.

        The mask allows the actions that can change the state, and all actions in a state that no action changes.

        Args:
            table: for each state and action, a list of outcomes: probability, next state, reward, and whether the
                episode ends.
            starts: the initial states, all equally probable.

        Raises:
            arrayferry.OptionError: states are not numbered from 0 on, or differ in their actions, or an action has no
                outcome.

        Examples:
            >>> from arrayferry_classic import TabularEnv, Transitions
            >>> stay, leave = [(1.0, 0, 0.0, False)], [(0.5, 0, 0.0, False), (0.5, 1, 1.0, True)]
            >>> table = {0: {0: stay, 1: leave}, 1: {0: stay, 1: stay}}
            >>> TabularEnv(Transitions.of(table, [0])).make_vec(3).reset(seed=1)[0]
            array([0, 0, 0])
        """
        actions = sorted(next(iter(table.values()), ()))
        for number, (state, outcomes) in enumerate(sorted(table.items())):
            if (
                state != number
                or sorted(outcomes) != actions
                or not all(map(len, outcomes.values()))
            ):
                raise af.OptionError(
                    f"state {state!r} of the table has the outcomes {outcomes!r:.120}",
                    remedy=f"Number the states from 0 on. Each has the actions {actions}, with an outcome at least.",
                )
        if not actions:
            raise af.OptionError("the table has no action", remedy="Name an outcome of one.")
        rows = [[list(table[state][action]) for action in actions] for state in sorted(table)]
        most = max(len(outcomes) for row in rows for outcomes in row)
        # shorter lists are filled with their last outcome, with a probability of 0
        full = [
            [outcomes + [(0.0, *outcomes[-1][1:])] * (most - len(outcomes)) for outcomes in row]
            for row in rows
        ]
        probability, next_state, reward, terminated = (
            np.array(
                [[[outcome[index] for outcome in outcomes] for outcomes in row] for row in full],
                dtype,
            )
            for index, dtype in enumerate(("float32", "int32", "float32", "bool"))
        )
        states = np.arange(len(rows))[:, None, None]
        changes = ((probability > 0) & (next_state != states)).any(axis=2)
        mask = (changes | ~changes.any(axis=1, keepdims=True)).astype(np.int8)
        starts = np.array(list(starts), np.int32)
        return cls(probability, next_state, reward, terminated, mask, starts)


class TabularState(NamedTuple):
    """The state of a `TabularEnv`: arrays of shape (n,).

    Attributes:
        number: the state, int32.
        probability: the probability of the outcome that led there, float32; 1 at the start.
    """

    number: Any
    probability: Any


class TabularEnv(FunctionalEnv):
    """An environment whose states, transitions and rewards are in a table.

    Observations and actions are the indices of states and actions in the table. Infos have "prob", the probability
    of the outcome that led to the state, and "action_mask", int8 of shape (n, A).

    The table is `default_params`: other tables of the same shape can be passed as `params`, even one for each
    environment, or drawn by `sample_params`.

    Args:
        transitions: the table, of NumPy arrays.
        max_episode_steps: the number of steps after which an episode is truncated, None for no limit.
        masks: whether observations are dicts of "observation" and "action_mask", for policies that need the mask.

    Raises:
        arrayferry.OptionError: the table is invalid.

    Examples:
        >>> from arrayferry_classic import FrozenLake
        >>> envs = FrozenLake(is_slippery=False).make_vec(2, xp="torch")
        >>> observations, infos = envs.reset(seed=1)
        >>> observations, infos["action_mask"][0]
        (tensor([0, 0]), tensor([0, 1, 1, 0], dtype=torch.int8))
    """

    observation_space: Space[Any]
    action_space: Space[Any]

    def __init__(
        self, transitions: Transitions, *, max_episode_steps: int | None = None, masks: bool = False
    ) -> None:
        _check(transitions)
        states, actions, _ = transitions.next_state.shape
        self.default_params = transitions
        self.max_episode_steps = max_episode_steps
        self.masks = masks
        self.action_space = spaces.Discrete(actions)
        self.observation_space = spaces.Discrete(states)
        if masks:
            self.observation_space = spaces.Dict(
                {"observation": self.observation_space, "action_mask": spaces.MultiBinary(actions)}
            )

    # --8<-- [start:steps]
    def reset(self, xp: Any, rng: Any, n: int, params: Transitions) -> TabularState:
        """Return initial states."""
        chosen = rng.integers((n,), 0, params.starts.shape[-1])
        number = xp.take(*flat(xp, params.starts, chosen, 1), axis=0)
        return TabularState(number, xp.ones((n,), dtype=xp.float32))

    def step(
        self, xp: Any, rng: Any, state: TabularState, action: Any, params: Transitions
    ) -> tuple[Any, Any, Any]:
        """Draw an outcome."""
        *_, actions, outcomes = params.next_state.shape
        cell = (state.number * actions + xp.astype(action, xp.int32)) * outcomes
        chances, row = flat(xp, params.probability, cell, 3)
        if outcomes > 1:
            drawn, chosen = rng.uniform(cell.shape), xp.zeros_like(cell)
            below = [xp.take(chances, row, axis=0)]
            for number in range(1, outcomes):
                below.append(below[-1] + xp.take(chances, row + number, axis=0))
            # nothing is chosen beyond the last outcome that is possible, if the sum is below 1
            for each in below[:-1]:
                chosen = chosen + xp.astype((drawn >= each) & (each < below[-1]), xp.int32)
            cell, row = cell + chosen, row + chosen
        reward, terminated, number = (
            xp.take(*flat(xp, column, cell, 3), axis=0)
            for column in (params.reward, params.terminated, params.next_state)
        )
        probability = xp.take(chances, row, axis=0)
        return TabularState(number, probability), reward, terminated

    # --8<-- [end:steps]

    def action_mask(self, xp: Any, state: TabularState, params: Transitions) -> Any:
        """Return which actions make sense, int8 of shape (n, A)."""
        mask = params.action_mask
        return xp.take(*flat(xp, mask, state.number, 1, (mask.shape[-1],)), axis=0)

    def observe(self, xp: Any, state: TabularState, params: Transitions) -> Any:
        """Return the indices of the states, with masks if requested."""
        if not self.masks:
            return state.number
        return {"observation": state.number, "action_mask": self.action_mask(xp, state, params)}

    def info(self, xp: Any, state: TabularState, params: Transitions) -> dict[str, Any]:
        """Return probabilities and masks."""
        info = {"prob": state.probability}
        return info if self.masks else {**info, "action_mask": self.action_mask(xp, state, params)}


def flat(
    xp: Any, table: Any, index: Any, axes: int, entry: tuple[int, ...] = ()
) -> tuple[Any, Any]:
    """Return the entries of a table, or of the tables of all environments, and the indices of some in it.

    Args:
        xp: the namespace.
        table: an array (*shape, *entry), or one (n, *shape, *entry) for each environment.
        index: indices in a table whose first axes are flattened, (n,).
        axes: how many axes are in `shape`.
        entry: the shape of an entry.
    """
    own = len(table.shape) > axes + len(entry)
    entries = xp.reshape(table, (-1, *entry)) if own or axes > 1 else table
    if own:
        n = table.shape[0]
        index = index + entries.shape[0] // n * xp.arange(n, dtype=xp.int32)
    return entries, index


def _check(transitions: Any) -> None:
    """Check a table.

    Raises:
        arrayferry.OptionError: its shapes differ, its probabilities do not add up to 1, or a state is not in it.
    """
    if not isinstance(transitions, Transitions) or not all(
        isinstance(column, np.ndarray) for column in transitions
    ):
        raise af.OptionError(
            f"the table of a TabularEnv is {transitions!r:.80}",
            remedy="Pass Transitions of NumPy arrays, or Transitions.of(env.unwrapped.P, starts).",
        )
    probability, *others, mask, starts = transitions
    shape = probability.shape
    if (
        len(shape) != 3
        or 0 in shape
        or any(x.shape != shape for x in others)
        or mask.shape != shape[:2]
        or starts.ndim != 1
    ):
        shapes = ", ".join(f"{name} {x.shape}" for name, x in transitions._asdict().items())
        raise af.OptionError(
            f"the shapes of a table differ: {shapes}",
            remedy="Pass probability, next_state, reward and terminated of shape (states, actions, outcomes), action_mask of "
            "shape (states, actions), and starts of shape (m,).",
        )
    sums = probability.sum(axis=2, dtype=np.float64)
    wrong = np.argwhere((abs(sums - 1) > 1e-5) | (probability < 0).any(axis=2))
    if len(wrong):
        state, action = map(int, wrong[0])
        raise af.OptionError(
            f"the probabilities of action {action} in state {state} are {probability[state, action].tolist()}",
            remedy="Pass non-negative numbers that add up to 1.",
        )
    for name, numbers in (("next_state", transitions.next_state), ("starts", starts)):
        if numbers.size == 0 or numbers.min() < 0 or numbers.max() >= shape[0]:
            raise af.OptionError(
                f"{name} names a state that is not in the table, or none",
                remedy=f"Its states are 0 to {shape[0] - 1}.",
            )
