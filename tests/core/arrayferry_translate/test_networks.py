"""Networks of Flax, Equinox and Haiku: values and gradients are those of `jax.jit`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

import arrayferry as af
from arrayferry_translate import load, translate

ROWS, IMAGES, SEQUENCES = (3, 8), (2, 12, 12, 3), (2, 5, 8)
ACTIVATIONS = (
    "relu", "gelu", "silu", "softplus", "elu", "leaky_relu", "softmax", "log_softmax", "sigmoid", "tanh", "selu",
    "celu", "glu", "hard_tanh", "hard_silu", "log_sigmoid", "relu6", "soft_sign", "squareplus", "mish", "standardize",
)  # fmt: skip
QUICK = "convolutions of flax", "words of flax", "attention", "attention of equinox"
NETWORKS = []


def network(shape):
    """Collect a network: a function that returns one of parameters and an array, and the parameters."""

    def register(make):
        name = make.__name__.replace("_", " ")
        marks = () if name in QUICK else pytest.mark.long
        NETWORKS.append(pytest.param(make, shape, id=name, marks=marks))
        return make

    return register


def of_flax(shape, *layers):
    """Return a network of modules and functions of Flax."""
    nn = pytest.importorskip("flax.linen")
    module = nn.Sequential([layer(nn) for layer in layers])
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    apply = lambda params, x: module.apply(params, x, rngs=keys)  # noqa: E731
    return apply, module.init(keys, jnp.ones(shape))


@network(IMAGES)
def convolutions_of_flax(shape):
    return of_flax(
        shape,
        lambda nn: nn.Conv(4, (3, 3), strides=2),
        lambda nn: nn.relu,
        lambda nn: lambda x: nn.max_pool(x, (3, 3), (2, 2), "SAME"),
        lambda nn: nn.ConvTranspose(4, (3, 3), strides=(2, 2)),
        lambda nn: nn.Conv(4, (3, 3), feature_group_count=2, kernel_dilation=2),
        lambda nn: lambda x: nn.avg_pool(x, (2, 2)).reshape(len(x), -1),
        lambda nn: nn.Dense(3),
    )


@network(SEQUENCES)
def attention_of_flax(shape):
    return of_flax(
        shape,
        lambda nn: nn.LayerNorm(),
        lambda nn: nn.MultiHeadDotProductAttention(2, dropout_rate=0.1, deterministic=False),
        lambda nn: nn.Dense(3),
    )


@network(SEQUENCES)
def recurrent_cells_of_flax(shape):
    return of_flax(
        shape,
        lambda nn: nn.RNN(nn.GRUCell(4)),
        lambda nn: nn.RNN(nn.OptimizedLSTMCell(4), reverse=True),
        lambda nn: nn.RNN(nn.LSTMCell(3)),
    )


@network((2, 3, 5, 5, 2))
def convolutions_over_time_of_flax(shape):
    return of_flax(shape, lambda nn: nn.RNN(nn.ConvLSTMCell(3, (3, 3))))


@network(SEQUENCES)
def convolutions_along_a_line_of_flax(shape):
    return of_flax(
        shape,
        lambda nn: nn.Conv(4, 3, padding="CIRCULAR"),
        lambda nn: nn.Conv(4, 3, padding="CAUSAL"),
        lambda nn: lambda x: nn.max_pool(x, (2,), padding="SAME"),
    )


@network(ROWS)
def norms_of_flax(shape):
    return of_flax(
        shape,
        lambda nn: nn.LayerNorm(),
        lambda nn: nn.GroupNorm(2),
        lambda nn: nn.RMSNorm(),
        lambda nn: nn.BatchNorm(use_running_average=True),
        lambda nn: nn.WeightNorm(nn.Dense(8)),
        lambda nn: nn.Dropout(0.5, deterministic=False),
    )


@network(ROWS)
def words_of_flax(shape):
    return of_flax(shape, lambda nn: lambda x: jnp.argmax(x, -1), lambda nn: nn.Embed(10, 4))


@network(ROWS)
def activations(shape):
    functions = [getattr(jax.nn, name) for name in ACTIVATIONS]
    functions.append(lambda x: jax.nn.gelu(x, approximate=False))
    apply = lambda w, x: [function(x @ w) for function in functions]  # noqa: E731
    return apply, jax.random.normal(jax.random.key(0), (8, 8))


@network((2, 5, 4, 8))
def attention(shape):
    def apply(w, x):
        heads = x[:, :, :2] * w
        return jax.nn.dot_product_attention(x, heads, heads, is_causal=True)

    return apply, jnp.ones(8)


def of_equinox(make, apply):
    eqx = pytest.importorskip("equinox")
    params, rest = eqx.partition(make(eqx.nn, jax.random.key(0)), eqx.is_inexact_array)
    return lambda params, x: apply(eqx.combine(params, rest), x), params


@network((2, 3, 12, 12))
def layers_of_equinox(shape):
    def make(nn, key):
        return nn.Sequential([
            nn.Conv2d(3, 4, 3, 2, 1, key=key), nn.Lambda(jax.nn.relu), nn.MaxPool2d(2, 1), nn.AvgPool2d(2, 1),
            nn.ConvTranspose2d(4, 2, 3, 2, key=key), nn.AdaptiveAvgPool2d(2), nn.Lambda(jnp.ravel),
            nn.LayerNorm(8), nn.MLP(8, 3, 8, 1, key=key),
        ])  # fmt: skip

    return of_equinox(make, lambda model, x: jax.vmap(model)(x))


@network(SEQUENCES)
def attention_of_equinox(shape):
    return of_equinox(
        lambda nn, key: nn.MultiheadAttention(2, 8, key=key),
        lambda model, x: jax.vmap(lambda x: model(x, x, x))(x),
    )


@network(SEQUENCES)
def recurrent_cells_of_equinox(shape):
    def apply(cells, x):
        def step(states, x):
            gru, lstm = cells[0](x, states[0]), cells[1](x, states[1])
            return (gru, lstm), (gru, lstm)

        rows = jnp.zeros(4)
        return jax.vmap(lambda x: lax.scan(step, (rows, (rows, rows)), x))(x)

    return of_equinox(
        lambda nn, key: [nn.GRUCell(8, 4, key=key), nn.LSTMCell(8, 4, key=key)], apply
    )


def of_haiku(shape, function):
    hk = pytest.importorskip("haiku")
    made, key = hk.transform(lambda x: function(hk, x)), jax.random.key(0)
    return lambda params, x: made.apply(params, key, x), made.init(key, jnp.ones(shape))


@network(IMAGES)
def convolutions_of_haiku(shape):
    def function(hk, x):
        x = hk.MaxPool((3, 3, 1), (2, 2, 1), "SAME")(jax.nn.relu(hk.Conv2D(4, 3, 2)(x)))
        x = hk.Conv2DTranspose(3, 3, 2)(
            hk.AvgPool((2, 2, 1), 1, "SAME")(hk.DepthwiseConv2D(2, 3)(x))
        )
        return hk.nets.MLP([4, 3])(hk.dropout(hk.next_rng_key(), 0.5, hk.Flatten()(x)))

    return of_haiku(shape, function)


@network(SEQUENCES)
def sequences_of_haiku(shape):
    def function(hk, x):
        for core in (hk.GRU(4), hk.LSTM(8)):
            x, _ = hk.dynamic_unroll(core, x, core.initial_state(2), time_major=False)
        x = hk.GroupNorm(2)(hk.LayerNorm(-1, True, True)(x))
        return hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling())(x, x, x)

    return of_haiku(shape, function)


def same(found, expected):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert tuple(x.shape) == y.shape
        np.testing.assert_allclose(af.convert(x, "numpy"), y, rtol=1e-4, atol=1e-5)


@pytest.mark.assumes_other("no_grad")
@pytest.mark.parametrize(("make", "shape"), NETWORKS)
@pytest.mark.assumes_other("rank")
def test_networks(make, shape, tmp_path):
    apply, params = make(shape)
    rng = np.random.default_rng(0)
    params, x = jax.tree.map(np.asarray, params), rng.normal(size=shape).astype("float32")
    expected = jax.jit(apply)(params, x)

    def loss(params, x):
        return sum((y * jnp.cos(y)).sum() for y in jax.tree.leaves(apply(params, x)))

    gradients = jax.jit(jax.grad(loss, (0, 1)))
    translate(apply, "numpy").program(params, x).save(tmp_path / "network.afp")
    for to in ("numpy", "torch"):
        same(load(tmp_path / "network.afp", to)(params, x), expected)
        same(translate(gradients, to)(params, x), gradients(params, x))
    given = jax.tree.map(lambda x: torch.tensor(x, requires_grad=True), (params, x))
    translate(loss, "torch", differentiable=True)(*given).backward()
    same([x.grad for x in jax.tree.leaves(given)], gradients(params, x))


@pytest.mark.assumes_other("no_grad")
def test_second_gradients_of_networks():
    def loss(kernel, x):
        x = lax.conv_general_dilated(x, kernel, (2, 1), "SAME")
        x = lax.reduce_window(x**2, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")
        return (x**2).sum()

    def product(kernel, x):
        return jax.jvp(
            lambda kernel: jax.grad(loss)(kernel, x), (kernel,), (jnp.ones_like(kernel),)
        )[1]

    rng = np.random.default_rng(0)
    kernel, x = (rng.normal(size=shape).astype("float32") for shape in ((2, 1, 3, 3), (2, 1, 6, 5)))
    for to in ("numpy", "torch"):
        same(translate(product, to)(kernel, x), jax.jit(product)(kernel, x))
    run = translate(loss, "torch", differentiable=True)
    weights = torch.tensor(kernel, requires_grad=True)
    (gradient,) = torch.autograd.grad(run(weights, torch.tensor(x)), weights, create_graph=True)
    same(torch.autograd.grad(gradient.sum(), weights), [jax.jit(product)(kernel, x)])
