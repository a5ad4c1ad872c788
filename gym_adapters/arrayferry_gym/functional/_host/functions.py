"""Ordinary environments of Gymnasium inside `jit`, by callbacks."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

import arrayferry as af
from arrayferry.adapting import never_raises
from arrayferry_gym._actions.fitter import NUMPY, Fitter
from arrayferry_gym._adapters.env import ArrayConversion
from arrayferry_gym._episodes import before_resets, final_observations
from arrayferry_gym._episodes import turn as turn_of
from arrayferry_gym.functional._contract.dynamics import Dynamics
from arrayferry_gym.functional._contract.errors import StaleStateError
from arrayferry_gym.functional._simulators.engine import Outcome
from arrayferry_gym.functional._simulators.random_keys import as_key
from arrayferry_gym.vector import ArrayConversion as VectorConversion

from .arrays import InfoArrays, OneArray, SpaceArrays, jax_dtype


class HostFunctions:
    """An ordinary environment as functions for `jit` and `scan`: single or vector, of any library except JAX.

    Compiled code calls the environment on the host, by ordered callbacks. This is for convenience: it saves no time
    over a Python loop, and the environment steps as fast as it does there.

    A state is the number of calls so far. The environment has only one state, the latest, and a call with any other
    state is an error.

    A single environment is reset in the step that ends its episode. A vector environment follows its autoreset mode.

    Args:
        env: the environment. It may use NumPy, PyTorch or any other library, but not JAX, which must not be called
            in a callback.
        reward_like: an example of its rewards, if they have dimensions. The default is a `reward_space` of
            the environment, or one number for each environment.
        info_like: an example of the infos to return, a dict. Anything else in the infos is left out, and anything
            missing from an info is zero.

    Attributes:
        env: as given.
        name: its id, or the name of its class.
        num_envs: the number of environments of a vector environment, None for a single one.
        resets_in_same_step: whether an episode that ends is reset in the same step.

    Raises:
        arrayferry.OptionError: a space has no fixed shape, or the environment computes in JAX.
        TypeError: `env` is not an environment.

    Examples:
        >>> import gymnasium as gym
        >>> import jax
        >>> from arrayferry_gym.functional import HostFunctions
        >>> envs = HostFunctions(gym.make_vec("CartPole-v1", num_envs=2))
        >>> @jax.jit
        ... def collect(key):
        ...     def one(carry, key):
        ...         state, observation = carry
        ...         action = jax.random.randint(key, (2,), 0, 2)
        ...         state, outcome = envs.step(state, action)
        ...         return (state, outcome.observation), outcome.reward
        ...     start = envs.reset(seed=1)[:2]
        ...     return jax.lax.scan(one, start, jax.random.split(key, 100))[1]
        >>> with envs.errors():
        ...     rewards = collect(jax.random.key(0))
        >>> rewards.shape
        (100, 2)
        >>> envs.close()
    """

    def __init__(
        self,
        env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any],
        *,
        reward_like: Any = None,
        info_like: dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(env, (gym.Env, VectorEnv)):
            raise TypeError(f"{env!r:.80} is not a gymnasium.Env or VectorEnv. {_meant(env)}.")
        self.name: str = _name(env)
        if (env.metadata or {}).get("jax"):
            raise af.OptionError(
                f"{self.name} computes in JAX, which must not be called by a callback from inside jit",
                remedy="Call its own functions: for an environment that belongs to no library "
                "arrayferry_gym.functional.Functions, for one of Gymnasium's FuncEnv its methods.",
            )
        self.env = env
        self.num_envs: int | None = env.num_envs if isinstance(env, VectorEnv) else None
        numpy: Any
        self.resets_in_same_step: bool
        if isinstance(env, VectorEnv):
            numpy = VectorConversion(env, target_xp="numpy", stack_final=True)
            self.resets_in_same_step = numpy.autoreset_mode == AutoresetMode.SAME_STEP
        else:
            numpy = ArrayConversion(env, target_xp="numpy")
            self.resets_in_same_step = True
        self._numpy = numpy
        batch = () if self.num_envs is None else (self.num_envs,)
        self._observations = SpaceArrays(
            env.observation_space, f"the observation space of {self.name}"
        )
        self._actions = SpaceArrays(env.action_space, f"the action space of {self.name}")
        if reward_like is None:
            space = getattr(env.unwrapped, "reward_space", None)
            shape = (*batch, *getattr(space, "shape", ()))
        else:
            shape = np.shape(reward_like)
        self._reward = OneArray(shape, jax_dtype(np.float64), f"the reward of {self.name}")
        self._flag = OneArray(batch, np.dtype(bool), f"the end of an episode of {self.name}")
        self._infos = InfoArrays(info_like or {})
        self._likes = reward_like, info_like
        self._lock = threading.Lock()
        self._calls = 0
        self._open = True
        self._wide = bool(jax.config.jax_enable_x64)
        self._thread: int | None = None
        self._error: BaseException | None = None

    # In traced code.

    def reset(
        self, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Any, dict[str, Any]]:
        """Reset the environment.

        Args:
            seed: as for Gymnasium's `reset`, or an integer array or a JAX key, which may be traced.
            options: as for Gymnasium's `reset`. Arrays in them may be traced.

        Returns:
            The state, the observation, and the infos that `info_like` names.
        """
        given, layout = af.flatten((_seed_of(seed), options))
        state, observation, info = self._call(
            _Callback(self, "_reset", layout), given, [self._observations, self._infos], "reset"
        )
        return state, observation, info

    def step(self, state: Any, action: Any) -> tuple[Any, Outcome]:
        """Take a step.

        Args:
            state: the state that the last `reset` or `step` returned.
            action: an action of the action space. It is checked before it is passed to the environment.

        Returns:
            The state and the outcome. Its `final_observation` is the observation before any reset. Its `info` holds
            the infos that `info_like` names; where a vector environment has reset in this step, they are those of
            the reset, and `final_info` has those before it.

        Raises:
            arrayferry.ConversionError: an action does not have the structure or shape of its space.
        """
        if not hasattr(state, "dtype") or getattr(state, "shape", None) != ():
            raise af.OptionError(
                f"{state!r:.60} is not a state of {self.name}",
                remedy="Pass the first result of reset or step.",
            )
        jax_ = af.registry.backend("jax")
        fitter = _Unread(self.env.action_space, jax_, num_envs=self.num_envs, passes_on=False)
        given = self._actions.take(fitter.fit(action))
        parts = [self._observations, self._reward, self._flag, self._flag, self._infos]
        if self.resets_in_same_step:
            parts += [self._observations, self._infos]
        state, observation, reward, terminated, truncated, info, *final = self._call(
            _Callback(self, "_step"), [state, *given], parts, "step"
        )
        last, final_info = final or (observation, None)
        return state, Outcome(observation, reward, terminated, truncated, last, info, final_info)

    def _call(
        self, function: Callable[..., Any], given: Sequence[Any], parts: list[Any], what: str
    ) -> list[Any]:
        """Call a function on the host. Return the state, and the parts of the result, put together."""
        if self._wide != bool(jax.config.jax_enable_x64):
            raise af.OptionError(
                f"HostFunctions of {self.name} was made with jax_enable_x64 {'on' if self._wide else 'off'}",
                remedy="Set jax_enable_x64 once at the start, before it is made.",
            )
        backend = af.registry.backend("jax")
        arrays = [jnp.asarray(x) for x in given]
        parts = [_STATE, *parts]
        shapes = [shape for part in parts for shape in part.shapes]
        name = f"the {what} of {self.name}"
        rest = iter(backend.callback(function, arrays, shapes, name=name, ordered=True))
        return [part.build(rest) for part in parts]

    # On the host.

    def _reset(self, values: list[Any], layout: af.Layout) -> list[Any]:
        seed, options = layout.unflatten(values)
        observation, info = self._numpy.reset(seed=seed, options=options)
        self._calls = (self._calls + 1) % 2**31
        return [*self._observations.arrays(observation), *self._infos.arrays(info)]

    def _step(self, values: list[Any]) -> list[Any]:
        state = int(values[0])
        if state != self._calls:
            raise StaleStateError(
                f"the state {state} of {self.name} is not its newest, which is {self._calls}",
                remedy="An ordinary environment has only one state: pass the one that reset or step returned "
                "last, and take one step from it.",
            )
        env, observations = self._numpy, self._observations
        action = self._actions.build(iter(values[1:]))
        observation, reward, terminated, truncated, info = env.step(action)
        self._calls = (self._calls + 1) % 2**31
        arrays = observations.arrays(observation)
        rest = [
            *self._reward.arrays(reward),
            *self._flag.arrays(terminated),
            *self._flag.arrays(truncated),
        ]
        infos = self._infos.arrays(info)
        final, final_infos = (arrays, infos) if self.resets_in_same_step else ([], [])
        if self.resets_in_same_step:
            ended = turn_of(AutoresetMode.SAME_STEP, None, terminated, truncated).begins
            if self.num_envs is None:
                if ended:  # what is returned may change with the reset
                    final, rest, infos = (
                        [np.array(x) for x in part] for part in (arrays, rest, infos)
                    )
                    arrays, final_infos = observations.arrays(env.reset()[0]), infos
            elif ended.any():
                last = observations.arrays(final_observations(env.env, info, ended, np.asarray))
                final = before_resets(np, ended, last, arrays)
                last = self._infos.arrays(info.get("final_info", {}))
                final_infos = before_resets(np, ended, last, infos)
        return [*arrays, *rest, *infos, *final, *final_infos]

    def _run(self, method: str, values: list[Any], *args: Any) -> list[Any]:
        """Call a method on the host, and keep its error for `errors()`."""
        with self._lock:
            self._thread = threading.get_ident()
            try:
                if not self._open:
                    raise gym.error.ClosedEnvironmentError(
                        f"{self.name} is closed, but compiled code calls its {method[1:]}"
                    )
                results = getattr(self, method)(values, *args)
            except BaseException as error:
                self._error = error
                if isinstance(error, Exception):
                    raise
                raise RuntimeError(f"{type(error).__name__}: {error}") from error
            finally:
                self._thread = None
            return [np.int32(self._calls), *results]

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the environment's own exceptions.

        JAX raises a `JaxRuntimeError` with their traceback in its text. In this context, and in a function decorated
        with `@envs.errors()`, the exception itself is raised. On exit, the context waits until compiled code has
        finished. The next call works again.

        Examples:
            >>> import gymnasium as gym
            >>> import jax
            >>> from arrayferry_gym.functional import HostFunctions
            >>> env = HostFunctions(gym.make("CartPole-v1"))
            >>> with env.errors():
            ...     state, observation, info = env.reset(seed=0)
            ...     env.step(state, jax.numpy.array(7))
            Traceback (most recent call last):
            ...
            arrayferry.ConversionError: an action of shape () and dtype int32 with the values [7] is not valid for the space Discrete(2), since it takes whole numbers from 0 to 1. Pass an action as the space samples it.
            >>> env.close()
        """
        self._error = None
        try:
            yield
            jax.effects_barrier()
        except jax.errors.JaxRuntimeError as failure:
            error, self._error = self._error, None
            if error is None or f"{type(error).__name__}: " not in f"{failure}: ":
                raise
            raise error from None

    def close(self) -> None:
        """Wait until compiled code has finished, and close the environment. May be called more than once."""
        if not self._open:
            return
        if self._thread == threading.get_ident():
            raise RuntimeError(
                f"{self.name} cannot close its HostFunctions while it is called by them"
            )
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            jax.effects_barrier()
        with self._lock:
            if self._open:  # and no other thread has closed it
                self._open = False
                self.env.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.env, *self._likes)

    def __enter__(self) -> HostFunctions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @never_raises
    def __repr__(self) -> str:
        return f"<HostFunctions of {self.name}>"


