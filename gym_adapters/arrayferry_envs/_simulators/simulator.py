"""Simulators hold the states of a batch of environments between steps, and advance them in one library.

The one for any library makes fresh states for all and selects among them, so that it never waits for values on an
accelerator. The one for NumPy makes them only for environments that have ended. The one for JAX is compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from arrayferry.extending import map_arrays
from arrayferry_envs._contract.checked import CheckedEnv
from arrayferry_envs._contract.params import Params
from arrayferry_gym import Random, make_rng

from .engine import advance, as_step_result, restart, with_masks


class Simulator:
    """Holds the states of a batch of environments, and advances them, in any library of the Array API.

    Args:
        env: the environments.
        mode: when episodes that have ended are reset.
    """

    rng: Random
    """The random numbers, once they are seeded."""
    running: Any = None

    def __init__(self, env: CheckedEnv, mode: AutoresetMode) -> None:
        self.env = env
        self.mode = mode

    def seed(self, seed: Any) -> None:
        """Seed the random numbers."""
        self.rng = make_rng(self.env.backend, seed, self.env.device)

    def refuse_traced(self, what: str, given: Any = ()) -> None:
        """Refuse a call that would leave values of a traced function in the environment. Only JAX traces."""

    def reset(
        self, params: Params, mask: Any = None, given: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those in a mask. Return observations and infos.

        Args:
            params: the parameters.
            mask: which environments, bool (n,). None resets all.
            given: the states with which they start. None draws them.
        """
        env, before = self.env, None if mask is None else self.running
        env.known = False
        with self._device():
            if before is not None:
                state = self._renewed(before.state, mask, params, given)
            else:
                state = self._fresh(params) if given is None else given
            self.running, observation, info = restart(env, state, params.tree, before, mask)
            return self._unshared((observation, with_masks(env, info, observation)), state, params)  # type: ignore[no-any-return]

    def step(self, action: Any, params: Params) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step. Return what `VectorEnv.step` returns."""
        with self._device():
            result = self._advance(action, params)
            return self._unshared(result, self.running.state, params)  # type: ignore[no-any-return]

    def step_one(self, action: Any, params: Params) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in the only environment. Return its results, as arrays without an axis of environments."""
        *results, infos = self.step(action, params)
        return self.first((*results, unmasked(infos)))  # type: ignore[no-any-return]

    def _advance(self, action: Any, params: Params) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        env, tree, running = self.env, params.tree, self.running

        def renew(mask: Any, state: Any, observation: Any) -> Any:
            state = self._renewed(state, mask, params)
            return state, env.observe(state, tree)

        self.running, outcome = advance(env, self.mode, self.rng, running, action, tree, renew)
        return as_step_result(env, outcome)

    def _fresh(self, params: Params) -> Any:
        return self.env.reset(self.rng, self.env.n, params.tree, params.fixed)

    def _renewed(self, state: Any, mask: Any, params: Params, given: Any = None) -> Any:
        """Return states that are fresh where a mask is true, or those of `given` if there are some."""
        env = self.env
        fresh = self._fresh(params) if given is None else given
        return env.select(mask, fresh, state)

    def _unshared(self, tree: Any, state: Any, params: Params) -> Any:
        """Return results in memory of their own, unless arrays of the library never change. Gradients pass."""
        backend = self.env.backend
        return tree if backend.memory == "immutable" else map_arrays(backend.copy, tree)

    @property
    def state(self) -> Any:
        """The states, as arrays that later steps do not change."""
        return self.running.state

    @state.setter
    def state(self, state: Any) -> None:
        self.running = self.running._replace(state=state)

    def first(self, tree: Any) -> Any:
        """Return the first row of each array in a tree of results."""
        return map_arrays(lambda x: x[0, ...], tree)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, which has the values of the arrays without their gradients."""
        backend = self.env.backend

        def detached(x: Any) -> Any:
            return backend.from_numpy(np.array(backend.to_numpy(x)), backend.device_of(x))

        return {**self.__dict__, "running": map_arrays(detached, self.running)}

    def _device(self) -> Any:
        backend = self.env.backend
        return backend.devices.use(self.env.device or backend.devices.names()[0])


def unmasked(infos: dict[str, Any]) -> dict[str, Any]:
    """Return the infos of a batch without the masks of their keys."""
    return {key: value for key, value in infos.items() if key[:1] != "_"} if infos else infos
