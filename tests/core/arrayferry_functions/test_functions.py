"""Functions that cross: calls from traced code, and gradients between PyTorch and JAX."""

import dataclasses
import functools
import gc
import inspect
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from boxes import Held
from cases import quick_if
from jax.experimental import sparse as jax_sparse
from pytrees import Node, Registered, objects

import arrayferry as af

# PyTorch warns of what it uses itself, and gradcheck's loops are its own.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

into_jax, into_torch = (af.agnostic(name, differentiable=True) for name in ("jax", "torch"))

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 2))


def layer(x, w, power=2):
    return jnp.tanh(x @ w) ** power


def torch_layer(x, w, power=2):
    return torch.tanh(x @ w) ** power


def leaves(*arrays, dtype=torch.float64):
    return [torch.tensor(x, dtype=dtype, requires_grad=True) for x in arrays]


def everything(x, w):
    """Trees, integers, texts and numbers in and out."""
    y = jnp.tanh(x["x"] @ w[0]) * x["scale"]
    return {"y": y, "index": jnp.argmax(y, axis=-1), "name": x["name"], "pair": (y.sum(), None)}


FUNCTIONS = {
    "plain": into_jax(layer),
    "jitted": into_jax(jax.jit(layer, static_argnames="power")),
    "tree": lambda x, w: into_jax(everything)({"x": x, "scale": 3.0, "name": "cart"}, (w,))["y"],
}


@pytest.mark.parametrize("compiled", [True, False])
def test_a_transfer_guard_of_jax(compiled):
    function = into_jax(jax.jit(layer) if compiled else lambda x, w: jnp.tanh(x @ w))
    x, w = leaves(X, W, dtype=torch.float32)
    expected = torch.autograd.grad(function(x, w).sum(), (x, w))
    for _ in range(2):
        with jax.transfer_guard("disallow"):
            found = torch.autograd.grad(function(x, w).sum(), (x, w))
            assert function(X, W).dtype == np.float32
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    with jax.transfer_guard("disallow_explicit"):
        for call in (lambda: function(x, w), lambda: af.convert(X, "jax")):
            with pytest.raises(
                af.ConversionError, match="transfer_guard does not allow putting"
            ) as caught:
                call()
            assert not isinstance(caught.value, af.ContractError)


NAMES = pytest.mark.parametrize("name", quick_if(FUNCTIONS, "jitted".__eq__))


@pytest.mark.assumes_other("no_grad")
@NAMES
def test_torch_through_jax(x64, name):
    """By finite differences: first and second derivatives."""
    function, inputs = FUNCTIONS[name], leaves(X, W)
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.assumes_other("no_grad")
def test_trees_integers_and_others_cross(x64):
    x, w = leaves(X, W)
    found = into_jax(everything)({"x": x, "scale": 2.0, "name": "cart"}, w=[w])
    assert found["name"] == "cart"
    assert found["pair"][1] is None
    assert found["index"].dtype == torch.int64
    assert not found["index"].requires_grad
    expected = torch.tanh(x @ w) * 2.0
    for got, wanted in zip(
        torch.autograd.grad(found["y"].sum() + found["pair"][0], (x, w)),
        torch.autograd.grad(2 * expected.sum(), (x, w)),
        strict=True,
    ):
        assert torch.allclose(got, wanted)


@NAMES
def test_torch_func(x64, name):
    function = FUNCTIONS[name]
    x, w = torch.tensor(X), torch.tensor(W)
    scale = {"tree": 3.0}.get(name, 1.0)
    power = {"tree": 1}.get(name, 2)

    def ours(x):
        return function(x, w)

    def native(x):
        return scale * torch_layer(x, w, power)

    f = torch.func
    for change in (
        lambda g: f.grad(lambda x: g(x).sum()),
        f.vmap,
        lambda g: f.vmap(f.grad(lambda x: g(x).sum())),
        f.jacrev,
        lambda g: f.jacrev(f.jacrev(lambda x: g(x).sum())),
        lambda g: lambda x: f.vmap(f.vmap(g))(x.reshape(3, 1, 4).expand(3, 2, 4)),
        lambda g: lambda x: f.vmap(g, in_dims=1, out_dims=1)(x.expand(5, 3, 4).transpose(0, 1)),
        lambda g: lambda x: f.vjp(g, x)[1](torch.ones(3, 2, dtype=x.dtype))[0],
    ):
        assert torch.allclose(change(ours)(x), change(native)(x), atol=1e-10)


@pytest.mark.assumes_other("no_grad")
def test_what_is_saved_is_not_computed_again():
    calls = []
    function = into_jax(lambda x: calls.append(x) or jnp.sin(x))
    x = torch.ones(3, requires_grad=True)
    y = function(x).sum()
    for options in ({"retain_graph": True}, {"retain_graph": True}, {"create_graph": True}):
        torch.autograd.grad(y, x, **options)
    assert len(calls) == 1
    torch.func.grad(lambda x: function(x).sum())(x.detach())
    assert len(calls) == 2
    with torch.no_grad():
        assert not function(x).requires_grad
    assert not function(x.detach()).requires_grad
    assert len(calls) == 4


@pytest.mark.assumes_other("no_grad")
def test_compiled_functions_compile_once():
    traces = []

    @into_jax
    @jax.jit
    def function(x, y):
        traces.append(1)
        return (x * y).sum()

    x = torch.ones(3, requires_grad=True)
    for step in range(5):
        (gradient,) = torch.autograd.grad(function(x, step * torch.ones(3)), x, create_graph=True)
        assert gradient.tolist() == [step] * 3
    before = len(traces)
    for _ in range(20):
        torch.autograd.grad(function(x, x), x)
        torch.autograd.grad(function(x, torch.ones(3)), x, create_graph=True)
    assert len(traces) <= before + 2


