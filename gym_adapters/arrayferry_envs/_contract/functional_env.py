"""`FunctionalEnv`: the base class of environments that run in any array library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from gymnasium import Env, Space
from gymnasium.vector import VectorEnv

from arrayferry._utilities.compilers import uncompiled
from arrayferry.typing import AnyTree, Namespace
from arrayferry_gym import Random
from arrayferry_gym.extending import Immutable, is_made

from .errors import ImpureError

if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    from gymnasium.vector import AutoresetMode

    from arrayferry.typing import Target
    from arrayferry_envs import FunctionalSingleEnv, FunctionalVectorEnv
    from arrayferry_gym.typing import CheckActions

    class Served(TypedDict, total=False):
        """The options of a `FunctionalEnv` that is served."""

        device: Any
        max_episode_steps: int | None
        params: Any
        render_mode: str | None
        check_actions: CheckActions
        differentiable: bool
        translate: bool

    class VectorServed(Served, total=False):
        """The options of a `FunctionalEnv` that is served as a vector environment."""

        autoreset_mode: AutoresetMode | str


@uncompiled
class FunctionalEnv(Immutable, ABC):
    """An environment as pure functions of a batch of states, written once for every array library.

    Subclass it, set the spaces, and write `reset`, `step` and `observe` with the functions of `xp`, a namespace of
    the Array API standard, and the random numbers of `rng`. arrayferry does the rest: it serves the environment with
    Gymnasium's interface in any library, counts steps, resets finished episodes, clips actions to their space, and
    compiles the environment in JAX.

    A state is any tree of arrays whose first axis is the axis of environments, such as a named tuple, a dataclass, a
    dict or an Equinox module. Parameters are a tree of numbers, arrays and other objects.

    The methods must be pure: everything that changes belongs in the state. After construction, an environment is
    immutable: assigning to `self` is an error in every library.

    Attributes:
        observation_space: the space of the observations of one environment. Observations are cast to its dtype. If
            this is an integer dtype, they are first clipped to the range of the dtype.
        action_space: the space of the actions of one environment. Actions are clipped to it.
        reward_shape: the shape of the reward of one environment, such as () for a number, or (2,) for two objectives.
        reward_dtype: the name of the dtype to which rewards are cast, such as "float64". With None, floats keep their
            dtype, and whole numbers become float32.
        max_episode_steps: the number of steps after which an episode is truncated, or None for no limit.
        default_params: a tree of parameters: numbers, arrays, and other objects. Integers, booleans and strings are
            static: they may determine shapes and branches, and JAX compiles for each of their values. Floats and arrays
            may change without a new compilation. For a float, users may pass an array with one number for each
            environment.
        metadata: as in Gymnasium: "render_modes" and "render_fps".
        library: the library that the methods need, or None for any. With "jax", for example, methods receive and return
            JAX arrays, and results are converted for agents in other libraries.

    Examples:
        >>> from typing import Any, NamedTuple
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> from arrayferry_envs import FunctionalEnv
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
    reward_shape: tuple[int, ...] = ()
    reward_dtype: str | None = None
    max_episode_steps: int | None = None
    default_params: Any = None
    metadata: dict[str, Any] = {"render_modes": []}
    library: str | None = None
    """The library that the methods need, such as "jax", or None for any library."""
    kernels: tuple[Any, ...] = ()
    """The wrapper kernels around the environment: see `wrap`."""
    _shared: frozenset[int] = frozenset()
    """The indices of arrays in a state that all environments share, without an axis of environments."""

    @property
    def base(self) -> FunctionalEnv:
        """The environment without wrapper kernels."""
        return self

    @property
    def _informs(self) -> bool:
        """Whether the environment has infos."""
        return type(self).info is not FunctionalEnv.info

    @property
    def _draws_params(self) -> bool:
        """Whether the environment draws parameters at each reset."""
        return type(self).sample_params is not FunctionalEnv.sample_params

    def _limited(self, limit: int | None) -> int | None:
        """Return the step limit that applies if the engine has the limit `limit`. None means no limit."""
        return limit

    def _random(self, xp: Namespace, rng: Any, n: int) -> Any:
        """Return the random numbers, or seeds, that both `sample_params` and `reset` receive for `n` new episodes."""
        return rng

    @abstractmethod
    def reset(self, xp: Namespace, rng: Random, n: int, params: AnyTree) -> Any:
        """Return the states of `n` environments at the start of an episode.

        Args:
            xp: the namespace of the library, with the functions of the Array API standard.
            rng: random numbers of the library.
            n: the number of environments, which is the length of the first axis of each array in the state.
            params: the parameters. Arrays with one number for each environment have shape (n,).
        """

    @abstractmethod
    def step(
        self, xp: Namespace, rng: Random, state: AnyTree, action: AnyTree, params: AnyTree
    ) -> tuple[Any, ...]:
        """Return the next states, the rewards, terminations, and optionally truncations.

        Args:
            xp: the namespace of the library, with the functions of the Array API standard.
            rng: random numbers of the library.
            state: the states before the step, as `reset` or the last step returned them.
            action: the actions, within the bounds of the space: integers of shape (n,) for Discrete, numbers of shape
                (n, *shape) for other spaces, a dict or tuple of such arrays for Dict and Tuple.
            params: the parameters.

        Returns:
            (states, rewards, terminations), or (states, rewards, terminations, truncations) if the environment itself
            truncates episodes. States have the structure, shapes and dtypes of `state`. Rewards have shape
            (n, *reward_shape). Terminations and truncations are booleans of shape (n,). arrayferry also truncates an
            episode that reaches `max_episode_steps`, even if it terminates in that step, like Gymnasium's TimeLimit.
        """

    @abstractmethod
    def observe(self, xp: Namespace, state: AnyTree, params: AnyTree) -> Any:
        """Return the observations of states: arrays (n, *shape), nested in dicts or tuples like the space."""

    def sample_params(self, xp: Namespace, rng: Random, n: int, params: AnyTree) -> Any:
        """Draw the parameters of `n` new episodes. An environment without this method draws none.

        Args:
            xp: the namespace of the library, with the functions of the Array API standard.
            rng: random numbers of the library.
            n: the number of environments.
            params: the parameters that a user passed, or the defaults.

        Returns:
            A tree like `params`, in which the sampled parameters are arrays (n, ...). These are stored with the state
            until the next reset. `reset`, `step`, `observe` and `info` receive the returned tree as `params`.
        """
        return params

    def info(self, xp: Namespace, state: AnyTree, params: AnyTree) -> dict[str, Any]:
        """Return further information on states, as a dict of arrays whose first axis is the axis of environments."""
        return {}

    def render(self, state: AnyTree, index: int) -> Any:
        """Return an image of one environment, of shape (height, width, 3) and dtype uint8.

        Args:
            state: the states, as NumPy arrays.
            index: the index of the environment to draw.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot be rendered: it has no method render()"
        )

    def make_vec(
        self, num_envs: int = 1, *, xp: Target = "numpy", **options: Unpack[VectorServed]
    ) -> FunctionalVectorEnv:
        """Serve this environment as a `FunctionalVectorEnv`, which documents the options."""
        from arrayferry_envs import FunctionalVectorEnv

        return FunctionalVectorEnv(self, num_envs, xp=xp, **options)

    def make(self, *, xp: Target = "numpy", **options: Unpack[Served]) -> FunctionalSingleEnv:
        """Serve this environment as a `FunctionalSingleEnv`, which documents the options."""
        from arrayferry_envs import FunctionalSingleEnv

        return FunctionalSingleEnv(self, xp=xp, **options)

    def __setattr__(self, name: str, value: AnyTree) -> None:
        _refuse_change(self, name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        _refuse_change(self, name)
        super().__delattr__(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


def is_functional(env: Any) -> bool:
    """Return whether `env` is a `FunctionalEnv` or a subclass of it."""
    is_instance = isinstance(env, FunctionalEnv)
    return is_instance or (isinstance(env, type) and issubclass(env, FunctionalEnv))


def checked_env(env: Any) -> FunctionalEnv:
    """Return `env` or, for a class, an instance of it.

    Raises:
        TypeError: `env` is neither a `FunctionalEnv` nor a subclass of it.
    """
    if is_functional(env):
        return env() if isinstance(env, type) else env  # type: ignore[no-any-return]
    raise TypeError(f"a FunctionalEnv is needed, but got {env!r:.80}. {_meant(env)}.")


def _meant(env: Any) -> str:
    """Return a remedy for an argument that is not a `FunctionalEnv`."""
    unwrapped_env = getattr(env, "unwrapped", None)
    if isinstance(getattr(unwrapped_env, "functional", None), FunctionalEnv):
        return "It serves a FunctionalEnv: pass its .functional, or its .unwrapped.functional if it is wrapped"
    if isinstance(env, str):
        return (
            f"For the id of a suite, pass make_functional({env!r}). If an id of Gymnasium serves a FunctionalEnv, pass "
            f"gymnasium.make({env!r}).unwrapped.functional. Inside jit, step other environments by callbacks, "
            "as in examples/host_callbacks.py"
        )
    if isinstance(env, (Env, VectorEnv)):
        return (
            "For an agent of another library, write ArrayConversion(env). Inside jit, step the environment by callbacks, "
            "as in examples/host_callbacks.py"
        )
    return (
        "Pass an instance or a subclass, such as CartPole(); for an environment of a suite such as gymnax or Brax, pass "
        "from_env(env)"
    )


def _refuse_change(env: FunctionalEnv, name: str) -> None:
    """Refuse a change of an environment after its construction."""
    if not is_made(env):
        return
    raise ImpureError(
        f"cannot set {type(env).__name__}.{name}, since an environment does not change after construction: "
        "its methods are pure functions, and compiled code would silently lose the change",
        remedy="Values that change in an episode belong in the state that reset() and step() return, and values "
        "that differ between runs in default_params.",
    )
