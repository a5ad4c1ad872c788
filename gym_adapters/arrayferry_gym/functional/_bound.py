"""An environment bound to a library: its methods, with their results checked and brought into one form."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

import arrayferry as af
from arrayferry_gym._dtypes import cast_numbers, held_dtype, plain_name
from arrayferry_gym._space_trees import branches, build, leaves, split

from ._base import FunctionalEnv
from ._errors import EnvResultError
from ._identity import held_arrays

__all__ = ["Bound", "bounds", "namespace", "portable", "select"]


class Bound:
    """An environment, a library, and how many environments there are.

    Args:
        env: the environment.
        backend: the library that its methods compute in.
        n: how many environments.
        limit: after how many steps an episode is truncated, None for never.
        device: the device of arrays, None for the library's own choice.

    Attributes:
        xp: the namespace of the library.
        layout: that of the states, once there was one.
    """

    def __init__(
        self,
        env: FunctionalEnv,
        backend: af.Backend,
        n: int,
        limit: int | None,
        device: Any = None,
    ) -> None:
        self.env = env
        self.name = type(env).__name__
        self.backend = backend
        self.n = n
        self.limit = limit
        self.device = device
        self.xp = namespace(backend)
        for function in ("astype", "where", "clip", "stack"):
            if not hasattr(self.xp, function):
                raise af.OptionError(
                    f"xp={backend.name!r}: environments need the Array API standard, but there is no {function}",
                    remedy='Use another library, such as "numpy".',
                )
        self.layout: af.Layout | None = None
        self.forms: list[tuple[Any, tuple[int, ...]]] = []
        self.has_info = type(env).info is not FunctionalEnv.info
        self._told = False
        self._uneven = False
        self._held: tuple[int, frozenset[int]] = -1, frozenset()
        self._bool = self._dtype("bool")
        self._float = self._dtype("float32")
        self._rewards: Any = self._float  # of a dtype that need not be looked at
        self._casts = self._observed_dtypes()
        self._places = [path for _, path in leaves(env.observation_space)]
        self.clip = _clip(self.xp, backend, device, env.action_space)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (
            self.env, portable(self.backend), self.n, self.limit, self.device, self.layout
        )  # fmt: skip

    def _observed_dtypes(self) -> list[tuple[Any, tuple[int, ...]]]:
        """Return the dtype and the shape of each array of an observation."""
        found = []
        space: Any
        for space, _ in leaves(self.env.observation_space):
            if not isinstance(space, _ARRAYS):
                raise EnvResultError(
                    f"{self.name} has the space {space}, whose values are no arrays of one shape",
                    remedy="Use Box, Discrete, MultiDiscrete and MultiBinary, alone or in Dict and Tuple.",
                )
            name = held_dtype(space.dtype, self.backend)
            found.append((self._dtype(name), (self.n, *space.shape)))
        return found

    def _dtype(self, name: str) -> Any:
        """Return the dtype of a name, as arrays of the library have it."""
        return self.backend.from_numpy(np.zeros((), name)).dtype

    def _full(self, value: Any, dtype: Any) -> Any:
        """Return a new array with one number for each environment."""
        if self.backend.name == "numpy":  # twice as fast as numpy.full
            x = np.empty(self.n, dtype)
            x.fill(value)
            return x
        return self.xp.full((self.n,), value, dtype=dtype)

    def reset(self, rng: Any, n: int, params: Any, *, checked: bool = False) -> Any:
        """Return states of `n` environments at the start, with `checked` without checking them again."""
        state = self.env.reset(self.xp, rng, n, params)
        if checked and not self._uneven:
            return state
        leaves, layout = af.flatten(state)
        if not leaves:
            raise EnvResultError(
                f"{self.name}.reset() returned {state!r:.80}, which holds no array",
                remedy="Return a tree of arrays that begin with the axis of environments.",
            )
        if self.layout is None:
            self.layout = layout
        return self._same(state, leaves, layout, "reset", n)

    def adopt(self, state: Any) -> None:
        """Take the structure and the dtypes of states as those that all others must have."""
        leaves, self.layout = af.flatten(state)
        self._same(state, leaves, self.layout, "the state", self.n)

    def check(self, state: Any) -> Any:
        """Return states from elsewhere, if they fit.

        Raises:
            EnvResultError: they do not.
        """
        leaves, layout = af.flatten(state)
        return self._same(state, leaves, layout, "the state that was set,", self.n)

    def step(
        self, rng: Any, state: Any, action: Any, params: Any, *, checked: bool = False
    ) -> tuple[Any, Any, Any]:
        """Return the next states, rewards and terminations, checked.

        With `checked`, the structure of the states is not checked again.
        """
        result = self.env.step(self.xp, rng, state, action, params)
        try:
            state, reward, terminated = result
        except (TypeError, ValueError):
            raise EnvResultError(
                f"{self.name}.step() returned {type(result).__name__}, not three values",
                remedy="Return the state, the reward and whether it has terminated.",
            ) from None
        if not checked or self._uneven:
            leaves, layout = af.flatten(state)
            state = self._same(state, leaves, layout, "step", self.n)
        return state, self._reward(reward), self._terminated(terminated)

    def _same(self, state: Any, leaves: list[Any], layout: af.Layout, source: str, n: int) -> Any:
        """Return states, if they have the structure and the dtypes of the first, and begin with `n` environments.

        Floats of another precision are cast, so that `xp.zeros(n)` without a dtype is the same in each library.
        """
        if layout != self.layout:
            raise EnvResultError(
                f"{self._source(source)} gave the state {layout!r}, but the first reset() {self.layout!r}",
                remedy="Return states of the same structure.",
            )
        if not self.forms:
            self.forms = [(leaf.dtype, tuple(leaf.shape)[1:]) for leaf in leaves]
        fitted = leaves
        for index, (path, leaf, (dtype, rest)) in enumerate(
            zip(layout.paths, leaves, self.forms, strict=True)
        ):
            found = af.registry.kind(leaf).backend
            if found is not None and found.name != self.backend.name:
                raise EnvResultError(
                    f"{self._source(source)} gave an array of {found.name} for state{path}, but {self.backend.name} is used",
                    remedy="Make arrays with xp and rng.",
                )
            if leaf.dtype != dtype and {plain_name(leaf.dtype), plain_name(dtype)} <= _FLOATS:
                self._uneven = True
                fitted = [*fitted[:index], self.xp.astype(leaf, dtype), *fitted[index + 1 :]]
            elif leaf.dtype != dtype:
                raise EnvResultError(
                    f"{self._source(source)} gave {leaf.dtype} for state{path}, but the first reset() {dtype}",
                    remedy="Keep its dtype, for instance by xp.astype(x, xp.float32).",
                )
            if tuple(leaf.shape) != (n, *rest):
                raise EnvResultError(
                    f"{self._source(source)} gave the shape {tuple(leaf.shape)} for state{path}, but with {n} environments "
                    f"it must be {(n, *rest)}",
                    remedy="Let each array begin with the axis of environments, and keep its shape.",
                )
        return state if fitted is leaves else layout.unflatten(fitted)

    def _source(self, source: str) -> str:
        """Return what messages call the source of a state: a method with its line, or something else."""
        method = getattr(self.env, source, None)
        return f"{self.name}.{source}() ({_line(method)})" if method else source

    def _reward(self, reward: Any) -> Any:
        if isinstance(reward, (int, float)):
            if isinstance(reward, int) and reward.bit_length() > 24:
                self._exact(np.asarray(reward))
            return self._full(float(reward), self._float)
        if not hasattr(reward, "dtype") or tuple(reward.shape)[:1] != (self.n,):
            raise EnvResultError(
                f"the reward of {self.name}.step() is {reward!r:.80}, but must begin with {self.n} environments",
                remedy=f"Return an array of shape ({self.n},).",
            )
        if reward.dtype == self._rewards:
            return reward
        kind = plain_name(reward.dtype)
        if "float" in kind:
            self._rewards = reward.dtype
            return reward
        if kind.startswith("complex"):
            raise EnvResultError(
                f"the reward of {self.name}.step() is of dtype {kind}",
                remedy="Return its real part.",
            )
        if kind not in _SHORT:
            self._check_whole(reward, kind)
        return self.xp.astype(reward, self._float)

    def _check_whole(self, reward: Any, kind: str) -> None:
        """Check that rewards that are whole numbers can be floats; warn once where their values are not at hand."""
        backend = self.backend
        if backend.name != "jax" and backend.device_of(reward) == "cpu":
            self._exact(backend.to_numpy(reward.detach() if backend.name == "torch" else reward))
        elif not self._told and not getattr(reward, "weak_type", False):
            self._told = True
            warnings.warn(
                f"the rewards of {self.name}.step() are of dtype {kind}. They become float32, which is exact up to "
                "16,777,216. Return xp.astype(reward, xp.float32) if they are never beyond",
                stacklevel=2,
            )

    def _exact(self, reward: Any) -> None:
        try:
            cast_numbers(reward, np.dtype(np.float32))
        except ValueError as error:
            raise EnvResultError(
                f"the reward of {self.name}.step() loses digits: {error}",
                remedy="Return floats: xp.astype(reward, xp.float64), or smaller numbers.",
            ) from None

    def _terminated(self, terminated: Any) -> Any:
        if isinstance(terminated, bool):
            return self._full(terminated, self._bool)
        if (
            not hasattr(terminated, "dtype")
            or terminated.dtype != self._bool
            or tuple(terminated.shape) != (self.n,)
        ):
            raise EnvResultError(
                f"terminated of {self.name}.step() is {terminated!r:.80}, but must be {self.n} truth values",
                remedy=f"Return an array of shape ({self.n},) and dtype bool.",
            )
        return terminated

    def observe(self, state: Any, params: Any) -> Any:
        """Return observations of the dtypes of their space, checked."""
        observation = self.env.observe(self.xp, state, params)
        space = self.env.observation_space
        if not isinstance(space, (spaces.Dict, spaces.Tuple)) and hasattr(observation, "dtype"):
            dtype, shape = self._casts[0]
            if observation.dtype == dtype and observation.shape == shape:
                return observation
            return self._observed(observation, dtype, shape, "")
        parts = zip(split(space, observation, self._unlike), self._places, self._casts, strict=True)
        return build(space, (self._observed(x, *cast, path) for x, path, cast in parts))

    def _observed(self, x: Any, dtype: Any, shape: tuple[int, ...], path: str) -> Any:
        if not hasattr(x, "dtype"):
            raise self._unlike(x, path, "an array")
        if tuple(x.shape) != shape:
            raise self._unlike(x, path, f"an array of shape {shape}")
        return x if x.dtype == dtype else self.xp.astype(x, dtype)

    def _unlike(self, value: Any, path: str, wanted: str) -> EnvResultError:
        shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
        return EnvResultError(
            f"the observation{path} of {self.name}.observe() is a {type(value).__name__}{shape}, but its space "
            f"asks for {wanted}",
            remedy="Let it begin with the axis of environments, followed by the shape of the space.",
        )

    def inform(self, state: Any, params: Any) -> dict[str, Any]:
        """Return the infos of states."""
        if not self.has_info:
            return {}
        info = self.env.info(self.xp, state, params)
        if not isinstance(info, dict):
            raise EnvResultError(f"{self.name}.info() returned {info!r:.80}, not a dict")
        for key, value in info.items():
            for leaf in af.flatten(value, everything=True)[0]:
                if not isinstance(key, str) or tuple(getattr(leaf, "shape", ()))[:1] != (self.n,):
                    raise EnvResultError(
                        f"{self.name}.info() returned {leaf!r:.80} for {key!r}",
                        remedy=f"Return arrays that begin with the axis of {self.n} environments, under texts.",
                    )
        return info

    def held(self) -> frozenset[int]:
        """Return the ids of the NumPy arrays that the environment itself holds."""
        count = len(vars(self.env))
        if count != self._held[0]:  # at first, and when it has computed a cached property
            self._held = count, held_arrays(self.env)
        return self._held[1]

    def leaves(self, state: Any) -> list[Any]:
        """Return the arrays of states."""
        assert self.layout is not None
        return list(state) if self.layout.is_of(type(state)) else af.flatten(state)[0]

    def join(self, leaves: Any) -> Any:
        """Return states around arrays."""
        assert self.layout is not None
        return self.layout.unflatten(leaves)


_FLOATS = {"float16", "bfloat16", "float32", "float64"}

_SHORT = {"bool", "int8", "uint8", "int16", "uint16"}
"""Dtypes of whole numbers that all fit float32."""


def _line(method: Any) -> str:
    """Return the place of a method in the author's code."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "without source"


