"""The class `Kernel`, a wrapper as pure functions of batches, and functions that call kernels in steps and resets."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import create_empty_array

import arrayferry as af
from arrayferry._utilities.options import mixed_seed
from arrayferry.extending import dtype_name
from arrayferry.typing import AnyArray, AnyTree, Namespace, Target
from arrayferry_gym._arrays import dtype_in, mapped, namespace, select, to_shape
from arrayferry_gym._episodes import Step as Step
from arrayferry_gym._episodes import before_resets
from arrayferry_gym._keys import KEPT, Immutable, freeze, is_made
from arrayferry_gym._random import Random, make_rng


class Spaces(NamedTuple):
    """The spaces of one environment.

    Attributes:
        observation: the observation space.
        action: the action space.
        max_episode_steps: the number of steps after which an episode is truncated, or None if unknown.
    """

    observation: Space[Any]
    action: Space[Any]
    max_episode_steps: int | None = None


class State(NamedTuple):
    """The state of a kernel: three trees, which are dicts, tuples and lists of arrays.

    Attributes:
        episode: arrays (n, ...), such as counters. When an episode begins, the row of its environment is reset.
        lasting: arrays that no reset changes, such as statistics.
        fixed: constant arrays, such as bounds, on the device of the environments.
    """

    episode: Any = ()
    lasting: Any = ()
    fixed: Any = ()


class Kernel(Immutable):
    """A wrapper as pure functions of a batch of environments, for arrays of any library.

    One kernel works around single environments, around vector environments, and inside `jit`. Where an episode begins,
    arrayferry_gym, not the kernel, resets the state. The kernel has already received the final observation by then, so
    it cannot lose final observations or statistics. A kernel is immutable: values that change belong in the state.
    Subclasses override the methods that they need. By default, a kernel changes nothing.

    Attributes:
        parts: the fields of a `Step` that `step` reads or changes besides `info`: any of "observation", "reward" and
            "ended", which means `terminated` and `truncated`. Around environments of Gymnasium, fields that are not in
            `parts` are None.
        statistics: the name of the kernel's statistics, or None if it has no statistics.
        inside: the spaces of the environment inside.
        outside: the spaces that the agent sees.

    Examples:
        >>> from arrayferry_envs import CartPole, wrap
        >>> from arrayferry_gym.wrappers.kernels import Kernel
        >>> class NegateReward(Kernel):
        ...     parts = ("reward",)
        ...     def step(self, xp, state, result):
        ...         return state, result._replace(reward=-result.reward)
        >>> envs = wrap(CartPole(), NegateReward()).make_vec(2)
        >>> _ = envs.reset(seed=1)
        >>> envs.step(envs.action_space.sample())[1]
        array([-1., -1.], dtype=float32)
    """

    parts: ClassVar[tuple[str, ...]] = ("observation", "reward", "ended")
    statistics: ClassVar[str | None] = None
    inside: Spaces
    outside: Spaces

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        """Return the observation and action spaces that the agent sees, given those of the environment inside."""
        return observation, action

    def init(self, xp: Namespace, n: int, spaces: Spaces, device: Any) -> State:
        """Return the state before the first episode of `n` environments.

        Args:
            xp: a namespace of the Array API standard.
            n: the number of environments.
            spaces: the spaces of the environment inside.
            device: the device of arrays, or None for the library's default device.
        """
        return State()

    def reset(
        self, xp: Namespace, state: State, rows: AnyArray, observation: AnyTree
    ) -> tuple[State, Any]:
        """Begin episodes. Return the new state and the observations that the agent sees.

        Args:
            xp: a namespace of the Array API standard.
            state: the state. Where an episode begins, the rows of `episode` already have the values of `init`.
            rows: where an episode begins, bool (n,), or None for everywhere.
            observation: the first observation of the new episode in rows where an episode begins, and the latest
                observation in all other rows.
        """
        return state, observation

    def action(
        self, xp: Namespace, rng: Random, state: State, action: AnyTree
    ) -> tuple[State, Any]:
        """Return the new state and the actions for the environment inside, (n, ...), given the agent's actions."""
        return state, action

    def step(self, xp: Namespace, state: State, result: Step) -> tuple[State, Step]:
        """Return the new state and the step's result for the agent.

        Rows where `result.valid` is false belong to no episode, and must not change the state.
        """
        return state, result

    def rewards(self, shape: Any, dtype: Any) -> tuple[tuple[int, ...], str | None]:
        """Return the shape and the dtype of one reward that the agent sees, given those of one reward inside.

        By default, a kernel that reads or changes rewards determines shape and dtype by a step with a batch of zeros.
        Override this method if such a step fails.

        Args:
            shape: the shape of the reward of one environment inside.
            dtype: the name of the dtype of this reward, or None if it is unknown.
        """
        if not self.steps or "reward" not in self.parts:
            return shape, dtype
        return of_zeros(self, shape, dtype)

    def around(self, inside: Spaces) -> Self:
        """Return a copy of this kernel whose `inside` and `outside` are set for an environment with these spaces.

        Raises:
            Exception: the kernel does not support these spaces. The error has the type that Gymnasium's wrapper raises.
        """
        bound = copy.copy(self)
        vars(bound).pop(KEPT, None)
        vars(bound)["inside"] = inside
        observation, action = bound.spaces(inside.observation, inside.action)
        vars(bound)["outside"] = Spaces(observation, action, inside.max_episode_steps)
        freeze(bound)
        return bound

    @property
    def observes(self) -> bool:
        """Whether the kernel reads or changes observations."""
        return type(self).reset is not Kernel.reset

    @property
    def acts(self) -> bool:
        """Whether the kernel reads or changes actions."""
        return type(self).action is not Kernel.action

    @property
    def steps(self) -> bool:
        """Whether the kernel reads or changes the results of steps."""
        return type(self).step is not Kernel.step

    @property
    def any_library(self) -> bool:
        """Whether the kernel supports any library: its class is in this package, and no argument is a function."""
        is_ours = type(self).__module__.startswith("arrayferry_gym.")
        return is_ours and not any(
            callable(arg) and not isinstance(arg, type) for arg in arguments_of(self).values()
        )

    def __setattr__(self, name: str, value: AnyTree) -> None:
        if not is_made(self):
            super().__setattr__(name, value)
            return
        raise AttributeError(
            f"cannot set {type(self).__name__}.{name}, since a kernel does not change after construction. "
            "Put values that change into the state"
        )

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in arguments_of(self).items())
        return f"{type(self).__name__}({arguments})"


