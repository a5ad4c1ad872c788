"""The rules: how each primitive of JAX is computed in an array library.

A rule is called with a `Site`, and returns a function of arrays. It raises `NotImplementedError`, with the reason, for
what the library cannot compute. All such decisions are made before anything is computed.
"""

from . import control, convolutions, elementwise, indexing, random, reductions, shapes  # noqa: F401
from ._rule import RULES as RULES
from ._rule import Run as Run
from ._rule import Site as Site
