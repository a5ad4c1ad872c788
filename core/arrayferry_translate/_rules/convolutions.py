"""Convolutions, by the library's own functions or as a product of matrices.

Both take the batch as the first axis and features as the second one; windows move along the others.
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
    of_x, of_kernel, of_out = dimension_numbers
    count, features, *lengths = (site.ins[0].shape[axis] for axis in of_x)
    given = tuple(site.ins[1].shape[axis] for axis in of_kernel)
    back = tuple(map(of_out.index, range(len(shape))))
    if not math.prod((*shape, *given, *site.ins[0].shape)):
        return lambda x, kernel: library.full(shape, 0, dtype)
    # groups of the batch become groups of features
    parts, groups = batch_group_count, batch_group_count * feature_group_count
    apart = (parts, count // parts, features, *lengths)
    turned, together = (1, 0, *range(2, len(apart))), (apart[1], parts * features, *lengths)
    made = tuple(shape[axis] for axis in of_out[2:])
    how = groups, given, window_strides, padding, lhs_dilation, rhs_dilation
    convolve = _transposed(site, *how) or _direct(site, together, made, *how)

    def run(x: AnyArray, kernel: Any) -> Any:
        x = xp.permute_dims(library.cast(x, dtype), of_x)
        kernel = xp.permute_dims(library.cast(kernel, dtype), of_kernel)
        if parts > 1:
            x = xp.reshape(xp.permute_dims(xp.reshape(x, apart), turned), together)
        return library.wrapped(xp.permute_dims(convolve(x, kernel), back), dtype)

    return run


def _transposed(
    site: Site, groups: int, given: Dims, strides: Dims, padding: Any, lhs_dilation: Dims, rhs_dilation: Dims
) -> Run | None:  # fmt: skip
    """Return the library's transposed convolution, for the gradient of one with strides. None if it does not fit."""
    xp, axes = site.xp, tuple(range(2, len(given)))
    spans = ((size - 1) * step for size, step in zip(given[2:], rhs_dilation, strict=True))
    cut = tuple(span - low for span, (low, _) in zip(spans, padding, strict=True))
    more = tuple(high - low for low, high in padding)
    most = map(max, lhs_dilation, rhs_dilation)
    fits = all(n >= 0 and 0 <= m < end for n, m, end in zip(cut, more, most, strict=True))
    if not fits or max((1, *strides)) > 1 or max((1, *lhs_dilation)) == 1:
        return None
    own = site.library.convolution(f"conv_transpose{len(axes)}d", site.dtype)
    if own is None:
        return None
    apart, turned = (groups, given[0] // groups, *given[1:]), (0, 2, 1, *(n + 1 for n in axes))
    together = groups * given[1], apart[1], *given[2:]

    def run(x: AnyArray, kernel: Any) -> Any:
        kernel = xp.reshape(xp.permute_dims(xp.reshape(kernel, apart), turned), together)
        return own(
            x, xp.flip(kernel, axis=axes), None, lhs_dilation, cut, more, groups, rhs_dilation
        )

    return run


def _direct(
    site: Site, given: Dims, made: Dims, groups: int, kernel: Dims, strides: Dims, padding: Any, lhs_dilation: Dims,
    rhs_dilation: Dims,
) -> Run:  # fmt: skip
    """Return a convolution of what is padded."""
    library, xp, sizes, axes = site.library, site.xp, kernel[2:], range(len(made))
    zero = library.full((), 0, site.dtype)
    ends = ((*ends, step - 1) for ends, step in zip(padding, lhs_dilation, strict=True))
    pad = padded(library, given, [(0, 0, 0), (0, 0, 0), *ends])
    own = library.convolution(f"conv{len(made)}d", site.dtype)
    if own is not None:
        return lambda x, y: own(pad(x, zero), y, None, strides, 0, rhs_dilation, groups)
    count, depth, windows = given[0], math.prod(kernel[1:]), math.prod(made)
    apart = count, groups, kernel[1], *made, *sizes
    turned = 1, 0, *(n + 3 for n in axes), 2, *(n + 3 + len(axes) for n in axes)
    matrices, kernels = (groups, count * windows, depth), (groups, kernel[0] // groups, depth)
    split, back = (groups, count, *made, kernels[1]), (1, 0, 2 + len(axes), *(n + 2 for n in axes))

    def product(x: AnyArray, y: AnyArray) -> Any:
        x = library.windows(pad(x, zero), made, sizes, strides, rhs_dilation)
        x = xp.reshape(xp.permute_dims(xp.reshape(x, apart), turned), matrices)
        y = xp.permute_dims(xp.reshape(y, kernels), (0, 2, 1))
        product = xp.permute_dims(xp.reshape(library.matmul(x, y), split), back)
        return xp.reshape(product, (count, kernel[0], *made))

    return product
