"""`Program`: what a function of JAX computes, as plain data, and the files that store programs."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from arrayferry.extending import describe_error, dtype_info, dtype_named
from arrayferry.typing import AnyTree

from ._errors import ProgramError
from ._rules import RULES
from ._structure import put_together, take_apart

if TYPE_CHECKING:
    import numpy as np

FORMAT = 1
"""The version of the file format that `Program.save` writes."""
PARTS = "specs", "inputs", "equations", "outputs", "arguments", "results"
"""The attributes of a program that a file stores as JSON. It stores the constants as arrays."""


class Spec(NamedTuple):
    """The shape and the dtype of an array.

    Attributes:
        shape: the lengths of its axes.
        dtype: the name of its dtype in JAX.
    """

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


class Equation(NamedTuple):
    """One step of a program.

    Attributes:
        name: the name of a primitive of JAX.
        inputs: the numbers of the input values, as in `Program`.
        outputs: the numbers of the results.
        params: the parameters of the primitive: numbers, text, None, programs, and tuples of these.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    params: Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class Program:
    """What a function computes for arguments of fixed shapes and dtypes, as data without objects of JAX.

    Values are numbered: first the inputs, then the constants, then the results of each equation.

    Attributes:
        specs: the shape and the dtype of each value.
        inputs: the number of inputs.
        constants: the constants, as arrays of NumPy.
        equations: the steps, in order.
        outputs: the numbers of the values that the program returns.
        arguments: the structure of the positional and keyword arguments, whose leaves are the inputs.
        results: the structure of the result.
        lines: the place of each equation in the user's code. Files omit them.
    """

    specs: tuple[Spec, ...]
    inputs: int
    constants: tuple[np.ndarray[Any, Any], ...]
    equations: tuple[Equation, ...]
    outputs: tuple[int, ...]
    arguments: Any = None
    results: Any = None
    lines: tuple[str, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        input_text = ", ".join(map(str, self.specs[: self.inputs]))
        output_text = ", ".join(str(self.specs[n]) for n in self.outputs)
        return f"<Program ({input_text}) -> ({output_text}) of {len(self.equations)} equations>"

    def primitives(self) -> set[str]:
        """Return the names of all primitives in the program and in nested programs."""
        params = (value for equation in self.equations for value in equation.params.values())
        parts = (
            part for value in params for part in (value if isinstance(value, tuple) else [value])
        )
        nested_names = (part.primitives() for part in parts if isinstance(part, Program))
        return {equation.name for equation in self.equations}.union(*nested_names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to a file of JSON and NumPy arrays, which `load` reads.

        Args:
            path: the file. An existing file is replaced.

        Examples:
            >>> import jax.numpy as jnp
            >>> import numpy as np
            >>> import tempfile
            >>> from arrayferry_translate import load, translate
            >>> program = translate(jnp.cumsum, "numpy").program(np.ones(3, np.float32))
            >>> with tempfile.NamedTemporaryFile(suffix=".afp") as file:
            ...     program.save(file.name)
            ...     total = load(file.name, "torch")
            >>> total(np.ones(3, np.float32))
            tensor([1., 2., 3.])
        """
        save_all(path, {"": self})


def save_all(
    path: str | os.PathLike[str], programs: Mapping[str, Program], about: Any = None
) -> None:
    """Write several programs to a file, which `read_all` reads.

    Args:
        path: the file. An existing file is replaced.
        programs: the programs, by name.
        about: further data to save, of types that `json.dump` accepts.
    """
    import numpy as np

    constants: list[np.ndarray[Any, Any]] = []

    def document_of(program: Program) -> dict[str, Any]:
        constant_numbers = range(len(constants), len(constants) + len(program.constants))
        constants.extend(program.constants)
        return {name: getattr(program, name) for name in PARTS} | {"constants": [*constant_numbers]}

    def json_default(value: AnyTree) -> Any:
        if isinstance(value, Program):
            return {"program": document_of(value)}
        raise TypeError(
            f"a {type(value).__name__} cannot be saved with a program, since JSON has no such type"
        )

    document = {"format": FORMAT, "about": about}
    document["programs"] = {name: document_of(program) for name, program in programs.items()}
    text = json.dumps(document, default=json_default)
    partial_path = f"{os.fspath(path)}.{os.getpid()}-{threading.get_ident()}.partial"
    try:
        with zipfile.ZipFile(partial_path, "w", zipfile.ZIP_DEFLATED) as zip_file:
            zip_file.writestr("program.json", text)
            for number, array in enumerate(constants):
                with zip_file.open(f"{number}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, _storable(array), allow_pickle=False)
        os.replace(partial_path, path)
    finally:
        with contextlib.suppress(OSError):  # os.replace() has moved `partial` after success
            os.remove(partial_path)


def read_all(path: str | os.PathLike[str]) -> tuple[dict[str, Program], Any]:
    """Read a file that `save_all` has written. Return the programs by name, and `about`. No code in the file is run.

    Raises:
        FileNotFoundError: there is no such file.
        ProgramError: the file is damaged, has a newer format, or contains no programs.
    """
    with open(path, "rb") as opened_file:
        try:
            zip_file = zipfile.ZipFile(opened_file)
            document = json.loads(zip_file.read("program.json"))
            if document["format"] == FORMAT:
                read = functools.partial(_read, zip_file)
                programs = {name: _restored(x, read) for name, x in document["programs"].items()}
                return programs, document["about"]
        except Exception as error:
            raise ProgramError(
                f"{os.fspath(path)} contains no program, or is damaged ({describe_error(error)})",
                remedy="Save it again with translate(...).program(...).save(path).",
            ) from None
    raise ProgramError(
        f"{os.fspath(path)} has the format {document['format']!r:.80}, but this version of arrayferry reads only "
        f"the format {FORMAT}",
        remedy="Upgrade arrayferry, or save the program again with this version.",
    )


def _restored(document: dict[str, Any], read: Any) -> Program:
    """Make a program from its JSON document, and check the program."""

    def restored_value(value: AnyTree) -> Any:
        if isinstance(value, dict):
            return _restored(value["program"], read)
        return tuple(map(restored_value, value)) if isinstance(value, list) else value

    specs = tuple(Spec(_counts(shape), dtype) for shape, dtype in document["specs"])
    for _, name in specs:
        dtype = dtype_named(name) if type(name) is str else None
        if dtype is None or dtype.name != name or not dtype_info(dtype).kind:
            raise ValueError(f"{name} is not a dtype of numbers")
    outputs, (num_inputs,) = _counts(document["outputs"]), _counts([document["inputs"]])
    constants = tuple(
        read(number).view(dtype_named(spec.dtype)).reshape(spec.shape)
        for number, spec in zip(_counts(document["constants"]), specs[num_inputs:], strict=False)
    )
    equations, num_values = [], num_inputs + len(document["constants"])
    for name, *number_lists, params in document["equations"]:
        operands, results = map(_counts, number_lists)
        if set(params) != RULES[name].params:
            raise ValueError(f"{name} has the wrong parameters {', '.join(params)}")
        if not all(n < num_values for n in operands):
            raise ValueError(f"{name} uses a value before it is computed")
        if results != tuple(range(num_values, num_values := num_values + len(results))):
            raise ValueError(f"the results of {name} are not numbered in order")
        params = {key: restored_value(value) for key, value in params.items()}
        equations.append(Equation(name, operands, results, params))
    if num_values != len(specs) or not all(n < num_values for n in outputs):
        raise ValueError("the number of values is wrong, or an output is not one of the values")
    structures = document["arguments"], document["results"]
    for structure, num_leaves in zip(structures, (num_inputs, len(outputs)), strict=True):
        if structure is not None:
            tree = put_together(structure, iter(range(num_leaves)))
            if [x for _, x in take_apart(structure, tree)] != [*range(num_leaves)]:
                raise ValueError("a structure and the program have different numbers of arrays")
    return Program(specs, num_inputs, constants, tuple(equations), outputs, *structures)


def _counts(values: AnyTree) -> tuple[int, ...]:
    for value in values:
        if type(value) is not int or value < 0:
            raise ValueError(f"{value!r} is not a whole number of 0 or more")
    return tuple(values)


def _storable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array that NumPy can save: the same array, or its bytes if its dtype is not a dtype of NumPy."""
    return array if array.dtype.isbuiltin == 1 else array.reshape(-1).view("uint8")


def _read(file: zipfile.ZipFile, number: int) -> np.ndarray[Any, Any]:
    import numpy as np

    with file.open(f"{number}.npy") as member:
        array: np.ndarray[Any, Any] = np.lib.format.read_array(member, allow_pickle=False)
        return array
