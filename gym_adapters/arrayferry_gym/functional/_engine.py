"""Engines: how the states of a batch of environments are advanced in a library.

There is one for NumPy, which resets by scatter and in which shapes may depend on values; one for any other library, which
resets by select, so that nothing waits for the values of an accelerator; and one for JAX, which is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

import arrayferry as af

from ._bound import Bound, select
from ._params import Params

__all__ = [
    "Engine",
    "Outcome",
    "Running",
    "advance",
    "make_engine",
    "masked",
    "restart",
    "served",
]


class Running(NamedTuple):
    """A batch of environments between two steps.

    Attributes:
        state: the states, a tree of arrays (n, ...).
        elapsed: how many steps each episode has taken, int32 of shape (n,).
        ended: which episodes have ended and were not reset yet, bool of shape (n,).
    """

    state: Any
    elapsed: Any
    ended: Any


class Outcome(NamedTuple):
    """What a step returns, for `n` environments.

    Attributes:
        observation: the observations, a tree of arrays (n, *shape).
        reward: the rewards, (n,).
        terminated: which episodes have terminated, bool (n,).
        truncated: which episodes have reached the limit of steps, bool (n,).
        final_observation: in SAME_STEP mode the observations before the reset, for all environments; else None.
        info: more about the states.
        final_info: the same, before the reset; else None.
    """

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    final_observation: Any
    info: dict[str, Any]
    final_info: dict[str, Any] | None


class Engine:
    """Advances a batch of environments. See the subclasses.

    Args:
        bound: the environment.
        mode: when episodes that have ended are reset.
    """

    rng: Any
    """The random numbers."""
    running: Any
    """The environments as `Running`, None before the first reset."""

    def __init__(self, bound: Bound, mode: AutoresetMode) -> None:
        self.bound = bound
        self.mode = mode
        self.running = None

    def seed(self, seed: Any) -> None:
        """Start the random numbers anew."""
        self.rng = self.bound.backend.random(seed, self.bound.device)

    def refuse_traced(self, what: str, given: Any = ()) -> None:
        """Refuse what would leave values in the environment that end with a function, as JAX traces it."""

    def reset(self, params: Params, mask: Any = None) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those in a mask. Return observations and infos."""
        raise NotImplementedError

    def step(self, action: Any, params: Params) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step. Return what `VectorEnv.step` does."""
        raise NotImplementedError

    @property
    def state(self) -> Any:
        """The states, as arrays that later steps do not change."""
        assert self.running is not None
        return self.running.state

    @state.setter
    def state(self, state: Any) -> None:
        assert self.running is not None
        self.running = self.running._replace(state=state)

    def first(self, tree: Any) -> Any:
        """Return the first environment's part of each array in a tree."""
        return tree[0, ...] if isinstance(tree, np.ndarray) else _map(lambda x: x[0, ...], tree)


def _map(function: Callable[[Any], Any], tree: Any) -> Any:
    leaves, layout = af.flatten(tree)
    return layout.unflatten(map(function, leaves))


