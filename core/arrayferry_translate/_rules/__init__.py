"""The rules: how each primitive of JAX is computed in an array library.

A rule gets a `Site`, and returns a function of arrays. It may raise `NotImplementedError`, with what is missing. All
is decided before anything is computed.
"""

from . import control, convolutions, elementwise, indexing, random, reductions, shapes  # noqa: F401
from ._rule import RULES as RULES
from ._rule import Run as Run
from ._rule import Site as Site
