"""Parameters that are sampled at each reset, and stored with the state."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

import arrayferry as af
from arrayferry.extending import dtype_name
from arrayferry.typing import AnyTree, Namespace
from arrayferry_gym.extending import cast_fitting

from .errors import EnvResultError
from .functional_env import FunctionalEnv
from .params import Params, completed, equal


class WithParams(NamedTuple):
    """The states of environments that draw their parameters.

    Attributes:
        state: the states, as the environment returned them.
        params: a tree like the parameters: arrays (n, ...) for sampled parameters, and None for other ones.
    """

    state: Any
    params: Any


class SampledParams:
    """Draws an environment's parameters, and combines them with its states.

    Args:
        env: the environment that draws the parameters.
        keeps: whether the last parameters are cached. Traced values must not be cached.
    """

    def __init__(self, env: FunctionalEnv, *, keeps: bool) -> None:
        self._env = env
        self._keeps = keeps
        self._name = type(env).__name__
        self._whole: tuple[Any, Any, Any] = None, object(), None

    def draw(
        self, xp: Namespace, rng: Any, n: int, params: AnyTree, pinned: tuple[bool, ...] = ()
    ) -> Any:
        """Return the sampled parameters of new episodes, with None in place of parameters that are not sampled.

        The result for a pinned parameter is its value in each row, with the shape and dtype of sampled values.
        """
        drawn = self._env.sample_params(xp, rng, n, params)
        leaves, layout = af.flatten(params, everything=True)
        by_path = _by_path(drawn)
        if type(drawn) is not type(params) or by_path.keys() != set(layout.paths):
            returned_layout = af.flatten(drawn, everything=True)[1]
            raise EnvResultError(
                f"{self._name}.sample_params() returned the parameters {returned_layout!r}, but was given {layout!r}",
                remedy="Return a tree with the same types and fields.",
            )
        sampled: list[Any] = []
        pinned = pinned or (False,) * len(leaves)
        for path, given, is_pinned in zip(layout.paths, leaves, pinned, strict=True):
            # find values by path, since vmap of JAX changes the order of dicts
            leaf = by_path[path]
            if leaf is given:
                sampled.append(None)
                continue
            shape = tuple(getattr(leaf, "shape", ()))
            if not hasattr(leaf, "dtype") or shape[:1] != (n,):
                found = f"the shape {shape}" if hasattr(leaf, "dtype") else f"{leaf!r:.80}"
                raise EnvResultError(
                    f"{self._name}.sample_params() returned {found} for params{path}",
                    remedy=f"Return an array whose first axis is that of the {n} environments, or the parameter unchanged.",
                )
            sampled.append(_rows_like(xp, given, leaf, f"params{path}") if is_pinned else leaf)
        return layout.unflatten(sampled)

    def check_pinned(self, state: WithParams, new: Params, before: Params) -> None:
        """Refuse to pin a sampled parameter for only some of the environments."""
        sampled, paths = _by_path(state.params), _by_path(new.tree)
        none = (False,) * len(paths)
        for path, a, b in zip(paths, new.pinned or none, before.pinned or none, strict=True):
            if sampled[path] is not None and a != b:
                raise af.OptionError(
                    f"params{path} was passed for some of the environments, but {self._name} draws it for the others",
                    remedy="Pass it without reset_mask. To change it for one episode, set envs.state.",
                )

    def whole(self, state: WithParams, params: AnyTree) -> WithParams:
        """Return states with all parameters, instead of only the sampled ones."""
        last_params, last_sampled, whole = self._whole
        if last_params is not params or last_sampled is not state.params:
            leaves, layout = af.flatten(params, everything=True)
            sampled = _by_path(state.params)
            pairs = zip(layout.paths, leaves, strict=True)
            all_leaves = [leaf if sampled[path] is None else sampled[path] for path, leaf in pairs]
            whole = layout.unflatten(all_leaves)
            if self._keeps:
                self._whole = params, state.params, whole
        return WithParams(state.state, whole)

    def of_whole(self, state: AnyTree, params: AnyTree, like: Any, *, tell: bool) -> Any:
        """Return states with only the sampled parameters.

        Args:
            state: the states, whose `params` are a tree like the parameters or a dict of some of them.
            params: the parameters before sampling.
            like: other states of the environment. They show which parameters are sampled, and supply those that `state`
                lacks.
            tell: whether to warn of new values for parameters that are not sampled. Such values are ignored.

        Raises:
            EnvResultError: the states have no parameters, or unknown ones.
        """
        if not isinstance(state, WithParams):
            raise EnvResultError(
                f"the state that was set, {state!r:.80}, has no parameters, but {self._name} draws them",
                remedy="Pass envs.state, or envs.state._replace(state=..., params=...).",
            )
        given_leaves = _by_path(completed(state.params, self.whole(like, params).params))
        leaves, layout = af.flatten(params, everything=True)
        if given_leaves.keys() != set(layout.paths):
            raise EnvResultError(
                f"the state that was set has the parameters {list(given_leaves)}, but {self._name} needs {layout.paths}",
                remedy="Pass a tree with the fields of envs.params, or a dict of some of them.",
            )
        sampled = _by_path(like.params)
        for path, value in zip(layout.paths, leaves, strict=True):
            if sampled[path] is not None:
                sampled[path] = given_leaves[path]
            elif tell and given_leaves[path] is not None and not equal(given_leaves[path], value):
                warnings.warn(
                    f"the state that was set has {given_leaves[path]!r:.60} for params{path}, which {self._name} does not draw. "
                    f'The parameter stays {value!r:.60}. Change it by reset(options={{"params": ...}})',
                    stacklevel=4,
                )
        return WithParams(state.state, layout.unflatten([sampled[path] for path in layout.paths]))


def _rows_like(xp: Namespace, value: AnyTree, like: Any, name: str) -> Any:
    """Return a parameter as an array with the shape (n, ...) and dtype of `like`. Errors contain `name`."""
    if not hasattr(value, "dtype"):
        cast_fitting(np.asarray(value), np.dtype(dtype_name(like.dtype)), name)
        return xp.full_like(like, value)
    value = value if value.shape == like.shape else value[None, ...]
    return xp.broadcast_to(cast_fitting(value, like.dtype, name), like.shape)


def _by_path(params: AnyTree) -> dict[str, Any]:
    """Return the leaves of parameters by their paths, since JAX changes the order of dicts."""
    leaves, layout = af.flatten(params, everything=True)
    return dict(zip(layout.paths, leaves, strict=True))