_STATE = OneArray((), np.dtype(np.int32), "the state")


class _Unread(Fitter):
    """Leaves the numbers of JAX to the host."""

    def _reads(self, x: Any) -> bool:
        return isinstance(x, NUMPY)


def _restore(env: Any, reward_like: Any, info_like: Any) -> HostFunctions:
    return HostFunctions(env, reward_like=reward_like, info_like=info_like)


class _Callback:
    """The object that compiled code calls. It does not keep the environment alive, since JAX keeps compiled code."""

    def __init__(self, functions: HostFunctions, method: str, *args: Any) -> None:
        self._functions = weakref.ref(functions)
        self._name = functions.name
        self._method = method
        self._args = args

    def __call__(self, values: list[Any]) -> list[Any]:
        functions = self._functions()
        if functions is None:
            raise gym.error.ClosedEnvironmentError(
                f"{self._name} is gone: keep its HostFunctions as long as compiled code calls it"
            )
        return functions._run(self._method, values, *self._args)


def _meant(env: Any) -> str:
    """Return advice on what to write instead of something that is not an environment of Gymnasium."""
    if isinstance(env, str):
        return f"Write HostFunctions(gymnasium.make({env!r}))"
    if isinstance(env, Dynamics) or (isinstance(env, type) and issubclass(env, Dynamics)):
        return "Write Functions(env) for an environment that belongs to no library"
    return "Pass what gymnasium.make or make_vec returns"


def _name(env: Any) -> str:
    spec = getattr(env, "spec", None)
    return spec.id if spec is not None else type(env.unwrapped).__name__


def _seed_of(seed: Any) -> Any:
    """Return a seed for the callback, a key of JAX as an integer array."""
    if seed is None or isinstance(seed, int):
        return seed
    if isinstance(seed, (list, tuple)):
        return list(seed)
    key = as_key(seed)
    return seed if key is None else (jax.random.bits(key, dtype="uint32") >> 1).astype("int32")
