"""Functions that cross to and from PyTorch with gradients."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from arrayferry import Autodiff, Crossing, Differentiable, Flat, TracedValueError


class TorchAutodiff(Autodiff):
    """Differentiates functions of PyTorch for other libraries, and makes their functions part of its graphs."""

    def function(self, function: Callable[[list[Any]], Flat], *, compiled: bool) -> Differentiable:
        return TorchFunction(function)

    def call(self, crossing: Crossing, arrays: Sequence[Any]) -> list[Any]:
        import torch

        _refuse_recording(crossing.name)
        _refuse_old_batches(arrays, crossing.name)
        transformed = torch._C._are_functorch_transforms_active()
        wanted: tuple[int, ...] = ()
        if torch.is_grad_enabled():
            wanted = tuple(
                index
                for index, x in enumerate(arrays)
                if x.requires_grad or (transformed and _is_inexact(x))
            )
        function = _crossed()[transformed]
        return list(function.apply(_Pass(self, crossing, wanted), *arrays))


def _refuse_recording(name: str) -> None:
    """Refuse to be recorded by PyTorch, which would keep the values of this call."""
    recorder = sys.modules.get("torch.fx.experimental.proxy_tensor")
    if recorder is not None and recorder.get_proxy_mode() is not None:
        raise TracedValueError(
            f"{name} cannot be recorded by torch.fx (make_fx, torch.func.linearize, export)",
            remedy="Call it outside; instead of linearize, use torch.func.jvp or vjp.",
        )


def _refuse_old_batches(arrays: Sequence[Any], name: str) -> None:
    """Refuse the tensors of PyTorch's old vmap, which custom autograd functions do not support."""
    import torch

    if any(map(torch._C._functorch.is_legacy_batchedtensor, arrays)):
        raise TracedValueError(
            f"{name} cannot be batched by PyTorch's old vmap",
            remedy="Use torch.func.jacrev, jacfwd or vmap, or leave out vectorize and is_grads_batched.",
        )


class TorchFunction(Differentiable):
    """A function of PyTorch.

    Args:
        function: the function.
    """

    def __init__(self, function: Callable[[list[Any]], Flat]) -> None:
        self._function = function

    def __call__(self, arrays: list[Any]) -> Flat:
        return self._function(arrays)

    def vjp(
        self, arrays: list[Any], wanted: tuple[int, ...]
    ) -> tuple[Flat, Callable[[list[Any]], list[Any]]]:
        import torch

        with torch.inference_mode(False):
            flat, chosen = self._forward(arrays, wanted)

        def pull(cotangents: list[Any]) -> list[Any]:
            with torch.inference_mode(False):
                return _gradients(flat, chosen, cotangents, again=True)

        return flat, pull

    def _forward(self, arrays: list[Any], wanted: tuple[int, ...]) -> tuple[Flat, list[Any]]:
        """Call the function. Return its results, and the arguments wanted, which they depend on."""
        import torch

        arrays = [x.clone() if x.is_inference() else x for x in arrays]
        for index in wanted:
            if not arrays[index].requires_grad:
                arrays[index] = arrays[index].detach().requires_grad_()
        with torch.enable_grad():
            return self._function(arrays), [arrays[index] for index in wanted]

    def transposed(self, count: int, wanted: tuple[int, ...]) -> TorchFunction:
        import torch

        def transposed(values: list[Any]) -> Flat:
            further = any(x.requires_grad for x in values)
            with torch.inference_mode(False):
                flat, chosen = self._forward(values[:count], wanted)
                return Flat(_gradients(flat, chosen, values[count:], further=further))

        return TorchFunction(transposed)


def _gradients(
    flat: Flat,
    chosen: list[Any],
    cotangents: list[Any],
    *,
    again: bool = False,
    further: bool = False,
) -> list[Any]:
    """Return the gradients of results.

    Args:
        flat: the results.
        chosen: the arguments by which they are differentiated.
        cotangents: those of the results of inexact dtype.
        again: whether the results will be differentiated again.
        further: whether the gradients will be differentiated.
    """
    import torch

    inexact = [y for y in flat.arrays if _is_inexact(y)]
    plain = [x.clone() if x.is_inference() else x for x in cotangents]
    pairs = [(y, x) for y, x in zip(inexact, plain, strict=True) if y.requires_grad]
    if not pairs or not chosen:
        return [torch.zeros_like(x) for x in chosen]
    with torch.set_grad_enabled(further):
        gradients = torch.autograd.grad(
            [y for y, _ in pairs],
            chosen,
            [x for _, x in pairs],
            retain_graph=again or further,
            create_graph=further,
            allow_unused=True,
        )
    return [
        torch.zeros_like(x) if gradient is None else gradient
        for x, gradient in zip(chosen, gradients, strict=True)
    ]


