"""The stepper in JAX, with compiled steps."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp

import arrayferry as af
from arrayferry._utilities.cache import Cache
from arrayferry.extending import map_arrays
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_envs._contract.checked import CheckedEnv
from arrayferry_envs._contract.errors import traced_env
from arrayferry_envs._contract.params import Params, StaticPart

from .autoreset import AutoReset, random_of, shaped, without_weak_type
from .engine import Engine, EnvState, as_step_result, with_masks
from .shardings import spread
from .stepper import Result, Stepper
from .tracing import has_tracers, stages, trace_here


class JaxStepper(Stepper):
    """A stepper that takes each step in one compiled call, which may reuse the memory of the states ("donation")."""

    PROGRAMS = 8
    """The number of combinations of static parameters for which compiled code is cached."""

    def __init__(self, engine: Engine, sharding: Any = None) -> None:
        with jax.ensure_compile_time_eval(), jax.transfer_guard("allow"):
            super().__init__(engine)
        self._sharding = sharding
        self._programs: Cache[Any, tuple[Any, Any]] = Cache(self.PROGRAMS)
        self._leaves: tuple[Any, ...] = ()
        self._current: Any = None
        self._generator: Any = None
        self._made_in = trace_here()
        self._donates = True

    def seed(self, seed: Any) -> None:
        """Seed the random numbers."""
        super().seed(seed)
        keys = [self.rng.key(), self.rng.key()]
        keys = jnp.stack([*keys, self.acting.key()] if self.engine.chain.acts else keys)
        if self._generator != jax.random.key_impl(keys):
            self._generator, self._current = jax.random.key_impl(keys), None
        self._keys = jax.random.key_data(keys)

    def _prepared(self, params: Params) -> tuple[Any, tuple[Any, Any]]:
        """Return the values of the parameters, and the functions that are compiled for the static parameters.

        Values that are numbers are joined into one array, since each argument of compiled code takes time.
        """
        if self._current is None or self._current[0] is not params:
            # the values are cached, so they must be arrays instead of tracers
            with jax.ensure_compile_time_eval(), jax.transfer_guard("allow"):
                values = _joined(params.values)
            self._donates = self._donates and not has_tracers(values)
            static_key = params.static_part, params.any_batched, params.pinned, self._generator
            if static_key not in self._programs:
                self._programs[static_key] = self._made(*static_key)
            self._current = params, (self._placed(values), self._programs[static_key])
        return self._current[1]  # type: ignore[no-any-return]

    def _placed(self, values: AnyTree) -> Any:
        """Return the values of parameters on the device of the environments."""
        device = self.env.device
        return values if device is None else af.convert(values, "jax", device=device)

    def _made(self, *static: Any) -> tuple[Any, Any]:
        """Return the functions (begin, step) for static parameters and a generator of random numbers."""
        begin, step = functions(self.engine, self._sharding, *static)
        return jax.jit(begin), jax.jit(step, donate_argnums=(0, 1))

    def reset(
        self, params: Params, mask: AnyArray = None, start: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        values, (begin, _) = self._prepared(params)
        starts = None if start is None else tuple(map(without_weak_type, self.env.leaves(start)))
        leaves = () if mask is None else self._leaves
        self._leaves, self._kernels, result = begin(
            leaves, self._kernels, self.rng.key(), mask, values, starts
        )
        return result  # type: ignore[no-any-return]

    def fresh(self, params: Params) -> Any:
        """Return the states of environments at the start of an episode."""
        rng = random_of(self.rng.key())
        return self.env.reset(rng, self.env.n, params.tree, params.pinned)

    def step(self, action: AnyTree, params: Params) -> tuple[Result, dict[str, Any]]:
        if not self._leaves:
            raise gym.error.ResetNeeded(
                "Call reset(): the last step failed, and the states are lost."
            )
        values, (_, compiled) = self._prepared(params)
        if has_tracers(action):
            self.refuse_traced("step()", action)
            self._donates = False  # gradients need the memory of the states before the step
        step_function = compiled
        if not self._donates:
            step_function, action = compiled.__wrapped__, jax.tree.map(jnp.asarray, action)
        leaves, self._leaves = self._leaves, ()  # if the call fails, donated arrays are invalid
        new_leaves, kernels, keys, result = step_function(
            leaves, self._keys, self._kernels, action, values
        )
        if isinstance(new_leaves[-2], jax.core.Tracer):
            self._leaves = leaves
            self.refuse_traced("step()", new_leaves)
        self._leaves, self._kernels, self._keys = new_leaves, kernels, keys
        return result  # type: ignore[no-any-return]

    def refuse_traced(self, what: str, values: Any = ()) -> None:
        """Refuse a call that would store traced values in an environment made outside the traced function."""
        if trace_here() != self._made_in and (has_tracers(values) or stages()):
            raise traced_env(self.env.name, what)

    @property
    def env_state(self) -> Any:
        """The environments, or None before the first reset."""
        return _unpacked(self.env, self._leaves, self._kernels) if self._leaves else None

    @env_state.setter
    def env_state(self, env_state: AnyTree) -> None:
        self._leaves = () if env_state is None else _packed(self.env, env_state)

    def _kept(self, state: AnyTree) -> Any:
        # the next step may reuse the memory of the states
        return map_arrays(self.env.backend.copy, state)

    first = staticmethod(jax.jit(lambda tree: jax.tree.map(lambda x: x[0], tree)))

    def __getstate__(self) -> dict[str, Any]:
        empty_cache = Cache[Any, Any](self.PROGRAMS)
        return {**self.__dict__, "_programs": empty_cache, "_current": None, "_made_in": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_made_in": trace_here()})


def _joined(values: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return the numbers among values as one array, and the other values with None in place of each number."""
    numbers = [jnp.asarray(x) for x in values if type(x) is float]
    other_values = tuple(None if type(x) is float else jnp.asarray(x) for x in values)
    return jnp.stack(numbers) if numbers else None, other_values


