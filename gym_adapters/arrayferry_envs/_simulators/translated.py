"""The simulator of environments in JAX whose resets and steps another library computes."""

from __future__ import annotations

from typing import Any

import arrayferry as af
from arrayferry.extending import map_arrays
from arrayferry_gym.extending import namespace
from arrayferry_translate import translate

from .engine import Engine
from .jax_simulator import JaxSimulator, functions

HELD = "_leaves", "_kernels", "_keys"
"""The attributes with arrays of the library. PyTorch cannot pickle uint32."""


class TranslatedSimulator(JaxSimulator):
    """JAX traces the functions of the engine once; then all is computed by another library, with JAX's random numbers.

    Args:
        engine: takes the steps, in JAX.
        backend: the library that computes.
        device: the device of its arrays, None for its own choice.
        differentiable: whether gradients flow through steps.
    """

    def __init__(
        self, engine: Engine, backend: af.Backend, device: Any, *, differentiable: bool
    ) -> None:
        super().__init__(engine)
        self._backend = backend
        self._differentiable = differentiable
        self._entered = af.converter(backend, device=device, copy=True)
        self._kernels = self._entered(self._kernels)

    @property
    def backend(self) -> af.Backend:
        return self._backend

    @property
    def xp(self) -> Any:
        return namespace(self._backend)

    def seed(self, seed: Any) -> None:
        super().seed(seed)
        self._keys = self._entered(self._keys)

    def _placed(self, values: Any) -> Any:
        return self._entered(values)

    def _made(self, *static: Any) -> tuple[Any, Any]:
        begin, step = functions(self.engine, None, *static)
        options = {"differentiable": self._differentiable}
        return translate(begin, self._backend, **options), translate(step, self._backend, **options)

    def _kept(self, state: Any) -> Any:
        return self._entered(state)

    def first(self, tree: Any) -> Any:
        return map_arrays(lambda x: x[0, ...], tree)

    def __getstate__(self) -> dict[str, Any]:
        held = {name: vars(self)[name] for name in HELD if name in vars(self)}
        return {**super().__getstate__(), **af.convert(held, "numpy", copy=True)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        held = {name: state[name] for name in HELD if name in state}
        self.__dict__.update(self._entered(held))
