"""Plugins that fail where functions call them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from boxes import Box, DirectToTorch, faulty, raising

import arrayferry as af

pytestmark = pytest.mark.usefixtures("boxlib")

X = np.arange(3, dtype=np.float32)


def gradients(**methods):
    return type("Gradients", (af.Autodiff,), {"vjp": None, "call": None, **methods})()


def differentiable(library, **options):
    return af.agnostic(library, differentiable=True, **options)


FUNCTIONS = {
    "compiles": (
        {"autodiff": gradients(compiles=raising)},
        lambda: differentiable("boxes")(lambda x: x)(torch.ones(3)),
        r"autodiff\.compiles\(\) of the backend 'boxes' raised ZeroDivisionError: a fault$",
    ),
    **{
        f"is_traced, {whose}": (
            {"is_traced": raising, "autodiff": gradients()}, call,
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
    methods, call, words = FUNCTIONS[fault]
    register(faulty(**methods))
    register(DirectToTorch())  # which asks nothing
    for _ in range(2):
        with pytest.raises(af.ConversionError, match=f"^{words}"):
            call()


def test_a_library_that_cannot_map_functions(register):
    register(faulty(autodiff=gradients()))
    with pytest.raises(NotImplementedError, match=r"no vmap\. Call the function for each row"):
        torch.func.vmap(differentiable("boxes")(abs))(torch.ones(3))


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        (raising, "ZeroDivisionError: a fault"),
        (lambda self, function: None, "TypeError: it returned a NoneType"),
    ],
)
def test_uncompiled(register, method, fault):
    register(faulty(uncompiled=method))
    words = rf"^uncompiled\(\) of the backend 'boxes' failed \({fault}\), so it is not used$"
    with pytest.warns(af.PluginWarning, match=words) as caught:
        function = differentiable("jax")(jnp.negative)
    assert caught[0].filename == __file__
    assert function(torch.ones(2)).tolist() == [-1, -1]
