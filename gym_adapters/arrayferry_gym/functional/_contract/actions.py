"""Actions of any library, converted to the arrays that the methods of an environment take."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces

import arrayferry as af
from arrayferry.adapting import Cache
from arrayferry_gym._actions.fitter import Fitter, LibraryFitter
from arrayferry_gym._actions.warnings import ActionWarnings, Place
from arrayferry_gym._arrays import culprit, held_dtype, namespace, plain_name, portable
from arrayferry_gym._spaces.trees import build, split

from .clipping import lowest_and_highest


class Actions:
    """Converts actions to a batch of arrays of a library, with the dtypes of their space.

    Args:
        name: the name of the environment in messages.
        space: the space of the actions of one environment.
        n: the number of environments; None for a single one, whose actions have no axis of environments.
        backend: the library.
        device: the device of the arrays.
        check: "fit", where actions outside the space are clipped later, "strict" or "off".
        action_warnings: warns of corrected actions.
    """

    def __init__(
        self,
        name: str,
        space: Space[Any],
        n: int | None,
        backend: af.Backend,
        device: Any,
        *,
        check: str = "fit",
        action_warnings: ActionWarnings,
    ) -> None:
        self._name = name
        self._space = space
        self._n = n
        self._check = check
        self._action_warnings = action_warnings
        self._backend = backend
        self._convert = af.converter(backend, device=device)
        # the type, dtype and shape of actions, and whether they are passed as they are: first those of the last action
        self._last_form: _Form = _NO_FORM
        self._forms: Cache[Any, _Form] = Cache(_FORMS)
        self._first, self._last = 0, -1  # of the numbers of a Discrete space
        if n is None and isinstance(space, spaces.Discrete) and backend.name == "numpy":
            self._first, self._last = int(space.start), int(space.start + space.n - 1)

    def __call__(self, action: Any) -> Any:
        """Return actions in the form that the methods of the environment take.

        Raises:
            arrayferry.ConversionError: the action is refused.
        """
        if self._n is None and isinstance(action, (int, np.integer)):
            action = np.asarray(action)  # which is quick the next time
        cls, dtype, shape, own = self._last_form
        if type(action) is not cls or action.dtype != dtype or action.shape != shape:
            own = self._recalled(action)
        if own is not None:
            try:
                converted = action if own else self._convert(action)
                return converted if self._n is not None else converted[None, ...]
            except af.NarrowingError:  # a number that has to be clipped first
                pass
        if self._check == "off":
            converted = self._convert(action)
        else:
            fitter = _ClippingFitter(
                self._backend, self._convert, self._space, strict=self._check == "strict",
                num_envs=self._n, of_one=True, passes_on=False, noun=f"an action for {self._name}",
            )  # fmt: skip
            converted = fitter.fit(action)
            if self._check == "strict":
                self._check_values(action)
            self._action_warnings.warn(self._space, fitter.corrected, fitter.passed_on)
            if fitter.corrected is None and self._check == "fit":
                self._remember(action, converted)
        if self._n is not None:
            return converted
        return build(self._space, (part[None, ...] for part in split(self._space, converted)))

    def discrete_row(self, action: Any) -> Any:
        """Return the number of a Discrete space as its only row in NumPy, None for anything else."""
        if type(action) in _WHOLE and self._first <= action <= self._last:
            return np.array([action], self._space.dtype)
        return None

    def _recalled(self, action: Any) -> bool | None:
        """Return whether actions like this one are passed as they are, None if they are not known."""
        try:
            form = self._forms.get((type(action), action.dtype, action.shape))
        except (AttributeError, TypeError):  # it is not an array, or its library has other dtypes
            return None
        if form is None:
            return None
        self._last_form = form
        return form[3]

    def _remember(self, action: Any, fitted: Any) -> None:
        """Remember that actions like this one need at most a conversion, so that the next is quick."""
        if af.registry.kind(action).category not in ("array", "objects"):
            return
        try:
            converted = self._convert(action)
            enough = fitted.dtype == converted.dtype and fitted.shape == converted.shape
        except af.NarrowingError:
            return
        if enough:
            form = type(action), action.dtype, action.shape, fitted is action
            self._last_form = self._forms[form[:3]] = form

    def _check_values(self, action: Any) -> None:
        """Check that each action is in the space.

        Raises:
            arrayferry.ConversionError: one is not; its environment is named.
        """
        parts = split(self._space, af.convert(action, "numpy", scalars="convert"))
        fitter, n = Fitter(self._space, strict=True, passes_on=False), self._n or 1
        for index in range(n):
            rows = parts if self._n is None else [part[index] for part in parts]
            one = build(self._space, rows)
            try:
                fitter.fit(one)
            except af.ConversionError as error:
                raise af.ConversionError(
                    f"environment {index} of {n} of {self._name} got the action {one!r:.80}, which "
                    f"is not valid for the space {self._space} ({error.reason.rpartition(': ')[2]})",
                    remedy='With check_actions="fit", actions are clipped to the space.',
                ) from None

    def __getstate__(self) -> dict[str, Any]:
        own: dict[str, Any] = {"_last_form": _NO_FORM, "_forms": Cache(_FORMS)}
        return {**self.__dict__, **own, "_backend": portable(self._backend)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._backend = af.registry.backend(self._backend)


_Form = tuple[Any, Any, Any, bool | None]
_NO_FORM: _Form = None, None, None, None
_FORMS = 32
"""The number of types, dtypes and shapes of actions that are remembered."""


class _ClippingFitter(LibraryFitter):
    """Clips numbers outside the space instead of refusing them. It reads only NumPy's arrays and Python's numbers.

    Args:
        backend: the library of the results.
        convert: converts to it.
        space: as in `Fitter`.
        **options: as in `Fitter`.
    """

    def __init__(
        self, backend: af.Backend, convert: af.Conversion, space: Space[Any], **options: Any
    ) -> None:
        super().__init__(backend, space, reads=False, **options)
        self._convert = convert

    def _checked(self, x: Any, space: Any, where: Place) -> Any:
        if x.dtype.kind == "f" and space.dtype.kind != "f":
            broken = np.floor(x) != x  # true for NaN
            if broken.any():
                raise self._unfit(space, where, f"{culprit(x, broken)} is no whole number")
        return x

    def _formed(
        self, x: Any, host: Any, shape: tuple[int, ...] | None, space: Any, *, number: bool
    ) -> Any:
        if shape is not None and tuple(x.shape) != shape:
            x = af.namespace_of(x).reshape(x, shape)
        kind, name = plain_name(x.dtype), held_dtype(space.dtype, self.backend)
        if kind != name:
            x = _clipped(x, kind, *lowest_and_highest(space, name))
        x = self._convert(x)
        xp = namespace(self.backend)
        dtype = getattr(xp, name)
        return x if x.dtype == dtype else xp.astype(x, dtype)


_WHOLE = (int, np.int64, np.int32)


def _clipped(x: Any, kind: str, low: Any, high: Any) -> Any:
    """Clip an array whose dtype differs from that of its space, before it is cast and numbers could overflow."""
    if kind == "bool":
        return x
    xp = af.namespace_of(x)
    if high.dtype.kind == "f":  # finite numbers stay finite
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
