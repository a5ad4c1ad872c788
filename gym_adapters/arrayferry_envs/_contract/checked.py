"""Calls the methods of an environment in one library, and checks and normalizes their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from gymnasium import spaces

import arrayferry as af
from arrayferry.extending import dtype_name, portable
from arrayferry.typing import AnyArray, AnyTree, Device, Namespace
from arrayferry_gym.extending import ARRAYS, build, held_dtype, leaves, namespace, select, split

from .actions import clipper
from .errors import EnvResultError
from .functional_env import FunctionalEnv
from .held import held_arrays
from .mistakes import line_of, wrong_signatures
from .sampled import SampledParams, WithParams
from .step_results import StepResults


class CheckedEnv:
    """A batch of environments in one library, with checks of the results of their methods.

    Args:
        functional: the environment.
        backend: the library in which the methods compute.
        n: the number of environments.
        limit: the number of steps after which an episode is truncated, or None for no limit.
        device: the device of arrays, or None for the library's default.

    Attributes:
        xp: the namespace of the library.
        layout: the layout of the states, or None before the first reset.
        sampled: the object that draws parameters, or None if the environment draws none.
        traces: whether the library is JAX, which calls the methods only to trace them.
        known: whether a step was checked since the last call of `Stepper.reset`, so that later states need no check.
    """

    def __init__(
        self,
        functional: FunctionalEnv,
        backend: af.Backend,
        n: int,
        limit: int | None,
        device: Device = None,
    ) -> None:
        self.functional = functional
        self.name = type(functional).__name__
        if functional.library not in (None, backend.name):
            raise af.OptionError(
                f"{self.name} computes in {functional.library}, not in {backend.name}",
                remedy=f"Use its method make_vec(xp={backend.name!r}), which converts arrays.",
            )
        self.backend = backend
        self.n = n
        self.limit = limit
        self.device = device
        self.xp = namespace(backend)
        for function in ("astype", "where", "clip", "stack"):
            if not hasattr(self.xp, function):
                raise af.OptionError(
                    f"xp={backend.name!r}: environments need the Array API standard, but this library has no {function}()",
                    remedy='Use another library, such as "numpy".',
                )
        self.layout: af.TreeSpec | None = None
        self.forms: list[tuple[Any, tuple[int, ...]]] = []
        self.has_info = functional._informs
        space = functional.observation_space
        self.masks_actions = isinstance(space, spaces.Dict) and "action_mask" in space.spaces
        self._uneven = False
        self.known = False
        self.traces = backend.name == "jax"
        self._held: tuple[int, frozenset[int]] = -1, frozenset()
        self._results = StepResults(functional, self.xp, n)
        is_called = {"reset": True, "step": True, "observe": True, "info": self.has_info,
                  "sample_params": functional._draws_params}  # fmt: skip
        for method, definition in wrong_signatures(functional, filter(is_called.get, is_called)):
            raise EnvResultError(
                f"{self._source(method)} does not accept its arguments",
                remedy=f"Write {definition}.",
            )
        self.sampled: SampledParams | None = None
        if functional._draws_params:
            self.sampled = SampledParams(functional, keeps=not self.traces)
        for leaf, _ in (*leaves(space), *leaves(functional.action_space)):
            if not isinstance(leaf, ARRAYS):
                raise EnvResultError(
                    f"{self.name} has the space {leaf}, whose values are not arrays of one shape",
                    remedy="Use Box, Discrete, MultiDiscrete and MultiBinary, alone or in Dict and Tuple.",
                )
        # the dtype, the shape and the path of each array in a batch of observations
        self._casts: list[tuple[Any, tuple[int, ...], str]] = []
        for leaf, path in leaves(space):
            dtype = backend.from_numpy(np.zeros((), held_dtype(leaf.dtype, backend))).dtype
            self._casts.append((dtype, (n, *(leaf.shape or ())), path))
        self.clip = clipper(functional.action_space, backend, device)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (
            self.functional, portable(self.backend), self.n, self.limit, self.device, self.layout
        )  # fmt: skip

    def reset(self, rng: Any, n: int, params: AnyTree, pinned: Any = ()) -> Any:
        """Return states of `n` environments at the start of an episode."""
        if self.sampled is None:
            state = self.functional.reset(self.xp, rng, n, params)
        else:
            rng = self.functional._random(self.xp, rng, n)
            sampled = self.sampled.draw(self.xp, rng, n, params, pinned)
            params = self.sampled.whole(WithParams(None, sampled), params).params
            state = WithParams(self.functional.reset(self.xp, rng, n, params), sampled)
        return state if self.known else self._same(state, "reset", n)

    def adopt(self, state: AnyTree) -> None:
        """Require all later states to have the structure and dtypes of these states."""
        self.layout = None
        self._same(state, "reading the state", self.n)

    def check(self, state: AnyTree, fit: Callable[[Any, Any, str], Any]) -> Any:
        """Check states that a user passed, and return them.

        Args:
            state: the states that the user passed.
            fit: a function (array, dtype, name of the array for messages) that casts floats of another precision.

        Raises:
            EnvResultError: the structure, a shape or a dtype of the states is wrong.
        """
        return self._same(state, "setting the state", self.n, fit)

    def step(
        self, rng: Any, state: AnyTree, action: AnyTree, params: AnyTree
    ) -> tuple[Any, Any, Any, Any]:
        """Take a step. Return the checked states, rewards, terminations, and truncations or None."""
        sampled = None
        if self.sampled is not None:
            sampled = state.params
            state, params = self.sampled.whole(state, params)
        result = self.functional.step(self.xp, rng, state, action, params)
        state, reward, terminated, truncated = self._results(result)
        if self.sampled is not None:
            state = WithParams(state, sampled)
        if not self.known:
            state = self._same(state, "step", self.n)
            self.known = not self._uneven and not self.traces
        return state, reward, terminated, truncated

    def _same(self, state: AnyTree, source: str, n: int, fit: Any = None) -> Any:
        """Check that states have the structure and dtypes of the first states, and an axis of `n` environments.

        Floats of another precision are cast, because the dtype of `xp.zeros(n)` differs between libraries.
        """
        leaves, layout = af.flatten(state)
        if not leaves:
            raise EnvResultError(
                f"{self._source(source)} gave {state!r:.80}, which contains no array",
                remedy="Return a tree of arrays whose first axis is the axis of environments.",
            )
        if self.layout is None:
            self.layout = layout
        if layout != self.layout:
            raise EnvResultError(
                f"{self._source(source)} gave the state {layout!r}, but the first reset() returned {self.layout!r}",
                remedy="Return states with the same structure.",
            )
        if not self.forms:
            self.forms = [(leaf.dtype, tuple(leaf.shape)[1:]) for leaf in leaves]
        fitted = leaves
        for index, (path, leaf, (dtype, row_shape)) in enumerate(
            zip(layout.paths, leaves, self.forms, strict=True)
        ):
            owner = af.registry.kind(leaf).backend
            if owner is not None and owner.name != self.backend.name:
                raise EnvResultError(
                    f"{self._source(source)} gave an array of {owner.name} for state{path}, but this environment needs {self.backend.name}",
                    remedy="Create arrays with xp and rng.",
                )
            if leaf.dtype != dtype and {dtype_name(leaf.dtype), dtype_name(dtype)} <= _FLOATS:
                self._uneven = True
                leaf = fit(leaf, dtype, f"state{path}") if fit else self.xp.astype(leaf, dtype)
                fitted = [*fitted[:index], leaf, *fitted[index + 1 :]]
            elif leaf.dtype != dtype:
                raise EnvResultError(
                    f"{self._source(source)} gave {leaf.dtype} for state{path}, but the first reset() returned {dtype}",
                    remedy=f"Cast it, for instance by xp.astype(x, xp.{dtype_name(dtype)}).",
                )
            if tuple(leaf.shape) != (n, *row_shape) and index not in self.functional._shared:
                raise EnvResultError(
                    f"{self._source(source)} gave the shape {tuple(leaf.shape)} for state{path}, but with {n} environments "
                    f"it must be {(n, *row_shape)}",
                    remedy="The first axis of each array must be the axis of environments, and shapes must not change.",
                )
        return state if fitted is leaves else layout.unflatten(fitted)

    def _source(self, source: str) -> str:
        """Describe the source of a state for messages: a method with its line, or the given text."""
        method = getattr(self.functional, source, None)
        return f"{self.name}.{source}() ({line_of(method)})" if method else source

    def observe(self, state: AnyTree, params: AnyTree) -> Any:
        """Compute the observations of states, check them, and return them in the dtypes of their space."""
        if self.sampled is not None:
            state, params = self.sampled.whole(state, params)
        observation = self.functional.observe(self.xp, state, params)
        space = self.functional.observation_space
        if not isinstance(space, (spaces.Dict, spaces.Tuple)) and hasattr(observation, "dtype"):
            dtype, shape, path = self._casts[0]
            if observation.dtype == dtype and observation.shape == shape:
                return observation
            return self._observed(observation, dtype, shape, path)
        pairs = zip(split(space, observation, self._unlike), self._casts, strict=True)
        return build(space, (self._observed(x, *leaf_cast) for x, leaf_cast in pairs))

    def _observed(self, x: AnyArray, dtype: Any, shape: tuple[int, ...], path: str) -> Any:
        if not hasattr(x, "dtype"):
            raise self._unlike(x, path, "an array")
        if tuple(x.shape) != shape:
            raise self._unlike(x, path, f"an array of shape {shape}")
        return x if x.dtype == dtype else self._results.cast(x, dtype, f"observation{path}")

    def _unlike(self, value: AnyTree, path: str, wanted: str) -> EnvResultError:
        found = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
        remedy = "Its shape must be the number of environments, followed by the shape of the space."
        if isinstance(value, dict):
            found, remedy = f" with the keys {list(value)}", "Return the structure of the space."
        return EnvResultError(
            f"the observation{path} of {self.name}.observe() is a {type(value).__name__}{found}, but its space "
            f"requires {wanted}",
            remedy=remedy,
        )

    def shown(self, state: AnyTree) -> Any:
        """Return states as the environment returned them, without sampled parameters."""
        return state if self.sampled is None else state.state

    def inform(self, state: AnyTree, params: AnyTree) -> dict[str, Any]:
        """Compute the infos of states, check them, and return them."""
        if not self.has_info:
            return {}
        if self.sampled is not None:
            state, params = self.sampled.whole(state, params)
        info = self.functional.info(self.xp, state, params)
        if not isinstance(info, dict):
            raise EnvResultError(f"{self.name}.info() returned {info!r:.80}, not a dict")
        for key, value in info.items():
            if isinstance(key, str) and hasattr(value, "dtype") and value.shape[:1] == (self.n,):
                continue
            for leaf in af.flatten(value, everything=True)[0]:
                if not isinstance(key, str) or tuple(getattr(leaf, "shape", ()))[:1] != (self.n,):
                    raise EnvResultError(
                        f"{self.name}.info() returned {leaf!r:.80} for {key!r}",
                        remedy=f"Return a dict with string keys, and arrays whose first axis is that of the {self.n} environments.",
                    )
        return info

    def held(self) -> frozenset[int]:
        """Return the ids of the NumPy arrays in the attributes of the environment."""
        count = len(vars(self.functional))
        if count != self._held[0]:  # in the first call, or after a cached property was added
            self._held = count, held_arrays(self.functional)
        return self._held[1]

    def select(self, mask: AnyArray, new: Any, old: Any) -> Any:
        """Return the states in `new` where the mask is true, and the states in `old` elsewhere."""
        shared_indices = self.functional._shared
        return self.join(
            select_leaves(self.xp, mask, self.leaves(new), self.leaves(old), shared_indices)
        )

    def leaves(self, state: AnyTree) -> list[Any]:
        """Return the arrays of states."""
        assert self.layout is not None
        return list(state) if self.layout.is_of(type(state)) else af.flatten(state)[0]

    def join(self, leaves: Any) -> Any:
        """Make states from their arrays."""
        assert self.layout is not None
        return self.layout.unflatten(leaves)


_FLOATS = {"float16", "bfloat16", "float32", "float64"}


def _restored(
    functional: Any, backend: Any, n: int, limit: Any, device: Device, layout: Any
) -> CheckedEnv:
    env = CheckedEnv(functional, af.registry.backend(backend), n, limit, device)
    env.layout = layout
    return env


def select_leaves(
    xp: Namespace,
    mask: AnyArray,
    new: Iterable[Any],
    old: Iterable[Any],
    shared: Any = (),
    rows: AnyArray = None,
) -> list[Any]:
    """Return arrays with the rows of `new` where the mask is true, and the rows of `old` elsewhere.

    Args:
        xp: the namespace.
        mask: which rows are new, bool (n,).
        new: the arrays of new states.
        old: the arrays of old states, (n, ...).
        shared: the indices of arrays that all environments share. These arrays are returned from `old`.
        rows: the index of the row in `new` for each environment, integers (n,). None if row i is for environment i.
    """
    return [
        y if index in shared else select(xp, mask, x if rows is None else x[rows], y)
        for index, (x, y) in enumerate(zip(new, old, strict=True))
    ]
