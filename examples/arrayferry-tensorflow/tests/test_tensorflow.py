from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import arrayferry as af  # noqa: E402
from arrayferry.testing import BackendContract  # noqa: E402


class TestTensorFlow(BackendContract):
    backend = "tensorflow"

    def make(self, values):
        return tf.constant(values.copy())


def test_a_symbolic_tensor_is_refused():
    @tf.function
    def inside(x):
        with pytest.raises(af.TracedValueError, match="no values yet"):
            af.convert(x, "numpy")
        return x

    inside(tf.constant([1.0]))


def test_a_missing_gpu_is_named():
    with pytest.raises(af.DeviceError, match="cuda:7"):
        af.convert(np.ones(2), "tensorflow", device="cuda:7")