@pytest.mark.assumes_other("no_grad", "strict")
def test_numbers_that_change_are_not_remembered():
    """Also 0.0 and -0.0, which are equal, and 1 and True."""
    function = into_jax(jax.jit(lambda x, k: x * jnp.copysign(1.0, k), static_argnames=()))
    x = torch.ones(2, requires_grad=True)
    for k in (0.0, -0.0, 0.0, 3.0, -3, True):
        (gradient,) = torch.autograd.grad(function(x, k).sum(), x)
        assert gradient.tolist() == [float(np.copysign(1.0, k))] * 2


@pytest.mark.assumes_other("no_grad")
def test_broadcast_and_strided_cotangents():
    function = into_jax(lambda x: jnp.sin(x))
    x = torch.linspace(0, 1, 12).reshape(3, 4).t().requires_grad_()
    expanded = torch.ones(()).expand(4, 3)
    (ours,) = torch.autograd.grad(function(x), x, expanded)
    assert torch.allclose(ours, x.cos())
    (ours,) = torch.autograd.grad(function(x).mean(), x)
    assert torch.allclose(ours, x.cos() / 12)
    (ours,) = torch.autograd.grad(function(x).t()[1:].sum(), x)
    assert torch.allclose(ours[:, 1:], x.cos()[:, 1:])
    assert (ours[:, 0] == 0).all()


@pytest.mark.assumes_other("x64", "no_grad")
def test_dtypes_of_gradients():
    """The gradient has the dtype of its argument, also where JAX narrows it."""
    function = into_jax(lambda x: (x * 2).sum())
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        x = torch.ones(2, dtype=dtype, requires_grad=True)
        function(x).backward()
        assert x.grad.dtype == dtype
        assert x.grad.tolist() == [2.0, 2.0]
    with pytest.raises(af.NarrowingError, match="1e\\+300 does not fit float32, at \\[0\\]"):
        function(torch.tensor([1e300], dtype=torch.float64, requires_grad=True))
    jitted = into_jax(jax.jit(lambda d: d["a"][1].sum()))
    bad = {"a": [torch.ones(1), torch.tensor([2**40])]}
    with pytest.raises(af.NarrowingError, match=r"1099511627776 .* at \[0\]\['a'\]\[1\]"):
        jitted({**bad, "b": torch.ones(2, requires_grad=True)})


def complex_loss(z, xp):
    return (xp.abs(z * z * (1 + 2j)) ** 2 + z.real * z.imag**3).sum()


@pytest.mark.assumes_other("no_grad")
def test_complex_numbers(x64):
    """PyTorch and JAX have opposite conventions, which must not show."""
    z = np.array([1 + 2j, 3 - 1j, -0.5j])
    ours = torch.tensor(z, requires_grad=True)
    function = into_jax(lambda z: complex_loss(z, jnp))
    (gradient,) = torch.autograd.grad(function(ours), ours)
    (expected,) = torch.autograd.grad(complex_loss(ours, torch), ours)
    assert torch.allclose(gradient, expected)
    assert torch.autograd.gradcheck(into_jax(lambda z: jnp.sin(z) * z.conj()), ours)
    there = into_torch(lambda z: complex_loss(z, torch))
    assert np.allclose(jax.grad(there)(z), jax.grad(lambda z: complex_loss(z, jnp))(z))
    half = into_torch(lambda z: z * z * (1 + 2j))
    for change in (jax.grad, lambda f: jax.grad(lambda z: jnp.abs(jax.grad(f)(z)).sum())):
        got = change(lambda z: (jnp.abs(half(z)) ** 2).sum())(z)
        assert np.allclose(got, change(lambda z: (jnp.abs(z * z * (1 + 2j)) ** 2).sum())(z))


CALLED = af.agnostic(
    "torch", differentiable=True, result_like=lambda x, w, power=2: jax.eval_shape(layer, x, w)
)(torch_layer)
UNTOLD = into_torch(torch_layer)


def _total(f):
    return lambda x, w: f(x, w).sum()


def _scanned(f):
    def step(w):
        return lambda carry, _: (jnp.tile(f(carry, w), 2), None)

    return lambda x, w: jax.lax.scan(step(w), x, None, length=4)[0]


NOT_TOLD = {
    "call": lambda f: f,
    "grad": lambda f: jax.grad(_total(f), (0, 1)),
    "jacrev": lambda f: jax.jacrev(f, 1),
    "grad-grad": lambda f: jax.grad(_total(jax.grad(_total(f))), 1),
    "vjp": lambda f: lambda x, w: jax.vjp(f, x, w)[1](jnp.ones((3, 2), "float32")),
}
"""Changes of a function whose results need not be told."""
TOLD = {
    "jit": jax.jit,
    "jit-grad": lambda f: jax.jit(jax.grad(_total(f), (0, 1))),
    "grad-jit": lambda f: jax.grad(jax.jit(_total(f)), (0, 1)),
    "jit-2": lambda f: jax.jit(jax.grad(_total(jax.grad(_total(f))))),
    "vmap": lambda f: jax.vmap(f, (0, None)),
    "vmap-grad": lambda f: jax.vmap(jax.grad(_total(f)), (0, None)),
    "grad-vmap": lambda f: jax.grad(_total(jax.vmap(f, (0, None)))),
    "hessian": lambda f: jax.jacrev(jax.jacrev(f)),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(_total(f))),
    "scan": _scanned,
}


