"""Ordinary vector environments of Gymnasium inside `jit`, by callbacks."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

import arrayferry as af
from arrayferry.adapting import never_raises
from arrayferry_gym._arrays import cast_numbers, held_dtype
from arrayferry_gym._episodes import final_observations
from arrayferry_gym._spaces.trees import build, leaves, split
from arrayferry_gym.vector import ArrayConversion

from ._contract.errors import EnvResultError, StaleStateError
from ._simulators.engine import Outcome
from ._simulators.random_keys import as_key

Form = tuple[str, tuple[int, ...], Any]
"""The name of an array that the host returns, for messages; its shape and its dtype."""


class HostFunctions:
    """A vector environment of Gymnasium as functions for `jit` and `scan`: of any library except JAX.

    Compiled code calls the environment on the host, by ordered callbacks. This is for convenience: it saves no time
    over a Python loop, and the environment steps as fast as it does there.

    A state is the number of calls so far. The environment has only one state, the latest, and a step from any other
    state is an error.

    Args:
        env: the environment, which resets episodes in the step that ends them. It may use NumPy, PyTorch or any other
            library, but not JAX, which must not be called in a callback.

    Attributes:
        env: as given.
        name: its id, or the name of its class.
        num_envs: its number of environments.

    Raises:
        arrayferry.OptionError: it resets at another time, computes in JAX, or has observations without a fixed shape.
        TypeError: `env` is not a vector environment.

    Examples:
        >>> import gymnasium as gym
        >>> import jax
        >>> from arrayferry_envs import HostFunctions
        >>> env = gym.make_vec(
        ...     "CartPole-v1", num_envs=2, vectorization_mode="sync", vector_kwargs={"autoreset_mode": "SameStep"}
        ... )
        >>> envs = HostFunctions(env)
        >>> @jax.jit
        ... def collect(key):
        ...     def one(carry, key):
        ...         state, observation = carry
        ...         action = jax.random.randint(key, (2,), 0, 2)
        ...         state, outcome = envs.step(state, action)
        ...         return (state, outcome.observation), outcome.reward
        ...     return jax.lax.scan(one, envs.reset(seed=1), jax.random.split(key, 100))[1]
        >>> with envs.errors():
        ...     rewards = collect(jax.random.key(0))
        >>> rewards.shape
        (100, 2)
        >>> env.close()
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        make = 'gymnasium.make_vec(id, n, "sync", vector_kwargs={"autoreset_mode": "SameStep"})'
        if not isinstance(env, VectorEnv):
            raise TypeError(
                f"HostFunctions takes a vector environment of Gymnasium, but got {env!r:.80}. Pass {make}."
            )
        self.env: VectorEnv[Any, Any, Any] = env
        self.num_envs: int = env.num_envs
        self.name: str = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        if (env.metadata or {}).get("jax"):
            raise af.OptionError(
                f"{self.name} computes in JAX, which must not be called by a callback from inside jit",
                remedy="Call its own functions: for an environment that belongs to no library "
                "arrayferry_envs.Functions, for one of Gymnasium's FuncEnv its methods.",
            )
        self._numpy: Any = ArrayConversion(env, target_xp="numpy")
        if self._numpy.autoreset_mode != AutoresetMode.SAME_STEP:
            raise af.OptionError(
                f"{self.name} does not reset in the step that ends an episode",
                remedy=f"Pass {make}.",
            )
        for space, path in leaves(env.observation_space):
            if space.shape is None or space.dtype is None or space.dtype.kind not in "biufc":
                raise af.OptionError(
                    f"the observations of {self.name} have no fixed shape, since {space} has none{path and ', at ' + path}",
                    remedy="Flatten them or pad them by a wrapper: inside jit, shapes are fixed.",
                )
        self._calls = 0
        self._error: BaseException | None = None

    def reset(self, seed: Any = None) -> tuple[Any, Any]:
        """Reset the environment.

        Args:
            seed: as for Gymnasium's `reset`, or an integer array or a JAX key, which may be traced.

        Returns:
            The state and the observation.
        """
        key = as_key(seed)
        if key is not None:
            seed = (jax.random.bits(key, dtype="uint32") >> 1).astype("int32")
        state, *parts = self._call("reset", HostFunctions._reset, (seed,), self._observed())
        return state, build(self.env.observation_space, parts)

    def step(self, state: Any, action: Any) -> tuple[Any, Outcome]:
        """Take a step.

        Args:
            state: the state that the last `reset` or `step` returned.
            action: actions for all environments, which are checked on the host.

        Returns:
            The state, and the outcome without infos. Its `final_observation` is the observation before resets.
        """
        space, n, observed = self.env.observation_space, self.num_envs, self._observed()
        rewards = (n, *getattr(getattr(self.env.unwrapped, "reward_space", None), "shape", ()))
        ends = (f"the end of an episode of {self.name}", (n,), np.dtype(bool))
        reward = (f"the reward of {self.name}", rewards, _jax_dtype(float))
        forms = [*observed, reward, ends, ends, *observed]
        state, *parts = self._call("step", HostFunctions._step, (state, action), forms)
        rest = iter(parts)
        observation, reward = build(space, rest), next(rest)
        terminated, truncated, final = next(rest), next(rest), build(space, rest)
        return state, Outcome(observation, reward, terminated, truncated, final, {}, None)

    def _observed(self) -> list[Form]:
        what = f"the observation space of {self.name}"
        spaces: list[Any] = [space for space, _ in leaves(self.env.observation_space)]
        return [(what, tuple(space.shape), _jax_dtype(space.dtype)) for space in spaces]

    def _call(
        self, what: str, method: Callable[..., list[Any]], given: Any, forms: list[Form]
    ) -> list[Any]:
        """Call a method on the host. Return the state and the arrays of the result."""
        arrays, layout = af.flatten(given)
        forms = [(f"the state of {self.name}", (), np.dtype(np.int32)), *forms]
        # JAX keeps compiled code alive, so that code must not hold the environment
        alive, name = weakref.ref(self), self.name

        def run(values: list[Any]) -> list[Any]:
            functions = alive()
            if functions is None:
                raise gym.error.ClosedEnvironmentError(
                    f"{name} is gone: keep its HostFunctions as long as compiled code calls it"
                )
            try:
                results = method(functions, *layout.unflatten(values))
                results = [functions._calls, *results]
                return [_fitted(x, *form) for x, form in zip(results, forms, strict=True)]
            except BaseException as error:
                functions._error = error
                if isinstance(error, Exception):
                    raise
                raise RuntimeError(f"{type(error).__name__}: {error}") from error

        return af.registry.backend("jax").callback(
            run,
            [jnp.asarray(x) for x in arrays],
            [form[1:] for form in forms],
            name=f"the {what} of {name}",
            ordered=True,
        )

    # On the host.

    def _reset(self, seed: Any) -> list[Any]:
        observation, _ = self._numpy.reset(seed=seed)
        self._calls = (self._calls + 1) % 2**31
        return self._parts(observation)

    def _step(self, state: Any, action: Any) -> list[Any]:
        if np.shape(state) != () or state != self._calls:
            raise StaleStateError(
                f"the state {state} of {self.name} is not its newest, which is {self._calls}",
                remedy="An ordinary environment has only one state: pass the one that reset or step returned "
                "last, and take one step from it.",
            )
        observation, reward, terminated, truncated, infos = self._numpy.step(action)
        self._calls = (self._calls + 1) % 2**31
        parts = final = self._parts(observation)
        ended = terminated | truncated
        if ended.any():
            last = final_observations(self.env, infos, ended, observation, af.converter("numpy"))
            final = self._parts(last)
        return [*parts, reward, terminated, truncated, *final]

    def _parts(self, observation: Any) -> list[Any]:
        space = self.env.observation_space

        def mismatch(part: Any, path: str, needed: str) -> EnvResultError:
            return EnvResultError(
                f"{observation!r:.80} does not have the structure of the observation space of {self.name}, {space}, "
                f"which takes {needed}{path and ' at ' + path}"
            )

        return split(space, observation, mismatch)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the environment's own exceptions.

        JAX raises a `JaxRuntimeError` with their traceback in its text. In this context, and in a function decorated
        with `@envs.errors()`, the exception itself is raised. On exit, the context waits until compiled code has
        finished. The next call works again.
        """
        self._error = None
        try:
            yield
            jax.effects_barrier()
        except jax.errors.JaxRuntimeError as failure:
            error = self._error
            if error is None or f"{type(error).__name__}: " not in f"{failure}: ":
                raise
            raise error from None
        finally:
            self._error = None

    @never_raises
    def __repr__(self) -> str:
        return f"<HostFunctions of {self.name}>"


def _jax_dtype(dtype: Any) -> Any:
    """Return the dtype that JAX now has for one of NumPy."""
    return np.dtype(held_dtype(dtype, af.registry.backend("jax")))


def _fitted(value: Any, what: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a value as an array of a shape and a dtype, if no number changes."""
    x = np.asarray(value)
    if x.shape != shape:
        raise EnvResultError(
            f"an array of the shape {x.shape} was returned, where {what} has {shape}"
        )
    if x.dtype == dtype:
        return x
    try:
        return cast_numbers(x, dtype)
    except ValueError:
        raise EnvResultError(
            f"an array of dtype {x.dtype} was returned, whose values do not fit {dtype}, the dtype of {what} in JAX"
        ) from None