class NumpyEngine(Engine):
    """NumPy: only environments that have ended are reset, and their rows replaced."""

    def __init__(self, bound: Bound, mode: AutoresetMode) -> None:
        super().__init__(bound, mode)
        self._known = False
        self._any_ended = False

    def reset(self, params: Params, mask: Any = None) -> tuple[Any, dict[str, Any]]:
        bound = self.bound
        self._known = False
        if mask is None or self.running is None:
            state = bound.reset(self.rng, bound.n, params.tree)
            elapsed, ended = np.zeros(bound.n, np.int32), np.zeros(bound.n, bool)
        else:
            rows = np.flatnonzero(mask)
            state = self._renewed(self.running.state, rows, params)
            elapsed, ended = self.running.elapsed.copy(), self.running.ended.copy()
            elapsed[rows], ended[rows] = 0, False
        self.running = Running(state, elapsed, ended)
        self._any_ended = bool(ended.any())
        leaves = [*bound.leaves(state), *params.arrays]
        found = bound.observe(state, params.tree), bound.inform(state, params.tree)
        observation, info = _own(found, leaves, bound.held())
        return observation, masked(bound, info)

    def _renewed(self, state: Any, rows: Any, params: Params) -> Any:
        """Return states in which some rows start anew. The given arrays are not changed."""
        if not len(rows):
            return state
        bound = self.bound
        fresh = bound.reset(self.rng, len(rows), params.rows(rows), checked=self._known)
        renewed = []
        for old, new in zip(bound.leaves(state), bound.leaves(fresh), strict=True):
            leaf = old.copy()
            leaf[rows] = new
            renewed.append(leaf)
        return bound.join(renewed)

    def step(self, action: Any, params: Params) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        bound, running = self.bound, self.running
        assert running is not None
        tree = params.tree
        state, reward, terminated = bound.step(
            self.rng, running.state, bound.clip(action), tree, checked=self._known
        )
        self._known = True
        elapsed = running.elapsed + 1
        truncated = np.zeros(bound.n, bool) if bound.limit is None else elapsed >= bound.limit
        final = final_info = None
        ended = running.ended
        if self.mode is AutoresetMode.NEXT_STEP:
            if self._any_ended:
                rows = np.flatnonzero(ended)
                state = self._renewed(state, rows, params)
                reward, terminated = reward.copy(), terminated.copy()
                reward[rows] = 0
                terminated[rows] = truncated[rows] = False
                elapsed[rows] = 0
            ended = terminated | truncated
        elif self.mode is AutoresetMode.SAME_STEP:
            leaves = [*bound.leaves(state), *params.arrays]
            final = bound.observe(state, tree)
            final_info = bound.inform(state, tree) if bound.has_info else None
            held = bound.held()
            final = _own(final, leaves, held)
            final_info = _own(final_info, leaves, held) if bound.has_info else None
            done = terminated | truncated
            if 1 in done.tobytes():
                rows = np.flatnonzero(done)
                state = self._renewed(state, rows, params)
                elapsed[rows] = 0
        else:
            ended = ended | terminated | truncated
        self._any_ended = 1 in ended.tobytes()
        self.running = Running(state, elapsed, ended)
        leaves = [*bound.leaves(state), *params.arrays]
        observation = bound.observe(state, tree)
        info = bound.inform(state, tree) if bound.has_info else {}
        held = bound.held()
        outcome = Outcome(
            _own(observation, leaves, held),
            _own(reward, leaves, held),
            _own(terminated, leaves, held),
            truncated,
            final,
            _own(info, leaves, held) if info else info,
            final_info,
        )
        return served(bound, outcome)


def _own(value: Any, leaves: list[Any], held: frozenset[int]) -> Any:
    """Return a value whose arrays share no memory with others: those of states and parameters, and the environment's own.

    Args:
        value: an array, or a tree of arrays.
        leaves: the arrays of the states and the parameters.
        held: the ids of those of the environment.
    """
    if type(value) is np.ndarray or isinstance(value, np.ndarray):
        if value.base is not None or id(value) in held:
            return value.copy()
        for leaf in leaves:
            if leaf is value or leaf.base is value:
                return value.copy()
        return value
    return _map(lambda x: _own(x, leaves, held) if isinstance(x, np.ndarray) else x, value)


class SelectEngine(Engine):
    """Any library of the Array API: fresh states are made for all environments, and selected by the mask."""

    def reset(self, params: Params, mask: Any = None) -> tuple[Any, dict[str, Any]]:
        bound = self.bound
        before = None if mask is None else self.running
        with self._device():
            self.running, observation, info = restart(bound, self.rng, before, mask, params.tree)
            return self._apart((observation, masked(bound, info)))  # type: ignore[no-any-return]

    def step(self, action: Any, params: Params) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        bound, running = self.bound, self.running
        assert running is not None

        def renew(mask: Any, state: Any, outcome: Any) -> Any:
            fresh = bound.reset(self.rng, bound.n, params.tree)
            leaves = zip(bound.leaves(fresh), bound.leaves(state), strict=True)
            state = bound.join(select(bound.xp, mask, new, old) for new, old in leaves)
            return state, bound.observe(state, params.tree)

        with self._device():
            self.running, outcome = advance(
                bound, self.mode, self.rng, running, action, params.tree, renew
            )
            return self._apart(served(bound, outcome))  # type: ignore[no-any-return]

    def _apart(self, tree: Any) -> Any:
        """Return results in memory of their own, if somebody could write to it. Gradients pass."""
        backend = self.bound.backend
        return tree if backend.memory == "immutable" else _map(backend.copy, tree)

    def __getstate__(self) -> dict[str, Any]:
        """Copies go on from the values of the states, without their gradients."""
        backend = self.bound.backend

        def detached(x: Any) -> Any:
            return backend.from_numpy(np.array(backend.to_numpy(x)), backend.device_of(x))

        running = (
            None if self.running is None else Running(*(_map(detached, x) for x in self.running))
        )
        return {**self.__dict__, "running": running}

    def _device(self) -> Any:
        backend = self.bound.backend
        return backend.use_device(self.bound.device or backend.devices()[0])


