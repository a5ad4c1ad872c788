"""The simulator in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from arrayferry.adapting import map_arrays
from arrayferry_gym._episodes import turn as turn_of
from arrayferry_gym.functional._contract.checked import CheckedEnv
from arrayferry_gym.functional._contract.params import Params

from .engine import Outcome, Running, as_step_result, with_masks
from .simulator import Finish, Simulator


class NumpySimulator(Simulator):
    """In NumPy, only environments that have ended are reset, and their rows replaced."""

    def __init__(self, env: CheckedEnv, mode: AutoresetMode) -> None:
        super().__init__(env, mode)
        self._known = False

    def reset(
        self, params: Params, mask: Any = None, given: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        env = self.env
        self._known = False
        if mask is None or self.running is None:
            state = env.reset(self.rng, env.n, params.tree) if given is None else given
            elapsed, ended = np.zeros(env.n, np.int32), np.zeros(env.n, bool)
        else:
            rows = np.flatnonzero(mask)
            state = self._renewed(self.running.state, rows, params, given)
            elapsed, ended = self.running.elapsed.copy(), self.running.ended.copy()
            elapsed[rows], ended[rows] = 0, False
        self.running = Running(state, elapsed, ended)
        leaves = [*env.leaves(state), *params.arrays]
        results = env.observe(state, params.tree), env.inform(state, params.tree)
        observation, info = _own(results, leaves, env.held())
        return observation, with_masks(env, info, observation)

    def _renewed(self, state: Any, rows: Any, params: Params, given: Any = None) -> Any:
        """Return copies of states in which some rows are reset, to those of `given` if there is one."""
        if not len(rows):
            return state
        env = self.env
        if given is None:
            fresh = env.reset(self.rng, len(rows), params.rows(rows), known=self._known)
            starts = env.leaves(fresh)
        else:
            starts = [leaf[rows] for leaf in env.leaves(given)]
        renewed = []
        for old, new in zip(env.leaves(state), starts, strict=True):
            leaf = old.copy()
            leaf[rows] = new
            renewed.append(leaf)
        return env.join(renewed)

    def step(self, action: Any, params: Params, finish: Finish) -> Any:
        env, running, rng = self.env, self.running, self.rng
        assert running is not None
        if rng.before is not None:
            rng.retry()
        tree = params.tree
        state, reward, terminated, own = env.step(
            rng, running.state, env.clip(action), tree, known=self._known
        )
        self._known = True
        elapsed = running.elapsed + 1
        truncated = np.zeros(env.n, bool) if env.limit is None else elapsed >= env.limit
        if own is not None:
            truncated |= own
        before = running.ended
        turn = turn_of(self.mode, before if 1 in before.tobytes() else None, terminated, truncated)
        final = final_info = None
        if self.mode is AutoresetMode.SAME_STEP:
            leaves = [*env.leaves(state), *params.arrays]
            final = env.observe(state, tree)
            final_info = env.inform(state, tree) if env.has_info else None
            held = env.held()
            final = _own(final, leaves, held)
            final_info = _own(final_info, leaves, held) if env.has_info else None
        if turn.begins is not None and 1 in turn.begins.tobytes():
            rows = turn.begins.nonzero()[0]
            state = self._renewed(state, rows, params)
            elapsed[rows] = 0
            if self.mode is AutoresetMode.NEXT_STEP:
                reward, terminated = reward.copy(), terminated.copy()
                reward[rows] = 0
                terminated[rows] = truncated[rows] = False
        ended = before if turn.ended is None else turn.ended
        leaves = [*env.leaves(state), *params.arrays]
        observation = env.observe(state, tree)
        info = env.inform(state, tree) if env.has_info else {}
        held = env.held()
        outcome = Outcome(
            _own(observation, leaves, held),
            _own(reward, leaves, held),
            _own(terminated, leaves, held),
            truncated,
            final,
            _own(info, leaves, held) if info else info,
            final_info,
        )
        result = finish(as_step_result(env, outcome))
        self.running, rng.before = Running(state, elapsed, ended), None
        return result

    def step_one(self, action: Any, params: Params, finish: Finish, *, clip: bool = True) -> Any:
        env, running, rng, tree = self.env, self.running, self.rng, params.tree
        assert running is not None
        if rng.before is not None:
            rng.retry()
        if clip:
            action = env.clip(action)
        state, reward, terminated, truncated = env.step_one(
            rng, running.state, action, tree, known=self._known
        )
        self._known = True
        elapsed = running.elapsed + 1
        if env.limit is not None and elapsed.item() >= env.limit:
            truncated = True
        leaves = [*env.leaves(state), *params.arrays]
        observation = env.observe(state, tree)
        own = _own(observation, leaves, env.held())
        info: dict[str, Any] = {}
        if env.has_info or env.masks_actions:
            info = env.inform(state, tree)
            info = self.one_info(_own(with_masks(env, info, observation), leaves, env.held()))
        first = own[0, ...] if type(own) is np.ndarray else self.first(own)
        result = finish(first, reward, terminated, truncated, info)
        self.running, rng.before = Running(state, elapsed, running.ended), None
        return result

    def first(self, tree: Any) -> Any:
        """Return the first row of each array in a tree."""
        if isinstance(tree, np.ndarray):
            return tree[0, ...]
        if type(tree) is dict:  # quicker than as any tree
            return {key: self.first(part) for key, part in tree.items()}
        return super().first(tree)


def _own(value: Any, leaves: list[Any], held: frozenset[int]) -> Any:
    """Return a value in memory of its own, by copies of arrays of the states, the parameters or the environment.

    Args:
        value: an array, or a tree of arrays.
        leaves: the arrays of the states and the parameters.
        held: the ids of the arrays of the environment.
    """
    if type(value) is np.ndarray or isinstance(value, np.ndarray):
        if value.base is not None or id(value) in held:
            return value.copy()
        for leaf in leaves:
            if leaf is value or leaf.base is value:
                return value.copy()
        return value
    if type(value) is dict:  # quicker than as any tree
        return {key: _own(part, leaves, held) for key, part in value.items()}
    if type(value) is tuple:
        return tuple([_own(part, leaves, held) for part in value])
    return map_arrays(lambda x: _own(x, leaves, held) if isinstance(x, np.ndarray) else x, value)