def arguments_of(kernel: Kernel) -> dict[str, Any]:
    """Return a dict of the arguments of a kernel's constructor: its attributes except those that `around` sets."""
    excluded_names = ("inside", "outside", "_places", KEPT)
    return {name: value for name, value in vars(kernel).items() if name not in excluded_names}


def begin_episodes(
    kernel: Kernel, xp: Namespace, state: State, fresh: State, rows: AnyArray, observation: AnyTree
) -> tuple[State, Any]:
    """Begin episodes in some environments.

    Args:
        kernel: the kernel to call.
        xp: the namespace.
        state: the state before the call.
        fresh: the state of one environment before its first episode.
        rows: where an episode begins, bool (n,), or None for everywhere.
        observation: as in `Kernel.reset`.

    Returns:
        The new state and the observations that the agent sees.
    """

    def reset_rows(new: Any, old: Any) -> Any:
        return to_shape(xp, new, old.shape) if rows is None else select(xp, rows, new, old)

    episode = mapped(reset_rows, fresh.episode, state.episode)
    return kernel.reset(xp, state._replace(episode=episode), rows, observation)


def take_step(
    kernel: Kernel, xp: Namespace, state: State, fresh: State, result: Step, begins: AnyArray,
    observation: AnyTree, same_step: bool,
) -> tuple[State, Step, Any]:  # fmt: skip
    """Pass a step through a kernel, and begin new episodes.

    Args:
        kernel: the kernel to call.
        xp: the namespace.
        state: the state before the call.
        fresh: the state of one environment before its first episode.
        result: the result of the step, with the observations before resets.
        begins: where an episode begins, bool (n,), or None for nowhere.
        observation: the observations after resets.
        same_step: whether episodes begin in the step that ends the previous episodes.

    Returns:
        The state, the result of the step for the agent, and the observations after resets for the agent.
    """
    state, result = kernel.step(xp, state, result)
    if begins is None:
        return state, result, result.observation
    state, first_obs = begin_episodes(kernel, xp, state, fresh, begins, observation)
    # where no episode begins, the agent sees the result of the step, not of `Kernel.reset`
    if same_step and kernel.observes:
        first_obs = before_resets(xp, begins, first_obs, result.observation)
    elif kernel.observes:  # outer kernels read the first observation in `step` too
        result = result._replace(observation=first_obs)
    return state, result, first_obs


