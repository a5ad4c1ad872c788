"""The rules: how each primitive of JAX is computed in an array library.

Before a program runs, a rule maps the `Site` of each equation to a function of arrays. If the library cannot compute
the equation, the rule raises `NotImplementedError` with the reason.
"""

from . import control, convolutions, elementwise, indexing, random, reductions, shapes  # noqa: F401
from ._rule import RULES as RULES
from ._rule import Run as Run
from ._rule import Site as Site
