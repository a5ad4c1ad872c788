"""A `FunctionalEnv` with kernels around it, as a single environment and as a vector environment."""

from __future__ import annotations

import itertools
from typing import Any

import arrayferry as af
from arrayferry._utilities.compilers import uncompiled
from arrayferry.typing import AnyTree
from arrayferry_envs._engine.stepper import Stepper
from arrayferry_gym.extending import HasKernels, HeldKernel, namespace
from arrayferry_gym.wrappers.kernels import RescaleAction

from .single import FunctionalSingleEnv
from .vector import FunctionalVectorEnv


class EngineKernel(HeldKernel):
    """A kernel in the engine of served environments.

    Args:
        stepper: the stepper that stores the kernel's state.
        index: the index of the kernel, counted from the inside.
        to_agent: the conversion to the library of the agent.
    """

    updating = True

    def __init__(self, stepper: Stepper, index: int, to_agent: Any) -> None:
        self._stepper, self._index, self._to_agent = stepper, index, to_agent
        self.kernel = stepper.engine.chain.kernels[index]
        self.name, self.n = self.kernel.statistics, stepper.env.n

    @property
    def xp(self) -> Any:
        """The namespace of the kernel's arrays."""
        return namespace(self._stepper.backend)

    @property
    def state(self) -> Any:
        """The state of the kernel."""
        return self._stepper.kernels[self._index]

    @state.setter
    def state(self, state: AnyTree) -> None:
        states = [*self._stepper.kernels]
        states[self._index] = state
        self._stepper.kernels = tuple(states)

    @property
    def device(self) -> Any:
        """The device of the kernel's arrays, or None for the library's default."""
        array, backend = af.first_array(self.state)
        has_device = backend is not None and backend.name not in ("jax", "numpy")
        return array.device if has_device else None

    def shown(self, name: str, dtype: Any = float) -> Any:
        return self._to_agent(super().shown(name, dtype))


@uncompiled
class WrappedServed(HasKernels):
    """The common base of `Served` environments with kernels."""

    _runs_kernels = True
    _stepper: Stepper
    _to_agent: Any

    def _set_up(self, *args: Any, **options: Any) -> Any:
        convert_space = super()._set_up(*args, **options)  # type: ignore[misc]
        stepper, chain = self._stepper, self._stepper.engine.chain
        indices = range(len(chain.kernels))
        kernels = (EngineKernel(stepper, index, self._to_agent) for index in indices)
        self._show(kernels, vector=isinstance(self, FunctionalVectorEnv))
        portable = itertools.takewhile(lambda kernel: kernel.any_library, reversed(chain.kernels))
        rescalers = [kernel for kernel in portable if isinstance(kernel, RescaleAction)]
        # compiled kernels cannot raise an error for NaN, so `_fitted` refuses NaN in actions
        self._rounding = rescalers if self._stepper.env.traces else []
        return convert_space

    def _fitted(self, actions: AnyTree) -> Any:
        actions = super()._fitted(actions)  # type: ignore[misc]
        for kernel in self._rounding:
            kernel.refuse_nan(namespace(self._stepper.backend), actions)
        return actions


class WrappedSingleEnv(WrappedServed, FunctionalSingleEnv[Any, Any]):
    """A single environment that serves a `FunctionalEnv` with kernels. `wrap(...).make()` returns it.

    It has the attributes of the kernels, such as `obs_rms`. If several kernels have an attribute of the same name, the
    outermost kernel determines it. `state_dict` returns the statistics of all kernels.
    """


class WrappedVectorEnv(WrappedServed, FunctionalVectorEnv[Any, Any, Any]):
    """A vector environment that serves a `FunctionalEnv` with kernels. `wrap(...).make_vec()` returns it.

    It has the attributes of the kernels, such as `obs_rms`. If several kernels have an attribute of the same name, the
    outermost kernel determines it. `state_dict` returns the statistics of all kernels.
    """
