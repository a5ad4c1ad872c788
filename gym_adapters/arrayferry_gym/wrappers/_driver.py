"""`Driver` calls the kernel of a wrapper, in the library and on the device of the environment's arrays."""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import SyncVectorEnv

import arrayferry as af
from arrayferry._utilities.options import is_whole
from arrayferry.typing import AnyArray, AnyTree, Namespace
from arrayferry_gym._adapters.spaces import converted_space, first_converted
from arrayferry_gym._arrays import namespace
from arrayferry_gym._episodes import ServesFunctional
from arrayferry_gym._spaces.trees import ARRAYS, build, leaves, split

from ._kernels.kernel import Chain, Kernel, Spaces, State, Step, begin_episodes, take_step

_CONTAINERS = (dict, tuple, list)


def space_like(space: Space[Any], like: Space[Any]) -> Any:
    """Return a space whose samples are arrays of the same library as the samples of `like`.

    Args:
        space: the space to convert. It is returned unchanged if `like` is not a converted space.
        like: the space that determines the library.
    """
    found = first_converted(like)
    return space if found is None else converted_space(space, found.libraries)


def step_limit(env: Any) -> int | None:
    """Return the number of steps after which episodes are truncated, or None if this number is unknown.

    Args:
        env: a single environment or a vector environment, with or without wrappers.
    """
    limit: Any = getattr(env.spec, "max_episode_steps", None)
    while limit is None and isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            limit = int(env._max_episode_steps)
        env = env.env
    inner_env: Any = env.unwrapped
    if limit is None and isinstance(inner_env, ServesFunctional):
        limit = inner_env._limit
    elif limit is None and isinstance(inner_env, SyncVectorEnv):
        # a batch without a limit has the limit of its environments, if all have the same limit
        limits = {step_limit(single_env) for single_env in inner_env.envs}
        limit = limits.pop() if len(limits) == 1 else None
    return int(limit) if limit is not None and is_whole(limit) else None


@functools.lru_cache(64)
def _functions(kernel: Kernel, xp: Namespace, *, compiled: bool) -> tuple[Any, Any, Any]:
    """Return `begin_episodes`, `Kernel.step` and `take_step` for a kernel. If `compiled`, JAX compiles them."""
    begin, take = (functools.partial(func, kernel, xp) for func in (begin_episodes, take_step))
    step = functools.partial(kernel.step, xp)
    if not compiled:
        return begin, step, take
    import jax

    return jax.jit(begin), jax.jit(step), jax.jit(take, static_argnums=5)


class HeldKernel:
    """A kernel together with its state. It belongs to a wrapper, or to the engine of a `FunctionalEnv`.

    Attributes:
        kernel: the kernel, bound to the spaces of the environment inside.
        n: the number of environments.
        name: the name of the kernel's statistics, or None if the kernel has no statistics.
        state: the state of the kernel, or None until an array has determined the library.
        updating: whether new values update the statistics.
        xp: the namespace of the arrays in the state.
        device: the device of the arrays in the state, or None for the library's default device.
    """

    kernel: Kernel
    n: int
    name: str | None
    state: Any
    updating: bool
    xp: Any
    device: Any

    def read(self) -> dict[str, Any]:
        """Return the statistics as plain numbers."""
        return self._held()[2].read()  # type: ignore[no-any-return]

    def _held(self) -> tuple[Any, Any, Any]:
        """Return the namespace, the device, and the statistics."""
        return self.xp, self.device, self.state.lasting[self.name]

    def given(self, values: AnyTree) -> Any:
        """Convert a result of `read` to an argument of `load`.

        Raises:
            arrayferry.OptionError: a statistic is missing or has another shape.
        """
        xp, device, moments = self._held()
        return moments.given(xp, values, device, any_shape="reward" in self.kernel.parts)

    def load(self, given: Any) -> None:
        """Set the statistics to a result of `given`."""
        self.state = self.state._replace(lasting={**self.state.lasting, self.name: given})

    def shown(self, name: str, dtype: Any = float) -> Any:
        """Return an array (n, ...) from the state of the current episodes, or NumPy zeros (n,) before any episode.

        Args:
            name: the key of the array in the state.
            dtype: the dtype of the zeros.
        """
        return np.zeros(self.n, dtype) if self.state is None else self.state.episode[name]

    @property
    def update_running_mean(self) -> bool:
        """Whether new values update the statistics."""
        return self.updating

    @update_running_mean.setter
    def update_running_mean(self, updating: bool) -> None:
        self.updating = bool(updating)
        if self.state is not None and self.name is not None:
            self.load(self.state.lasting[self.name].switched(self.xp, self.updating))


