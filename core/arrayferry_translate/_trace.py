"""`trace` makes a program from a function of JAX."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from arrayferry import registry
from arrayferry.extending import dtype_info, dtype_name, dtype_named
from arrayferry.typing import AnyTree

from ._errors import ProgramError, TranslationError
from ._library import Library
from ._lowered import implementation, is_key, lowered, numbers_of
from ._program import Equation, Program, Spec
from ._rules import RULES
from ._run import library, step

INLINED = {
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
    "checkpoint", "remat", "remat2", "custom_vmap_call", "composite",
}  # fmt: skip
"""Primitives that only run a jaxpr, which is one of their parameters. The equations of the jaxpr replace them."""
BODIES = "jaxpr", "call_jaxpr", "fun_jaxpr", "call"
"""The possible names of the parameter of an `INLINED` primitive that contains its jaxpr."""
LARGEST = 1 << 16
"""An equation is computed during tracing only if its results have at most this many elements in total."""


def trace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Program, Any]:
    """Make a program from a function.

    Args:
        function: a function that computes with JAX.
        *args: trees of arrays, or of objects with `shape` and `dtype`.
        **kwargs: keyword arguments, which are also such trees.

    Returns:
        The program, whose inputs are the leaves of the arguments in order, and the treedef of the results. Random
        keys become the arrays of uint32 that they contain.

    Raises:
        TranslationError: the function uses a primitive that has no rule.
    """
    closed_jaxpr, result_shapes = jax.make_jaxpr(function, return_shape=True)(*args, **kwargs)
    return _program(closed_jaxpr), jax.tree.structure(result_shapes)


def _program(closed: Any, line: str = "") -> Program:
    input_specs = [spec_of(aval) for aval in closed.in_avals]
    maker = _Maker(input_specs, line)
    return maker.finished(maker.inline(closed.jaxpr, closed.consts, range(len(input_specs))))


def spec_of(aval: Any) -> Spec:
    """Return the shape and dtype of an abstract value of JAX. For keys, return those of their array of uint32."""
    if is_key(aval):
        return Spec((*map(int, aval.shape), *implementation(aval.dtype).key_shape), "uint32")
    name = "bool" if aval.dtype == jax.dtypes.float0 else np.dtype(aval.dtype).name
    return Spec(tuple(map(int, aval.shape)), name)


def example(leaf: AnyTree) -> Any:
    """Return what JAX traces in place of an argument: the number itself, or the shape and dtype of an array."""
    if isinstance(leaf, (bool, int, float, complex)):
        return leaf
    if registry.kind(leaf).backend is None and not isinstance(leaf, jax.ShapeDtypeStruct):
        raise ProgramError(
            f"a {type(leaf).__name__} is among the arguments, which must be arrays and numbers",
            remedy="Pass arrays and numbers only.",
        )
    dtype: Any = leaf.dtype
    if isinstance(dtype, np.dtype) or not isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)):
        np_dtype = dtype_named(dtype_name(dtype))
        if np_dtype is None or not dtype_info(np_dtype).kind or isinstance(leaf, np.ma.MaskedArray):
            raise ProgramError(
                f"a {type(leaf).__name__} of {dtype} is among the arguments, which must be arrays of numbers",
                remedy="Pass arrays of numbers without masks.",
            )
        dtype = jax.dtypes.canonicalize_dtype(np_dtype)
    return jax.ShapeDtypeStruct(leaf.shape, dtype)


def settings() -> tuple[Any, ...]:
    """Return the settings of JAX that affect tracing."""
    setting_names = (
        "jax_enable_x64", "jax_default_prng_impl", "jax_threefry_partitionable",
        "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion",
    )  # fmt: skip
    return tuple(getattr(jax.config, name) for name in setting_names)


class _Maker:
    """Makes a program, equation by equation. It inlines calls, and computes equations whose inputs are constants.

    Args:
        inputs: the shapes and dtypes of the inputs.
        line: the place in the user's code to use for an equation if JAX has stored no place for it.
    """

    def __init__(self, inputs: Sequence[Spec], line: str) -> None:
        self._inputs = len(inputs)
        self._specs = list(inputs)
        self._constants: dict[int, np.ndarray[Any, Any]] = {}
        self._equations: list[tuple[Equation, str]] = []
        self._line = line

    def inline(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[int]) -> list[int]:
        """Add the equations of a jaxpr, and return the numbers of its results."""
        numbers: dict[Any, int] = dict(zip(jaxpr.invars, inputs, strict=True))
        numbers |= {var: self._constant(x) for var, x in zip(jaxpr.constvars, consts, strict=True)}

        def number_of(atom: Any) -> int:
            if isinstance(atom, Literal):
                return self._constant(np.asarray(atom.val, atom.aval.dtype))
            return numbers[atom]

        outer_line = self._line
        for equation in jaxpr.eqns:
            # equations in functions that `jit` has compiled have no line, so use that of the call
            self._line = _line(equation) or outer_line
            outputs = self._add(equation, [number_of(atom) for atom in equation.invars])
            numbers.update(zip(equation.outvars, outputs, strict=True))
        self._line = outer_line
        return [number_of(atom) for atom in jaxpr.outvars]

    def _add(self, equation: Any, inputs: list[int]) -> list[int]:
        name, params = equation.primitive.name, _of_older(equation.params)
        if name in INLINED:
            body = next(params[key] for key in BODIES if key in params)
            return self.inline(getattr(body, "jaxpr", body), getattr(body, "consts", ()), inputs)
        # if the branches are of lax.platform_dependent, use the branch for the CPU
        for branch_index, platforms in enumerate(params.get("branches_platforms", ())):
            if platforms is None or "cpu" in platforms:
                body = params["branches"][branch_index]
                return self.inline(body.jaxpr, body.consts, inputs[1:])
        try:
            lowered_function = lowered(equation)
            if lowered_function is not None:
                avals = [jax.ShapeDtypeStruct(*self._specs[n]) for n in inputs]
                closed_jaxpr = jax.make_jaxpr(functools.partial(lowered_function, params))(*avals)
                return self.inline(closed_jaxpr.jaxpr, closed_jaxpr.consts, inputs)
        except NotImplementedError as error:
            raise self._refused(equation, str(error)) from None
        rule = RULES.get(name)
        out_specs = [spec_of(var.aval) for var in equation.outvars]
        if rule is None:  # `finished` raises the error if an output needs this equation
            plain_params: dict[str, Any] = {"refused": self._refused(equation, "it has no rule")}
            if equation.effects and not name.startswith("debug_"):
                raise plain_params["refused"]
        else:
            if differing_params := rule.params ^ ({*params} - rule.ignored):
                raise self._refused(
                    equation,
                    f"its parameters in JAX {jax.__version__} differ from the parameters that arrayferry supports in "
                    f"{', '.join(sorted(differing_params))}",
                )
            plain_params = {key: self._plain(equation, params[key]) for key in sorted(rule.params)}
            if constant_results := self._computed(name, plain_params, inputs, out_specs):
                return [self._constant(x) for x in constant_results]
        numbers = tuple(range(len(self._specs), len(self._specs) + len(out_specs)))
        self._specs += out_specs
        self._equations.append((Equation(name, tuple(inputs), numbers, plain_params), self._line))
        return [*numbers]

    def _constant(self, value: AnyTree) -> int:
        value = numbers_of(value)
        array = np.array(np.zeros(value.shape, bool) if value.dtype == jax.dtypes.float0 else value)
        self._specs.append(Spec(array.shape, array.dtype.name))
        self._constants[len(self._specs) - 1] = array
        return len(self._specs) - 1

    def _computed(
        self, name: str, params: dict[str, Any], inputs: list[int], specs: list[Spec]
    ) -> list[Any] | None:
        """Compute an equation with NumPy if its inputs are constants. Return its results.

        Return None if an input is not constant, the results are large, or NumPy cannot compute the equation.
        """
        constants, too_big = self._constants, sum(math.prod(spec.shape) for spec in specs) > LARGEST
        if too_big or not constants.keys() >= {*inputs}:
            return None
        try:
            run = step(_numpy(), name, params, [self._specs[n] for n in inputs], specs)
        except TranslationError:
            return None
        with _numpy().quiet():
            results = run(*[constants[n] for n in inputs])
        results = results if isinstance(results, list) else [results]
        return [np.array(x, dtype=spec.dtype) for x, spec in zip(results, specs, strict=True)]

    def finished(self, outputs: Sequence[int]) -> Program:
        """Return the program, reduced to the equations that its outputs depend on.

        Raises:
            TranslationError: one of these equations has no rule.
        """
        needed_numbers, equations = set(outputs), []
        for equation, line in reversed(self._equations):
            if needed_numbers.intersection(equation.outputs):
                if "refused" in equation.params:
                    raise equation.params["refused"]
                needed_numbers.update(equation.inputs)
                equations.append((equation, line))
        equations.reverse()
        used = [n for n in self._constants if n in needed_numbers]
        old_order = [*range(self._inputs), *used, *(n for e, _ in equations for n in e.outputs)]
        new_number_of = {old_number: new_number for new_number, old_number in enumerate(old_order)}

        def renumber(numbers: Sequence[int]) -> tuple[int, ...]:
            return tuple(new_number_of[n] for n in numbers)

        specs = tuple(self._specs[n] for n in old_order)
        constants = tuple(self._constants[n] for n in used)
        eqns = (
            e._replace(inputs=renumber(e.inputs), outputs=renumber(e.outputs)) for e, _ in equations
        )
        lines = tuple(line for _, line in equations)
        return Program(specs, self._inputs, constants, tuple(eqns), renumber(outputs), lines=lines)

    def _plain(self, equation: Any, value: AnyTree) -> Any:
        """Return the value of a parameter of an equation as plain data, such as numbers and tuples."""
        if isinstance(value, ClosedJaxpr):
            return _program(value, self._line)
        if isinstance(value, jax.lax.GatherScatterMode):
            return value.name
        if isinstance(value, (tuple, list)):
            return tuple(self._plain(equation, part) for part in value)
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, float, np.number)):
            return int(value) if isinstance(value, (int, np.integer)) else float(value)
        try:
            return np.dtype(value).name
        except TypeError:
            raise self._refused(
                equation, f"one of its parameters is a {type(value).__name__}, not plain data"
            ) from None

    def _refused(self, equation: Any, why: str) -> TranslationError:
        input_text = ", ".join(str(spec_of(var.aval)) for var in equation.invars)
        return TranslationError(
            f"the primitive {equation.primitive.name} of {input_text:.200}{self._line} cannot be translated: {why}",
            remedy="Rewrite that part of the function with other operations.",
        )


@functools.cache
def _numpy() -> Library:
    return library(registry.backend("numpy"), None)


def _of_older(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of `scan` as JAX named them before 0.12. Return other parameters unchanged."""
    if "ft_in" not in params:
        return params
    const_trees, carry_trees, _ = params["ft_in"].unpack()
    return {**params, "num_consts": len([*const_trees]), "num_carry": len([*carry_trees])}


def _line(equation: Any) -> str:
    """Return the place of an equation in the user's code, as text to append: " (file.py, line 3)"."""
    own_folders = tuple(os.path.dirname(str(path)) + os.sep for path in (jax.__file__, __file__))
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback else ():
        if not frame.file_name.startswith(own_folders):
            return f" ({os.path.basename(frame.file_name)}, line {frame.line_num})"
    return ""