Renew = Callable[[Any, Any, Any], tuple[Any, Any]]
"""Takes a mask, states and their observations; returns states that start anew in the mask, and theirs."""


def restart(
    bound: Bound, rng: Any, running: Running | None, mask: Any, params: Any
) -> tuple[Running, Any, dict[str, Any]]:
    """Start all environments anew, or with `running` those in a mask: a pure function of arrays of any library."""
    xp, n = bound.xp, bound.n
    state = bound.reset(rng, n, params)
    elapsed = xp.zeros((n,), dtype=xp.int32)
    ended = xp.zeros((n,), dtype=xp.bool)
    if running is not None:
        leaves = zip(bound.leaves(state), bound.leaves(running.state), strict=True)
        state = bound.join(select(xp, mask, new, old) for new, old in leaves)
        elapsed = xp.where(mask, elapsed, running.elapsed)
        ended = running.ended & ~mask
    observation = bound.observe(state, params)
    return Running(state, elapsed, ended), observation, bound.inform(state, params)


def advance(
    bound: Bound,
    mode: AutoresetMode,
    rng: Any,
    running: Running,
    action: Any,
    params: Any,
    renew: Renew,
) -> tuple[Running, Outcome]:
    """Take a step in all environments: a pure function of arrays of any library, with shapes that are fixed.

    Args:
        bound: the environment.
        mode: when episodes that have ended are reset.
        rng: random numbers for the step.
        running: the environments.
        action: their actions.
        params: the parameters.
        renew: resets some of them.
    """
    xp, n = bound.xp, bound.n
    state, reward, terminated = bound.step(rng, running.state, bound.clip(action), params)
    elapsed = running.elapsed + 1
    truncated = xp.zeros((n,), dtype=xp.bool) if bound.limit is None else elapsed >= bound.limit
    observation = bound.observe(state, params)
    final = final_info = None
    if mode is AutoresetMode.NEXT_STEP:
        fresh = running.ended
        state, observation = renew(fresh, state, observation)
        reward = select(xp, fresh, xp.zeros_like(reward), reward)
        elapsed = xp.where(fresh, xp.zeros_like(elapsed), elapsed)
        terminated, truncated = terminated & ~fresh, truncated & ~fresh
        ended = terminated | truncated
    elif mode is AutoresetMode.SAME_STEP:
        done = terminated | truncated
        final, final_info = observation, bound.inform(state, params)
        state, observation = renew(done, state, observation)
        elapsed = xp.where(done, xp.zeros_like(elapsed), elapsed)
        ended = running.ended
    else:
        ended = running.ended | terminated | truncated
    info = bound.inform(state, params)
    outcome = Outcome(observation, reward, terminated, truncated, final, info, final_info)
    return Running(state, elapsed, ended), outcome


def masked(bound: Bound, info: dict[str, Any]) -> dict[str, Any]:
    """Return infos as vector environments have them, with a mask for each key."""
    found: dict[str, Any] = {}
    for key, value in info.items():
        found[key] = value
        found[f"_{key}"] = bound.xp.ones((bound.n,), dtype=bound.xp.bool)
    return found


def served(bound: Bound, outcome: Outcome) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """Return the outcome of a step as `VectorEnv.step` does."""
    infos = masked(bound, outcome.info) if outcome.info else {}
    if outcome.final_observation is not None:
        infos["final_obs"] = outcome.final_observation
        infos["_final_obs"] = outcome.terminated | outcome.truncated
        if outcome.final_info:
            infos["final_info"] = masked(bound, outcome.final_info)
            infos["_final_info"] = outcome.terminated | outcome.truncated
    return outcome.observation, outcome.reward, outcome.terminated, outcome.truncated, infos


def make_engine(bound: Bound, mode: AutoresetMode) -> Engine:
    """Make the engine for the library of an environment."""
    name = bound.backend.name
    if name == "jax":
        from ._jax import JaxEngine

        return JaxEngine(bound, mode)
    if bound.backend.memory == "lazy":
        raise af.OptionError(
            f"xp={name!r}: its arrays are computed on demand, and the states would never be computed",
            remedy='Use another library, such as "numpy".',
        )
    return (NumpyEngine if name == "numpy" else SelectEngine)(bound, mode)
