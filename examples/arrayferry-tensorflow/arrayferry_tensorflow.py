"""TensorFlow for arrayferry: eager tensors, whose values never change."""

from __future__ import annotations

from typing import Any

import arrayferry as af


class TensorFlowDevices(af.Devices):
    """The devices of TensorFlow, under short names."""

    def names(self) -> tuple[str, ...]:
        """Name the devices, GPUs first, as TensorFlow prefers them."""
        import tensorflow as tf

        names = [self.name_of(d.name) for d in tf.config.list_logical_devices()]
        return tuple(sorted(names, key=lambda name: name == "cpu"))

    def name_of(self, device: Any) -> str:
        """Shorten "/job:localhost/replica:0/task:0/device:GPU:0" to "cuda:0"."""
        kind, _, index = str(device).lower().rpartition("device:")[2].partition(":")
        return "cpu" if kind == "cpu" else f"{'cuda' if kind == 'gpu' else kind}:{index or 0}"


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
    devices = TensorFlowDevices()

    def to_numpy(self, x: Any) -> Any:
        """Return a read-only view of a tensor on the CPU, a copy of any other."""
        import numpy as np

        if x.dtype.is_numpy_compatible is False or x.dtype.name in ("resource", "variant"):
            raise af.ConversionError(
                f"a TensorFlow tensor of dtype {x.dtype.name} cannot be converted",
                remedy="Read its value first.",
            )
        if x.dtype.name == "string":  # NumPy's own text would lose zeros at its end
            return np.array(x.numpy(), object)
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

    def device_of(self, x: Any) -> str:
        """Name the device of a tensor. TensorFlow places a symbolic one later."""
        if self.is_traced(x):
            raise af.TracedValueError(
                "a symbolic TensorFlow tensor has no device yet",
                remedy="Convert outside tf.function.",
            )
        return self.devices.name_of(x.device)

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


@af.hookimpl(optionalhook=True)
def arrayferry_gradients() -> list[Any]:
    """Return how gradients cross, if functions of other libraries are used."""
    from arrayferry_tensorflow_gradients import TensorFlowAutodiff

    return [TensorFlowAutodiff()]
