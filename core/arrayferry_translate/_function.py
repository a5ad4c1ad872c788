"""`translate` makes a function of another library from a function of JAX. `load` reads such a function from a file."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from arrayferry import Backend, OptionError, registry
from arrayferry._utilities.cache import Cache
from arrayferry._utilities.compilers import uncompiled
from arrayferry.extending import (
    cast_checked,
    device_like,
    dtype_info,
    dtype_name,
    kept_conversion,
    portable,
)
from arrayferry.typing import AnyTree, Device, Target
from arrayferry_functions import autodiff_of

from ._errors import ProgramError
from ._library import Library, dtype_of
from ._program import Program, Spec, read_all
from ._run import Lists, bind, library, owned
from ._structure import put_together, structure_of, take_apart

MAX_KEPT = 64
"""The maximum number of cached programs of a function.

Each combination of structure, shapes and dtypes of the arguments needs another program.
"""
NARROWED = {
    "int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64",
}  # fmt: skip
"""The dtypes that JAX uses in place of 64-bit dtypes if `jax_enable_x64` is off."""


def translate(
    function: Callable[..., Any], to: Target, *, differentiable: bool = False
) -> Translated:
    """Translate a function of JAX into a function that computes the same in another library.

    JAX traces the function once for each structure, shapes and dtypes of its arguments. The other library then runs
    the recorded operations. Integers and random numbers are the same as under `jax.jit`, and so are the branches that
    depend on them. Floats may differ in the last digits.

    Args:
        function: a function of trees of arrays, as for `jax.jit`. Loops and conditions of `jax.lax` become loops and
            conditions of Python.
        to: the library, such as "torch": any target that `arrayferry.convert` accepts.
        differentiable: whether the library can differentiate through the function, to any order. The library then
            runs the translated `jax.vjp` to compute gradients. If False, results have no gradients.

    Returns:
        The translated function. It accepts arrays of any library, and numbers. It returns arrays of the library `to`,
        on the device of the first argument of this library, if any. Random keys in arguments and results are arrays
        of uint32, of shape (..., 2) by default.

    Raises:
        UnknownBackendError: there is no such library.
        BackendUnavailableError: JAX is not installed.
        OptionError: `function` cannot be called, or `differentiable` is True and the library has no gradients.

    Examples:
        >>> import jax
        >>> import torch
        >>> from arrayferry_translate import translate
        >>> def step(key, x):
        ...     return jax.numpy.clip(x + jax.random.normal(key, x.shape), -1, 1)
        >>> key = torch.tensor([0, 7], dtype=torch.uint32)
        >>> translate(step, "torch")(key, torch.zeros(2))
        tensor([0.4512, 1.0000])
    """
    if not callable(function):
        raise OptionError(
            f"translate was given a {type(function).__name__}, which cannot be called",
            remedy="Pass a function of JAX.",
        )
    backend, problem = registry.backend(to), registry.backend("jax").problem()
    if problem is not None:
        raise problem
    if differentiable and autodiff_of(backend) is None:
        raise OptionError(
            f"differentiable=True needs gradients, and {backend.name} has no gradients",
            remedy="Leave out differentiable=True, or choose a library with gradients.",
        )
    return Translated(function, backend, differentiable=differentiable)


def load(path: str | os.PathLike[str], to: Target) -> Loaded:
    """Read a file that `Program.save` has written, and return its program as a function. JAX is not needed.

    Args:
        path: the path of the file.
        to: the library of the function, such as "torch": any target that `arrayferry.convert` accepts.

    Returns:
        The function. Its arguments must have the structure, shapes and dtypes for which the program was made.

    Raises:
        FileNotFoundError: there is no such file.
        ProgramError: the file is damaged, has a newer format, or contains no program.
        TranslationError: the library cannot compute part of the program.

    Examples:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> import tempfile
        >>> from arrayferry_translate import load, translate
        >>> program = translate(jnp.cumsum, "numpy").program(np.ones(3, np.float32))
        >>> with tempfile.NamedTemporaryFile(suffix=".afp") as file:
        ...     program.save(file.name)
        ...     load(file.name, "numpy")(np.ones(3, np.float32))
        array([1., 2., 3.], dtype=float32)
    """
    programs, _ = read_all(path)
    if set(programs) != {""}:
        raise ProgramError(
            f"{os.fspath(path)} contains several programs instead of one: {', '.join(programs)}",
            remedy="If this is the file of an environment, pass its path to arrayferry_envs.make_vec.",
        )
    return function_of(programs[""], to)


def function_of(program: Program, to: Target) -> Loaded:
    """Return a program as a function of a library.

    Raises:
        TranslationError: the library cannot compute part of the program.
    """
    loaded = Loaded(program, registry.backend(to))
    loaded.bound(None)  # without this, errors would be raised only by the first call
    return loaded


@uncompiled
class Loaded:
    """A program as a function of a library, for any device. `load` returns it."""

    def __init__(self, program: Program, backend: Backend) -> None:
        self.program = program
        self._backend = backend
        self._owned = owned(program)
        self._bound: Cache[Any, tuple[Library, Lists]] = Cache(8)

    def __reduce__(self) -> tuple[Any, ...]:
        return function_of, (self.program, portable(self._backend))

    def __repr__(self) -> str:
        return f"<{self.program!r} in {self._backend.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        path_leaves = [*take_apart(self.program.arguments, (args, kwargs))]
        results = self.run([leaf for _, leaf in path_leaves], [path for path, _ in path_leaves])
        return put_together(self.program.results, iter(results))

    def bound(self, device: Device) -> tuple[Library, Lists]:
        """Return the `Library` for a device, and the program as a function from a list of arrays to a list of arrays.

        Raises:
            TranslationError: the library cannot compute part of the program.
        """
        bound_pair = self._bound.get(device)
        if bound_pair is None:
            device_library = library(self._backend, device)
            bound_pair = self._bound[device] = device_library, bind(self.program, device_library)
        return bound_pair

    def run(self, leaves: Sequence[Any], paths: Sequence[str] = ()) -> list[Any]:
        """Return the results for a list of arguments. `paths` are the paths of the arguments, for errors."""
        target, specs = self._backend, self.program.specs
        backends = [registry.kind(x).backend for x in leaves]
        first_array = leaves[backends.index(target)] if target in backends else None
        device = None if first_array is None else device_like(first_array, target)
        lib, run = self.bound(device)
        arrays = [*leaves]
        for n, (x, backend, spec) in enumerate(zip(leaves, backends, specs, strict=False)):
            fits_spec = backend is target and (lib.records or dtype_name(x.dtype) == spec.dtype)
            if not fits_spec or tuple(x.shape) != spec.shape:
                argument_name = f"the argument {paths[n]}" if paths else f"argument number {n}"
                arrays[n] = self._fitted(x, backend, spec, device, argument_name)
        with lib.quiet():
            outputs = run([lib.cast(x, spec.dtype) for x, spec in zip(arrays, specs, strict=False)])
            triples = zip(outputs, self.program.outputs, self._owned, strict=True)
            return [lib.result(x, specs[n].dtype, owned=is_owned) for x, n, is_owned in triples]

    def _fitted(
        self, leaf: AnyTree, backend: Backend | None, spec: Spec, device: Device, name: str
    ) -> Any:
        """Return an argument as an array of the library, and check that it fits `spec`. `name` is for errors."""
        dtype, convert = dtype_of(spec.dtype), kept_conversion(self._backend, device)
        if backend is None:
            if not isinstance(leaf, (bool, int, float, complex)):
                raise ProgramError(
                    f"{name} is a {type(leaf).__name__}, instead of an array or a number",
                    remedy="Pass an array or a number.",
                )
            import numpy as np

            leaf = np.asarray(leaf)
            if dtype_info(dtype).kind != dtype_info(leaf.dtype).kind:
                leaf = leaf.astype(dtype)
            leaf = cast_checked(leaf, dtype, name)
        elif backend.name == "jax":
            from ._lowered import numbers_of

            leaf = numbers_of(leaf)
        if tuple(leaf.shape) != spec.shape:
            raise ProgramError(
                f"{name} has the shape {tuple(leaf.shape)}, but the program was made for the shape {spec.shape}",
                remedy="Pass an array of that shape, or make a program for the other shape.",
            )
        leaf = convert(leaf)
        leaf_dtype = dtype_name(leaf.dtype)
        if leaf_dtype == spec.dtype:
            return leaf
        if NARROWED.get(leaf_dtype) != spec.dtype:
            raise ProgramError(
                f"{name} has the dtype {leaf_dtype}, but the program was made for the dtype {spec.dtype}",
                remedy="Cast the argument, or make a program for the other dtype.",
            )
        return convert(cast_checked(self._backend.to_numpy(leaf), dtype, name))


@uncompiled
class Translated:
    """A function of JAX that computes in another library. `translate` returns it."""

    def __init__(
        self, function: Callable[..., Any], backend: Backend, *, differentiable: bool = False
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._backend = backend
        self._lock = threading.RLock()  # a traced function may call itself in the same thread
        self._kept: Cache[Any, tuple[Loaded, Any]] = Cache(MAX_KEPT)
        self._autodiff = autodiff_of(backend) if differentiable else None
        self._derived: Cache[Any, Translated] = Cache(MAX_KEPT)

    def __repr__(self) -> str:
        return f"<{self._name} in {self._backend.name}>"

    @property
    def _name(self) -> str:
        return getattr(self, "__qualname__", "function")

    def __reduce__(self) -> tuple[Any, ...]:
        make_translated = functools.partial(translate, differentiable=self._autodiff is not None)
        return make_translated, (self._function, portable(self._backend))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import jax

        from ._trace import settings

        leaves, treedef = jax.tree.flatten((args, kwargs))
        if self._autodiff is not None:
            from ._gradients import call

            return call(self._name, self, self._backend, self._autodiff, leaves, treedef)
        cache_key = treedef, *map(_form, leaves), *settings()
        loaded_pair = self._kept.get(cache_key)
        if loaded_pair is None:
            with self._lock:  # without the lock, several threads would trace the function
                loaded_pair = self._kept.get(cache_key)
                if loaded_pair is None:
                    program, structure = self._traced(treedef, leaves)
                    loaded_pair = self._kept[cache_key] = Loaded(program, self._backend), structure
        loaded, structure = loaded_pair
        return jax.tree.unflatten(structure, loaded.run(leaves))

    def derived(self, transform: Callable[..., Any], *how: Any) -> Translated:
        """Return the translation of `transform(function, *how)`, which cannot be differentiated."""
        translated = self._derived.get((transform, how))
        if translated is None:
            translated = Translated(transform(self._function, *how), self._backend)
            self._derived[transform, how] = translated
        return translated

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """Return the program of the function for arguments of these structures, shapes and dtypes, as plain data.

        Args:
            *args: arguments, or `jax.ShapeDtypeStruct` in place of arrays. Of arrays, only shape and dtype matter.
            **kwargs: keyword arguments.

        Raises:
            TranslationError: part of the function cannot be translated, or the structure of its arguments or results
                cannot be saved.

        Examples:
            >>> import jax.numpy as jnp
            >>> import numpy as np
            >>> from arrayferry_translate import translate
            >>> translate(jnp.cumsum, "numpy").program(np.ones(3, np.float32))
            <Program (float32[3]) -> (float32[3]) of 1 equations>
        """
        import jax

        leaves, treedef = jax.tree.flatten((args, kwargs))
        program, structure = self._traced(treedef, leaves)
        result_tree = jax.tree.unflatten(structure, range(structure.num_leaves))
        return replace(
            program, arguments=structure_of((args, kwargs)), results=structure_of(result_tree)
        )

    def _traced(self, treedef: Any, leaves: Sequence[Any]) -> tuple[Program, Any]:
        import jax

        from ._trace import example, trace

        args, kwargs = jax.tree.unflatten(treedef, map(example, leaves))
        return trace(self._function, *args, **kwargs)


def _form(leaf: AnyTree) -> Any:
    """Return the properties of an argument that determine which program is used: its type, shape and dtype."""
    dtype = getattr(leaf, "dtype", None)
    return type(leaf) if dtype is None else (type(leaf), leaf.shape, dtype)
