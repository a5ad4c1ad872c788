"""JAX functions without JAX: computed by other libraries, and kept as plain data.

    from arrayferry_translate import load, translate

    step = translate(env_step, "torch")
    step.program(state, action).save("step.afp")
    step = load("step.afp", "torch")  # in a process without JAX
"""

from ._errors import ProgramError as ProgramError
from ._errors import TranslationError as TranslationError
from ._function import load as load
from ._function import translate as translate
from ._program import Equation as Equation
from ._program import Program as Program
from ._program import Spec as Spec

__all__ = [
    "Equation", "Program", "ProgramError", "Spec", "TranslationError", "load", "translate",
]  # fmt: skip