@pytest.mark.parametrize("name", quick_if([*NOT_TOLD, *TOLD], lambda name: name != "hessian"))
def test_jax_through_torch(name):
    x, w = jnp.asarray(X, jnp.float32), jnp.asarray(W, jnp.float32)
    change = TOLD.get(name) or NOT_TOLD[name]
    function = CALLED if name in TOLD else UNTOLD
    found, expected = change(function)(x, w), change(layer)(x, w)
    for got, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(got, jax.Array)
        assert np.allclose(got, wanted, atol=1e-4)


def test_jax_keeps_the_graph_of_torch():
    calls = []
    function = into_torch(lambda x: calls.append(x) or x.sin())
    jax.grad(lambda x: function(x).sum())(jnp.ones(3))
    assert len(calls) == 1
    jax.jacrev(function)(jnp.ones(3))
    assert len(calls) == 2


def test_integer_arguments_have_no_gradient_in_jax():
    @af.agnostic("torch", differentiable=True, result_like=lambda x, i: (jnp.zeros(2), 0))
    def function(x, index):
        return x[index], index.sum()

    def loss(x, index):
        y, count = function(x, index)
        return y.sum() * count.astype(float)

    x, index = jnp.arange(4.0), jnp.array([1, 3])
    for change in (jax.grad, lambda f: jax.jit(jax.grad(f))):
        assert change(loss)(x, index).tolist() == [0.0, 4.0, 0.0, 4.0]


def unordered(x):
    """Return dicts whose keys are not sorted, numbers, integers and None. The same code runs in both libraries."""
    return {
        "loss": (x**2).sum(),
        "aux": ((x**3).sum(), None, x.argmax()),
        "n": 2.0,
        "k": 3,
        "cubes": {"z": x, "b": x**3},
    }


ORDERED = af.agnostic(
    "torch", differentiable=True, result_like=lambda x: jax.eval_shape(unordered, x)
)(unordered)
LOSSES = {
    "loss": lambda y: y["loss"],
    "aux": lambda y: y["aux"][0],
    "z": lambda y: (y["cubes"]["z"] ** 2).sum(),
    "b": lambda y: y["cubes"]["b"].sum(),
    "n": lambda y: 0.0 * y["loss"] + y["n"],
    "all": lambda y: (y["loss"] * y["n"] + y["aux"][0]) * y["k"] + (y["cubes"]["b"] / 2).sum(),
}


@pytest.mark.parametrize("name", ["grad", "jit", "jit-grad", "grad-jit", "jit-2", "vmap-grad"])
@pytest.mark.parametrize("loss", LOSSES)
def test_each_cotangent_belongs_to_its_result(name, loss):
    x, w = jnp.array([[1.0, 2.0], [-1.0, 3.0]]), jnp.float32(0.5)
    change = {**NOT_TOLD, **TOLD}[name]
    found, expected = (
        change(lambda x, w, f=f: LOSSES[loss](f(x * w)))(x, w) for f in (ORDERED, unordered)
    )
    for got, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.allclose(got, wanted)


def test_a_gradient_alone_is_compared_with_result_like(capfd):
    """The function is not called for its result, since only its gradient is needed."""
    for example, words in ((0, "returned the dtype float32"), ([0.0], "returned the structure")):
        function = af.agnostic("torch", differentiable=True, result_like=(0.0, example))(
            lambda x: (x.sum(), (2 * x).sum())
        )
        with pytest.raises(jax.errors.JaxRuntimeError, match=words):
            jax.block_until_ready(jax.jit(jax.grad(lambda x, f=function: f(x)[0]))(jnp.ones(2)))
        # outside jit, nothing needs the example
        assert jax.grad(lambda x, f=function: f(x)[0])(jnp.ones(2)).tolist() == [1, 1]
    capfd.readouterr()


def _dual(x):
    with torch.autograd.forward_ad.dual_level():
        return FUNCTIONS["jitted"](torch.autograd.forward_ad.make_dual(x, x), torch.tensor(W))


def _dual_cotangent(x):
    leaf, w = x.clone().requires_grad_(), torch.tensor(W)
    with torch.enable_grad():
        y = FUNCTIONS["jitted"](leaf, w)
    with torch.autograd.forward_ad.dual_level():
        ones = torch.ones_like(y)
        return torch.autograd.grad(y, leaf, torch.autograd.forward_ad.make_dual(ones, ones))


FORWARD = {
    "jax.jvp": lambda: jax.jvp(lambda x: UNTOLD(x, W), (X,), (X,)),
    "jax.jacfwd": lambda: jax.jacfwd(lambda x: CALLED(x, W))(X),
    "jax.hessian": lambda: jax.hessian(lambda x: CALLED(x, W).sum())(X),
    "jax.linearize": lambda: jax.linearize(lambda x: UNTOLD(x, W), X)[1](X),
    "jax.linearize of grad": lambda: jax.linearize(jax.grad(lambda x: UNTOLD(x, W).sum()), X)[1](X),
    **{
        f"torch.func.{name}": lambda change=change: change(
            lambda x: FUNCTIONS["jitted"](x, torch.tensor(W)).sum()
        )(torch.tensor(X))
        for name, change in (
            ("jvp", lambda g: lambda x: torch.func.jvp(g, (x,), (x,))),
            ("jacfwd", torch.func.jacfwd),
            ("hessian", torch.func.hessian),
        )
    },
    "dual": lambda: _dual(torch.tensor(X)),
    "a dual cotangent": lambda: _dual_cotangent(torch.tensor(X)),
}


