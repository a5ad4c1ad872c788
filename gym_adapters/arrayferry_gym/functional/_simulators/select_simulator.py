"""The simulator in any other library of the Array API."""

from __future__ import annotations

from typing import Any

import numpy as np

from arrayferry.adapting import map_arrays
from arrayferry_gym.functional._contract.params import Params

from .engine import advance, as_step_result, restart, with_masks
from .simulator import Finish, Simulator


class SelectSimulator(Simulator):
    """In other libraries, fresh states are made for all environments, and selected by a mask."""

    def reset(
        self, params: Params, mask: Any = None, given: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        env = self.env
        before = None if mask is None else self.running
        with self._device():
            running, observation, info = restart(env, self.rng, before, mask, params.tree, given)
            result = self._apart((observation, with_masks(env, info, observation)))
            self.running = running
            return result  # type: ignore[no-any-return]

    def step(self, action: Any, params: Params, finish: Finish) -> Any:
        env, running, rng = self.env, self.running, self.rng
        assert running is not None
        if rng.before is not None:
            rng.retry()

        def renew(mask: Any, state: Any, outcome: Any) -> Any:
            fresh = env.reset(rng, env.n, params.tree)
            state = env.select(mask, fresh, state)
            return state, env.observe(state, params.tree)

        with self._device():
            after, outcome = advance(env, self.mode, rng, running, action, params.tree, renew)
            result = finish(self._apart(as_step_result(env, outcome)))
            self.running, rng.before = after, None
            return result

    def _apart(self, tree: Any) -> Any:
        """Return results in memory of their own, unless arrays of the library never change. Gradients pass."""
        backend = self.env.backend
        return tree if backend.memory == "immutable" else map_arrays(backend.copy, tree)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, which has the values of the arrays without their gradients."""
        backend = self.env.backend

        def detached(x: Any) -> Any:
            return backend.from_numpy(np.array(backend.to_numpy(x)), backend.device_of(x))

        return {**self.__dict__, "running": map_arrays(detached, self.running)}

    def _device(self) -> Any:
        backend = self.env.backend
        return backend.use_device(self.env.device or backend.devices()[0])
