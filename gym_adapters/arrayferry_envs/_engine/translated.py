"""The stepper of environments in JAX whose resets and steps are computed by another library."""

from __future__ import annotations

from typing import Any

import jax

import arrayferry as af
from arrayferry.typing import AnyTree, Device
from arrayferry_envs._contract.pickled import PickledArrays
from arrayferry_functions import autodiff_of
from arrayferry_translate import translate

from .engine import Engine
from .jax_stepper import JaxStepper, functions
from .stepper import Stepper


class TranslatedStepper(PickledArrays, JaxStepper):
    """Traces the engine's functions in JAX once, and runs them in another library. Random numbers are as in JAX.

    Args:
        engine: the engine, in JAX.
        backend: the library that computes.
        device: the device of the arrays, or None for the library's default.
        differentiable: whether gradients flow through steps.
    """

    _held = "_leaves", "_kernels", "_keys"

    def __init__(
        self, engine: Engine, backend: af.Backend, device: Device, *, differentiable: bool
    ) -> None:
        super().__init__(engine)
        self._differentiable = differentiable and autodiff_of(backend) is not None
        self._entered = af.converter(backend, device=device, copy=True)
        self._kernels = self._entered(self._kernels)

    @property
    def backend(self) -> af.Backend:
        return self._entered.target  # type: ignore[no-any-return]

    def seed(self, seed: Any) -> None:
        super().seed(seed)
        self._keys = self._entered(self._keys)

    def _placed(self, values: AnyTree) -> Any:
        return self._entered(values)

    def _made(self, *static: Any) -> tuple[Any, Any]:
        begin, step = functions(self.engine, None, *static)

        def begin_by_key_data(data: Any, leaves: Any, kernels: Any, *rest: Any) -> Any:
            return begin(leaves, kernels, jax.random.wrap_key_data(data, impl=static[-1]), *rest)

        options: Any = {"differentiable": self._differentiable}
        translated_begin, translated_step = (
            translate(function, self.backend, **options) for function in (begin_by_key_data, step)
        )

        def begin_by_key(leaves: Any, kernels: Any, key: Any, *rest: Any) -> Any:
            # the first argument determines the device, so it must be an array, as the key is
            return translated_begin(self._entered(jax.random.key_data(key)), leaves, kernels, *rest)

        return begin_by_key, translated_step

    def _kept(self, state: AnyTree) -> Any:
        return self._entered(state)

    first = Stepper.first
