"""Plugins that fail where functions call them."""

import dask.array as da
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from boxes import Box, DirectToTorch, faulty, raising

import arrayferry as af
from arrayferry_functions import Autodiff, Flat

pytestmark = pytest.mark.usefixtures("boxlib")

X = np.arange(3, dtype=np.float32)


def gradients(**methods):
    members = {"name": "boxes", "vjp": None, "call": None, **methods}
    return type("Gradients", (Autodiff,), members)()


def differentiable(library, **options):
    return af.agnostic(library, differentiable=True, **options)


class Model:
    def method(self, x):
        return x


FUNCTIONS = {
    "compiles": (
        {}, {"compiles": raising}, lambda: differentiable("boxes")(lambda x: x)(torch.ones(3)),
        r"autodiff\.compiles\(\) of the backend 'boxes' raised ZeroDivisionError: a fault$",
    ),
    "flatten": (
        {}, {"compiles": lambda self, function: True, "flatten": raising},
        lambda: differentiable("boxes")(Model.method)(Model(), torch.ones(3)),
        r"autodiff\.flatten\(\) of the backend 'boxes' raised ZeroDivisionError: a fault$",
    ),
    **{
        f"is_traced, {whose}": (
            {"is_traced": raising}, {}, call,
            r"is_traced\(\) of the backend 'boxes' raised ZeroDivisionError: a fault for a .*Box",
        )
        for whose, call in {
            "the function's own": lambda: differentiable("boxes")(max)(torch.ones(3), Box(X)),
            "the caller's": lambda: differentiable("torch", result_like=X)(abs)(Box(X)),
            "beside a traced value": lambda: jax.jit(
                lambda x: af.agnostic("torch", result_like=X)(max)(Box(X), x)
            )(X),
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("fault", FUNCTIONS)
def test_methods_that_functions_call(register, fault):
    methods, own, call, words = FUNCTIONS[fault]
    register(faulty(**methods), arrayferry_gradients=gradients(**own))
    register(DirectToTorch())  # which asks nothing
    for _ in range(2):
        with pytest.raises(af.ConversionError, match=f"^{words}"):
            call()


def test_what_a_library_lacks(register):
    register(faulty(), arrayferry_gradients=gradients())
    with pytest.raises(NotImplementedError, match="boxes cannot call a function from traced code"):
        gradients().callback(len, [], [], name="f")
    with pytest.raises(NotImplementedError, match=r"no vmap\. Call the function in a loop"):
        torch.func.vmap(differentiable("boxes")(abs))(torch.ones(3))


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        (raising, "ZeroDivisionError: a fault"),
        (lambda self, function: None, "TypeError: it returned a NoneType instead of a function"),
    ],
)
def test_uncompiled(register, method, fault):
    register(faulty(), arrayferry_gradients=gradients(uncompiled=method))
    words = rf"^uncompiled\(\) of <Autodiff boxes> failed \({fault}\), so it is not used$"
    with pytest.warns(af.PluginWarning, match=words) as caught:
        function = differentiable("jax")(jnp.negative)
    assert caught[0].filename == __file__
    assert function(torch.ones(2)).tolist() == [-1, -1]


def test_what_it_says():
    assert repr(gradients()) == "<Autodiff boxes>"
    assert repr(Flat([da.ones(10_000)] * 3)) == "<Flat of 3 arrays>"  # nothing is computed
