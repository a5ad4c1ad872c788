"""`FunctionalEnv`: the base class of environments that belong to no array library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrayferry.typing import Target
from arrayferry_envs._contract.dynamics import Dynamics

from .single import FunctionalSingleEnv
from .vector import FunctionalVectorEnv

if TYPE_CHECKING:
    from typing import Unpack

    from arrayferry_gym._options.types import Served, VectorServed


class FunctionalEnv(Dynamics):
    """An environment as pure functions of a batch of states, written once for every array library.

    Subclass it, set the spaces, and write `reset`, `step` and `observe` with the functions of `xp`, a namespace of
    the Array API standard, and the random numbers of `rng`. The rest is done for you: it is served as a Gymnasium
    environment in any library, its steps are counted, finished episodes are reset, actions are clipped to their
    space, and in JAX it is compiled.

    A state is any tree of arrays whose first axis is that of the environments: a named tuple, a dataclass, a dict,
    an Equinox module. Parameters are a similar tree of numbers or arrays.

    The methods must be pure: anything that changes belongs in the state. An environment is immutable after its constructor:
    assigning to `self` is an error in every library.

    Attributes:
        observation_space: the space of the observations of one environment. Observations are cast to its dtype.
        action_space: the space of the actions of one environment. Actions are clipped to it.
        max_episode_steps: the number of steps after which an episode is truncated, None for no limit.
        default_params: a tree of parameters: numbers, arrays, and anything else. The integers, booleans and
            strings in it are static: they may set shapes and choose branches, and JAX compiles for each of
            their values. Floats and arrays are values: users may pass an array with one number for each environment
            in place of a number.
        metadata: as in Gymnasium: "render_modes" and "render_fps".
        library: the library that the methods need, None for any. With "jax", for instance, methods take and return
            JAX arrays, and results are converted for agents that use another library.

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

    def make_vec(
        self, num_envs: int = 1, *, xp: Target = "numpy", **options: Unpack[VectorServed]
    ) -> FunctionalVectorEnv:
        """Serve it as a vector environment. The options are those of `FunctionalVectorEnv`."""
        return FunctionalVectorEnv(self, num_envs, xp=xp, **options)

    def make(self, *, xp: Target = "numpy", **options: Unpack[Served]) -> FunctionalSingleEnv:
        """Serve it as a single environment. The options are those of `FunctionalSingleEnv`."""
        return FunctionalSingleEnv(self, xp=xp, **options)
