"""Simulators hold the states of a batch of environments between steps, and advance them in one library.

The one for NumPy resets only the rows of environments that have ended. The one for other libraries makes fresh states
for all and selects among them, so that it never waits for values on an accelerator. The one for JAX is compiled.

A step that fails or is interrupted changes nothing: changes are stored last, in one statement, when the results are in
the form for the agent. Only in JAX, where the new states take the memory of the old ones, are they stored as soon as
the compiled call has returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry.adapting import map_arrays
from arrayferry_gym.functional._contract.checked import CheckedEnv
from arrayferry_gym.functional._contract.params import Params

from .retryable import RetryableRandom

Finish = Callable[..., Any]
"""Converts the results of a step to the form for the agent."""


class Simulator:
    """Holds the states of a batch of environments, and advances them.

    Args:
        env: the environments.
        mode: when episodes that have ended are reset.
    """

    rng: RetryableRandom
    """The random numbers, once they are seeded."""
    running: Any
    """The environments as `Running`, None before the first reset."""

    def __init__(self, env: CheckedEnv, mode: AutoresetMode) -> None:
        self.env = env
        self.mode = mode
        self.running = None
        self._to_numpy = af.converter("numpy")

    def seed(self, seed: Any) -> None:
        """Seed the random numbers."""
        self.rng = RetryableRandom(self.env.backend.random(seed, self.env.device))

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
        raise NotImplementedError

    def step(self, action: Any, params: Params, finish: Finish) -> Any:
        """Take a step. Return the result of `finish`, called with the tuple that `VectorEnv.step` returns."""
        raise NotImplementedError

    def step_one(self, action: Any, params: Params, finish: Finish, *, clip: bool = True) -> Any:
        """Take a step in the only environment.

        Args:
            action: its action, with an axis of environments.
            params: the parameters.
            finish: makes the result from the five values that `Env.step` returns. The reward may be an array.
            clip: whether the action may be outside the space.
        """
        first, to_numpy = self.first, self._to_numpy

        def finish_one(results: tuple[Any, Any, Any, Any, dict[str, Any]]) -> Any:
            observation, reward, terminated, truncated, infos = results
            return finish(
                first(observation),
                first(reward),
                bool(to_numpy(terminated)[0]),
                bool(to_numpy(truncated)[0]),
                self.one_info(infos),
            )

        return self.step(action, params, finish_one)

    def one_info(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Return the infos of the only environment."""
        if not infos:
            return infos
        info = {key: value for key, value in infos.items() if key[:1] != "_"}
        return self.first(info)  # type: ignore[no-any-return]

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
        """Return the first row of each array in a tree."""
        return map_arrays(lambda x: x[0, ...], tree)