# Before 0.8, JAX refuses to linearize any custom_vjp, in its own words.
OLD_JAX = [pytest.mark.skipif(jax.__version_info__ < (0, 8), reason="JAX itself refuses this")]


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=OLD_JAX if "linearize" in x else ()) for x in FORWARD]
)
def test_forward_mode_is_refused_in_words(name):
    words = r"be differentiated in forward mode .*jacrev\(jacrev\(f\)\)"
    with pytest.raises(af.TracedValueError, match=words):
        FORWARD[name]()


@pytest.mark.assumes_other("no_grad")
def test_several_libraries_among_the_arguments():
    """NumPy arrays have no gradient; those of the function's own library are passed as they are."""
    seen = []

    @into_jax
    def function(a, b, c):
        seen.append(b)
        return a * b * c - b * c  # no two places are alike

    x, own = torch.full((2,), 3.0, requires_grad=True), jnp.full(2, 5.0)
    y = function(np.full(2, 2.0, np.float32), own, x)
    assert isinstance(y, torch.Tensor)
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [5.0, 5.0]
    (gradient,) = torch.autograd.grad(function(x, own, x).sum(), x, create_graph=True)
    assert gradient.tolist() == [25.0, 25.0]
    assert torch.autograd.grad(gradient.sum(), x)[0].tolist() == [10.0, 10.0]
    assert seen[0] is own
    assert torch.func.vmap(lambda x: function(x, own[0], x))(x.detach()).tolist() == [30.0, 30.0]
    assert isinstance(function(np.ones(2), np.ones(2), 1.0), np.ndarray)
    assert isinstance(jax.grad(lambda a: function(a, a, a).sum())(own), jax.Array)


@pytest.mark.assumes_other("x64", "no_grad")
def test_options_of_agnostic():
    with pytest.raises(af.OptionError, match=r"numpy has no gradients. .* jax, torch"):
        af.agnostic("numpy", differentiable=True)
    with pytest.raises(af.OptionError, match="differentiable, result_like"):
        af.agnostic("jax", differentiabel=True)
    with pytest.raises(af.OptionError, match=r"result_like=\(\) contains no array"):
        jax.jit(af.agnostic("numpy", result_like=())(np.sort))(jnp.ones(3))
    narrow = af.agnostic("jax", differentiable=True, narrowing="forbid")(jax.jit(lambda x: x))
    with pytest.raises(af.NarrowingError, match="forbidden"):
        narrow(torch.ones(2, dtype=torch.float64, requires_grad=True))
    numbers = af.agnostic("jax", differentiable=True, scalars="convert")(lambda x, k: x * k.sum())
    x = torch.ones(2, requires_grad=True)
    assert torch.autograd.grad(numbers(x, 3.0).sum(), x)[0].tolist() == [3.0, 3.0]


@pytest.mark.assumes_other("no_grad")
def test_arguments_are_not_kept_alive():
    class Model:
        @into_jax
        def loss(self, x):
            return (x**2).sum()

    model = Model()
    alive = weakref.ref(model)
    x = torch.ones(2, requires_grad=True)
    model.loss(x).backward()
    assert x.grad.tolist() == [2.0, 2.0]
    del model
    gc.collect()
    assert alive() is None


def test_inference_mode_of_torch_does_not_stop_jax():
    function = af.agnostic("torch", differentiable=True, result_like=lambda x: x)(lambda x: x**2)
    with torch.inference_mode():
        for change in (jax.grad, lambda f: jax.jit(jax.grad(f))):
            assert change(lambda x: function(x).sum())(jnp.ones(2)).tolist() == [2.0, 2.0]
        twice = jax.grad(lambda x: jax.grad(lambda x: (function(x) ** 2).sum())(x).sum())
        assert twice(jnp.ones(2)).tolist() == [12.0, 12.0]


@pytest.mark.assumes_other("no_grad")
@pytest.mark.filterwarnings("ignore")
def test_what_torch_records_is_refused_in_words():
    from torch.fx.experimental.proxy_tensor import make_fx

    function = into_jax(lambda x: x**2)
    with pytest.raises(af.TracedValueError, match="cannot be recorded"):
        make_fx(function)(torch.ones(2))
    with pytest.raises(af.TracedValueError, match=r"use torch\.func\.vjp"):
        torch.func.linearize(function, torch.ones(2))
    x = torch.ones(2, requires_grad=True)
    for call in (
        lambda: torch.autograd.functional.jacobian(function, x, vectorize=True),
        lambda: torch.autograd.grad(function(x), x, torch.eye(2), is_grads_batched=True),
    ):
        words = r"PyTorch's old vmap.*Use torch\.func\.jacrev"
        with pytest.raises(af.TracedValueError, match=words):
            call()


COMPUTING = [
    lambda f: jax.jit(jax.grad(lambda x: f(x).sum())),
    lambda f: jax.grad(lambda x: jax.jit(f)(x).sum()),
    lambda f: jax.jit(jax.grad(lambda x: jax.grad(lambda x: f(x).sum())(x).sum())),
    lambda f: jax.jit(jax.vmap(jax.grad(lambda x: f(x[None]).sum()))),
    lambda f: jax.grad(
        lambda x: jax.lax.scan(lambda c, _: (f(c).repeat(4), None), x, None, length=2)[0].sum()
    ),
]


