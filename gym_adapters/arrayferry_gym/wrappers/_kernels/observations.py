"""Kernels that change each observation independently. Kernels that show earlier observations are in `frames`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from arrayferry._utilities.options import count_of
from arrayferry.extending import dtype_name
from arrayferry.typing import AnyArray, AnyTree, Device, Namespace
from arrayferry_gym._arrays import cast_clipped, dtype_in
from arrayferry_gym._episodes import Step
from arrayferry_gym._spaces.trees import keyed

from .kernel import Spaces, State
from .of_gymnasium import Observations, as_float, rescaling


class TransformObservation(Observations):
    """Applies a function to observations.

    Args:
        func: maps a batch of observations, (n, ...), to a batch of new observations.
        observation_space: the space of one new observation, or None if the space does not change.

    Examples:
        >>> from arrayferry_envs import CartPole, wrap
        >>> from arrayferry_gym.wrappers.kernels import TransformObservation
        >>> envs = wrap(CartPole(), TransformObservation(lambda observation: abs(observation))).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> bool((observations >= 0).all())
        True
    """

    def __init__(
        self, func: Callable[[Any], Any], observation_space: Space[Any] | None = None
    ) -> None:
        self.func = func
        self.observation_space = observation_space

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        return self.observation_space or observation, action

    def of(self, xp: Namespace, state: State, observation: AnyTree) -> Any:
        return self.func(observation)


class RescaleObservation(Observations):
    """Maps observations linearly from the bounds of their space to [`min_obs`, `max_obs`].

    Integer observations become float32.

    Args:
        min_obs: the lower bound of the results, a number or an array.
        max_obs: the upper bound of the results, a number or an array.

    Raises:
        TypeError: the observation space is not a Box.
        ValueError: a bound is an array of another shape than observations, `min_obs` is above `max_obs`, or a bound is
            infinite in only one of the two ranges.

    Examples:
        >>> from arrayferry_envs import Pendulum, wrap
        >>> from arrayferry_gym.wrappers.kernels import RescaleObservation
        >>> envs = wrap(Pendulum(), RescaleObservation(0, 1)).make_vec(2)
        >>> envs.single_observation_space
        Box(0.0, 1.0, (3,), float32)
    """

    def __init__(self, min_obs: Any, max_obs: Any) -> None:
        self.min_obs = min_obs
        self.max_obs = max_obs

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        return super().spaces(as_float(observation), action)[0], action

    def init(self, xp: Namespace, n: int, spaces: Spaces, device: Device) -> State:
        return rescaling(xp, spaces.observation, self.min_obs, self.max_obs, device)

    def of(self, xp: Namespace, state: State, observation: AnyTree) -> Any:
        *divisor, factor, intercept = state.fixed
        is_whole = observation.dtype != factor.dtype and self.inside.observation.dtype.kind != "f"  # type: ignore[union-attr]
        if is_whole:
            observation = xp.astype(observation, factor.dtype)
        if divisor:
            observation = observation / divisor[0]
        observation = observation * factor + intercept
        return xp.astype(observation, xp.float32) if is_whole else observation


class ReshapeObservation(Observations):
    """Reshapes observations.

    Args:
        shape: the new shape of one observation.

    Raises:
        TypeError: the observation space is not a Box, or the shape is not a tuple of integers.
        ValueError: `shape` and an observation have different numbers of elements.

    Examples:
        >>> from arrayferry_envs import CartPole, wrap
        >>> from arrayferry_gym.wrappers.kernels import ReshapeObservation
        >>> envs = wrap(CartPole(), ReshapeObservation((2, 2))).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations[0].shape
        (2, 2)
    """

    def __init__(self, shape: int | tuple[int, ...]) -> None:
        self.shape = shape

    def of(self, xp: Namespace, state: State, observation: AnyTree) -> Any:
        shape: Any = self.outside.observation.shape
        return xp.reshape(observation, (observation.shape[0], *shape))


class DtypeObservation(Observations):
    """Casts observations to another dtype.

    Args:
        dtype: the name of a dtype, or a dtype of NumPy or another library, such as `torch.float32`.

    Raises:
        TypeError: the observation space is not a Box, Discrete, MultiDiscrete or MultiBinary.

    Examples:
        >>> from arrayferry_envs import CartPole, wrap
        >>> from arrayferry_gym.wrappers.kernels import DtypeObservation
        >>> envs = wrap(CartPole(), DtypeObservation("float64")).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations.dtype
        dtype('float64')
    """

    def __init__(self, dtype: Any) -> None:
        try:
            np.dtype(dtype)
        except TypeError:  # a dtype of another library, such as torch.float32
            dtype = dtype_name(dtype)
        self.dtype = dtype

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        cast, action = super().spaces(observation, action)
        if isinstance(cast, spaces.Box) and cast.dtype.kind in "iu":
            source: Any = observation
            limits = np.iinfo(cast.dtype)
            # Gymnasium's wrapper casts a `high` above the range of the dtype to a low number, so clip it
            high = np.where(source.high >= limits.max, limits.max, cast.high).astype(cast.dtype)
            cast = spaces.Box(cast.low, high, dtype=cast.dtype.type)
        return cast, action

    def of(self, xp: Namespace, state: State, observation: AnyTree) -> Any:
        return cast_clipped(observation, dtype_in(xp, self.outside.observation.dtype))


class GrayscaleObservation(Observations):
    """Converts RGB images to greyscale.

    Args:
        keep_dim: whether the results have a colour axis, of length 1.

    Raises:
        TypeError: the observation space is not a Box.
        ValueError: the observation space is not uint8 of shape (height, width, 3) with the bounds 0 and 255.

    Examples:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> from arrayferry_envs import FunctionalEnv, wrap
        >>> from arrayferry_gym.wrappers.kernels import GrayscaleObservation
        >>> class White(FunctionalEnv):
        ...     observation_space = spaces.Box(0, 255, (4, 5, 3), np.uint8)
        ...     action_space = spaces.Discrete(2)
        ...     def reset(self, xp, rng, n, params):
        ...         return xp.full((n, 4, 5, 3), 255, dtype=xp.uint8)
        ...     def step(self, xp, rng, state, action, params):
        ...         return state, xp.zeros(action.shape), xp.zeros(action.shape, dtype=xp.bool)
        ...     def observe(self, xp, state, params):
        ...         return state
        >>> envs = wrap(White(), GrayscaleObservation()).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations[0].shape
        (4, 5)
    """

    def __init__(self, keep_dim: bool = False) -> None:
        self.keep_dim = keep_dim

    def of(self, xp: Namespace, state: State, observation: AnyTree) -> Any:
        image = xp.astype(observation, dtype_in(xp, np.dtype(np.float64)))
        grey = 0.2125 * image[..., 0] + 0.7154 * image[..., 1] + 0.0721 * image[..., 2]
        grey = xp.astype(grey, xp.uint8)
        return grey[..., None] if self.keep_dim else grey


class FlattenObservation(Observations):
    """Flattens observations into one-dimensional arrays. Discrete and MultiDiscrete values become one-hot vectors.

    Around a vector environment, Gymnasium's own wrapper flattens observations that contain values without a fixed
    shape, such as those of a Sequence or Text.

    Examples:
        >>> from gymnasium import spaces
        >>> from arrayferry_envs import CartPole, wrap
        >>> from arrayferry_gym.wrappers.kernels import FlattenObservation
        >>> class Side(CartPole):
        ...     observation_space = spaces.Discrete(2)
        ...     def observe(self, xp, state, params):
        ...         return xp.astype(state.angle > 0, xp.int32)
        >>> envs = wrap(Side(), FlattenObservation()).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations[0].shape
        (2,)
    """

    _places: list[tuple[Any, tuple[Any, ...]]]

    def of(self, xp: Namespace, state: State, observation: AnyTree) -> Any:
        return _flat(xp, self._places, self.outside.observation.dtype, observation)

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        vars(self)["_places"] = list(keyed(observation))
        return super().spaces(observation, action)


class FilterObservation(Observations):
    """Selects parts of Dict or Tuple observations.

    Args:
        filter_keys: the keys of a Dict, or the indices of a Tuple, to select.

    Raises:
        ValueError: a key or index does not exist, or the observation space is not a Dict or Tuple.

    Examples:
        >>> from gymnasium import spaces
        >>> from arrayferry_envs import CartPole, wrap
        >>> from arrayferry_gym.wrappers.kernels import FilterObservation
        >>> class Parts(CartPole):
        ...     observation_space = spaces.Dict(cart=spaces.Box(-5, 5, ()), pole=spaces.Box(-1, 1, ()))
        ...     def observe(self, xp, state, params):
        ...         return {"cart": state.position, "pole": state.angle}
        >>> envs = wrap(Parts(), FilterObservation(["pole"])).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> [*observations]
        ['pole']
    """

    def __init__(self, filter_keys: Sequence[str | int]) -> None:
        self.filter_keys = filter_keys

    def of(self, xp: Namespace, state: State, observation: AnyTree) -> Any:
        parts: Any = {key: observation[key] for key in self.filter_keys}
        return parts if isinstance(self.inside.observation, spaces.Dict) else tuple(parts.values())


class TimeAwareObservation(Observations):
    """Adds to observations the number of steps in the episode so far.

    Args:
        flatten: whether the result is a one-dimensional array, rather than a dict or tuple.
        normalize_time: whether the number of steps is divided by the step limit, in float32.
        dict_time_key: the key of the number of steps, if observations are dicts.
        max_episode_steps: the step limit, or None for the environment's own limit.

    Raises:
        ValueError: no step limit was passed and the environment has none, or observations already have `dict_time_key`.

    Examples:
        >>> from arrayferry_envs import CartPole, wrap
        >>> from arrayferry_gym.wrappers.kernels import TimeAwareObservation
        >>> envs = wrap(CartPole(), TimeAwareObservation()).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations[0].shape
        (5,)
    """

    _places: list[tuple[Any, tuple[Any, ...]]]

    def __init__(
        self,
        flatten: bool = True,
        normalize_time: bool = False,
        *,
        dict_time_key: str = "time",
        max_episode_steps: int | None = None,
    ) -> None:
        if max_episode_steps is not None:
            max_episode_steps = count_of("max_episode_steps", max_episode_steps)
        self.flatten = flatten
        self.normalize_time = normalize_time
        self.dict_time_key = dict_time_key
        self.max_episode_steps = max_episode_steps

    @property
    def limit(self) -> int | None:
        """The step limit, or None if the limit is unknown."""
        limit = self.max_episode_steps
        return self.inside.max_episode_steps if limit is None else limit

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        limit = self.limit
        if limit is None:
            raise ValueError(
                "The environment must be wrapped by a TimeLimit wrapper or the spec must specify a `max_episode_steps`. "
                "If neither is possible, pass max_episode_steps"
            )
        timed = self._with_time(observation, limit)
        vars(self)["_places"] = list(keyed(timed))
        return (spaces.flatten_space(timed) if self.flatten else timed), action

    def _with_time(self, observation: Space[Any], limit: int) -> Space[Any]:
        time_space: Space[Any] = spaces.Box(0, min(limit, 2**31 - 1), dtype=np.int32)
        if self.normalize_time:
            time_space = spaces.Box(0.0, 1.0)
        if isinstance(observation, spaces.Dict):
            if self.dict_time_key in observation.spaces:
                raise ValueError(
                    f"The `dict_time_key` ({self.dict_time_key!r}) already exists in the observation space. Pass another key."
                )
            # Gymnasium before 1.4 has no `sort_keys`
            has_sort_keys = hasattr(observation, "sort_keys")
            options: Any = {"sort_keys": observation.sort_keys} if has_sort_keys else {}
            return spaces.Dict({self.dict_time_key: time_space, **observation.spaces}, **options)
        if isinstance(observation, spaces.Tuple):
            return spaces.Tuple((*observation.spaces, time_space))
        return spaces.Dict(obs=observation, time=time_space)

    def init(self, xp: Namespace, n: int, spaces: Spaces, device: Device) -> State:
        return State(xp.zeros((n,), dtype=xp.int32, device=device))

    def step(self, xp: Namespace, state: State, result: Step) -> tuple[State, Step]:
        time = state.episode + (1 if result.valid is None else xp.astype(result.valid, xp.int32))
        return super().step(xp, State(time), result)

    def of(self, xp: Namespace, state: State, observation: AnyTree) -> Any:
        time = state.episode[:, None]
        if self.normalize_time:
            ratio = xp.astype(time, dtype_in(xp, np.dtype(float))) / self.limit
            time = xp.astype(ratio, xp.float32)
        space = self.inside.observation
        if isinstance(space, spaces.Dict):
            observation = {self.dict_time_key: time, **observation}
        elif isinstance(space, spaces.Tuple):
            observation = (*observation, time)
        else:
            observation = {"obs": observation, "time": time}
        if not self.flatten:
            return observation
        return _flat(xp, self._places, self.outside.observation.dtype, observation)


def _flat(xp: Namespace, places: Any, dtype: Any, batch: AnyTree) -> Any:
    """Return a batch flattened to (n, size), in the dtype of the flattened space."""
    parts = []
    for leaf, path in places:
        x = batch
        for key in path:
            x = x[key]
        if not hasattr(x, "shape"):  # `x` has values that are not arrays, such as texts
            parts.append(
                xp.asarray(np.stack([np.asarray(spaces.flatten(leaf, value)) for value in x]))
            )
        elif isinstance(leaf, spaces.Discrete):
            parts.append(_one_hot(xp, x - int(leaf.start), int(leaf.n)))
        elif isinstance(leaf, spaces.MultiDiscrete):
            x = xp.reshape(x, (x.shape[0], -1))
            counts, starts = leaf.nvec.ravel().tolist(), leaf.start.ravel().tolist()
            parts += [
                _one_hot(xp, x[:, i] - start, count)
                for i, (start, count) in enumerate(zip(starts, counts, strict=True))
            ]
        else:
            parts.append(x if x.ndim == 2 else xp.reshape(x, (x.shape[0], -1)))
    dtype = dtype_in(xp, dtype)
    parts = [part if part.dtype == dtype else cast_clipped(part, dtype) for part in parts]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)


def _one_hot(xp: Namespace, x: AnyArray, count: int) -> Any:
    indices = xp.astype(xp.arange(count, device=getattr(x, "device", None)), x.dtype)
    return x[:, None] == indices[None, :]
