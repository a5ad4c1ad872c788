"""The tests that an `Autodiff` must pass. The attribute `Autodiff.contract` names them for the contract kit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from arrayferry import Backend, convert

from ._agnostic import agnostic
from ._autodiff import Flat, autodiff_of


class AutodiffTests:
    """The tests of gradients. They check nothing if the backend does not support gradients."""

    tested: Any

    def test_gradients_cross(self: Any) -> None:
        """Gradients and second derivatives cross to and from every other library that supports gradients."""
        tested = self.tested
        if isinstance(tested, Backend) and autodiff_of(tested) is not None and self._has("float32"):
            other_backends = [other for other in self._others() if autodiff_of(other) is not None]
            pairs = [
                pair for other in other_backends for pair in ((tested, other), (other, tested))
            ]
            self.every(partial(self._check_gradients, *pair) for pair in pairs)

    def _check_gradients(self: Any, inner: Backend, outer: Backend) -> None:
        """Check the gradients that the library `outer` computes through a function of the library `inner`."""
        values = np.array([0.5, -1.0, 2.0], np.float32)
        cube_function = agnostic(inner, differentiable=True)(lambda x: x * x * x)
        x = self.make(values) if outer is self.tested else convert(values, outer)
        ones = convert(np.ones(3, np.float32), outer)
        autodiff = autodiff_of(outer)
        assert autodiff is not None

        def flat_function(xs: list[Any]) -> Flat:
            return Flat([cube_function(xs[0])])

        flat_result, pullback = autodiff.vjp(flat_function, (0,), compiled=False)([x])
        actual_arrays = [flat_result.arrays[0], pullback([ones])[0], pullback([ones])[0]]
        gradient = autodiff.gradient(flat_function, 1, (0,))
        _, pullback = autodiff.vjp(gradient, (0,), compiled=False)([x, ones])
        actual_arrays += pullback([ones])[:1]
        expected = (values**3, 3 * values**2, 3 * values**2, 6 * values)
        result_names = ("value", "gradient", "gradient again", "second derivative")
        for name, y, expected_y in zip(result_names, actual_arrays, expected, strict=True):
            label = f"vjp() and call() of autodiff: the {name} of {outer.name} through {inner.name}"
            self.same(convert(y, "numpy"), expected_y, label)