@pytest.mark.parametrize("change", COMPUTING)
def test_result_like_may_compute(change):
    ours = af.agnostic("torch", differentiable=True, result_like=lambda x: x[:1] * 2)(
        lambda x: x[:1] ** 3
    )
    x = jnp.arange(1.0, 5.0) / 4
    assert np.allclose(change(ours)(x), change(lambda x: x[:1] ** 3)(x))


def test_arrays_of_others_do_not_go_through_traced_code():
    seen = []

    @af.agnostic("numpy", result_like=lambda x, *_: x)
    def function(x, wide, text):
        seen.append((wide.dtype, wide[0], text[0]))
        return x

    wide, text = np.array([1e300]), np.array(["a"], object)
    x = jnp.ones(2)
    assert jax.jit(lambda x: function(x, wide, text))(x).tolist() == [1.0, 1.0]
    assert function(x, wide, text).tolist() == [1.0, 1.0]
    assert seen == [(np.dtype(float), 1e300, "a")] * 2


def test_traced_arrays_of_the_functions_own_library():
    constant = torch.full((2,), 3.0)
    product = into_jax(lambda x, y: x * y)
    found = jax.jit(jax.grad(lambda y: product(y, constant).sum()))(jnp.ones(2))
    assert found.tolist() == [3.0, 3.0]


def test_only_the_gradients_asked_for_are_computed():
    @af.agnostic("torch", differentiable=True, result_like=lambda x, y: x)
    def function(x, y):
        assert not y.requires_grad
        return x * torch.from_numpy(np.sort(y.numpy()))

    y = jnp.array([3.0, 1.0])
    for change in (jax.grad, lambda f: jax.jit(jax.grad(f))):
        assert change(lambda x: function(x, y).sum())(jnp.ones(2)).tolist() == [1.0, 3.0]


def test_shard_map():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map
    double = af.agnostic("torch", differentiable=True, result_like=lambda x: x)(lambda x: x**2)
    mapped = shard_map(double, mesh=mesh, in_specs=spec, out_specs=spec)
    x = jnp.arange(4.0)
    assert jax.grad(lambda x: mapped(x).sum())(x).tolist() == [0.0, 2.0, 4.0, 6.0]


SHARDED = """
import inspect
import itertools
import jax, jax.numpy as jnp, numpy as np, torch, arrayferry as af
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
if not hasattr(jax, "set_mesh"):
    raise SystemExit
mesh = jax.make_mesh((2, 2), ("i", "j"), axis_types=(AxisType.Explicit,) * 2)
values = np.arange(32, dtype=np.float32).reshape(4, 8) / 10

def native(x, y):
    return jnp.sin(x) * (y**2).sum()

ours = af.agnostic("torch", differentiable=True, result_like=lambda x, y: np.zeros(x.shape, "f4"))(
    lambda x, y: torch.sin(x) * (y**2).sum()
)
plain = af.agnostic("numpy", result_like=lambda x, y: np.zeros(x.shape, "f4"))(
    lambda x, y: np.sin(x) * (y**2).sum()
)

def gradient(f):
    return jax.grad(lambda x, y: (f(x, y) ** 2).sum() + (x**2).sum(), (0, 1))

def second(f):
    return jax.grad(lambda x, y: (gradient(f)(x, y)[0] ** 2).sum(), (0, 1))

SHARDINGS = [(P("i"), P("j")), (P("i"), P()), (P(None, "j"), P(None, "j")), (P("i", "j"), P())]
for places, inside in itertools.product(SHARDINGS, (True, False)):
    with jax.set_mesh(mesh) if inside else jax.default_device(None):
        x, y = (jax.device_put(values, NamedSharding(mesh, place)) for place in places)
        assert np.allclose(jax.jit(plain)(x, y), native(values, values), rtol=1e-4)
        for change in (lambda f: f, gradient, second):
            found, expected = (jax.jit(change(f))(x, y) for f in (ours, native))
            for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
                assert np.allclose(one, other, rtol=1e-3), (places, inside)
                assert change not in (gradient, second) or jax.typeof(one) == jax.typeof(other)
"""


