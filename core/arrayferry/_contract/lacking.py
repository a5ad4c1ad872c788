"""What a library may lack on this machine through no fault of its plugin: a device, a driver, or a compiler."""

from __future__ import annotations

import re

from arrayferry._errors import describe_error

__all__ = ["lacking"]

_SIGNS = re.compile(
    r"""
    not\ compiled\ with\ (CUDA|ROCm|MPS|XPU|HIP)
    | no\ (\S+\ )?(CUDA|GPU|TPU|HIP|ROCm|XPU|accelerator)\S*(\ \S+)?\ (device|GPU|driver|is|are|was|were|found)
    | (CUDA|HIP|NVIDIA|GPU)\ driver
    | cudaError | CUDA_ERROR | hipError | libcuda
    | (no|without|missing|needs?|requires?|find|invalid|working)\ .{0,40}\bcompiler
    | compiler\b.{0,40}\b(not|missing|unavailable)
    | InvalidCxxCompiler
    | (No\ such\ file|cannot\ find|not\ found).{0,40}\b(g\+\+|gcc|clang(\+\+)?|nvcc|ptxas|cl\.exe)(?!\w)
    | \b(g\+\+|gcc|clang(\+\+)?|nvcc|ptxas|cl\.exe)(?!\w).{0,20}(not\ found|No\ such\ file)
    """,
    re.VERBOSE | re.IGNORECASE,
)


def lacking(error: BaseException | None) -> str:
    """Return the text of the error or cause that says that a device or a compiler is missing, "" if none does."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = describe_error(error)
        # what the kit itself raises says nothing about the library
        own = isinstance(error, AssertionError) or not isinstance(error, Exception)
        if not own and _SIGNS.search(text):
            return " ".join(text.split())[:200].rstrip(" .")
        error = error.__cause__ or error.__context__
    return ""