def _restored(env: Any, backend: Any, n: int, limit: Any, device: Any, layout: Any) -> Bound:
    bound = Bound(env, af.registry.backend(backend), n, limit, device)
    bound.layout = layout
    return bound


def portable(backend: af.Backend) -> str | af.Backend:
    """Return what another process finds a backend by: its name if it is registered."""
    return backend.name if af.registry.backends().get(backend.name) is backend else backend


def select(xp: Any, mask: Any, new: Any, old: Any) -> Any:
    """Return the rows of `new` where the mask is true, and those of `old` elsewhere."""
    if tuple(old.shape) == tuple(mask.shape):
        return xp.where(mask, new, old)
    return xp.where(xp.reshape(mask, (mask.shape[0],) + (1,) * (len(old.shape) - 1)), new, old)


def namespace(backend: af.Backend) -> Any:
    """Return the namespace of a library, as the methods of an environment get it."""
    return af.namespace_of(backend.from_numpy(np.zeros((), np.float32)))


_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def _clip(xp: Any, backend: af.Backend, device: Any, space: Any) -> Callable[[Any], Any]:
    """Return a function that clips actions to a space. Its results are new arrays, unlike its argument."""
    if branches(space) is not None:
        clips = [_clip(xp, backend, device, leaf) for leaf, _ in leaves(space)]

        def clip_parts(action: Any) -> Any:
            parts = zip(clips, split(space, action), strict=True)
            return build(space, (clip(part) for clip, part in parts))

        return clip_parts
    dtype = held_dtype(space.dtype, backend)
    low, high = bounds(space, dtype)
    if low.dtype.kind == "f" and np.all(np.isinf(low)) and np.all(np.isinf(high)):
        return lambda x: x + 0
    if backend.name == "numpy":
        maximum, minimum = np.maximum, np.minimum  # several times as fast as clip for few numbers
        return lambda x: minimum(maximum(x, low), high)
    if low.ndim:
        low, high = (backend.from_numpy(edge, device) for edge in (low, high))
    elif backend.name != "jax":
        low, high = low.item(), high.item()
    return lambda x: xp.clip(x, low, high)


def bounds(space: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the lowest and the highest numbers of a space, as NumPy arrays of a dtype, 0-d if all are alike."""
    if isinstance(space, spaces.Discrete):
        low, high = space.start, space.start + space.n - 1
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    elif isinstance(space, spaces.MultiBinary):
        low, high = 0, 1
    else:
        low, high = space.low, space.high
    edges = []
    for edge in map(np.asarray, (low, high)):
        if np.all(edge == edge.flat[0]):
            edge = edge.flat[0]
        limits = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else None
        if limits is not None:
            edge = np.clip(np.asarray(edge, object), limits.min, limits.max)
        edges.append(np.asarray(edge, dtype))
    low, high = np.broadcast_arrays(*edges)
    return low.copy(), high.copy()