def _is_inexact(x: Any) -> bool:
    import torch

    return isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())


class _Pass:
    """A call of a crossing, from its forward to its backward pass.

    Args:
        autodiff: calls crossings.
        crossing: the crossing.
        wanted: the numbers of the arguments whose gradients are wanted.
    """

    def __init__(
        self, autodiff: TorchAutodiff, crossing: Crossing, wanted: tuple[int, ...]
    ) -> None:
        self.autodiff = autodiff
        self.crossing = crossing
        self.wanted = wanted
        self.pullback: Any = None

    def forward(self, arrays: Sequence[Any]) -> list[Any]:
        if not self.wanted or self.crossing.prepared:
            return self.crossing.run(arrays)
        results, self.pullback = self.crossing.vjp(arrays, self.wanted)
        return results

    def backward(self, arrays: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """Return the gradients of all arguments, None for those that have none."""
        import torch

        wrapped = torch._C._functorch.is_functorch_wrapped_tensor
        if self.pullback is None or torch.is_grad_enabled() or any(map(wrapped, cotangents)):
            transposed = self.crossing.transposed(len(arrays), self.wanted, self.pullback)
            pulled = self.autodiff.call(transposed, [*arrays, *cotangents])
        else:
            _refuse_old_batches(cotangents, self.crossing.name)
            pulled = self.pullback(cotangents)
        gradients: list[Any] = [None] * len(arrays)
        for index, x in zip(self.wanted, pulled, strict=True):
            like = arrays[index]
            same = x.dtype == like.dtype and x.device == like.device
            gradients[index] = x if same else x.to(like)
        return gradients

    def push(self, arrays: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """Return the tangents of all results of inexact dtype. Arguments may have none."""
        wanted = tuple(index for index, x in enumerate(tangents) if x is not None)
        pushed = self.crossing.pushed(len(arrays), wanted)
        given = [tangents[index].to(arrays[index].dtype) for index in wanted]
        return self.autodiff.call(pushed, [*arrays, *given])


@cache
def _crossed() -> tuple[Any, Any]:
    """Return the function of PyTorch's autograd that calls a crossing, and the one for `torch.func`.

    PyTorch calls the second kind more slowly, since it binds the arguments to the signature each time.
    """
    import torch

    class Crossed(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, state: _Pass, *arrays: Any) -> Any:
            results = tuple(state.forward(arrays))
            _keep(ctx, state, arrays, results)
            return results

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            given = [x for x, inexact in zip(cotangents, ctx.inexact, strict=True) if inexact]
            return None, *ctx.state.backward(ctx.saved_tensors, given)

        @staticmethod
        def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
            pushed = iter(ctx.state.push(ctx.saved_tensors, tangents))
            return tuple(next(pushed) if inexact else None for inexact in ctx.inexact)

    class Transformed(Crossed):
        @staticmethod
        def forward(state: _Pass, *arrays: Any) -> Any:  # type: ignore[override]
            return tuple(state.forward(arrays))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            state, *arrays = inputs
            _keep(ctx, state, arrays, output)

        @staticmethod
        def vmap(info: Any, in_dims: Any, state: _Pass, *arrays: Any) -> Any:
            mapped = state.crossing.mapped(tuple(in_dims[1:]), info.batch_size)
            results = state.autodiff.call(mapped, arrays)
            return tuple(results), tuple(0 for _ in results)

    return Crossed, Transformed


def _keep(ctx: Any, state: _Pass, arrays: Sequence[Any], results: Sequence[Any]) -> None:
    """Keep the values that the other passes need."""
    ctx.state = state
    ctx.save_for_backward(*arrays)
    ctx.save_for_forward(*arrays)
    ctx.inexact = [_is_inexact(y) for y in results]
    if not all(ctx.inexact):
        ctx.mark_non_differentiable(
            *[y for y, inexact in zip(results, ctx.inexact, strict=True) if not inexact]
        )
