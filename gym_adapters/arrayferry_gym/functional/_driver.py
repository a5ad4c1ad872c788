"""`Driver`: what single and vector environments have in common."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry_gym._libraries import Libraries, Target
from arrayferry_gym._space_trees import branches, build, split
from arrayferry_gym._spaces import converted_space

from ._actions import Actions
from ._base import FunctionalEnv, check_functional
from ._bound import Bound, portable
from ._engine import Engine, make_engine
from ._errors import traced_env
from ._limits import limit_of
from ._params import Params, prepare

__all__ = ["Driver", "Served", "served_space"]


class Driver:
    """Advances a batch of environments by the engine of a library, and converts where the agent has another.

    Attributes:
        served: the library of observations and actions.
        engine: computes, in that library, or in NumPy for PyTorch on the CPU.
        params: the parameters, in the library of the engine.
    """

    served: af.Backend
    engine: Engine
    params: Params

    def __init__(
        self,
        env: FunctionalEnv,
        n: int,
        mode: AutoresetMode,
        *,
        max_episode_steps: Any,
        params: Any,
        render_mode: str | None,
        validate: bool,
        differentiable: bool,
    ) -> None:
        modes = env.metadata.get("render_modes") or []
        if render_mode is not None and render_mode not in modes:
            raise af.OptionError(
                f"render_mode={render_mode!r}: {type(env).__name__} has {', '.join(map(repr, modes)) or 'none'}"
            )
        for name, flag in {"validate": validate, "differentiable": differentiable}.items():
            if type(flag) is not bool:
                raise af.OptionError(
                    f"{name}={flag!r:.80} is not valid", remedy="Pass True or False."
                )
        self._env = env
        self._n = n
        self._mode = mode
        self._limit = limit_of(env, max_episode_steps)
        self._given = params
        self._validate = validate
        self._differentiable = differentiable
        self._out: Any = None
        self._host = af.converter("numpy")
        self._begun = False
        self._nested = branches(env.action_space) is not None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "served": portable(self.served)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.served = af.registry.backend(self.served)

    def serve(self, backend: af.Backend, device: Any) -> Libraries | None:
        """Set the library, and return what converts the samples of spaces; None for NumPy."""
        problem = backend.problem()
        if problem is not None:
            raise problem
        libraries = Libraries({}, "numpy", backend, None, device)
        where = _device(backend, device)
        by_numpy = backend.name == "torch" and where == "cpu" and not self._differentiable
        computing = af.registry.backend("numpy") if by_numpy else backend
        device = None if by_numpy else device
        bound = Bound(self._env, computing, self._n, self._limit, device)
        self.params = prepare(self._given, self._env.default_params, self._n, computing, device)
        self._device = device
        self._actions = Actions(
            type(self._env).__name__, self._env.action_space, self._n, computing, device,
            validate=self._validate,
        )  # fmt: skip
        self.engine = make_engine(bound, self._mode)
        self._out = af.converter(backend, device=where) if by_numpy else None
        self._seeded = False
        self.served = backend
        return None if backend.name == "numpy" else libraries

    def can_serve(self, backend: af.Backend) -> bool:
        """Tell whether another library can be served now."""
        return not self._begun and backend.memory != "lazy" and backend.problem() is None

    def reset(self, seed: Any, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those in the mask of the options."""
        engine = self.engine
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        given = options.pop("params", None)
        if options:
            raise af.OptionError(
                f"reset() has no option {next(iter(options))!r}",
                remedy='The options are "params" and "reset_mask".',
            )
        engine.refuse_traced("reset()", (seed, mask, given))
        if mask is not None:
            try:
                mask = self._mask(mask)
            except af.TracedValueError:
                raise traced_env(type(self._env).__name__, "reset()") from None
        seed = _seed(seed, self._n)
        if given is not None:
            self._set_params(given, mask)
        if seed is not None or not self._seeded:
            engine.seed(seed)
            self._seeded = True
        observation, info = engine.reset(self.params, mask)
        self._begun = True
        return (observation, info) if self._out is None else self._out((observation, info))

    def _set_params(self, given: Any, mask: Any) -> None:
        bound, before = self.engine.bound, self.params
        base = before.tree if isinstance(given, dict) else self._env.default_params
        new = prepare(
            given, self._env.default_params, self._n, bound.backend, self._device, base=base
        )
        if mask is not None and self.engine.running is not None:
            new = new.where(mask, before, bound.xp)
        self.params = new
        self._given = new.tree

    def _mask(self, mask: Any) -> Any:
        found = af.convert(np.asarray(mask) if isinstance(mask, (list, tuple)) else mask, "numpy")
        if getattr(found, "dtype", None) != np.bool_ or found.shape != (self._n,):
            raise af.OptionError(
                f"reset_mask is {mask!r:.80}",
                remedy=f"Pass an array of {self._n} truth values, of dtype bool.",
            )
        return af.convert(found, self.engine.bound.backend, device=self._device)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments."""
        if not self._begun:
            raise gym.error.ResetNeeded("Call reset() before the first step, and after close().")
        try:
            actions = self._actions(actions)
        except af.TracedValueError:
            raise traced_env(type(self._env).__name__, "step()") from None
        result = self.engine.step(actions, self.params)
        return result if self._out is None else self._out(result)

    def reset_one(self, seed: Any, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Do the same as `reset`, for a single environment."""
        observation, info = self.reset(seed, options)
        return self.engine.first(observation), self._one_info(info)

    def step_one(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Do the same as `step`, for a single environment."""
        action = self._batch_of(action) if self._nested else _row_of_one(action)
        observation, reward, terminated, truncated, infos = self.step(action)
        host = self._host
        reward = (
            self.engine.first(reward)
            if reward.ndim > 1 or self._differentiable
            else float(host(reward)[0])
        )
        return (
            self.engine.first(observation),
            reward,
            bool(host(terminated)[0]),
            bool(host(truncated)[0]),
            self._one_info(infos),
        )

    def _batch_of(self, action: Any) -> Any:
        """Return an action of a Dict or Tuple for a batch of one environment."""
        space = self._env.action_space
        parts = split(space, action, self._actions.wrong_structure)
        return build(space, map(_row_of_one, parts))

    def _one_info(self, infos: dict[str, Any]) -> dict[str, Any]:
        return (
            self.engine.first({key: value for key, value in infos.items() if key[:1] != "_"})
            if infos
            else infos
        )

    @property
    def state(self) -> Any:
        """The states in the library of the agent."""
        if self.engine.running is None:
            raise gym.error.ResetNeeded("Call reset() first: there is no state yet.")
        state = self.engine.state
        return af.convert(state, self.served, copy=True)

    @state.setter
    def state(self, state: Any) -> None:
        if self.engine.running is None:
            raise gym.error.ResetNeeded("Call reset() first, then set the state.")
        self.engine.refuse_traced("setting the state", state)
        bound = self.engine.bound
        state = af.convert(state, bound.backend, device=self._device, copy=True)
        self.engine.state = bound.check(state)

    def render(self, index: int) -> Any:
        """Return an image of one environment."""
        return self._env.render(af.convert(self.state, "numpy"), index)

    def close(self) -> None:
        """Forget the states."""
        self._begun = False
        if "engine" in self.__dict__:
            self.engine.running = None


class Served:
    """What a single and a vector environment have in common: both are served by a driver."""

    functional: FunctionalEnv
    metadata: dict[str, Any]
    render_mode: str | None
    _driver: Driver
    _spec: Any = None

    def _set_up(
        self,
        env: FunctionalEnv | type[FunctionalEnv],
        n: int,
        mode: AutoresetMode,
        xp: Target,
        device: Any,
        render_mode: str | None,
        **options: Any,
    ) -> None:
        """Make the driver. The options are those of `Driver`."""
        self.functional = check_functional(env)
        self.metadata = dict(self.functional.metadata)
        self.render_mode = render_mode
        self._driver = Driver(self.functional, n, mode, render_mode=render_mode, **options)
        self._serve(af.registry.backend(xp), device)

    def _set_spaces(self, libraries: Libraries | None) -> None:
        raise NotImplementedError

    def _serve(self, backend: af.Backend, device: Any) -> None:
        """Set the library of observations and actions."""
        libraries = self._driver.serve(backend, device)
        self.metadata = {**self.metadata, "jax": backend.name == "jax"}
        self._set_spaces(libraries)

    def use_library(self, backend: af.Backend, device: Any = None) -> bool:
        """Serve another library from now on, if no episode has begun. An adapter asks for this.

        Args:
            backend: the library.
            device: the device of arrays, None for the library's own choice.

        Returns:
            Whether it does. If not, nothing has changed.
        """
        if not self._driver.can_serve(backend):
            return False
        self._serve(backend, device)
        return True

    @property
    def xp(self) -> str:
        """The name of the library of observations and actions."""
        return self._driver.served.name

    @property
    def state(self) -> Any:
        """The states, as `reset` of the environment returned them. They can be set, to go on from others."""
        return self._driver.state

    @state.setter
    def state(self, state: Any) -> None:
        self._driver.state = state

    @property
    def params(self) -> Any:
        """The parameters. Change them by `reset(options={"params": ...})`."""
        return self._driver.params.tree

    @property
    def spec(self) -> Any:
        """How Gymnasium made it, None if it did not. Libraries in it are names, so that it can be saved."""
        return self._spec

    @spec.setter
    def spec(self, spec: Any) -> None:
        for name, value in getattr(spec, "kwargs", {}).items():
            if isinstance(value, ModuleType):
                spec.kwargs[name] = self.xp
        self._spec = spec


def _device(backend: af.Backend, device: Any) -> str:
    """Return the name of a device, "cpu" for the default of a library that is in host memory."""
    return "cpu" if device is None else backend.device_name(device)


def _seed(seed: Any, n: int) -> Any:
    """Return a seed: a whole number, or several.

    Raises:
        arrayferry.OptionError: it is no seed.
    """
    if seed is None or _is_seed(seed):
        return None if seed is None else int(seed)
    parts = list(seed) if isinstance(seed, (list, tuple)) or np.ndim(seed) == 1 else None
    if parts is None or not all(part is None or _is_seed(part) for part in parts):
        raise af.OptionError(
            f"seed={seed!r:.80} is not valid",
            remedy="Pass a whole number from 0 on, or one for each environment.",
        )
    if len(parts) != n:
        raise af.OptionError(
            f"seed has {len(parts)} numbers for {n} environments", remedy="Pass one number for all."
        )
    if all(part is None for part in parts):
        return None
    return [0 if part is None else int(part) + 1 for part in parts]


def _is_seed(seed: Any) -> bool:
    whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    return bool(whole and seed >= 0)


def served_space(space: Space[Any], libraries: Libraries | None, observed: bool) -> Any:
    """Return a space for the library of the agent."""
    return space if libraries is None else converted_space(space, libraries, observed=observed)


def _row_of_one(action: Any) -> Any:
    """Return an action with an axis of one environment."""
    if isinstance(action, (int, np.integer)):  # which a driver knows again, unlike a list
        return np.asarray([action])
    if hasattr(action, "dtype") and hasattr(action, "ndim"):
        return action[None, ...]
    return [action]
