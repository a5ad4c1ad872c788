"""Calls and gradients of functions across PyTorch and other libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from arrayferry import TracedValueError
from arrayferry._utilities.compilers import uncompiled
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_functions import Autodiff, Crossing, Flat

from .tensors import is_sparse


class TorchAutodiff(Autodiff):
    """Differentiates functions of PyTorch for other libraries, and functions of other libraries for PyTorch."""

    name = "torch"

    def uncompiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return uncompiled(function)

    def vjp(
        self, function: Callable[[list[Any]], Flat], wanted: tuple[int, ...], *, compiled: bool
    ) -> Callable[[list[Any]], tuple[Flat, Callable[[list[Any]], list[Any]]]]:
        import torch

        def run(arrays: list[Any]) -> tuple[Flat, Any]:
            needs_grad = any(x.requires_grad for x in arrays)
            with torch.inference_mode(False), torch.enable_grad():
                arrays = [x.clone() if x.is_inference() else x for x in arrays]
                for index in wanted:
                    if not arrays[index].requires_grad:
                        arrays[index] = arrays[index].detach().requires_grad_()
                flat_results = function(arrays)
            inputs = [arrays[index] for index in wanted]
            inexact_results = [y for y in flat_results.arrays if _is_inexact(y)]

            def pull(cotangents: list[Any]) -> list[Any]:
                with torch.inference_mode(False):
                    usable_cotangents = [x.clone() if x.is_inference() else x for x in cotangents]
                    all_pairs = zip(inexact_results, usable_cotangents, strict=True)
                    grad_pairs = [(y, x) for y, x in all_pairs if y.requires_grad]
                    if not grad_pairs:
                        return [torch.zeros_like(x) for x in inputs]
                    ys, vectors = zip(*grad_pairs, strict=True)
                    higher = needs_grad or any(x.requires_grad for x in usable_cotangents)
                    options = {"retain_graph": True, "materialize_grads": True}
                    grads = torch.autograd.grad(ys, inputs, vectors, create_graph=higher, **options)
                    return _dense(grads)

            return flat_results, pull

        return run

    def call(self, crossing: Crossing, arrays: Sequence[Any]) -> Flat:
        return _cross(crossing, arrays)


def _is_inexact(x: AnyArray) -> bool:
    import torch

    return isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())


def _dense(gradients: Sequence[Any]) -> list[Any]:
    """Return gradients as strided tensors. Some gradients are sparse, such as those of `embedding(sparse=True)`."""
    return [x.to_dense() if is_sparse(x) else x for x in gradients]


@uncompiled
def _cross(crossing: Crossing, arrays: Sequence[Any]) -> Flat:
    """Call a function of another library. See `Autodiff.call`."""
    import torch

    _refuse_transformations(arrays, crossing.name)
    in_transform = torch._C._are_functorch_transforms_active()
    candidates = enumerate(arrays if torch.is_grad_enabled() else ())
    wanted = tuple(i for i, x in candidates if x.requires_grad or (in_transform and _is_inexact(x)))
    if not wanted and not in_transform and torch.autograd.forward_ad._current_level < 0:
        return crossing(arrays, ())[0]
    *results, _, build = _crossed()[in_transform].apply(crossing, wanted, *arrays)
    return Flat(results, build)


def _refuse_transformations(arrays: Sequence[Any], name: str) -> None:
    """Raise an error within transformations that cannot contain a call of a function of another library.

    The transformations are `torch.fx`, which would record the results of the call as constants, and PyTorch's old vmap.
    """
    import torch

    proxy_module = sys.modules.get("torch.fx.experimental.proxy_tensor")
    mode = proxy_module.get_proxy_mode() if proxy_module is not None else None
    if mode is not None or not all(isinstance(x, torch.Tensor) for x in arrays):
        raise TracedValueError(
            f"{name} cannot be recorded by torch.fx (symbolic_trace, make_fx, torch.func.linearize, export)",
            remedy="Call it outside of the recorded function, and use torch.func.vjp in place of linearize.",
        )
    if any(map(torch._C._functorch.is_legacy_batchedtensor, arrays)):
        raise TracedValueError(
            f"{name} cannot be batched by PyTorch's old vmap",
            remedy="Use torch.func.jacrev or torch.func.vmap, or omit the arguments vectorize and is_grads_batched.",
        )


@cache
def _crossed() -> tuple[Any, Any]:
    """Return autograd functions that call a crossing: one for ordinary calls, one for transformations of `torch.func`.

    The second function would work for ordinary calls too, but is slower: PyTorch binds its arguments at each call.
    """
    import torch

    class Crossed(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, crossing: Crossing, wanted: tuple[int, ...], *arrays: AnyTree) -> Any:
            output = _called(crossing, wanted, *arrays)
            _keep(ctx, (crossing, wanted, *arrays), output)
            return output

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            arrays = ctx.saved_tensors
            selected = [x for x, inexact in zip(cotangents, ctx.inexact, strict=True) if inexact]
            pulled = _cross(ctx.pullback, [*arrays, *_dense(selected)]).arrays
            gradients: list[Any] = [None] * len(arrays)
            for index, x in zip(ctx.wanted, pulled, strict=True):
                like_array = arrays[index]
                is_alike = x.dtype == like_array.dtype and x.device == like_array.device
                gradients[index] = x if is_alike else x.to(like_array)
            return None, None, *gradients

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            raise TracedValueError(
                f"{ctx.name} cannot be differentiated in forward mode (jvp, jacfwd, hessian)",
                remedy="Use reverse mode: torch.func.grad, vjp or jacrev, and jacrev(jacrev(f)) for hessian(f).",
            )

    class Transformed(Crossed):
        forward = staticmethod(_called)  # type: ignore[assignment]
        setup_context = staticmethod(_keep)

        @staticmethod
        def vmap(
            info: AnyTree,
            in_dims: Any,
            crossing: Crossing,
            wanted: tuple[int, ...],
            *arrays: AnyTree,
        ) -> Any:
            result = _cross(crossing.mapped(tuple(in_dims[2:]), info.batch_size), arrays)
            pullback = crossing.pullback(len(arrays), wanted)
            return (*result.arrays, pullback, result.build), (*[0] * len(result.arrays), None, None)

    return Crossed, Transformed


def _called(crossing: Crossing, wanted: tuple[int, ...], *arrays: AnyTree) -> tuple[Any, ...]:
    """Call a crossing. Return a tuple of the arrays in its results, its pullback and `Flat.build`."""
    flat_results, pullback = crossing(arrays, wanted)
    return *flat_results.arrays, pullback, flat_results.build


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    """Store the values that the backward pass needs."""
    crossing, ctx.wanted, *arrays = inputs
    ctx.name = crossing.name
    *results, ctx.pullback, _ = output
    ctx.save_for_backward(*arrays)
    ctx.inexact = [*map(_is_inexact, results), False, False]
    if not all(ctx.inexact[:-2]):
        ctx.mark_non_differentiable(*[y for y in results if not _is_inexact(y)])
