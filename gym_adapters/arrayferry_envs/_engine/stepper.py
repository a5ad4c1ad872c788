"""Steppers store the states of a batch of environments between steps, and advance them in one library.

`Stepper`, for any library, draws fresh states for all environments and selects them by a mask, so that no step waits
for values on an accelerator. `NumpyStepper` draws fresh states only for the environments to reset. `JaxStepper` is
compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import arrayferry as af
from arrayferry._utilities.options import mixed_seed
from arrayferry.extending import map_arrays
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_envs._contract.params import Params
from arrayferry_gym import Random, make_rng

from .engine import Engine, as_step_result, with_masks

Result = tuple[Any, Any, Any, Any, dict[str, Any]]
"""The results of `VectorEnv.step`."""


class Stepper:
    """Stores the states of a batch of environments, and advances them, in any library with the Array API.

    Args:
        engine: the engine that takes the steps.

    Attributes:
        env: the environments of the engine.
        env_state: the state of the environments between two steps, or None before the first reset.
    """

    rng: Any = None
    """The random numbers, or None until they are seeded."""
    acting: Random
    """The random numbers of kernels that change actions."""
    env_state: Any = None

    def __init__(self, engine: Engine) -> None:
        self.engine, self.env = engine, engine.env
        with self._device():
            self._kernels: Any = engine.kernel_states()

    @property
    def backend(self) -> af.Backend:
        """The library of states and results."""
        return self.env.backend

    @property
    def kernels(self) -> Any:
        """The states of the kernels around the environments."""
        return self._kernels if self.env_state is None else self.env_state.wrappers

    @kernels.setter
    def kernels(self, states: AnyTree) -> None:
        self._kernels = states
        if self.env_state is not None:
            self.env_state = self.env_state._replace(wrappers=states)

    def forget(self) -> None:
        """Discard the states of the environments, but not those of the kernels."""
        self._kernels, self.env_state = self.kernels, None

    def seed(self, seed: Any) -> None:
        """Seed the random numbers."""
        backend, device = self.env.backend, self.env.device
        env_seed = mixed_seed("environments", seed) if isinstance(seed, list) else seed
        self.rng = make_rng(backend, env_seed, device)
        if self.engine.chain.acts:
            self.acting = self.engine.chain.rng(backend, seed, device)

    def refuse_traced(self, what: str, values: Any = ()) -> None:
        """Refuse a call that would store traced values in the environment. This applies to JAX only."""

    def reset(
        self, params: Params, mask: AnyArray = None, start: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or the environments in a mask. Return observations and infos.

        Args:
            params: the parameters.
            mask: which environments to reset, bool (n,). None resets all.
            start: the initial states. None draws them.
        """
        env, env_state_before = self.env, None if mask is None else self.env_state
        env.known = False
        with self._device():
            if env_state_before is not None:
                state = self._renewed(env_state_before.state, mask, params, start)
            else:
                state = self.fresh(params) if start is None else start
            self.env_state, observation, info = self.engine.reset(
                state, params.tree, self.kernels, env_state_before, mask
            )
            return self._unshared((observation, with_masks(env, info)), params)  # type: ignore[no-any-return]

    def step(self, action: AnyTree, params: Params) -> tuple[Result, dict[str, Any]]:
        """Take a step. Return the results of `VectorEnv.step`, and the infos that kernels added."""
        with self._device():
            result, added = self._advance(action, params)
            if added:
                return self._unshared((result, added), params)  # type: ignore[no-any-return]
            return self._unshared(result, params), added

    def step_one(self, action: AnyTree, params: Params) -> tuple[Result, dict[str, Any]]:
        """Take a step in a batch of one environment. Return its results, without the axis of environments."""
        (*results, infos), added = self.step(action, params)
        return self.first((*results, unmasked(infos))), added

    def _advance(self, action: AnyTree, params: Params) -> tuple[Result, dict[str, Any]]:
        env, params_tree, env_state = self.env, params.tree, self.env_state
        kernel_rng = self.acting if self.engine.chain.acts else None

        def renew(mask: AnyArray, state: AnyTree, observation: AnyTree) -> Any:
            state = self._renewed(state, mask, params)
            return state, env.observe(state, params_tree)

        self.env_state, outcome, added = self.engine.step(
            self.rng, env_state, action, params_tree, renew, kernel_rng
        )
        return as_step_result(env, outcome), added

    def fresh(self, params: Params) -> Any:
        """Return the states of environments at the start of an episode."""
        return self.env.reset(self.rng, self.env.n, params.tree, params.pinned)

    def example(self, params: Params) -> Any:
        """Return an example of the states: the current states, or fresh ones before the first reset."""
        if self.env_state is not None:
            return self.env_state.state
        with self._device():
            return self.fresh(params)

    def _renewed(self, state: AnyTree, mask: AnyArray, params: Params, initial: Any = None) -> Any:
        """Return states, with those of `initial` where the mask is true. If `initial` is None, draw fresh states."""
        env = self.env
        fresh_state = self.fresh(params) if initial is None else initial
        return env.select(mask, fresh_state, state)

    def _unshared(self, tree: AnyTree, params: Params) -> Any:
        """Return copies of results, unless arrays are immutable. Gradients flow through the copies."""
        backend = self.env.backend
        return tree if backend.memory == "immutable" else map_arrays(backend.copy, tree)

    @property
    def state(self) -> Any:
        """The states, in arrays that later steps do not change."""
        return self._kept(self.env_state.state)

    @state.setter
    def state(self, state: AnyTree) -> None:
        self.env_state = self.env_state._replace(state=self._kept(state))

    def _kept(self, state: AnyTree) -> Any:
        """Return the states in memory that later steps do not change or reuse."""
        return state

    def first(self, tree: AnyTree) -> Any:
        """Return the first row of each array in a tree of results."""
        return map_arrays(lambda x: x[0, ...], tree)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a copy or a pickle. Arrays are copied, without gradients."""
        backend = self.env.backend

        def detached(x: AnyArray) -> Any:
            return backend.from_numpy(np.array(backend.to_numpy(x)), backend.device_of(x))

        arrays = {"env_state": self.env_state, "_kernels": self._kernels}
        return {**self.__dict__, **map_arrays(detached, arrays)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "engine" not in state:
            raise af.ArrayFerryError(
                "this environment was pickled by another version of arrayferry, whose states differ",
                remedy="Make it again, and pickle it with this version. To transfer statistics as numbers, use state_dict().",
            )
        self.__dict__.update(state)

    def _device(self) -> Any:
        backend = self.env.backend
        return backend.devices.use(self.env.device or backend.devices.names()[0])


def unmasked(infos: dict[str, Any]) -> dict[str, Any]:
    """Return the infos of a batch without the masks, whose keys begin with an underscore."""
    return {key: value for key, value in infos.items() if key[:1] != "_"} if infos else infos
