"""`trace`: which arrays cross between libraries and devices in a part of a program, where, and at what cost."""

from .recorder import Trace, trace
from .rows import TraceFinding, TraceRow

__all__ = ["Trace", "TraceFinding", "TraceRow", "trace"]