def _packed(env: CheckedEnv, env_state: EnvState) -> tuple[Any, ...]:
    return (
        *map(without_weak_type, env.leaves(env_state.state)),
        env_state.elapsed,
        env_state.ended,
    )


def _unpacked(env: CheckedEnv, leaves: tuple[Any, ...], kernels: Any) -> EnvState:
    *state_leaves, elapsed, ended = leaves
    return EnvState(env.join(state_leaves), elapsed, ended, kernels)


def functions(
    engine: Engine, sharding: Any, static_part: StaticPart, batched: bool, pinned: tuple[bool, ...], generator: Any
) -> tuple[Any, Any]:  # fmt: skip
    """Return the functions (begin, step) of a stepper before compilation, for keys of the generator `generator`."""
    env = engine.env

    def params_of(values: tuple[Any, tuple[Any, ...]]) -> Any:
        """Return the tree of the parameters from values that `_joined` returned."""
        numbers, others = values
        remaining = iter(() if numbers is None else numbers)
        return static_part.join(next(remaining) if x is None else x for x in others)

    def spread_out(env_state: EnvState, result: AnyTree) -> tuple[Any, Any, Any]:
        kernels = jax.tree.map(without_weak_type, env_state.wrappers)
        return spread((_packed(env, env_state), kernels, result), env.n, sharding)  # type: ignore[no-any-return]

    def begin(
        leaves: Any, kernels: Any, key: Any, mask: AnyArray, values: AnyTree, starts: Any
    ) -> Any:
        env_state_before = _unpacked(env, leaves, kernels) if leaves else None
        params = params_of(values)
        state = env.join(starts) if starts else env.reset(random_of(key), env.n, params, pinned)
        if env_state_before is None:
            kernels = shaped(engine, kernels, state, params)
        else:
            state = env.select(mask, state, env_state_before.state)
        env_state, observation, info = engine.reset(state, params, kernels, env_state_before, mask)
        return spread_out(env_state, (observation, with_masks(env, info)))

    def step(leaves: Any, keys: Any, kernels: Any, action: AnyTree, values: AnyTree) -> Any:
        params = params_of(values)
        step_key, reset_key, *kernel_keys = jax.random.wrap_key_data(keys, impl=generator)
        rng, autoreset = random_of(step_key), AutoReset(env, reset_key, params, pinned, batched)
        kernel_rng = random_of(kernel_keys[0]) if kernel_keys else None
        env_state, outcome, added = engine.step(
            rng, _unpacked(env, leaves, kernels), action, params, autoreset, kernel_rng
        )
        leaves, kernels, result = spread_out(env_state, (as_step_result(env, outcome), added))
        next_keys = [rng.key() if rng.used else step_key, autoreset.key]
        if kernel_rng is not None:
            next_keys.append(kernel_rng.key())
        return leaves, kernels, jax.random.key_data(jnp.stack(next_keys)), result

    return begin, step
