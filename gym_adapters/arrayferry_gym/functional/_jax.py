"""Environments in JAX: compiled for the drivers, and as pure functions for `jit`, `vmap`, `scan` and `grad`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry.adapting import never_raises

from ._actions import Actions
from ._base import FunctionalEnv, check_functional
from ._bound import Bound, select
from ._engine import Engine, Outcome, Running, advance, masked, restart, served
from ._errors import traced_env
from ._limits import UNSET, count_of, limit_of, mode_of
from ._params import Frame, Params, prepare
from ._tracing import has_tracers, stages, trace_here

__all__ = ["Functions", "JaxEngine", "Packed"]

FEWEST = 64
"""From how many environments on it is worth to draw fewer numbers than for all."""


def _random(key: Any) -> Any:
    return af.registry.backend("jax").random(key)


def _strong(x: Any) -> Any:
    """Return an array whose type does not depend on what it is computed with, so that nothing compiles twice."""
    return jax.lax.convert_element_type(x, x.dtype) if getattr(x, "weak_type", False) else x


class _Renewal:
    """Resets the environments in a mask.

    Random numbers are most of the work of a reset, so none are drawn if no environment is in the mask, and
    those for an eighth of the environments if that is enough. Under `vmap`, all are drawn.

    Args:
        bound: the environment.
        key: a key.
        params: the parameters.
        batched: whether some of them differ from environment to environment.

    Attributes:
        key: another key after each use, the same if no number was drawn.
    """

    def __init__(self, bound: Bound, key: Any, params: Any, batched: bool) -> None:
        self._bound = bound
        self._params = params
        self._few = bound.n // 8 if bound.n >= FEWEST and not batched else 0
        self.key = key

    def __call__(self, mask: Any, state: Any, observation: Any) -> tuple[Any, Any]:
        bound = self._bound
        before = tuple(map(_strong, bound.leaves(state)))

        def keep(key: Any) -> Any:
            return before, observation, key

        def renew_few(key: Any) -> Any:
            rows = jnp.clip(jnp.cumsum(mask) - 1, 0, self._few - 1)  # the next fresh state for each
            return self._put(key, self._few, rows, mask, before)

        def renew_any(key: Any) -> Any:
            return self._put(key, bound.n, None, mask, before)

        count = mask.sum()
        if self._few:
            chosen = (count > 0).astype(int) + (count > self._few).astype(int)
            result = jax.lax.switch(chosen, [keep, renew_few, renew_any], self.key)
        else:
            result = jax.lax.cond(count > 0, renew_any, keep, self.key)
        leaves, observation, self.key = result
        return bound.join(leaves), observation

    def _put(self, key: Any, count: int, rows: Any, mask: Any, before: Any) -> Any:
        """Make fresh states, and put them in place of those in the mask."""
        bound = self._bound
        rng = _random(key)
        fresh = bound.leaves(bound.reset(rng, count, self._params))
        leaves = tuple(
            _strong(select(jnp, mask, new if rows is None else new[rows], old))
            for new, old in zip(fresh, before, strict=True)
        )
        return leaves, bound.observe(bound.join(leaves), self._params), rng.key()


class JaxEngine(Engine):
    """JAX: a step is one compiled call, to which the states are donated. It compiles once."""

    PROGRAMS = 8
    """For how many combinations of static parameters the compiled code is kept."""

    def __init__(self, bound: Bound, mode: AutoresetMode) -> None:
        super().__init__(bound, mode)
        self._programs: dict[Any, tuple[Any, Any, Any]] = {}
        self._leaves: tuple[Any, ...] = ()
        self._current: Any = None
        self._made_in = trace_here()
        self._donates = True

    def seed(self, seed: Any) -> None:
        """Start the random numbers anew."""
        super().seed(seed)
        self._keys = tuple(jax.random.key_data(self.rng.key()) for _ in range(2))

    def _prepared(self, params: Params) -> tuple[Any, tuple[Any, Any, Any]]:
        """Return the parameters that are values, as arrays, and the compiled functions for the static ones.

        Arrays enter compiled code faster than numbers.
        """
        if self._current is None or self._current[0] is not params:
            with jax.ensure_compile_time_eval():  # they are kept
                values = tuple(map(jnp.asarray, params.values))
            self._donates = self._donates and not has_tracers(values)
            if self.bound.device is not None:
                values = af.convert(values, "jax", device=self.bound.device)
            static = params.frame, params.any_batched
            if static not in self._programs:
                while len(self._programs) >= self.PROGRAMS:
                    self._programs.pop(next(iter(self._programs)))
                self._programs[static] = _compiled(self.bound, self.mode, *static)
            self._current = params, (values, self._programs[static])
        return self._current[1]  # type: ignore[no-any-return]

    def reset(self, params: Params, mask: Any = None) -> tuple[Any, dict[str, Any]]:
        values, (start, again, _) = self._prepared(params)
        if mask is None or not self._leaves:
            self._leaves, observation, info = start(self.rng.key(), values)
        else:
            self._leaves, observation, info = again(self._leaves, self.rng.key(), mask, values)
        return observation, info

    def step(self, action: Any, params: Params) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if not self._leaves:
            raise gym.error.ResetNeeded(
                "Call reset(): the step before failed, and the states are lost."
            )
        values, (_, _, program) = self._prepared(params)
        if has_tracers(action):
            self.refuse_traced("step()", action)
            self._donates = False  # gradients need the states
        run = program if self._donates else program.__wrapped__
        try:
            leaves, keys, result = run(self._leaves, self._keys, action, values)
        except BaseException:
            if any(leaf.is_deleted() for leaf in self._leaves):  # they were donated to what failed
                self._leaves = ()
            raise
        if isinstance(leaves[-2], jax.core.Tracer):
            self.refuse_traced("step()", leaves)
        self._leaves, self._keys = leaves, keys
        return result  # type: ignore[no-any-return]

    def refuse_traced(self, what: str, given: Any = ()) -> None:
        """Refuse what would leave traced values in the environment, unless it was made in that very function."""
        if trace_here() != self._made_in and (has_tracers(given) or stages()):
            raise traced_env(self.bound.name, what)

    @property
    def running(self) -> Any:
        """The environments, None before the first reset."""
        return _unpacked(self.bound, self._leaves) if self._leaves else None

    @running.setter
    def running(self, running: Any) -> None:
        self._leaves = () if running is None else _packed(self.bound, running)

    @property
    def state(self) -> Any:
        """A copy of the states, since the next step takes their memory."""
        leaves, layout = af.flatten(self.running.state)
        return layout.unflatten([jnp.array(leaf, copy=True) for leaf in leaves])

    @state.setter
    def state(self, state: Any) -> None:
        leaves, layout = af.flatten(state)
        state = layout.unflatten([jnp.array(leaf, copy=True) for leaf in leaves])
        self.running = self.running._replace(state=state)

    def first(self, tree: Any) -> Any:
        """Return the first environment's part of each array in a tree."""
        return _first(tree)

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_programs": {}, "_current": None}
        del state["_made_in"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._made_in = trace_here()


_first: Any = jax.jit(lambda tree: jax.tree.map(lambda x: x[0], tree))


def _packed(bound: Bound, running: Running) -> tuple[Any, ...]:
    return (*map(_strong, bound.leaves(running.state)), running.elapsed, running.ended)


def _unpacked(bound: Bound, leaves: tuple[Any, ...]) -> Running:
    return Running(bound.join(leaves[:-2]), *leaves[-2:])


def _compiled(
    bound: Bound, mode: AutoresetMode, frame: Frame, batched: bool
) -> tuple[Any, Any, Any]:
    """Compile the functions of an engine."""

    def start(key: Any, values: Any) -> Any:
        params = frame.join(values)
        running, observation, info = restart(bound, _random(key), None, None, params)
        return _packed(bound, running), observation, masked(bound, info)

    def again(leaves: Any, key: Any, mask: Any, values: Any) -> Any:
        before = _unpacked(bound, leaves)
        running, observation, info = restart(bound, _random(key), before, mask, frame.join(values))
        return _packed(bound, running), observation, masked(bound, info)

    def step(leaves: Any, keys: Any, action: Any, values: Any) -> Any:
        params = frame.join(values)
        own, fresh = map(jax.random.wrap_key_data, keys)
        rng, renewal = _random(own), _Renewal(bound, fresh, params, batched)
        running, outcome = advance(
            bound, mode, rng, _unpacked(bound, leaves), action, params, renewal
        )
        after = rng.key() if rng.used else own, renewal.key
        return (
            _packed(bound, running),
            jax.tree.map(jax.random.key_data, after),
            served(bound, outcome),
        )

    return (
        jax.jit(start),
        jax.jit(again, donate_argnums=0),
        jax.jit(step, donate_argnums=(0, 1)),
    )


def checked_key(key: Any) -> Any:
    """Return a key of JAX.

    Raises:
        arrayferry.OptionError: it is none.
    """
    dtype = getattr(key, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key) and key.shape == ():
        return key
    if dtype == jnp.uint32 and key.ndim == 1:
        return jax.random.wrap_key_data(key)
    raise af.OptionError(
        f"key={key!r:.80} is no key of JAX", remedy="Pass jax.random.key(0), for instance."
    )


class Packed:
    """States in a container that JAX does not know, such as a plain dataclass: a pytree of their arrays.

    Attributes:
        leaves: the arrays.
        layout: what they are arranged in.
    """

    def __init__(self, leaves: Sequence[Any], layout: af.Layout) -> None:
        self.leaves = tuple(leaves)
        self.layout = layout

    @property
    def tree(self) -> Any:
        """The states as the environment returned them."""
        return self.layout.unflatten(self.leaves)

    @never_raises
    def __repr__(self) -> str:
        return f"Packed({self.tree!r})"


jax.tree_util.register_pytree_node(
    Packed,
    lambda packed: (packed.leaves, packed.layout),
    lambda layout, leaves: Packed(leaves, layout),
)


def pack(state: Any) -> Any:
    """Return states as a pytree of arrays."""
    leaves, layout = af.flatten(state)
    known = jax.tree.leaves(state)
    if len(known) == len(leaves) and all(a is b for a, b in zip(known, leaves, strict=True)):
        return jax.tree.map(_strong, state)
    return Packed([_strong(leaf) for leaf in leaves], layout)


def unpack(state: Any) -> Any:
    """Return states as the environment returned them."""
    return state.tree if type(state) is Packed else state


class Functions:
    """An environment as pure functions in JAX, for `jit`, `vmap`, `scan` and `grad`.

    Args:
        env: the environment.
        autoreset_mode: when episodes that have ended are reset, as in Gymnasium. The default resets them in
            the same step, so that each step is a transition.
        max_episode_steps: after how many steps an episode is truncated, None for never. The default is
            that of the environment.

    Example:
        >>> import jax
        >>> from arrayferry_gym.functional import CartPole, Functions
        >>> functions = Functions(CartPole())
        >>> running, observation = functions.reset(jax.random.key(0), 4)
        >>> running, outcome = jax.jit(functions.step)(
        ...     jax.random.key(1), running, jax.numpy.array([0, 1, 0, 1])
        ... )
        >>> outcome.reward
        Array([1., 1., 1., 1.], dtype=float32)
    """

    def __init__(
        self,
        env: FunctionalEnv,
        *,
        autoreset_mode: Any = AutoresetMode.SAME_STEP,
        max_episode_steps: Any = UNSET,
    ) -> None:
        self.env: FunctionalEnv = check_functional(env)
        self.autoreset_mode: AutoresetMode = mode_of(autoreset_mode)
        self.max_episode_steps: int | None = limit_of(self.env, max_episode_steps)

    def _bound(self, n: int, running: Running | None) -> Bound:
        bound = Bound(self.env, af.registry.backend("jax"), n, self.max_episode_steps)
        if running is not None:
            bound.adopt(unpack(running.state))
        return bound

    def _params(self, params: Any, n: int) -> Params:
        if isinstance(params, Params):
            return params
        return prepare(params, self.env.default_params, n, af.registry.backend("jax"), None)

    def reset(self, key: Any, num_envs: int, params: Any = None) -> tuple[Running, Any]:
        """Start `num_envs` environments.

        Args:
            key: a key of JAX.
            num_envs: how many.
            params: parameters, or a dict of those that differ from the defaults.

        Returns:
            The environments, and their observations.
        """
        num_envs = count_of("num_envs", num_envs)
        key, bound = checked_key(key), self._bound(num_envs, None)
        running, observation, _ = restart(
            bound, _random(key), None, None, self._params(params, num_envs).tree
        )
        return running._replace(state=pack(running.state)), observation

    def step(
        self, key: Any, running: Running, action: Any, params: Any = None
    ) -> tuple[Running, Outcome]:
        """Take a step in all environments, and reset those that have ended.

        Args:
            key: a key of JAX, another one for each step.
            running: the environments.
            action: their actions, which are clipped to the action space.
            params: as in `reset`.

        Returns:
            The environments after the step, and its outcome.

        Raises:
            arrayferry.ArrayFerryError: the key or the actions are not what they must be.
        """
        n = running.elapsed.shape[0]
        bound, prepared = self._bound(n, running), self._params(params, n)
        tree = prepared.tree
        own, fresh = jax.random.split(checked_key(key))
        action = Actions(bound.name, self.env.action_space, n, bound.backend, None, validate=False)(
            action
        )
        running, outcome = advance(
            bound, self.autoreset_mode, _random(own), running._replace(state=unpack(running.state)), action,
            tree, _Renewal(bound, fresh, tree, prepared.any_batched),
        )  # fmt: skip
        return running._replace(state=pack(running.state)), outcome
