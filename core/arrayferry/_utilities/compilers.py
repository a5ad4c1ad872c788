"""`uncompiled`: functions that `torch.compile` calls as they are."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any, TypeVar

T = TypeVar("T")

_COMPILER = "torch._dynamo"
_codes: dict[int, CodeType] = {}


def uncompiled(thing: T) -> T:
    """Let `torch.compile` call a function, and all that it calls, as it is.

    `torch.compiler.disable` does the same by a wrapper, which needs PyTorch, and costs time in each call.

    Args:
        thing: a function, or a class with methods. It is returned.
    """
    for function in (thing, *vars(thing).values()):
        if isinstance(function, FunctionType):
            function._torchdynamo_disable = True  # type: ignore[attr-defined]  # it is not traced as part of another
            _codes[id(function.__code__)] = function.__code__
            if _COMPILER in sys.modules:
                _skip(function.__code__)
    return thing


def _skip(*codes: CodeType) -> None:
    """Have the compiler not begin where a function begins that it did not trace, or one that this calls.

    Nothing public does it without a wrapper. A PyTorch that has it no more would trace these functions.
    """
    with suppress(Exception):  # it is called while others import
        frames: Any = vars(sys.modules["torch"])["_C"]._dynamo.eval_frame
        for code in codes:
            if hasattr(frames, "set_code_exec_strategy"):
                skip = frames._FrameAction.SKIP
                frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
            else:  # PyTorch 2.6
                frames.skip_code(code)


class _Imports:
    """Sees that PyTorch's compiler is imported, and finds nothing. Marks have no effect on what the compiler has seen."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == _COMPILER:
            _skip(*list(_codes.values()))


sys.meta_path.insert(0, _Imports)
