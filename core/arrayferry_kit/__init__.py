"""The contract kit: tests that a plugin author inherits to check a backend.

Subclass `BackendContract`, name the backend, implement `make`, and run pytest:

    import numpy
    import mylib
    from arrayferry.testing import BackendContract

    class TestMyBackend(BackendContract):
        backend = "mylib"

        def make(self, values):
            return mylib.array(values.tolist(), dtype=values.dtype.name)

The name of each test says what it checks. The message of a failure names the method, the array that it was called
with, what was returned, and what was expected instead.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, ClassVar

import numpy as np

try:
    import pytest  # noqa: F401
except ImportError as _error:  # pragma: no cover
    raise ImportError("arrayferry.testing needs pytest. Run: pip install pytest") from _error

from arrayferry import Backend, Container, Source, first_array, flatten, registry
from arrayferry.extending import check_part, exact_key, is_built_in
from arrayferry.typing import AnyTree

from ._contract.calls import Call, Given, Runner, convert, one_by_one
from ._contract.checks import missing_types
from ._contract.layers import LayerTests
from ._contract.pairs import DirectTests, PairTests
from ._contract.samples import CUBE, SHAPES, case_of, in_layouts, sample
from ._contract.unattended import Unattended
from ._contract.values import DeviceTests, MemoryTests, ValueTests

__all__ = ["BackendContract", "SourceContract", "check_container", "contract_for"]


class BackendContract(LayerTests, PairTests, DeviceTests, MemoryTests, DirectTests, ValueTests):
    """The tests that every backend must pass. Name your subclass `Test...`.

    Only the built-in plugins and the plugin under test are loaded while the tests run, so that no other installed
    plugin can make a test fail. Basic tests run first, so that the first failure names the cause.

    Attributes:
        backend: the name of the backend under test, or an instance, which is registered for the tests.
        others: names of the backends to convert to and from. None selects all built-in backends. Backends whose
            library cannot be used here are left out.
        dtypes: names of the dtypes to try, or None for all dtypes that `dtypes()` of the backend returns.
        parts: maps other hooks of the plugin to what they return, such as `{"arrayferry_gradients": MyAutodiff()}`.
            It is used only if `backend` is an instance.

    Examples:
        >>> import numpy as np
        >>> from arrayferry.testing import BackendContract
        >>> class TestNumpy(BackendContract):
        ...     backend = "numpy"
        ...     def make(self, values):
        ...         return values.copy()
        >>> TestNumpy().test_values("to_numpy")
    """


def contract_for(backend: Backend) -> type[BackendContract]:
    """Return the tests of a backend as a class for a test module. The author need not write `make`.

    The library itself makes the arrays, for example by `asarray`, if NumPy reads the right values from them. Otherwise
    the plugin makes them. `arrayferry check` runs these tests.

    Args:
        backend: a backend that can be used here.

    Returns:
        The class. Its attribute `ways` maps the name of each function that made arrays to the dtypes of these arrays.

    Examples:
        >>> import arrayferry as af
        >>> from arrayferry.testing import contract_for
        >>> TestNumpy = contract_for(af.backends()["numpy"])
        >>> TestNumpy().test_its_arrays_are_recognised()
        >>> TestNumpy.ways
        {'numpy.asarray()': {'float32'}}
    """

    class TestBackend(Unattended, BackendContract):
        """The tests of the backend, with the methods `make` and `write` of `Unattended`."""

        ways: ClassVar[dict[str, set[str]]] = {}

    TestBackend.backend = backend.name
    return TestBackend


def check_container(container: Container, *values: AnyTree) -> None:
    """Check a container with values that it handles. Call this function in a test of your plugin.

    Args:
        container: the container.
        *values: values that contain different arrays. Without values, only the attributes of the container are
            checked, as `arrayferry check` does.

    Raises:
        arrayferry.PluginError: an attribute of the container is missing or wrong.
        AssertionError: the container has one of these faults. `types` names a class that its installed package lacks.
            `children` omits an attribute with an array. `rebuild` changed the value. The result of `rebuild` has
            other children than those passed to `rebuild`, or has them in another order. The result lacks an attribute
            of the value. `static` returns different values for the result and for the value (by default, these are
            the attributes that are numbers or strings).

    Examples:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> from arrayferry.testing import check_container
        >>> class Pair:
        ...     def __init__(self, left, right):
        ...         self.left, self.right = left, right
        >>> class Pairs(af.Container):
        ...     types = (Pair,)
        ...     def children(self, value):
        ...         return [value.left, value.right]
        ...     def rebuild(self, value, children):
        ...         return Pair(*children)
        >>> check_container(Pairs(), Pair(np.zeros(2), np.ones(2)))
    """
    check_part(container)
    missing_names = missing_types(container.types)
    assert not missing_names, f"{container!r}.types names {missing_names}, which does not exist"
    for value in values:
        children = [*container.children(value)]
        child_ids = {id(x) for x in flatten(children)[0]}
        attributes = getattr(value, "__dict__", {})
        for name, attribute in attributes.items():
            is_lost = any(id(x) not in child_ids for x in flatten(attribute)[0])
            assert not is_lost, f"children() leaves out .{name}, which holds an array"
        for new_children in (copy.deepcopy(children), _in_another_library(children)):
            rebuilt = container.rebuild(value, [*new_children])
            assert rebuilt is not None, "rebuild() returned None"
            children_again = [*container.children(value)]
            is_new = rebuilt is not value and [*map(id, children_again)] == [*map(id, children)]
            assert is_new, "rebuild() has changed the value. Return a new container"
            rebuilt_children = [*container.children(rebuilt)]
            same_children = [*map(id, rebuilt_children)] == [*map(id, new_children)]
            assert same_children, (
                f"the result of rebuild() holds {rebuilt_children!r:.200} instead of the given {new_children!r:.200}"
            )
            attr_names = [name for name, x in attributes.items() if x is not None]
            lost_names = [name for name in attr_names if getattr(rebuilt, name, None) is None]
            assert not lost_names, f"the result of rebuild() has lost the attributes {lost_names}"
            old_static, new_static = _static(container, value), _static(container, rebuilt)
            fault = (
                f"the result of rebuild() has {new_static!r:.200} instead of {old_static!r:.200}"
            )
            assert exact_key(old_static) == exact_key(new_static), fault


def _in_another_library(children: list[Any]) -> Any:
    """Convert children to another built-in library, or return them unchanged if no other library can be used."""
    source_backend = first_array(children)[1]
    for other in registry.backends().values():
        is_usable = other is not source_backend and is_built_in(other) and other.memory != "lazy"
        if is_usable and other.problem() is None:
            return convert(children, other, unsupported="keep", narrowing="allow")
    return children


def _static(container: Container, value: AnyTree) -> Any:
    """Return what `container.static` returns, or by default the attributes that are numbers or strings."""
    static = container.static(value)
    if static is not NotImplemented:
        return static
    plain_types = (bool, int, float, complex, str, bytes)
    return {k: x for k, x in getattr(value, "__dict__", {}).items() if type(x) in plain_types}


class SourceContract(LayerTests, Runner):
    """The tests that every `Source` must pass. Name your subclass `Test...`.

    Attributes:
        source: the name of the source under test, or an instance, which is registered for the tests.
        dtypes: names of the dtypes to try.
        shapes: the shapes to try.

    Examples:
        >>> import io, h5py
        >>> from arrayferry.testing import SourceContract
        >>> class TestH5py(SourceContract):
        ...     source = "h5py"
        ...     def make(self, values):
        ...         file = h5py.File(io.BytesIO(), "w")
        ...         return file.create_dataset("x", data=values)
        >>> TestH5py().test_to_numpy()
    """

    source: str | Source = ""
    dtypes: tuple[str, ...] = ("bool", "int32", "int64", "float32", "float64")
    shapes: tuple[tuple[int, ...], ...] = SHAPES

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        """Make an object of the library, without the plugin, from which these values can be read.

        Every subclass must implement this method.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must say how an object is made. Write make(self, values), which returns an object "
            "of the library with the values, shape and dtype of the NumPy array `values`"
        )

    @property
    def tested(self) -> Source:
        """The source under test."""
        if isinstance(self.source, Source):
            return self.source
        named_sources = [source for source in registry.sources() if source.name == self.source]
        if not named_sources:
            raise NotImplementedError(
                f"{type(self).__name__} must name the source under test: source is {self.source!r}, but no source has "
                "that name. Set source to the name of a source of an installed plugin, or to an instance"
            )
        return named_sources[0]

    def _supported(self) -> tuple[str, ...]:
        return self.dtypes

    def test_to_numpy(self) -> None:
        """Repeated calls of `to_numpy` return equal values, and share memory as `to_numpy_shares` states."""
        tested, shares = self.tested, self.tested.to_numpy_shares
        ends, promise = (tested, registry.backend("numpy")), f"to_numpy_shares is {shares}"
        call = Call("to_numpy()", one_by_one(tested.to_numpy), *ends, shares, promise, "to_numpy")
        for dtype in map(np.dtype, self.dtypes):
            cases = [("new", sample(dtype, shape)) for shape in self.shapes]
            cases += [("with other values", sample(dtype, (2, 3), shift)) for shift in (1, 2)]
            for case_name, values in (*cases, *in_layouts(sample(dtype, CUBE))):
                argument = Given(self.make(values), values, case_of(values, case_name))
                self.run(call, argument, argument)
                self.run(call, argument, writes=values.size > 0)

    def test_conversions(self) -> None:
        """Objects that are passed to `convert` directly are converted to every built-in library."""
        argument = self._given(sample(self._usual(), self.shapes[-1]))
        for other in self._others():
            convert_each = one_by_one(partial(convert, to=other))
            self.run(Call(f"convert() to {other.name}", convert_each, self.tested, other), argument)


def __dir__() -> list[str]:
    return sorted(__all__)
