"""`uncompiled`: marks functions that `torch.compile` does not compile."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any, TypeVar

T = TypeVar("T")

_COMPILER = "torch._dynamo"
_codes: dict[int, CodeType] = {}


def uncompiled(decorated: T) -> T:
    """Let `torch.compile` call a function, and all functions that it calls, without compiling them.

    `torch.compiler.disable` has the same effect, but needs PyTorch, and adds a wrapper that costs time in each call.

    Args:
        decorated: a function, or a class whose methods are marked. The same object is returned.
    """
    for function in (decorated, *vars(decorated).values()):
        if isinstance(function, FunctionType):
            # with this attribute, the compiler does not trace the function as part of another function
            function._torchdynamo_disable = True  # type: ignore[attr-defined]
            _codes[id(function.__code__)] = function.__code__
            if _COMPILER in sys.modules:
                _skip(function.__code__)
    return decorated


def _skip(*codes: CodeType) -> None:
    """Prevent the compiler from starting a trace in functions with this code, or in functions that they call.

    No public function of PyTorch does this without a wrapper. If a version of PyTorch lacks the private methods that
    are used here, it traces the functions.
    """
    with suppress(Exception):  # torch may lack these methods, or not be fully imported yet
        dynamo: Any = vars(sys.modules["torch"])["_C"]._dynamo.eval_frame
        for code in codes:
            if hasattr(dynamo, "set_code_exec_strategy"):
                action = dynamo._FrameAction.SKIP
                dynamo.set_code_exec_strategy(code, dynamo._FrameExecStrategy(action, action))
            else:  # PyTorch 2.6 lacks `set_code_exec_strategy`
                dynamo.skip_code(code)


class _Imports:
    """An import hook that finds no module. When PyTorch's compiler is imported, the hook marks the functions.

    Marks that are set later have no effect on code that the compiler has already seen.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == _COMPILER:
            _skip(*list(_codes.values()))


sys.meta_path.insert(0, _Imports)
