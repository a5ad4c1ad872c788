"""Actions of any library, converted to the arrays that the methods of an environment get."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space

import arrayferry as af
from arrayferry_gym._actions import Fitter
from arrayferry_gym._dtypes import held_dtype, plain_name
from arrayferry_gym._space_trees import build, leaves, split

from ._clipping import lowest_and_highest
from ._xp import namespace, portable

__all__ = ["Actions"]


class Actions:
    """Brings a batch of actions into the arrays of a library, of the dtypes of their space.

    Args:
        name: the name of the environment in messages.
        space: the space of the actions of one environment.
        n: how many environments.
        backend: the library.
        device: the device of the arrays.
        validate: whether actions outside the space are errors. If not, they are clipped later.
    """

    def __init__(
        self,
        name: str,
        space: Space[Any],
        n: int,
        backend: af.Backend,
        device: Any,
        *,
        validate: bool,
    ) -> None:
        self._name = name
        self._space = space
        self._n = n
        self._validate = validate
        self._xp = namespace(backend)
        self._backend = backend
        self._convert = af.converter(backend, device=device)
        self._type: Any = None
        self._dtype: Any = None
        self._shape: tuple[int, ...] = ()
        self._own = True

    def __call__(self, action: Any) -> Any:
        """Return an action in the form that the methods of the environment get.

        Raises:
            arrayferry.ConversionError: its structure, shape or kind is wrong; or with `validate`, an action is
                not in the space.
        """
        if (
            type(action) is self._type
            and action.dtype == self._dtype
            and action.shape == self._shape
        ):
            try:
                return action if self._own else self._convert(action)
            except af.NarrowingError:  # a number that has to be clipped first
                pass
        parts = split(self._space, action, self.wrong_structure)
        places = zip(leaves(self._space), parts, strict=True)
        found = build(self._space, (self._leaf(x, space, path) for (space, path), x in places))
        if self._validate:
            self._check(action)
        else:
            self._remember(action, found)
        return found

    def _remember(self, action: Any, found: Any) -> None:
        """Remember that actions like this one need at most a conversion, so that the next is quick."""
        if af.registry.kind(action).what not in ("array", "objects"):
            return
        try:
            enough = found.dtype == self._convert(action).dtype
        except af.NarrowingError:
            return
        if enough:
            self._own = found is action
            self._type, self._dtype, self._shape = type(action), action.dtype, action.shape

    def _leaf(self, action: Any, space: Any, path: str) -> Any:
        x = action
        if isinstance(x, (bool, int, float, list, tuple)):
            try:
                x = np.asarray(x)
            except ValueError:
                raise self._wrong(action, path, "its parts have different shapes") from None
        if not hasattr(x, "shape") or not hasattr(x, "dtype"):
            raise self._wrong(action, path, "it takes an array of numbers")
        wanted = (self._n, *space.shape)
        if tuple(x.shape) != wanted:
            raise self._wrong(action, path, f"it takes the shape {wanted}, not {tuple(x.shape)}")
        kind = plain_name(x.dtype)
        whole = kind.startswith(("bool", "int", "uint"))
        if not whole and not (space.dtype.kind == "f" and "float" in kind):
            numbers = "numbers" if space.dtype.kind == "f" else "whole numbers"
            raise self._wrong(action, path, f"it takes {numbers}, but its dtype is {kind}")
        name = held_dtype(space.dtype, self._backend)
        if kind != name:
            x = _clipped(x, kind, *lowest_and_highest(space, name))
        x = self._convert(x)
        dtype = getattr(self._xp, name)
        return x if x.dtype == dtype else self._xp.astype(x, dtype)

    def _check(self, action: Any) -> None:
        """Check that each action is in the space.

        Raises:
            arrayferry.ConversionError: one is not; its environment is named.
        """
        parts = split(self._space, af.convert(action, "numpy"))
        fitter = Fitter(self._space, strict=True, passes_on=False)
        for index in range(self._n):
            one = build(self._space, (part[index] for part in parts))
            try:
                fitter.fit(one)
            except af.ConversionError as error:
                raise af.ConversionError(
                    f"environment {index} of {self._n} of {self._name} got the action {one!r:.80}, which "
                    f"cannot be one of the space {self._space} ({error.reason.rpartition(': ')[2]})",
                    remedy="Without validate=True, actions are clipped to the space.",
                ) from None

    def wrong_structure(self, action: Any, path: str, needed: str) -> af.ConversionError:
        """Return the error for an action whose dicts or tuples do not match those of the space."""
        return self._wrong(action, path, f"it takes {needed}")

    def _wrong(self, action: Any, path: str, why: str) -> af.ConversionError:
        what = (
            f"an array of shape {tuple(action.shape)}"
            if hasattr(action, "shape")
            else f"{action!r:.80}"
        )
        return af.ConversionError(
            f"{what}{f' at {path}' if path else ''} cannot be the actions of {self._n} environments of "
            f"{self._name}, with the space {self._space} each: {why}",
            remedy="Pass one action for each environment, along the first axis.",
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_xp": None, "_type": None, "_backend": portable(self._backend)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._backend = af.registry.backend(self._backend)
        self._xp = namespace(self._backend)


def _clipped(x: Any, kind: str, low: Any, high: Any) -> Any:
    """Clip an array whose dtype differs from that of its space, before it is cast and numbers could overflow."""
    if kind == "bool":
        return x
    xp = af.namespace_of(x)
    if high.dtype.kind == "f":  # what is finite stays so
        largest = np.finfo(high.dtype).max
        low, high = np.maximum(low, -largest), np.minimum(high, largest)
    if "int" in kind:
        limits = np.iinfo(kind)
        edges = [np.clip(np.asarray(edge, object), limits.min, limits.max) for edge in (low, high)]
        low, high = (np.asarray(edge, kind) for edge in edges)
    if low.ndim == 0:
        low, high = low.item(), high.item()
    else:
        low, high = (af.convert(edge.astype(kind), like=x) for edge in (low, high))
    return xp.clip(x, low, high)
