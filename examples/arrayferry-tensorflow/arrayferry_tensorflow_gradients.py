"""Gradients of TensorFlow that cross to other libraries, and theirs on its tapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from arrayferry_functions import Autodiff, Crossing, Flat


class TensorFlowAutodiff(Autodiff):
    """Takes functions of TensorFlow to other libraries, and theirs onto its tapes."""

    name = "tensorflow"

    def vjp(
        self, function: Callable[[list[Any]], Flat], wanted: tuple[int, ...], *, compiled: bool
    ) -> Callable[[list[Any]], tuple[Flat, Callable[[list[Any]], list[Any]]]]:
        """Call the function on a tape, which serves several pullbacks."""
        import tensorflow as tf

        def run(arrays: list[Any]) -> tuple[Flat, Callable[[list[Any]], list[Any]]]:
            chosen = [arrays[index] for index in wanted]
            with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
                tape.watch(chosen)
                flat = function(arrays)
            results = [y for y in flat.arrays if _is_inexact(y)]

            def pull(cotangents: list[Any]) -> list[Any]:
                zero = tf.UnconnectedGradients.ZERO
                found = tape.gradient(results, chosen, cotangents, unconnected_gradients=zero)
                return _dense(found)

            return flat, pull

        return run

    def call(self, crossing: Crossing, arrays: Sequence[Any]) -> Flat:
        """Call a function of another library, so that tapes go through it."""
        import tensorflow as tf

        wanted = tuple(index for index, x in enumerate(arrays) if _is_inexact(x))
        builds = []

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def crossed(*arrays: Any) -> Any:
            flat, pullback = crossing(arrays, wanted)
            builds.append(flat.build)

            def backward(*cotangents: Any) -> list[Any]:
                given = [c for c, y in zip(cotangents, flat.arrays, strict=True) if _is_inexact(y)]
                assert pullback is not None
                found = iter(self.call(pullback, [*arrays, *_dense(given)]).arrays)
                return [next(found) if index in wanted else None for index in range(len(arrays))]

            return tuple(flat.arrays), backward

        return Flat(list(crossed(*arrays)), builds[0])


def _dense(gradients: Sequence[Any]) -> list[Any]:
    """Return gradients as tensors. That of `tf.gather` consists of rows, `tf.IndexedSlices`."""
    import tensorflow as tf

    return [tf.convert_to_tensor(x) for x in gradients]


def _is_inexact(x: Any) -> bool:
    return bool(x.dtype.is_floating or x.dtype.is_complex)
