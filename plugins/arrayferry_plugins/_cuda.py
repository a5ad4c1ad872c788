"""Shared by the plugins of libraries with CUDA: devices are not queried while a CUDA graph is captured."""

from __future__ import annotations

import sys
from collections.abc import Callable


def is_capturing() -> bool:
    """Return whether PyTorch is capturing a CUDA graph in this thread. Meanwhile, the device must not be queried."""
    cuda = sys.modules.get("torch.cuda")
    return cuda is not None and cuda.is_initialized() and bool(cuda.is_current_stream_capturing())


def unless_capturing(done: Callable[[], bool]) -> Callable[[], bool]:
    """Return a function that calls `done`. While a CUDA graph is captured, it returns False without a query."""
    return lambda: not is_capturing() and done()