class Driver(HeldKernel):
    """The kernel of a wrapper around an environment of Gymnasium, with the kernel's state.

    Args:
        kernel: the kernel to run.
        inside: the spaces of the environment.
        n: the number of environments.
        kernels_inside: the number of kernels inside the environment. It varies the seed, so that nested kernels draw
            different random numbers.
        same_step: whether episodes begin in the step that ends the previous episodes.

    Attributes:
        acts: whether the kernel changes actions.
        steps: whether the kernel reads or changes the results of steps.
        observes: whether the kernel reads or changes observations.
        rewarded: whether the kernel reads or changes rewards.
        flagged: whether the kernel reads or changes the flags of ended episodes.
        own: converts a tree to arrays of the library. This attribute does not exist before the library is known.
    """

    _inside = 0  # for drivers in older pickles, which lack this attribute

    def __init__(
        self,
        kernel: Kernel,
        inside: Spaces,
        n: int,
        kernels_inside: int,
        *,
        same_step: bool = False,
    ) -> None:
        self._inside = kernels_inside
        self.kernel = kernel = kernel.around(inside)
        self.n, self._same_step = n, same_step
        self.acts, self.steps = kernel.acts, kernel.steps
        self.observes = kernel.observes and "observation" in kernel.parts
        self.rewarded, self.flagged = "reward" in kernel.parts, "ended" in kernel.parts
        self.name = kernel.statistics
        self.state: State | None = None
        self.updating = True
        self._loaded: Any = None
        self._seed: Any = None
        self._kind: type | None = None
        self._rng: Any = None

    def use(self, tree: AnyTree) -> None:
        """Use the library of the arrays in a tree. If the library has changed, convert the state.

        The state is on the device of the first arrays of a library, even if later arrays are on another device.
        """
        array, backend = af.first_array(tree)
        if backend is None:
            backend = af.registry.backend("numpy")
        if self.state is not None and backend is self.own.target:
            return
        state_before, loaded = self.state, self._loaded
        if state_before is not None and self.name is not None:
            loaded = self.read()
        uses_default = array is None or backend.name in ("jax", "numpy")
        self._place = None if uses_default else backend.device_of(array)
        self.own: af.Conversion = af.converter(backend, device=self._place, scalars="convert")
        self._make_functions()
        jax = sys.modules["jax"] if backend.name == "jax" else None
        # JAX can be configured to refuse implicit transfers, but creating the state needs some
        with contextlib.nullcontext() if jax is None else jax.transfer_guard("allow"):
            self._fresh, self.state = (
                self.kernel.init(self.xp, n, self.kernel.inside, self.device) for n in (1, self.n)
            )
            if state_before is not None:
                # with a name, `lasting` has statistics, which `load` sets below
                names = ("episode",) if self.name else ("episode", "lasting")
                fields = {name: getattr(state_before, name) for name in names}
                moved = af.convert(fields, backend, device=self._place, narrowing="allow")
                self.state = self.state._replace(**moved)
            if loaded is not None:
                self.load(self.given(loaded))
            self.update_running_mean = self.updating

    def _make_functions(self) -> None:
        """Set the attributes that depend on the library and the device: the namespace, the device and the functions."""
        backend = self.own.target
        self.xp: Any = namespace(backend)
        # functions of the namespace need the `device` of an array, not the name of the device
        device = self._place
        array = None if device is None else backend.from_numpy(np.zeros((), np.float32), device)
        self.device: Any = getattr(array, "device", None)
        compiled = backend.name == "jax"
        # equal kernels share compiled code, unless they call users' functions, whose results may change
        make = _functions if compiled and self.kernel.any_library else _functions.__wrapped__
        self._begin, self._step, self._take = make(self.kernel, self.xp, compiled=compiled)

    def follow(self, tree: AnyTree) -> None:
        """Call `use` if the type of the environment's results has changed, or is dict, tuple or list."""
        tree_type = type(tree)
        if tree_type is not self._kind or tree_type in _CONTAINERS:
            self._kind = tree_type
            self.use(tree)

    def begin(self, observation: AnyTree, rows: AnyArray = None) -> Any:
        """Begin episodes in the rows of a mask (n,), or in all rows if None. Return the agent's observations."""
        self.state, observation = self._begin(self.state, self._fresh, rows, observation)
        return observation

    def take(
        self,
        seen: Any,
        reward: AnyArray,
        flags: AnyArray,
        valid: Any,
        begins: AnyArray,
        observation: AnyTree,
    ) -> tuple[Step, Any]:
        """Pass a step through the kernel. The first axis of all arrays is that of environments.

        Values that the kernel does not use may be None.

        Args:
            seen: the observations before resets, as arrays of the library.
            reward: the rewards, of any library.
            flags: the pair of terminated and truncated, bool of any library.
            valid: where the step belongs to an episode, bool of the library, or None for everywhere.
            begins: where an episode begins, bool of the library, or None for nowhere.
            observation: the observations after resets, as arrays of the library.

        Returns:
            The result of the step and the observations after resets, for the agent.
        """
        terminated, truncated = (None, None) if flags is None else self.own(flags)
        result = Step(
            seen, None if reward is None else self.own(reward), terminated, truncated, {}, valid
        )
        if begins is None:
            self.state, result = self._step(self.state, result)
            return result, result.observation
        self.state, result, observation = self._take(
            self.state, self._fresh, result, begins, observation, self._same_step
        )
        return result, observation

    def seed(self, seed: Any) -> None:
        """Seed the random numbers. If the seed is None, the current random numbers continue."""
        if seed is not None:
            self._seed, self._rng = seed, None

    def act(self, action: AnyTree) -> Any:
        """Convert the agent's actions to the actions for the environment."""
        if self.state is None:
            self.use(action)
        if self._rng is None:
            self._rng = Chain.rng(self.own.target, self._seed, self._place, self._inside)
        self.state, action = self.kernel.action(self.xp, self._rng, self.state, self.own(action))  # type: ignore[arg-type]
        return action

    def read(self) -> dict[str, Any]:
        if self.state is None and self._loaded is not None:
            return copy.deepcopy(self._loaded)
        return super().read()

    def _held(self) -> tuple[Any, Any, Any]:
        if self.state is not None:
            return super()._held()
        # until the library is known, the statistics are in NumPy
        xp = namespace(af.registry.backend("numpy"))
        return xp, None, self.kernel.init(xp, 1, self.kernel.inside, None).lasting[self.name]

    def load(self, given: Any) -> None:
        if self.state is None:
            self._loaded = given.read()
        else:
            super().load(given)

    def batched(self, space: Space[Any], value: AnyTree) -> Any:
        """Return a value of a space as a batch of one value. Parts that are not arrays, such as texts, become lists."""
        if isinstance(space, ARRAYS):
            return value[None, ...] if hasattr(value, "ndim") else np.asarray(value)[None]
        pairs = zip(leaves(space), split(space, value), strict=True)
        return build(
            space,
            (self.batched(leaf, x) if isinstance(leaf, ARRAYS) else [x] for (leaf, _), x in pairs),
        )

    def single(self, space: Space[Any], batch: AnyTree) -> Any:
        """Return the only value of a batch of one value."""
        if isinstance(space, ARRAYS) and not isinstance(space, spaces.Discrete):
            return batch[0, ...]
        if isinstance(space, (spaces.Dict, spaces.Tuple)):
            pairs = zip(leaves(space), split(space, batch), strict=True)
            return build(space, (self.single(leaf, x) for (leaf, _), x in pairs))
        return batch[0]

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for copies and pickles, without those that `_make_functions` sets."""
        state = {**self.__dict__}
        for name in ("_begin", "_step", "_take", "device", "xp"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.state is not None:
            self._make_functions()
