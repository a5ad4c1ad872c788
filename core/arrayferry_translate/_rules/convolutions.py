"""Convolutions, by the library's own functions or as a product of matrices.

Both methods need arrays whose first axis is the batch and whose second axis is the features. Windows slide along all
other axes.
"""

from __future__ import annotations

import math
from typing import Any

from arrayferry.typing import AnyArray

from ._rule import Run, Site, rule
from .shapes import padded

Dims = tuple[int, ...]


@rule("conv_general_dilated", "out_sharding precision preferred_element_type")
def _convolution(
    site: Site, batch_group_count: int, dimension_numbers: Any, feature_group_count: int, lhs_dilation: Dims,
    padding: Any, rhs_dilation: Dims, window_strides: Dims,
) -> Run:  # fmt: skip
    library, xp, dtype, shape = site.library, site.xp, site.dtype, site.shape
    x_axes, kernel_axes, out_axes = dimension_numbers
    batch_size, features, *lengths = (site.ins[0].shape[axis] for axis in x_axes)
    kernel_shape = tuple(site.ins[1].shape[axis] for axis in kernel_axes)
    out_order = tuple(map(out_axes.index, range(len(shape))))
    if not math.prod((*shape, *kernel_shape, *site.ins[0].shape)):
        return lambda x, kernel: library.full(shape, 0, dtype)
    # libraries support groups of features, but not groups of the batch, so move the groups of the
    # batch to the axis of features
    num_parts, groups = batch_group_count, batch_group_count * feature_group_count
    split = (num_parts, batch_size // num_parts, features, *lengths)
    order, new_shape = (1, 0, *range(2, len(split))), (split[1], num_parts * features, *lengths)
    out_lengths = tuple(shape[axis] for axis in out_axes[2:])
    options = groups, kernel_shape, window_strides, padding, lhs_dilation, rhs_dilation
    convolve = _transposed(site, *options) or _direct(site, new_shape, out_lengths, *options)

    def run(x: AnyArray, kernel: Any) -> Any:
        x = xp.permute_dims(library.cast(x, dtype), x_axes)
        kernel = xp.permute_dims(library.cast(kernel, dtype), kernel_axes)
        if num_parts > 1:
            x = xp.reshape(xp.permute_dims(xp.reshape(x, split), order), new_shape)
        return library.wrapped(xp.permute_dims(convolve(x, kernel), out_order), dtype)

    return run


def _transposed(
    site: Site, groups: int, kernel_shape: Dims, strides: Dims, padding: Any, lhs_dilation: Dims, rhs_dilation: Dims
) -> Run | None:  # fmt: skip
    """Return a function that calls the library's transposed convolution, for gradients of strided convolutions.

    Return None if the library has no transposed convolution, or if that function cannot compute this convolution.
    """
    xp, axes = site.xp, tuple(range(2, len(kernel_shape)))
    spans = ((size - 1) * step for size, step in zip(kernel_shape[2:], rhs_dilation, strict=True))
    crops = tuple(span - low for span, (low, _) in zip(spans, padding, strict=True))
    extras = tuple(high - low for low, high in padding)
    limits = map(max, lhs_dilation, rhs_dilation)
    can_run = all(n >= 0 and 0 <= m < end for n, m, end in zip(crops, extras, limits, strict=True))
    if not can_run or max((1, *strides)) > 1 or max((1, *lhs_dilation)) == 1:
        return None
    convolve = site.library.convolution(f"conv_transpose{len(axes)}d", site.dtype)
    if convolve is None:
        return None
    split = groups, kernel_shape[0] // groups, *kernel_shape[1:]
    order, new_shape = (0, 2, 1, *(n + 1 for n in axes)), (groups * split[2], split[1], *split[3:])

    def run(x: AnyArray, kernel: Any) -> Any:
        kernel = xp.reshape(xp.permute_dims(xp.reshape(kernel, split), order), new_shape)
        return convolve(
            x, xp.flip(kernel, axis=axes), None, lhs_dilation, crops, extras, groups, rhs_dilation
        )

    return run


def _direct(
    site: Site, x_shape: Dims, out_lengths: Dims, groups: int, kernel_shape: Dims, strides: Dims, padding: Any,
    lhs_dilation: Dims, rhs_dilation: Dims,
) -> Run:  # fmt: skip
    """Return a function that pads its input, and then calls the library's convolution or multiplies matrices."""
    library, xp, sizes, axes = site.library, site.xp, kernel_shape[2:], range(len(out_lengths))
    zero = library.full((), 0, site.dtype)
    ends = ((*ends, step - 1) for ends, step in zip(padding, lhs_dilation, strict=True))
    pad = padded(library, x_shape, [(0, 0, 0), (0, 0, 0), *ends])
    convolve = library.convolution(f"conv{len(out_lengths)}d", site.dtype)
    if convolve is not None:
        return lambda x, y: convolve(pad(x, zero), y, None, strides, 0, rhs_dilation, groups)
    batch, depth, windows = x_shape[0], math.prod(kernel_shape[1:]), math.prod(out_lengths)
    split = batch, groups, kernel_shape[1], *out_lengths, *sizes
    order = 1, 0, *(n + 3 for n in axes), 2, *(n + 3 + len(axes) for n in axes)
    x_dims, y_dims = (groups, batch * windows, depth), (groups, kernel_shape[0] // groups, depth)
    product_dims = groups, batch, *out_lengths, y_dims[1]
    out_order = 1, 0, 2 + len(axes), *(n + 2 for n in axes)

    def product(x: AnyArray, y: AnyArray) -> Any:
        x = library.windows(pad(x, zero), out_lengths, sizes, strides, rhs_dilation)
        x = xp.reshape(xp.permute_dims(xp.reshape(x, split), order), x_dims)
        y = xp.permute_dims(xp.reshape(y, y_dims), (0, 2, 1))
        product = xp.permute_dims(xp.reshape(library.matmul(x, y), product_dims), out_order)
        return xp.reshape(product, (batch, kernel_shape[0], *out_lengths))

    return product
