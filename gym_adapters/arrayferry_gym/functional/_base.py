"""`FunctionalEnv`: the base class of environments that belong to no array library."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from gymnasium import Env, Space
from gymnasium.vector import VectorEnv

import arrayferry as af

from ._errors import ImpureError
from ._identity import identity

if TYPE_CHECKING:
    from ._single import FunctionalSingleEnv
    from ._vector import FunctionalVectorEnv

__all__ = ["FunctionalEnv", "check_functional"]


class FunctionalEnv(ABC):
    """An environment as pure functions of a batch of states, written once for every array library.

    Subclass it, set the spaces, and write `reset`, `step` and `observe` with the functions of `xp`, a
    namespace of the Array API standard, and with the numbers of `rng`. The drivers do the rest: they serve
    it as a Gymnasium environment in any library, count steps, reset what has ended, clip actions to their
    space, and compile it in JAX.

    A state is any tree of arrays that begin with the axis of environments: a named tuple, a dataclass, a
    dict, an Equinox module. Parameters are such a tree too, of numbers or arrays.

    The methods must be pure: what changes goes into the state. An environment cannot be changed once it
    is made, so that assigning to `self` is an error in every library.

    Attributes:
        observation_space: the space of the observations of one environment. Observations are cast to its dtype.
        action_space: the space of the actions of one environment. Actions are clipped to it.
        max_episode_steps: after how many steps an episode is truncated, None for never.
        default_params: a tree of parameters: numbers, arrays, and anything else. The whole numbers, truth
            values and texts in it are static: they may set shapes and choose branches, and JAX compiles
            once for each of their values. Floats and arrays are values: a user may pass an array with one
            number for each environment in place of a number.
        metadata: as in Gymnasium: "render_modes" and "render_fps".

    Example:
        >>> from typing import Any, NamedTuple
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> from arrayferry_gym.functional import FunctionalEnv
        >>> class Walk(FunctionalEnv):
        ...     observation_space = spaces.Box(-10.0, 10.0, (1,), np.float32)
        ...     action_space = spaces.Discrete(2)
        ...     max_episode_steps = 50
        ...     def reset(self, xp, rng, n, params):
        ...         return rng.uniform((n,), -1.0, 1.0)
        ...     def step(self, xp, rng, state, action, params):
        ...         state = state + xp.astype(2 * action - 1, xp.float32)
        ...         return state, -xp.abs(state), xp.abs(state) > 9.0
        ...     def observe(self, xp, state, params):
        ...         return state[:, None]
        >>> envs = Walk().make_vec(3, xp="torch")
        >>> observations, infos = envs.reset(seed=1)
        >>> observations.shape
        torch.Size([3, 1])
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    max_episode_steps: int | None = None
    default_params: Any = None
    metadata: dict[str, Any] = {"render_modes": []}

    @abstractmethod
    def reset(self, xp: Any, rng: af.Random, n: int, params: Any) -> Any:
        """Return the states of `n` environments at the start of an episode.

        Args:
            xp: a namespace of the Array API standard.
            rng: random numbers of that library.
            n: how many environments; the length of the first axis of each array of the state.
            params: the parameters. Arrays with one number for each environment have the length `n`.
        """

    @abstractmethod
    def step(
        self, xp: Any, rng: af.Random, state: Any, action: Any, params: Any
    ) -> tuple[Any, Any, Any]:
        """Return the next states, the rewards, and which environments have terminated.

        Args:
            xp: a namespace of the Array API standard.
            rng: random numbers of that library.
            state: the states.
            action: the actions, within the bounds of the space: whole numbers of shape (n,) for
                Discrete, numbers of shape (n, *shape) for others, a dict or tuple of these for Dict and Tuple.
            params: the parameters.

        Returns:
            States of the same structure, shapes and dtypes; rewards of shape (n,), or (n, k) for several
            objectives; truth values of shape (n,).
        """

    @abstractmethod
    def observe(self, xp: Any, state: Any, params: Any) -> Any:
        """Return the observations of states: arrays (n, *shape), in a dict or tuple as the space says."""

    def info(self, xp: Any, state: Any, params: Any) -> dict[str, Any]:
        """Return more about states, as a dict of arrays that begin with the axis of environments."""
        return {}

    def render(self, state: Any, index: int) -> Any:
        """Return an image of one environment, of shape (height, width, 3) and dtype uint8.

        Args:
            state: the states, as NumPy arrays.
            index: which environment to draw.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be rendered")

    def make_vec(self, num_envs: int = 1, **options: Any) -> FunctionalVectorEnv:
        """Serve it as a vector environment. The options are those of `FunctionalVectorEnv`."""
        from ._vector import FunctionalVectorEnv

        return FunctionalVectorEnv(self, num_envs, **options)

    def make(self, **options: Any) -> FunctionalSingleEnv:
        """Serve it as a single environment. The options are those of `FunctionalSingleEnv`."""
        from ._single import FunctionalSingleEnv

        return FunctionalSingleEnv(self, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse_change(self, name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        _refuse_change(self, name)
        super().__delattr__(name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FunctionalEnv):
            return NotImplemented
        return self is other or (type(self) is type(other) and identity(self) == identity(other))

    def __hash__(self) -> int:
        return hash(identity(self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


def check_functional(env: Any) -> FunctionalEnv:
    """Return an environment, made if its class was given.

    Raises:
        TypeError: it is none.
    """
    if isinstance(env, type) and issubclass(env, FunctionalEnv):
        return env()
    if isinstance(env, FunctionalEnv):
        return env
    raise TypeError(f"a FunctionalEnv is needed, but got {env!r:.80}. {_meant(env)}.")


def _meant(env: Any) -> str:
    """Return what to write instead of something that is no `FunctionalEnv`."""
    inner = getattr(env, "unwrapped", None)
    if isinstance(getattr(inner, "functional", None), FunctionalEnv):
        return "It serves one: pass its .functional, of a wrapped one .unwrapped.functional"
    if isinstance(env, str):
        return (
            "An id names an environment of Gymnasium: for one that serves a FunctionalEnv, pass "
            f"gymnasium.make({env!r}).unwrapped.functional; any other is for HostFunctions(gymnasium.make({env!r})), "
            "which rollout() takes for vector environments"
        )
    if isinstance(env, (Env, VectorEnv)):
        return (
            "Write HostFunctions(env) for an ordinary environment inside jit, or ArrayConversion(env) for an agent "
            "of another library"
        )
    if type(env).__name__ == "HostFunctions":
        return "HostFunctions has reset and step of its own, and rollout() takes it"
    return "Pass an object or a subclass of it, such as CartPole()"


_CONSTRUCTORS = {"__init__", "__post_init__", "__attrs_post_init__", "__setstate__", "__new__"}


def _refuse_change(env: FunctionalEnv, name: str) -> None:
    """Refuse to change an environment, except from within a constructor of it."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if (
            code.co_name in _CONSTRUCTORS
            and code.co_argcount
            and frame.f_locals.get(code.co_varnames[0]) is env
        ):
            return
        frame = frame.f_back
    raise ImpureError(
        f"{type(env).__name__}.{name} was assigned to, but an environment cannot change once it is made: "
        "its methods are pure functions, and compiled code would lose the change in silence",
        remedy="Put what changes in an episode into the state that reset() and step() return, and what "
        "differs between runs into default_params.",
    )
