"""Translates functions of JAX, so that other libraries can run them. Saved as plain data, they do not need JAX.

from arrayferry_translate import load, translate

step = translate(env_step, "torch")
step.program(state, action).save("step.afp")
step = load("step.afp", "torch")  # in a process without JAX
"""

from ._errors import ProgramError as ProgramError
from ._errors import TranslationError as TranslationError
from ._function import function_of as function_of
from ._function import load as load
from ._function import translate as translate
from ._program import Equation as Equation
from ._program import Program as Program
from ._program import Spec as Spec
from ._program import read_all as read_all
from ._program import save_all as save_all

__all__ = [
    "Equation", "Program", "ProgramError", "Spec", "TranslationError", "function_of", "load", "read_all", "save_all",
    "translate",
]  # fmt: skip