@pytest.mark.long
def test_explicit_shardings(run_python):
    run_python(SHARDED, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=4"})


@pytest.mark.assumes_other("no_grad")
def test_results_of_another_library():
    x = torch.ones(2, requires_grad=True)
    function = into_jax(lambda x: (torch.arange(3), np.arange(2.0), x.sum(), None))
    first, second, third, none = function(x)
    assert isinstance(first, torch.Tensor)
    assert first.tolist() == [0, 1, 2]
    assert second.tolist() == [0.0, 1.0]
    assert none is None
    assert torch.autograd.grad(third, x)[0].tolist() == [1.0, 1.0]


@pytest.mark.assumes_other("no_grad")
def test_more_structures_than_functions_are_kept_for(monkeypatch):
    monkeypatch.setattr("arrayferry_functions._agnostic.MAX_KEPT", 4)
    traced = []

    @into_jax
    @jax.jit
    def scaled(x, note, *more):
        traced.append(note)
        return (x * len(note)).sum() + sum(y.sum() for y in more)

    for times in range(3):
        for size in range(1, 8):
            x = torch.ones(3, requires_grad=True)
            y = torch.ones(2, requires_grad=size % 2 == 0)
            scaled(x, (None,) * size, y, torch.ones(1, requires_grad=size % 3 == 0)).backward()
            assert x.grad.tolist() == [size] * 3
            assert (y.grad is None) == (size % 2 == 1)
        if times == 0:
            traced.clear()
    assert traced == []


@pytest.mark.assumes_other("x64", "no_grad")
def test_x64_is_turned_off_before_the_backward_pass(enable_x64):
    x = torch.full((2,), 2.0, dtype=torch.float64, requires_grad=True)
    function = into_jax(jnp.sqrt)
    with enable_x64(True):
        y = function(x)
        assert y.dtype == torch.float64
    with pytest.raises(af.ConversionError, match=r"jax_enable_x64 on, .* under the same setting"):
        y.sum().backward()
    with enable_x64(True):
        y.sum().backward()
    assert x.grad.dtype == torch.float64


@pytest.mark.assumes_other("x64")
def test_places_of_arguments_without_gradient():
    function = into_jax(lambda a, b, c: a)
    x, wide = torch.ones(2, requires_grad=True), np.float64(1e300)
    with pytest.raises(af.NarrowingError, match=r"at \[2\],"):
        function(x, torch.ones(2), wide)
    with pytest.raises(af.NarrowingError, match=r"at \[2\]\[0\],"):
        function(x, torch.ones(2), [wide])
    with pytest.raises(af.NarrowingError, match=r"at \[1\]\['c'\],"):
        function(x, torch.ones(2), c=wide)


# Calls from traced code.


@af.agnostic("numpy", result_like=lambda x: x)
def ordered(x):
    assert isinstance(x, np.ndarray)
    return np.sort(x)


def test_numpy_inside_jit():
    x = jnp.array([3.0, 1.0, 2.0])
    assert jax.jit(ordered)(x).tolist() == [1.0, 2.0, 3.0]
    assert jax.jit(jax.vmap(ordered))(jnp.stack([x, -x])).tolist() == [[1, 2, 3], [-3, -2, -1]]
    total = jax.jit(lambda x: jax.lax.scan(lambda c, y: (c + ordered(y), None), x, x[None])[0])(x)
    assert total.tolist() == [4.0, 3.0, 5.0]
    with pytest.raises(af.TracedValueError, match=r"ordered runs outside of JAX.*stop_gradient"):
        jax.grad(lambda x: ordered(x).sum())(x)


@pytest.mark.parametrize("size", [10, 20_000, 100_000, 1_000_003])
def test_large_arrays_in_callbacks(size):
    x = jnp.arange(size, dtype=jnp.float32)
    assert (jax.jit(ordered)(-x) == -x[::-1]).all()


@pytest.mark.long
def test_callbacks_on_one_core(run_python):
    """JAX waits for ever for arguments of over 100 kB, if its only thread is busy with the callback."""
    out = run_python(
        "import os\n"
        "if hasattr(os, 'sched_setaffinity'): os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "import jax, jax.numpy as jnp, numpy as np, arrayferry as af\n"
        "slow = jax.jit(lambda k: jax.lax.fori_loop(0, 9, lambda i, a: jnp.tanh(a @ a), k).sum())\n"
        "f = jax.jit(lambda s: double(jnp.ones(500_000) * s).sum())\n"
        "double = af.agnostic('numpy', result_like=lambda x: x)(lambda x: 2 * x)\n"
        "for _ in range(4):\n"
        "    found = f(slow(jnp.ones((700, 700))) * 0 + 1)\n"
        "print(float(found))"
    )
    assert float(out) == 1_000_000


def test_results_of_callbacks():
    wide = jax.ShapeDtypeStruct((3,), "float32")
    example = {"a": wide, "b": 1.0, "c": "text", "d": [np.zeros(2)]}

    @af.agnostic("numpy", result_like=example)
    def function(x, count, **names):
        wide = np.array([count, count], np.float32)
        return {"a": x.astype(np.float64), "b": x.sum(), "c": "text", "d": [wide]}

    @jax.jit
    def inside(x):
        found = function(x, 3, k={"z": x})
        assert found.pop("c") == "text"
        return found

    found = inside(jnp.ones(3))
    assert found["d"][0].tolist() == [3.0, 3.0]
    assert found["a"].dtype == np.float32
    assert found["b"].dtype == found["d"][0].dtype == jnp.asarray(1.0).dtype


def test_what_cannot_be_called_from_traced_code():
    with pytest.raises(af.TracedValueError, match=r"sort is called .* Pass result_like="):
        jax.jit(af.agnostic("numpy")(np.sort))(jnp.ones(3))
    with pytest.raises(af.TracedValueError, match="torch_layer is called"):
        jax.jit(UNTOLD)(jnp.ones((3, 4)), jnp.ones((4, 2)))
    with pytest.raises(af.ConversionError, match=r"PRNG key .*key_data"):
        jax.jit(af.agnostic("numpy", result_like=0.0)(lambda key: 0.0))(jax.random.key(0))
    with pytest.raises(af.TracedValueError, match="a traced tensor has no values"):
        torch.func.vmap(ordered)(torch.ones(2, 3))


def test_errors_are_the_functions_own():
    def function(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        into_jax(function)(torch.ones(1, requires_grad=True))
    with pytest.raises(KeyError, match="mine"):
        jax.grad(into_torch(function))(jnp.ones(1))


@pytest.mark.assumes_other("no_grad")
@pytest.mark.filterwarnings("ignore")
def test_torch_compile():
    """Called as it is, between compiled parts; a graph that may not break is refused by PyTorch, in words."""
    function = into_jax(jax.jit(lambda x: jnp.sin(x).sum()))
    compiled = torch.compile(lambda x: function(x * 2) + 1, backend="eager")
    x = torch.ones(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(x), x)
    assert torch.allclose(gradient, 2 * torch.cos(2 * x))
    whole = torch.compile(lambda x: function(x * 2), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="disable"):
        whole(x)


def test_threads():
    function = into_jax(jax.jit(lambda x, k: jnp.sin(x) * k["k"]))

    def work(number):
        for step in range(50):
            x = torch.full((number + 2,), float(step), requires_grad=True)
            k = {"k": torch.full((), float(number))}
            (gradient,) = torch.autograd.grad(function(x, k).sum(), x)
            assert torch.allclose(gradient, x.cos() * number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


@pytest.mark.assumes_other("no_grad")
def test_nothing_outlives_its_use():
    """Neither graphs, nor functions that are decorated anew, nor structures that change."""

    held = []

    def once():
        big = Held(2)
        held.append(weakref.ref(big))
        function = into_jax(jax.jit(lambda x: (x**big.x).sum()))
        x = torch.ones(3, requires_grad=True)
        torch.autograd.grad(function(x), x)

    for _ in range(3):
        once()
    gc.collect()
    assert sum(ref() is not None for ref in held) <= 1

    function = into_jax(lambda x, name: x * 2)
    others = layouts()
    for index in range(300):
        function(torch.ones(1, requires_grad=True), {"name": f"n{index}"})
    gc.collect()
    assert layouts() - others < 200


def layouts():
    """Return how many layouts there are in this process, of other tests too."""
    return sum(type(x) is af.TreeSpec for x in gc.get_objects())


@pytest.mark.assumes_other("no_grad")
def test_compiled_functions_see_what_is_not_an_array():
    calls = []

    @af.agnostic("jax", differentiable=True)
    @jax.jit
    def scaled(tree):
        calls.append(type(tree).__name__)
        found = tree["x"] if isinstance(tree, dict) else tree.x
        return (found * float(tree.scale)).sum()

    for make in (lambda x, scale: Registered(x=x, scale=scale), Node):
        for _ in range(2):
            for scale in (2.0, 3.0, 2, True):
                x = torch.ones(3, requires_grad=True)
                y = scaled(make(x, scale))
                y.backward()
                assert y.item() == 3 * float(scale)
                assert x.grad.tolist() == [float(scale)] * 3
    assert len(calls) < 20


class Weighted:
    """Methods of a model. `traces` has an item for each time that `loss` was traced."""

    traces: ClassVar[list[int]] = []

    @af.agnostic("jax", differentiable=True)
    @jax.jit
    def loss(self, x):
        self.traces.append(1)
        return (self.w * x).sum()

    @af.agnostic("jax", differentiable=True)
    @jax.jit
    def inner_loss(self, x):
        return (self.inner.w * x).sum()


@jax.tree_util.register_pytree_node_class
class PlainModel(Weighted):
    def __init__(self, w):
        self.w = w

    def tree_flatten(self):
        return (self.w,), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)


@jax.tree_util.register_pytree_node_class
class ConvertedModel(PlainModel):
    """A model that creates a new array whenever JAX rebuilds it."""

    def __init__(self, w):
        self.w = jnp.asarray(w, "float32") + 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(eq=False)
class Model(Weighted):
    w: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class EqualModel(Weighted):
    w: Any


class TupleModel(NamedTuple):
    w: Any
    traces = Weighted.traces
    loss = Weighted.loss


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Outer(Weighted):
    inner: Any


MODELS = [PlainModel, ConvertedModel, Model, EqualModel, TupleModel]


def value_and_gradient(function):
    x = torch.ones(3, requires_grad=True)
    y = function(x)
    y.backward()
    return y.item(), x.grad.tolist()


@pytest.mark.assumes_other("no_grad")
@pytest.mark.parametrize("make", [jnp.array, lambda w: np.array(w, np.float32)])
@pytest.mark.parametrize("cls", MODELS)
def test_compiled_methods_see_the_weights_of_each_call(cls, make):
    for factor in (1.0, 5.0, 2.0):
        weights = [factor, 2 * factor, 0.0]
        model = cls(make(weights))
        assert value_and_gradient(model.loss) == (sum(weights), weights)
        if cls is not TupleModel:
            model.w = make([factor] * 3)
            assert value_and_gradient(model.loss) == (3 * factor, [factor] * 3)
            outer = Outer(cls(make(weights)))
            assert value_and_gradient(outer.inner_loss) == (sum(weights), weights)
            outer.inner.w = make([factor] * 3)
            assert value_and_gradient(outer.inner_loss) == (3 * factor, [factor] * 3)


@pytest.mark.assumes_other("no_grad")
@pytest.mark.parametrize("cls", MODELS)
def test_a_new_model_in_each_step_is_neither_compiled_nor_kept(cls):
    # a size that no other test has, and too large for a key
    weights, x = np.ones(2000, np.float32), torch.ones(2000, requires_grad=True)
    references = []
    before = len(Weighted.traces)
    for step in range(5):
        w = weights * step
        references.append(weakref.ref(w))
        cls(w).loss(x).backward()
    assert len(Weighted.traces) == before + 1
    assert x.grad[0] == 1 + 2 + 3 + 4
    del w
    gc.collect()
    assert [reference() for reference in references] == [None] * 5


@pytest.mark.assumes_other("no_grad")
def test_compiled_functions_see_a_changed_structure_without_arrays():
    @af.agnostic("jax", differentiable=True)
    @jax.jit
    def function(tree, x):
        node = jax.tree.leaves(tree, is_leaf=lambda node: type(node) is Node)[0]
        return (jnp.where(node.x, x, -x) * node.scale).sum()

    for wrap in (lambda node: node, lambda node: (node,), lambda node: Node([{"a": node}]).x):
        node = Node(True)
        call = functools.partial(function, wrap(node))
        assert value_and_gradient(call) == (3, [1] * 3)
        node.x = False
        assert value_and_gradient(call) == (-3, [-1] * 3)
        node.scale = 10
        assert value_and_gradient(call) == (-30, [-10] * 3)
        # compiled again for another shape, after the node of the first call was modified
        assert function(wrap(Node(True)), torch.ones(4)).item() == 4


@pytest.mark.assumes_other("no_grad")
def test_gradients_inside_an_array_of_objects():
    @af.agnostic("jax", differentiable=True)
    def total(values):
        return sum((x**2).sum() for x in values.ravel() if x is not None)

    x = torch.arange(3.0, requires_grad=True)
    y = torch.ones(2, requires_grad=True)
    total(objects(x, None, y, x).reshape(2, 2)).backward()
    assert x.grad.tolist() == [0, 4, 8]
    assert y.grad.tolist() == [2, 2]


def test_a_mistyped_target_is_not_imported(folder):
    code = 'from numpy import *\n__array_api_version__ = "2024.12"'
    (folder / "train_side.py").write_text(code)
    with pytest.raises(af.UnknownBackendError, match=r"import its namespace .* first"):
        af.agnostic("train_side")
    assert "train_side" not in sys.modules


def test_functions_take_sparse_arguments_only_if_told():
    @af.agnostic("numpy", sparse="dense")
    def total(x):
        return x.sum()

    values = np.array([[0.0, 2.0], [3.0, 0.0]], np.float32)
    in_jax = jax_sparse.BCOO.fromdense(jnp.asarray(values))
    assert total(torch.tensor(values).to_sparse()) == 5
    assert total(in_jax) == 5
    with pytest.raises(af.ConversionError, match="is sparse"):
        af.agnostic("numpy")(np.sum)(in_jax)


ROWS = torch.tensor([0, 2, 0])
GRADIENTS_OF_ROWS = {
    "embedding": lambda w: torch.nn.functional.embedding(ROWS, w, sparse=True),
    "bag": lambda w: torch.nn.functional.embedding_bag(
        ROWS, w, torch.tensor([0, 1]), sparse=True, mode="sum"
    ),
    "gather": lambda w: torch.gather(w, 0, ROWS[:, None].expand(-1, 2), sparse_grad=True),
}


@pytest.mark.assumes_other("no_grad")
@pytest.mark.parametrize("name", GRADIENTS_OF_ROWS)
def test_sparse_gradients_cross_as_dense_arrays(name):
    function = GRADIENTS_OF_ROWS[name]
    values = np.arange(1, 7, dtype=np.float32).reshape(3, 2)
    expected = np.array([[2, 2], [0, 0], [1, 1]], np.float32)
    crossing = into_torch(function)
    assert np.array_equal(jax.grad(lambda w: crossing(w).sum())(values), expected)
    result_like = np.zeros(function(torch.tensor(values)).shape, np.float32)
    inside = af.agnostic("torch", differentiable=True, result_like=result_like)(function)
    assert np.array_equal(jax.jit(jax.grad(lambda w: inside(w).sum()))(values), expected)
    if name == "embedding":  # PyTorch has no second derivatives of the others
        second = jax.jacrev(jax.grad(lambda w: (crossing(w) ** 2).sum()))(jnp.asarray(values))
        assert np.array_equal(np.diag(second.reshape(6, 6)), 2 * expected.reshape(-1))
    for dtype in (torch.float32, torch.float64):
        (w,) = leaves(values, dtype=dtype)
        first, other = into_jax(lambda x: (x * 3, x * 5))(w)
        (function(first).sum() + other.sum()).backward()  # a sparse cotangent, and a dense one
        assert (w.grad.layout, w.grad.dtype) == (torch.strided, dtype)
        assert np.array_equal(w.grad, 3 * expected + 5)


def test_signatures_are_real():
    assert "differentiable" in inspect.signature(af.agnostic).parameters

    @af.agnostic("numpy")
    def mean(x: float, *, axis: int = 0) -> float:
        """Return the mean."""
        return x.mean(axis)

    assert str(inspect.signature(mean)) == "(x: float, *, axis: int = 0) -> float"
    assert (mean.__name__, mean.__doc__) == ("mean", "Return the mean.")


def test_mistakes_get_an_answer():
    with pytest.raises(af.OptionError, match=r'agnostic\("numpy"\)'):
        af.agnostic(lambda x: x)
    with pytest.raises(af.OptionError, match="The options are device"):
        af.agnostic("numpy", devce="cpu")


def test_agnostic_functions_are_counted_where_they_are_called():
    @af.agnostic("numpy")
    def mean(x):
        return x.mean(axis=0)

    with af.trace() as t:
        mean(torch.ones(4, 2))
    assert {(row.source, row.target) for row in t.rows} == {("torch", "numpy"), ("numpy", "torch")}
    (function,) = {row.function for row in t.rows}
    assert function == "test_agnostic_functions_are_counted_where_they_are_called"
