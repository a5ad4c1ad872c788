"""`bind` turns a program into a function of a library's arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from arrayferry import ArrayFerryError, Backend
from arrayferry.extending import describe_error
from arrayferry.typing import Device

from ._errors import ProgramError, TranslationError
from ._library import Library, NumpyLibrary, TorchLibrary
from ._program import Program, Spec
from ._rules import RULES, Run, Site

Lists = Callable[[list[Any]], list[Any]]


def library(backend: Backend, device: Device) -> Library:
    """Return the `Library` with the operations of a backend on a device."""
    if backend.name == "ndonnx":
        from ._onnx import OnnxLibrary

        return OnnxLibrary(backend, device)
    classes = {"numpy": NumpyLibrary, "cupy": NumpyLibrary, "torch": TorchLibrary}
    return classes.get(backend.name, Library)(backend, device)


def bind(program: Program, library: Library) -> Lists:
    """Return a function that maps the program's inputs to its outputs, as lists of arrays.

    The function accepts and returns arrays of the wider dtype in place of a dtype in `library.wider`.

    Raises:
        TranslationError: the library cannot compute an equation. The returned function may raise this error too.
        ProgramError: the parameters or inputs of an equation do not fit its primitive.
    """
    steps, specs = [], program.specs
    for equation_index, (name, inputs, outputs, params) in enumerate(program.equations):
        in_specs, out_specs = ([specs[n] for n in numbers] for numbers in (inputs, outputs))
        line = program.lines[equation_index] if program.lines else ""
        run = step(library, name, params, in_specs, out_specs, line)
        steps.append((run, inputs, partial(_refused, library, name, in_specs, line)))
    constants = [library.constant(array) for array in program.constants]

    def run_all(arrays: list[Any]) -> list[Any]:
        values = arrays + constants
        for run, inputs, make_error in steps:
            try:
                results = run(*[values[n] for n in inputs])
            except (TypeError, NotImplementedError, RuntimeError) as error:
                if type(error).__name__ == "OutOfMemoryError":  # a RuntimeError of PyTorch
                    raise
                raise make_error(error) from error
            if type(results) is list:
                values += results
            else:
                values.append(results)
        return [values[n] for n in program.outputs]

    return run_all


def step(
    library: Library,
    name: str,
    params: Mapping[str, Any],
    ins: Sequence[Spec],
    outs: Sequence[Spec],
    line: str = "",
) -> Run:
    """Return the function that computes an equation. Errors contain `line`, the equation's place in the user's code."""
    try:
        for spec in outs:
            library.dtype(spec.dtype)
        site = Site(name, library, tuple(ins), tuple(outs), lambda program: bind(program, library))
        run = RULES[name].make(site, **params)
    except NotImplementedError as error:
        raise _refused(library, name, ins, line, error) from None
    except ArrayFerryError:
        raise
    except Exception as error:
        raise ProgramError(
            f"the program is damaged: {name} does not accept inputs of {', '.join(map(str, ins))} or its parameters "
            f"({describe_error(error)})",
            remedy="Create the program again with translate(...).program(...).",
        ) from error
    return run


def _refused(
    library: Library, name: str, ins: Sequence[Spec], line: str, error: Exception
) -> TranslationError:
    input_text, reason = ", ".join(map(str, ins)), str(error).strip(" .")
    return TranslationError(
        f"{library.backend.name} cannot compute {name} of {input_text}{line}: {reason}",
        remedy="Rewrite that part of the function, or choose another library.",
    )


def owned(program: Program) -> list[bool]:
    """Return for each output of a program whether no input, constant or other output shares its memory."""
    fresh_numbers: set[int] = set()
    for equation in program.equations:
        if RULES[equation.name].fresh:
            fresh_numbers.update(equation.outputs)
    return [n in fresh_numbers and program.outputs.count(n) == 1 for n in program.outputs]
