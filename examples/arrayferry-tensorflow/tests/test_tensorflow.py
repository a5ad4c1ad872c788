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


def test_gradients_cross_to_every_library():
    """Each of TensorFlow, PyTorch and JAX differentiates functions of the others."""
    import jax
    import jax.numpy as jnp
    import torch

    values = np.array([0.5, -1.0, 2.0], np.float32)
    expected = 2 * values * np.exp(values**2)

    in_jax = af.agnostic("jax", differentiable=True)(lambda x: jnp.exp(x**2))
    in_torch = af.agnostic("torch", differentiable=True)(lambda x: torch.exp(x**2))
    in_tensorflow = af.agnostic("tensorflow", differentiable=True)(lambda x: tf.exp(x**2))
    for function in (in_jax, in_torch):
        x = tf.constant(values)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        assert np.allclose(tape.gradient(y, x), expected, rtol=1e-4)
    x = torch.tensor(values, requires_grad=True)
    in_tensorflow(x).sum().backward()
    assert np.allclose(x.grad, expected, rtol=1e-4)
    assert np.allclose(jax.grad(lambda x: in_tensorflow(x).sum())(values), expected, rtol=1e-4)


def test_gradients_of_rows_are_dense():
    """`tf.gather` has gradients that are `tf.IndexedSlices`."""
    import jax
    import jax.numpy as jnp
    import torch

    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    expected = np.array([[2, 2], [0, 0], [1, 1]], np.float32)
    rows = af.agnostic("tensorflow", differentiable=True)(lambda w: tf.gather(w, [0, 2, 0]))
    w = torch.tensor(values, requires_grad=True)
    rows(w).sum().backward()
    assert np.array_equal(w.grad, expected)
    assert np.array_equal(jax.grad(lambda w: rows(w).sum())(values), expected)

    def in_torch(w):
        return torch.nn.functional.embedding(torch.tensor([0, 2, 0]), w, sparse=True)

    for name, inside, outside in (
        ("jax", lambda w: w * jnp.ones(2), lambda y: tf.gather(y, [0, 2, 0])),
        ("torch", in_torch, lambda y: y),
    ):
        function, x = af.agnostic(name, differentiable=True)(inside), tf.constant(values)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = outside(function(x))
        assert np.array_equal(tape.gradient(y, x), expected)


@pytest.mark.parametrize("differentiable", [False, True])
def test_functions_inside_tf_function(differentiable):
    values = np.ones(3, np.float32)
    double = af.agnostic("tensorflow", differentiable=differentiable)(lambda x, y: x * 2 + y)

    @tf.function(autograph=False)
    def inside(x):
        assert isinstance(af.convert(values, like=x), tf.Tensor)
        return double(x, values)

    assert np.array_equal(inside(tf.constant(values)), 3 * values)
    for name in ("numpy", "torch", "jax") if not differentiable else ("torch", "jax"):
        other = af.agnostic(name, differentiable=differentiable)(lambda x: x * 2)
        with pytest.raises(af.TracedValueError, match=f"no values yet.*from tensorflow to {name}"):
            tf.function(other, autograph=False)(tf.constant(values))

    @tf.function(autograph=False)
    def device_of(x):
        with pytest.raises(af.TracedValueError, match="a symbolic TensorFlow tensor has no device"):
            af.backend_of(x).device_of(x)
        return x

    device_of(tf.constant(values))


def test_complex_gradients():
    """TensorFlow has the convention of PyTorch."""
    import torch

    z = np.array([1 + 2j, -0.5j], np.complex64)
    x = tf.constant(z)
    square = af.agnostic("torch", differentiable=True)(lambda z: z * z * (1 + 2j))
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.abs(square(x)) ** 2)
    y = torch.tensor(z, requires_grad=True)
    ((y * y * (1 + 2j)).abs() ** 2).sum().backward()
    assert np.allclose(tape.gradient(loss, x), y.grad, rtol=1e-4)


def test_text_keeps_zeros_at_its_end():
    for text in (tf.constant(b"ab\0\0"), tf.constant([b"ab\0\0"])):
        assert af.convert(text, "numpy").flat[0] == b"ab\0\0"


def test_it_has_no_namespace_of_the_array_api():
    with pytest.raises(af.NotAnArrayError, match="has no namespace of the Array API"):
        af.namespace_of(tf.constant([1.0]))
