"""TensorFlow for arrayferry: eager tensors, whose values never change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import arrayferry as af


class TensorFlowAutodiff(af.Autodiff):
    """Takes functions of TensorFlow to other libraries, and theirs onto its tapes."""

    def vjp(
        self, function: Callable[[list[Any]], af.Flat], wanted: tuple[int, ...], *, compiled: bool
    ) -> Callable[[list[Any]], tuple[af.Flat, Callable[[list[Any]], list[Any]]]]:
        """Call the function on a tape, which serves several pullbacks."""
        import tensorflow as tf

        def run(arrays: list[Any]) -> tuple[af.Flat, Callable[[list[Any]], list[Any]]]:
            chosen = [arrays[index] for index in wanted]
            with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
                tape.watch(chosen)
                flat = function(arrays)
            results = [y for y in flat.arrays if _is_inexact(y)]

            def pull(cotangents: list[Any]) -> list[Any]:
                zero = tf.UnconnectedGradients.ZERO
                found: list[Any] = tape.gradient(
                    results, chosen, cotangents, unconnected_gradients=zero
                )
                return found

            return flat, pull

        return run

    def call(self, crossing: af.Crossing, arrays: Sequence[Any]) -> af.Flat:
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
                found = iter(self.call(pullback, [*arrays, *given]).arrays)
                return [next(found) if index in wanted else None for index in range(len(arrays))]

            return tuple(flat.arrays), backward

        return af.Flat(list(crossed(*arrays)), builds[0])


def _is_inexact(x: Any) -> bool:
    return bool(x.dtype.is_floating or x.dtype.is_complex)


class TensorFlowBackend(af.Backend):
    """`tensorflow.Tensor`, including symbolic tensors inside `tf.function`, without values."""

    name = install = "tensorflow"
    package = "tensorflow"
    install = "tensorflow-cpu (or tensorflow)"
    aliases = ("tf",)
    array_types = ("tensorflow.Tensor",)
    memory = "immutable"
    to_numpy_shares = True
    from_numpy_shares = False
    autodiff = TensorFlowAutodiff()

    def to_numpy(self, x: Any) -> Any:
        """Return a read-only view of a tensor on the CPU, a copy of any other."""
        import numpy as np

        if x.dtype.is_numpy_compatible is False or x.dtype.name in ("resource", "variant"):
            raise af.ConversionError(
                f"a TensorFlow tensor of dtype {x.dtype.name} cannot be converted",
                remedy="Read its value first.",
            )
        values = np.asarray(x if x.ndim else x.numpy()).view()  # x.numpy() copies
        values.flags.writeable = False
        return values

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        """Copy the values, since TensorFlow shares the memory of its argument."""
        import tensorflow as tf

        with tf.device(None if device is None else _own_name(device)):
            return tf.convert_to_tensor(x.copy())

    def copy(self, x: Any) -> Any:
        """Copy on the same device."""
        import numpy as np
        import tensorflow as tf

        with tf.device(x.device):
            return tf.convert_to_tensor(np.array(self.to_numpy(x)))

    def devices(self) -> tuple[str, ...]:
        """Name the devices, GPUs first, as TensorFlow prefers them."""
        import tensorflow as tf

        names = [self.device_name(d.name) for d in tf.config.list_logical_devices()]
        return tuple(sorted(names, key=lambda name: name == "cpu"))

    def device_of(self, x: Any) -> str:
        """Name the device of a tensor."""
        return self.device_name(x.device)

    def device_name(self, device: Any) -> str:
        """Shorten "/job:localhost/replica:0/task:0/device:GPU:0" to "cuda:0"."""
        kind, _, index = str(device).lower().rpartition("device:")[2].partition(":")
        return "cpu" if kind == "cpu" else f"{'cuda' if kind == 'gpu' else kind}:{index or 0}"

    def dtypes(self) -> frozenset[str]:
        """Name the dtypes that NumPy or ml_dtypes also have."""
        extra = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4")
        return af.STANDARD_DTYPES | frozenset(extra)

    def is_traced(self, x: Any) -> bool:
        """Tell whether a tensor is symbolic, without values."""
        return not hasattr(x, "numpy")


def _own_name(device: str) -> str:
    kind, _, index = str(device).partition(":")
    return f"/device:{ {'cuda': 'GPU'}.get(kind, kind.upper()) }:{index or 0}"


@af.hookimpl
def arrayferry_backends() -> list[af.Backend]:
    """Return the backend of this plugin."""
    return [TensorFlowBackend()]
