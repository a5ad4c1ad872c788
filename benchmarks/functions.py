"""Rows on functions that cross: gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from row import Check, Row, microseconds
from timing import Block, fastest_block

import arrayferry as af

__all__ = ["functions_rows"]

GRADIENTS = "gradients across, small arrays"
REPEATS = 50


def functions_rows() -> list[Row]:
    """Functions that cross."""
    return [_torch_row(), _jax_row()]


def _layer(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w).sum()


def _repeated(function: Callable[[], object]) -> Block:
    def work() -> None:
        for _ in range(REPEATS):
            function()

    return Block(lambda: None, work)


def _by_hand(enter: Callable[[list[Any]], list[Any]]) -> Any:
    """Write a function of PyTorch's autograd around a function in JAX, as it is usually done."""
    forward = jax.jit(lambda x, w: jax.vjp(_layer, x, w))
    backward = jax.jit(lambda pullback, cotangent: pullback(cotangent))

    class Hand(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            y, ctx.pullback = forward(*enter([x.detach().numpy(), w.detach().numpy()]))
            return torch.from_numpy(np.array(y))

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            found = backward(ctx.pullback, *enter([cotangent.numpy()]))
            return tuple(torch.from_numpy(np.array(x)) for x in found)

    return Hand.apply


def _torch_row() -> Row:
    """PyTorch through JAX, forward and backward."""
    identity = jax.jit(lambda xs: xs)
    ways = {
        "ours": af.agnostic("jax", differentiable=True)(jax.jit(_layer)),
        "by hand": _by_hand(lambda xs: [jnp.asarray(x.copy()) for x in xs]),
        "fastest by hand": _by_hand(lambda xs: identity([x.copy() for x in xs])),
        "native": lambda x, w: torch.tanh(x @ w).sum(),
    }
    x, w = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)

    def pass_through(way: Any) -> Callable[[], object]:
        return lambda: torch.autograd.grad(way(x, w), (x, w))

    blocks = {name: _repeated(pass_through(way)) for name, way in ways.items()}
    times = {name: took / REPEATS for name, took in fastest_block(blocks, 4.0).items()}
    ours = times["ours"]
    check = Check(ours / times["by hand"], 1.3, "of a function by hand")
    note = (
        f"{ours / times['fastest by hand']:.2f} of the fastest by hand, "
        f"{ours / times['native']:.1f} of PyTorch alone"
    )
    return Row(GRADIENTS, "PyTorch through JAX", (check,), note, microseconds(times))


def _jax_row() -> Row:
    """JAX through PyTorch, forward and backward, inside jit."""

    def layer(x: Any, w: Any) -> Any:
        return torch.tanh(x @ w).sum()

    def on_host(x: Any, w: Any) -> Any:
        return layer(*[torch.from_numpy(np.array(each)) for each in (x, w)]).numpy()

    def gradient(x: Any, w: Any, cotangent: Any) -> Any:
        inputs = [torch.from_numpy(np.array(each)).requires_grad_() for each in (x, w)]
        found = torch.autograd.grad(layer(*inputs), inputs, torch.from_numpy(np.array(cotangent)))
        return tuple(each.numpy() for each in found)

    scalar = jax.ShapeDtypeStruct((), jnp.float32)

    @jax.custom_vjp
    def hand(x: Any, w: Any) -> Any:
        return jax.pure_callback(on_host, scalar, x, w)

    hand.defvjp(
        lambda x, w: (hand(x, w), (x, w)),
        lambda kept, cotangent: jax.pure_callback(gradient, kept, *kept, cotangent),
    )
    ours = af.agnostic("torch", differentiable=True, result_like=0.0)(layer)
    ways = {"ours": ours, "by hand": hand, "native": _layer}
    x = jnp.ones((4, 4))
    blocks = {}
    for name, way in ways.items():
        compiled = jax.jit(jax.value_and_grad(way, (0, 1)))
        blocks[name] = _repeated(lambda f=compiled: jax.block_until_ready(f(x, x)))
    times = {name: took / REPEATS for name, took in fastest_block(blocks, 4.0).items()}
    check = Check(times["ours"] / times["by hand"], 1.3, "of a function by hand")
    note = f"{times['ours'] / times['native']:.0f} of JAX alone"
    return Row(GRADIENTS, "JAX through PyTorch, inside jit", (check,), note, microseconds(times))