def of_zeros(kernel: Kernel, shape: Any, dtype: Any) -> tuple[tuple[int, ...], str | None]:
    """Return the shape and the dtype of one reward after a step of a kernel with a batch of zeros.

    JAX traces the step without computing values. If JAX is not imported or raises an error, NumPy computes the step, or
    if NumPy raises an error, PyTorch. If all libraries fail, the result is the arguments `shape` and `dtype`.
    """

    def step(name: str) -> Any:
        backend = af.registry.backend(name)
        xp, inside = namespace(backend), kernel.inside
        observation: Any = create_empty_array(inside.observation, 2, np.zeros)
        rewards = xp.zeros((2, *shape), dtype=dtype_in(xp, np.dtype(dtype or "float32")))
        flags = xp.zeros((2,), dtype=xp.bool)
        result = Step(af.convert(observation, backend), rewards, flags, flags, {})
        return kernel.step(xp, kernel.init(xp, 2, inside, None), result)[1].reward, rewards

    def evaluated(name: str) -> Any:
        return sys.modules["jax"].eval_shape(lambda: step(name)) if name == "jax" else step(name)

    for library in ("jax", "numpy", "torch"):
        if library in sys.modules:
            with contextlib.suppress(Exception), np.errstate(all="ignore"):
                rewards, zeros = evaluated(library)
                same_dtype = dtype is None or rewards.dtype == zeros.dtype
                return tuple(rewards.shape[1:]), dtype if same_dtype else dtype_name(rewards.dtype)
    return shape, dtype


class Chain:
    """Nested kernels, whose methods are called one after the other.

    Args:
        kernels: the kernels, innermost first.
        inside: the spaces of the environment.
        refuse: a function that is called with a kernel and the error that the kernel raised. It may raise another error.

    Attributes:
        kernels: the kernels, each bound to the spaces inside it.
        outside: the spaces that the agent sees.
        acts: whether any kernel changes actions.
    """

    def __init__(
        self,
        kernels: tuple[Kernel, ...],
        inside: Spaces,
        refuse: Callable[[Kernel, Exception], None] = lambda *_: None,
    ) -> None:
        bound: list[Kernel] = []
        for kernel in kernels:
            kernel = kernel.around(inside)
            inside = kernel.outside
            bound.append(kernel)
        self.kernels: tuple[Kernel, ...] = tuple(bound)
        self.outside = inside
        self.acts: bool = any(kernel.acts for kernel in bound)
        self._refuse = refuse

    def init(self, xp: Namespace, n: int, device: Any) -> tuple[State, ...]:
        """Return the states of all kernels before the first episodes of `n` environments."""
        return tuple(kernel.init(xp, n, kernel.inside, device) for kernel in self.kernels)

    @staticmethod
    def rng(to: Target, seed: Any, device: Any, inside: int = 0) -> Random:
        """Return the random number generator of kernels that change actions, for a seed of the environments.

        Args:
            to: the library of the random numbers.
            seed: a seed, or a list with a seed for each environment.
            device: the device of the random numbers.
            inside: the number of kernels inside the environment. It varies the seed, since these kernels have generators
                too.
        """
        seeds = seed if isinstance(seed, (list, tuple)) else [seed]
        return make_rng(to, mixed_seed("kernels", seeds, inside), device)

    def rewards(self, shape: Any, dtype: Any) -> tuple[tuple[int, ...], str | None]:
        """Return the shape and dtype of rewards that the agent sees, as `Kernel.rewards` does."""
        for kernel in self.kernels:
            shape, dtype = kernel.rewards(shape, dtype)
        return shape, dtype

    def begin(
        self, xp: Namespace, states: AnyTree, fresh: Any, rows: AnyArray, observation: AnyTree
    ) -> tuple[tuple[State, ...], Any]:
        """Begin episodes in some environments, as `begin_episodes` does."""
        new_states = []
        for kernel, state, start in zip(self.kernels, states, fresh, strict=True):
            state, observation = self._called(
                kernel, begin_episodes, kernel, xp, state, start, rows, observation
            )
            new_states.append(state)
        return tuple(new_states), observation

    def action(
        self, xp: Namespace, rng: Any, states: AnyTree, action: AnyTree
    ) -> tuple[tuple[State, ...], Any]:
        """Pass the agent's actions through all kernels. Return the new states and the environment's actions."""
        new_states = []
        for kernel, state in zip(reversed(self.kernels), reversed(states), strict=True):
            state, action = self._called(kernel, kernel.action, xp, rng, state, action)
            new_states.append(state)
        return tuple(reversed(new_states)), action

    def take(
        self, xp: Namespace, states: AnyTree, fresh: Any, result: Step, begins: AnyArray, observation: AnyTree,
        same_step: bool,
    ) -> tuple[tuple[State, ...], Step, Any]:  # fmt: skip
        """Pass a step through all kernels, as `take_step` does."""
        new_states = []
        for kernel, state, start in zip(self.kernels, states, fresh, strict=True):
            state, result, observation = self._called(
                kernel, take_step, kernel, xp, state, start, result, begins, observation, same_step
            )
            new_states.append(state)
        return tuple(new_states), result, observation

    def _called(self, kernel: Kernel, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            self._refuse(kernel, error)
            raise
